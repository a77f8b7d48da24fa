"""Simulation-based calibration of every lecture, and the power of the test.

The test and its power are those of `ranks.py`. There are about 200 p-values below, so a right method fails with
probability 2e-4.
"""

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.stats import kstest

import bayeslab as bl
from bayeslab import sbc
from bayeslab.methods.stated import Stated, StatedSampler
from bayeslab.models import (
    LECTURES,
    dirichlet_multinomial,
    linear_regression,
    normal_gamma,
    normal_known_variance,
    normal_wishart,
    weight_matrix,
)
from bayeslab.programs.program import Bound
from bayeslab.sampling.protocols import Method
from quick_cases import quick_ones
from ranks import LEVEL, smallest_p

STATED = [lecture for lecture in LECTURES if hasattr(lecture, "posterior")]
SHORT = (dirichlet_multinomial, linear_regression)
"""Probabilities, and scalars with a joint Normal; others are slow. Of each `test_models.py` proves the density."""


def every_lecture(*quick: ModuleType) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("lecture", quick_ones(STATED, *quick), ids=lambda m: m.__name__.rpartition(".")[2])


NUTS = bl.NUTS(num_warmup=100, num_samples=39, thinning=2, num_chains=1)


def easy(lecture: ModuleType) -> dict[str, Any]:
    """The example, or one whose simulated data have fewer entries and a less extreme posterior."""
    data = lecture.example()
    if lecture is normal_wishart:
        return data | {"n0": 8.0, "kappa0": 1.0, "num_rows": 4, "y": data["y"][:4]}
    if lecture is weight_matrix:
        return data | {"num_motifs": 4, "num_positions": 2, "y": data["y"][:4, :2]}
    return data


@every_lecture(*SHORT)
def test_stated_posteriors_are_calibrated(lecture: ModuleType) -> None:
    method = Stated(lecture.posterior, 99)
    assert smallest_p(sbc(1, lecture.model, lecture.example(), method, 1000, progress=False)) > LEVEL


@every_lecture(normal_gamma)
def test_nuts_is_calibrated(lecture: ModuleType) -> None:
    assert smallest_p(sbc(2, lecture.model, easy(lecture), NUTS, 1000, progress=False)) > LEVEL


@dataclass(frozen=True)
class Unproven(Method):
    """Draws from a program that may be wrong."""

    posterior: Callable[..., Any]
    num_samples: int = 99
    num_warmup: int = 0
    num_chains: int = 1
    thinning: int = 1

    def plan(self, bound: Bound) -> StatedSampler:
        return StatedSampler(self.posterior)


def wrong_by(factor: float) -> Callable[..., None]:
    def posterior(y: Any, mu0: Any, sigma0: Any, sigma: Any) -> None:
        precision = 1 / sigma0**2 + len(y) / sigma**2
        mean = (mu0 / sigma0**2 + jnp.sum(y) / sigma**2) / precision
        numpyro.sample("mu", dist.Normal(mean, factor / jnp.sqrt(precision)))

    return posterior


@pytest.mark.parametrize(("factor", "passes"), [(1.0, True), (0.8, False), (1.2, False)])
def test_a_posterior_whose_sd_is_wrong_by_a_fifth_fails(factor: float, passes: bool) -> None:
    lecture = normal_known_variance
    checks = sbc(3, lecture.model, lecture.example(), Unproven(wrong_by(factor)), 1000, progress=False)
    assert (smallest_p(checks) > LEVEL) == passes


def deaf(y: Any, mu0: Any, sigma0: Any, sigma: Any) -> None:
    numpyro.sample("mu", dist.Normal(mu0, sigma0))


def test_a_quantity_of_the_data_finds_a_sampler_that_ignores_them() -> None:
    """Draws from the prior have uniform ranks; the distance from the data does not."""
    lecture, quantities = normal_known_variance, {"distance": lambda values: (values["mu"] - values["y"].mean()) ** 2}
    for posterior, passes in ((deaf, False), (wrong_by(1.0), True)):
        checks = sbc(
            6, lecture.model, lecture.example(), Unproven(posterior), 500, quantities=quantities, progress=False
        )
        p_values = {name: kstest(ranks.values.ravel(), "uniform").pvalue for name, ranks in checks["prior_sbc"].items()}
        assert p_values["mu"] > 1e-3
        assert (p_values["distance"] > 1e-3) == passes


def test_the_pattern_of_missing_entries_is_kept() -> None:
    """Values are simulated everywhere, but those that were missing stay unseen."""
    lecture, data = normal_known_variance, normal_known_variance.example()
    gone = data | {"y": np.where(np.arange(len(data["y"])) % 2 == 0, data["y"], np.nan)}
    assert smallest_p(sbc(4, lecture.model, gone, NUTS, 1000, progress=False)) > LEVEL


def test_numbers_of_simulations_and_names_of_dimensions() -> None:
    lecture = linear_regression
    checks = sbc(5, lecture.model, lecture.example(), Stated(lecture.posterior, 9), 23, progress=False)
    assert dict(checks["prior_sbc"].sizes) == {"chain": 1, "draw": 23, "feature": 2}
    assert checks.attrs["num_simulations"] == 23
    again = sbc(5, lecture.model, lecture.example(), Stated(lecture.posterior, 9), 23, progress=False)
    np.testing.assert_array_equal(checks["prior_sbc"]["w"], again["prior_sbc"]["w"])


def autoregressive(y: Any) -> None:
    phi = numpyro.sample("phi", dist.Normal(0.0, 0.5))
    with numpyro.plate("time", len(y) - 1):
        numpyro.sample("next", dist.Normal(phi * y[:-1], 1.0), obs=y[1:])


def test_refusals_say_why() -> None:
    lecture = normal_known_variance
    method = Stated(lecture.posterior)
    with pytest.raises(ValueError, match="'y' gives site 'next' its value and reaches the program another way"):
        sbc(0, autoregressive, {"y": np.ones(5)}, NUTS)
    with pytest.raises(ValueError, match="so nothing is observed"):
        sbc(0, lecture.model, {"num_rows": 3}, method)
    with pytest.raises(ValueError, match=r"quantities are named \['mu'\], as sites of the program are"):
        sbc(0, lecture.model, lecture.example(), method, quantities={"mu": lambda values: values["mu"]})
    with pytest.raises(ValueError, match="num_simulations must be positive"):
        sbc(0, lecture.model, lecture.example(), method, 0)
