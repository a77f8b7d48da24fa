"""Optimisers, guides and kernels that methods are given: those that work, and the sentences for those that do not."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import AIES, BarkerMH
from numpyro.infer.autoguide import AutoGuideList, AutoSemiDAIS

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


def scale_param() -> Any:
    return numpyro.param("scale", 1.0, constraint=dist.constraints.positive)


def guide_with_rest(*args: Any, **rest: Any) -> None:
    numpyro.sample("mu", dist.Normal(numpyro.param("loc", 0.0 * rest["n"]), scale_param()))


def guide_with_default(y: Any, start: float = 1.0) -> None:
    numpyro.sample("mu", dist.Normal(numpyro.param("loc", start + 0.0 * y[0]), scale_param()))


def guide_by_position(*args: Any) -> None:
    numpyro.sample("mu", dist.Normal(numpyro.param("loc", args[0]), scale_param()))


@pytest.mark.parametrize("guide", [guide_with_rest, guide_with_default])
def test_guides_take_arguments_as_programs_do(guide: Any) -> None:
    """A Normal guide of a Normal posterior, whatever the signature of NumPyro's examples that it has."""
    mean, sd = moments(bl.SVI(guide, num_samples=4000))
    assert abs(mean - MEAN) * PRECISION**0.5 < 5 / np.sqrt(4000) + 0.01
    assert abs(sd * PRECISION**0.5 - 1) < 5 / np.sqrt(2 * 4000) + 0.01


def half_normal(n: int) -> None:
    mu = numpyro.sample("mu", dist.HalfNormal(2.0))
    with numpyro.plate("row", n):
        numpyro.sample("y", dist.Normal(mu, 1.5))


def normal_guide(start: float, sd: float) -> Callable[..., None]:
    def guide() -> None:
        scale = numpyro.param("sd", sd, constraint=dist.constraints.positive)
        numpyro.sample("mu", dist.Normal(numpyro.param("loc", start), scale))

    return guide


OUTSIDE = r"the guide draws values of site 'mu' outside of its support \(positive\)"


def test_a_guide_that_ends_outside_of_a_support_has_not_converged() -> None:
    """A Normal is no guide of a positive site near zero, where its bound is minus infinity."""
    data = {"n": 4, "y": np.array([-0.5, 0.2, 0.4, -0.1])}
    tree = bl.fit(0, half_normal, data, bl.SVI(normal_guide(3.0, 0.3), num_steps=2000), progress=False)
    assert (tree["posterior"]["mu"].values < 0).any()
    assert re.search(OUTSIDE, bl.diagnose(tree))
    assert tree.attrs["elbo"] == -np.inf
    assert np.isfinite(tree.attrs["k_hat"])  # that of the ratios at draws which the posterior allows


def test_a_normal_guide_of_a_positive_site_far_from_zero_is_taken() -> None:
    """As the tutorials have it; the prior is truncated at zero, forty standard deviations away."""
    data = {"n": 4, "y": 30.0 + np.array([-0.5, 0.2, 0.4, -0.1])}
    tree = bl.fit(0, half_normal, data, bl.SVI(normal_guide(29.0, 0.5), num_samples=4000), progress=False)
    mean = data["y"].sum() / 1.5**2 / PRECISION
    assert abs(tree["posterior"]["mu"].values.mean() - mean) * PRECISION**0.5 < 5 / np.sqrt(4000) + 0.01
    assert bl.diagnose(tree).count("outside") == 0


def test_a_guide_that_starts_outside_of_a_support_is_refused() -> None:
    with pytest.raises(ValueError, match=OUTSIDE):
        bl.fit(0, half_normal, DATA, bl.SVI(normal_guide(0.5, 1.0)), progress=False)


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
    "a list of guides": (lambda: fit(bl.SVI(AutoGuideList)), "AutoGuideList is made of more than a program"),
    "a guide of two programs": (lambda: fit(bl.SVI(partial(AutoSemiDAIS))), "AutoSemiDAIS is made of more"),
    "a name of a kernel": (lambda: bl.MCMC("NUTS"), "kernel of MCMC must be a class .*not 'NUTS'"),  # type: ignore[arg-type]
    "a kernel of a model": (lambda: bl.MCMC(BarkerMH(normal_mean)), "a function from a model to a kernel"),  # type: ignore[arg-type]
    "an ensemble": (lambda: bl.MCMC(AIES), r"AIES moves chains together.*use Slice\(\)"),
    "a partial ensemble": (lambda: bl.MCMC(partial(AIES, randomize_split=True)), "AIES moves chains together"),
}


def test_a_guide_that_reads_data_by_position_is_told_so() -> None:
    with pytest.raises(ValueError, match=r"the guide does not run \(IndexError.*\*args has none"):
        fit(bl.SVI(guide_by_position))


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_say_what_is_wanted(case: str) -> None:
    call, words = REFUSED[case]
    with pytest.raises(TypeError, match=words):
        call()


@pytest.mark.parametrize("setting", [{"dense_mass": [("a", "b")]}, {"dense_mass": "full"}, {"noncentered": "mu"}])
def test_settings_of_nuts_that_are_no_flags_are_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"of NUTS must be True, False or None, but is"):
        bl.NUTS(**setting)
