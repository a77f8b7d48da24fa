"""CPU seconds that each step takes on a conjugate program of many sites; `planning.py` starts it, once for each number.

python groups.py gibbs|nuts GROUPS
"""

import json
import sys
import time
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import bayeslab as bl
from bayeslab.programs.program import Bound, precision_scope
from bayeslab.sampling.runner import ChainStarts, drive
from bayeslab.transforms.analysis import Analysis
from bayeslab.verification.findings import find_conditionals

ROWS = 20


def model(num_groups: int) -> None:
    """Five latent sites a group, of which each group knows the mean of the one before."""
    before = 0.0
    for group in range(num_groups):
        tau = numpyro.sample(f"tau_{group}", dist.Gamma(2.0, 1.0))
        mu = numpyro.sample(f"mu_{group}", dist.Normal(before, 1.0))
        with numpyro.plate(f"unit_{group}", 4):
            effect = numpyro.sample(f"effect_{group}", dist.Normal(mu, 1 / jnp.sqrt(tau)))
        share = numpyro.sample(f"share_{group}", dist.Beta(1.0, 1.0))
        weight = numpyro.sample(f"weight_{group}", dist.Dirichlet(jnp.ones(3)))
        with numpyro.plate(f"row_{group}", ROWS):
            numpyro.sample(f"y_{group}", dist.Normal(effect[jnp.arange(ROWS) % 4], 1.0))
            numpyro.sample(f"success_{group}", dist.Bernoulli(share))
            numpyro.sample(f"kind_{group}", dist.Categorical(weight))
        before = mu


def observed(num_groups: int) -> dict[str, np.ndarray | int]:
    rng = np.random.default_rng(0)
    data: dict[str, np.ndarray | int] = {"num_groups": num_groups}
    for group in range(num_groups):
        data[f"y_{group}"] = rng.normal(size=ROWS)
        data[f"success_{group}"] = rng.integers(2, size=ROWS)
        data[f"kind_{group}"] = rng.integers(3, size=ROWS)
    return data


def gibbs(bound: Bound) -> Iterator[None]:
    """The rules of all sites, proven; then what is compiled to draw."""
    assert all(found.rule for found in find_conditionals(bound))
    yield
    method = bl.Gibbs(num_warmup=0, num_samples=1, num_chains=1)
    drive(ChainStarts(jax.random.PRNGKey(0)), method, method.plan(Analysis(bound)), bound)
    yield


def nuts(bound: Bound) -> Iterator[None]:
    """All that is compiled, and two steps."""
    method = bl.NUTS(num_warmup=1, num_samples=1, num_chains=1)
    drive(ChainStarts(jax.random.PRNGKey(0)), method, method.plan(Analysis(bound)), bound)
    yield


VERBS = {"gibbs": gibbs, "nuts": nuts}

if __name__ == "__main__":
    verb, groups = sys.argv[1:]
    with precision_scope(np.float64):
        bound = bl.bind(model, observed(int(groups)))
        clock = [time.process_time()]
        clock += [time.process_time() for _ in VERBS[verb](bound)]
        print(json.dumps(np.diff(clock).tolist()))
