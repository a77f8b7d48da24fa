"""Labels of broken sticks: which programs have them, and the order in which MeanField puts their components."""

from collections.abc import Callable
from functools import partial
from itertools import permutations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.special import betaln

import bayeslab as bl
from bayeslab.programs.binding import bind
from bayeslab.programs.program import precision_scope
from bayeslab.transforms.stick_labels import stick_labels
from bayeslab.verification.findings import find_conditionals, rules_of

ALPHA = 0.5
Y = np.array([-2.1, -1.9, 0.3, 0.1, 0.2, 2.4])


def sticks(num_rows: int, prior: str = "same", likelihood: str = "labels only", weights: str = "stick") -> None:
    """Three Normal components whose means have one prior or several, and weights from a stick or from a simplex."""
    if weights == "stick":
        with numpyro.plate("share", 2):
            v = numpyro.sample("v", dist.Beta(1.0, ALPHA))
        p = jnp.concatenate([v, jnp.ones(1)]) * jnp.concatenate([jnp.ones(1), jnp.cumprod(1 - v)])
    else:
        p = numpyro.sample("p", dist.Dirichlet(jnp.array([3.0, 2.0, 1.0])))
    with numpyro.plate("component", 3):
        mu = numpyro.sample("mu", dist.Normal(jnp.arange(3.0) if prior == "own" else 0.0, 2.0))
    with numpyro.plate("row", num_rows):
        z = numpyro.sample("z", dist.Categorical(p))
        mean = mu[z] + (p[z] if likelihood == "weights as well" else 0.0)
        scale = jnp.where(z == 0, 0.5, 1.0) if likelihood == "first is narrow" else 0.7
        numpyro.sample("y", dist.Normal(mean, scale))


CASES: dict[str, tuple[Callable[..., None], tuple[str, ...]]] = {
    "a stick": (sticks, ("z",)),
    "means with priors of their own": (partial(sticks, prior="own"), ()),
    "a component with a scale of its own": (partial(sticks, likelihood="first is narrow"), ()),
    "rows that depend on their weights": (partial(sticks, likelihood="weights as well"), ()),
    "weights with a prior of their own": (partial(sticks, weights="simplex"), ()),
}


@pytest.mark.parametrize("case", CASES)
def test_components_are_exchanged_only_where_nothing_else_changes(case: str) -> None:
    program, expected = CASES[case]
    with precision_scope():
        bound = bind(program, {"num_rows": len(Y), "y": Y})
        assert stick_labels(rules_of(find_conditionals(bound)), bound) == expected


def test_components_are_in_the_order_with_the_largest_bound() -> None:
    """Only what the stick says depends on it. The bound is what draws say, and it never falls on the way."""
    method = bl.MeanField(num_starts=1, num_samples=4000)
    tree = bl.fit(0, sticks, {"num_rows": len(Y), "y": Y}, method, progress=False)
    assert np.nanmin(np.diff(tree["history"]["elbo"].values[0], axis=0)) > -1e-9
    ratio = (tree["sample_stats"]["lp"] - tree["sample_stats"]["log_q"]).values
    assert abs(ratio.mean() - tree.attrs["elbo"]) < 5 * ratio.std() / np.sqrt(ratio.size)
    counts = (tree["posterior"]["z"].values[0][..., None] == np.arange(3)).sum(1).mean(0)
    assert counts[0] > counts[1] + 0.5
    bounds = {order: stick_bound(counts[list(order)]) for order in permutations(range(3))}
    assert max(bounds.values()) < bounds[0, 1, 2] + 0.02 < min(bounds.values()) + 2


def stick_bound(counts: np.ndarray) -> float:
    """The part of the bound that depends on the order: labels of so many rows each, with the shares integrated out."""
    later = counts[::-1].cumsum()[::-1]
    return float(betaln(1 + counts[:-1], ALPHA + later[1:]).sum())
