"""Simulation-based calibration of Exact and Gibbs, and what it says of a wrong conditional.

The test and its level, 1e-6 for a p-value, are those of `ranks.py`. The programs below have about 260 p-values, so
right methods fail with probability 2.6e-4 at most. Wrong conditionals are injected into a program with eight
independent groups. With 500 simulations of 39 independent draws a Normal conditional whose sd is 20 % too large is
seen in one group with probability 0.42, hence in one of eight with 1 - 0.58^8 = 0.987, and Gamma(a + 1/2) in place of
Gamma(a), a = 2 + 3/2, with 0.85 in one, hence with 1 - 1e-6. A test below confirms both from ranks of known laws: no
mean or rate matters, as ranks are those of (x - mean) / sd or of x times the rate.

Draws of Gibbs are thinned until neighbours are all but independent: measured on 50 data sets, the autocorrelation of
no element exceeds 0.1. Even 0.1 adds 4 / 39 * 0.1 / 0.9 = 1 % to the variance of ranks, a sixth of a standard
deviation of the test. Labels of the mixture and of the chain have priors of their own means: where they could be
exchanged, a short chain would stay with one order of them and its ranks would not be uniform.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.distributions import Distribution

import bayeslab as bl
from bayeslab.elimination.conditional import conditional
from bayeslab.programs.binding import bind
from bayeslab.programs.program import Bound, Program, precision_scope
from bayeslab.sampling.protocols import Method, Sampler
from bayeslab.transforms.analysis import Analysis
from bayeslab.verification.findings import find_conditionals
from quick_cases import quick_ones
from ranks import LEVEL, p_values, smallest_p
from small_groups import chain, mixture, plate, sample, unknown_spread
from zoo import CASES, Y

SIMULATIONS, DRAWS = 500, 39


def normal_gamma() -> Program:
    """A new program at every call: what was compiled for one is never found for another."""

    def groups() -> None:
        with plate("group", 8):
            tau = sample("tau", dist.Gamma(2.0, 1.0))
            mu = sample("mu", dist.Normal(0.0, 1 / jnp.sqrt(tau)))
            with plate("row", 3):
                sample("y", dist.Normal(mu, 1 / jnp.sqrt(tau)))

    return groups


def many_rows() -> None:
    """More rows than statistics of w and tau, which replace them."""
    tau = sample("tau", dist.Gamma(2.0, 1.0))
    with plate("feature", 2):
        w = sample("w", dist.Normal(0.0, 1.0))
    with plate("row", 200):
        sample("y", dist.Normal(w[0] + w[1] * jnp.linspace(-1.0, 1.0, 200), 1 / jnp.sqrt(tau)))


GROUPS = {"y": np.ones((3, 8))}
OWN = {
    "mixture": (mixture, {"y": Y}),
    "chain": (chain, {"y": Y}),
    "unknown_spread": (unknown_spread, {"y": Y}),
    "many_rows": (many_rows, {"y": np.ones(200)}),
}
EXACT = (
    "nested_plates",
    "crossed_effects",
    "switch",
    "change_point",
    "rows_of_probabilities",
    "truncated_mean",
    "hidden_chain",
)
THINNING = {
    "many_rows": 2,
    "nested_plates": 2,
    "switch": 2,
    "wishart": 1,
    "truncated_mean": 1,
    "mixture": 8,
    "chain": 4,
    "unknown_spread": 5,
}


def named(case: str) -> tuple[Program, dict[str, Any]]:
    return OWN[case] if case in OWN else CASES[case][:2]


def gibbs(thinning: int) -> bl.Gibbs:
    """Draws of programs of one site are independent: they need no warm-up, and what does not run is not compiled."""
    return bl.Gibbs(num_warmup=8 * (thinning - 1), num_samples=DRAWS, num_chains=1, thinning=thinning)


@pytest.mark.parametrize("case", quick_ones(EXACT, "hidden_chain"))
def test_exact_is_calibrated(case: str) -> None:
    assert smallest_p(bl.sbc(1, *named(case), bl.Exact(DRAWS), SIMULATIONS, progress=False)) > LEVEL


@pytest.mark.parametrize("case", quick_ones(THINNING, "many_rows", "truncated_mean"))
def test_gibbs_is_calibrated(case: str) -> None:
    assert smallest_p(bl.sbc(2, *named(case), gibbs(THINNING[case]), SIMULATIONS, progress=False)) > LEVEL


def wide(right: Distribution) -> Distribution:
    return dist.Normal(right.loc, 1.2 * right.scale) if isinstance(right, dist.Normal) else right


def one_row_too_many(right: Distribution) -> Distribution:
    return dist.Gamma(right.concentration + 0.5, right.rate) if isinstance(right, dist.Gamma) else right


@contextmanager
def conditionals(wrong: Callable[[Distribution], Distribution]) -> Iterator[None]:
    """Wherever the engine uses `conditional`, it gets another distribution of a site."""

    def changed(*args: Any, **kwargs: Any) -> Any:
        found = conditional(*args, **kwargs)
        return found._replace(distribution=wrong(found.distribution))

    with pytest.MonkeyPatch.context() as patch:
        for name, module in list(sys.modules.items()):
            if name.startswith("bayeslab.") and getattr(module, "conditional", None) is conditional:
                patch.setattr(module, "conditional", changed)
        yield


@pytest.mark.parametrize(
    ("wrong", "site", "reason"),
    [(wide, "mu", "not Normal given 'y'"), (one_row_too_many, "tau", "not Gamma given 'mu', 'y'")],
)
def test_the_law_refuses_a_wrong_conditional(wrong: Callable, site: str, reason: str) -> None:
    program = normal_gamma()
    with conditionals(wrong), precision_scope():
        found = {one.site: one for one in find_conditionals(bind(program, GROUPS))}
    assert found[site].rule is None
    assert found[site].reason == reason
    [other] = found.keys() - {site}
    assert found[other].rule is not None


@dataclass(frozen=True)
class Planned(Method):
    """A sampler that was planned, and proven, before."""

    sampler: Sampler
    num_samples: int
    num_warmup: int
    num_chains: int
    thinning: int

    def plan(self, bound: Bound) -> Sampler:
        return self.sampler


@pytest.mark.parametrize(
    "method",
    [pytest.param(bl.Exact(DRAWS), marks=pytest.mark.slow), bl.Gibbs(4, DRAWS, num_chains=1)],
    ids=["Exact", "Gibbs"],
)
def test_a_wrong_conditional_is_not_calibrated(method: Method, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sampler is planned with the right ones, and passes with them afterwards: nothing wrong stays. Exact draws
    would not leave the library; they are let go."""
    monkeypatch.setattr("bayeslab.calibration.sbc.require_identity", lambda excess: None)
    program = normal_gamma()
    with precision_scope():
        sampler = method.plan(Analysis(bind(program, GROUPS)))
    planned = Planned(sampler, method.num_samples, method.num_warmup, method.num_chains, method.thinning)

    def p_value() -> float:
        return smallest_p(bl.sbc(3, program, GROUPS, planned, SIMULATIONS, progress=False))

    for wrong in (wide, one_row_too_many):
        with conditionals(wrong):
            assert p_value() < LEVEL
    assert p_value() > LEVEL


def test_the_power_is_as_stated() -> None:
    """Eight ranks of Normal and of Gamma variates among independent draws of wrong ones, 300 times."""
    rng, many = np.random.default_rng(0), (SIMULATIONS, 300 * 8)

    def power(draw: Callable[[], np.ndarray], wrong: Callable[[], np.ndarray]) -> float:
        truth = draw()
        below = sum((wrong() < truth).astype(int) for _ in range(DRAWS))
        found = p_values((below + rng.uniform(size=many)) / (DRAWS + 1)).min(0) < LEVEL
        return float(found.reshape(300, 8).any(1).mean())

    shape = 2 + 3 / 2
    assert power(lambda: rng.normal(size=many), lambda: rng.normal(size=many)) == 0.0
    assert power(lambda: rng.normal(size=many), lambda: rng.normal(0.0, 1.2, many)) > 0.97
    assert power(lambda: rng.gamma(shape, size=many), lambda: rng.gamma(shape + 0.5, size=many)) > 0.99
