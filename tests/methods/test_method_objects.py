"""Optimisers, guides and kernels that methods are given: those that work, and the sentences for those that do not."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import AIES, BarkerMH

import bayeslab as bl


def normal_mean(n: int) -> None:
    mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
    with numpyro.plate("row", n):
        numpyro.sample("y", dist.Normal(mu, 1.5))


DATA = {"n": 4, "y": np.array([1.0, 2.5, 0.5, 3.0])}
PRECISION = 1 / 2.0**2 + 4 / 1.5**2
MEAN = DATA["y"].sum() / 1.5**2 / PRECISION


def moments(method: bl.SVI) -> tuple[float, float]:
    mu = bl.fit(0, normal_mean, DATA, method, progress=False)["posterior"]["mu"].values
    return float(mu.mean()), float(mu.std())


@pytest.mark.parametrize(
    "optimizer", [numpyro.optim.Adam(0.05), numpyro.optim.ClippedAdam(0.05), numpyro.optim.Momentum(0.01, 0.5)]
)
def test_optimisers_of_numpyro_find_the_posterior(optimizer: Any) -> None:
    """The posterior is a Normal, which the guide has: errors are those of 4000 draws, and a hundredth of the fit."""
    mean, sd = moments(bl.SVI(optimizer=optimizer, num_samples=4000))
    exact = PRECISION**-0.5
    assert abs(mean - MEAN) < (5 / np.sqrt(4000) + 0.01) * exact
    assert abs(sd / exact - 1) < 5 / np.sqrt(2 * 4000) + 0.01


def test_adam_of_numpyro_makes_the_steps_of_optax() -> None:
    """Both have the same rule, so the same key leads to the same guide, also where steps have been scaled down."""
    both = [moments(bl.SVI(optimizer=optimizer)) for optimizer in (numpyro.optim.Adam(0.05), optax.adam(0.05))]
    np.testing.assert_allclose(*both, rtol=1e-6)


def fit(method: Any) -> Any:
    return bl.fit(0, normal_mean, DATA, method, progress=False)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "a rate alone": (lambda: fit(bl.SVI(optimizer=0.01)), r"optimizer of SVI must be one of optax.*not 0\.01"),
    "a zero": (lambda: fit(bl.SVI(optimizer=0)), "optimizer of SVI must be one of optax.*not 0"),
    "a minimiser": (lambda: fit(bl.SVI(optimizer=numpyro.optim.Minimize())), "gradients alone.*Minimize"),
    "optax within NumPyro": (
        lambda: fit(bl.SVI(optimizer=numpyro.optim.optax_to_numpyro(optax.adam(0.01)))),
        "must be one of optax",
    ),
    "a name of a guide": (lambda: fit(bl.SVI("normal")), "guide of SVI must be .*not 'normal'"),
    "a guide without brackets": (lambda: fit(bl.SVI(bl.full_rank_normal)), r"SVI\(full_rank_normal\(\)\)"),
    "a name of a kernel": (lambda: bl.MCMC("NUTS"), "kernel of MCMC must be a class .*not 'NUTS'"),  # type: ignore[arg-type]
    "a kernel of a model": (lambda: bl.MCMC(BarkerMH(normal_mean)), "a function from a model to a kernel"),  # type: ignore[arg-type]
    "an ensemble": (lambda: bl.MCMC(AIES), r"AIES moves chains together.*use Slice\(\)"),
    "a partial ensemble": (lambda: bl.MCMC(partial(AIES, randomize_split=True)), "AIES moves chains together"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_say_what_is_wanted(case: str) -> None:
    call, words = REFUSED[case]
    with pytest.raises(TypeError, match=words):
        call()
