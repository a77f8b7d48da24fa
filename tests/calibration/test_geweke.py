"""Geweke's test: Gibbs sweeps leave the joint distribution of parameters and data alone, wrong ones do not."""

from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import bayeslab as bl
from bayeslab.mixed_membership.methods import counterpart
from bayeslab.models import (
    gaussian_mixture,
    hmm,
    linear_regression,
    normal_gamma,
    structure_admixture,
    structure_correlated,
)
from bayeslab.programs.program import Bound
from bayeslab.sampling.protocols import SamplerWrapper
from bayeslab.transforms.analysis import Analysis

GIBBS = bl.Gibbs(num_warmup=100, num_samples=300, thinning=5)
SWEEPS = (
    linear_regression,
    pytest.param(gaussian_mixture, marks=pytest.mark.slow),
    pytest.param(hmm, marks=pytest.mark.slow),
    pytest.param(structure_correlated, marks=pytest.mark.slow),
)


@pytest.mark.parametrize("lecture", SWEEPS, ids=lambda m: m.__name__.rpartition(".")[2])
def test_sweeps_leave_the_joint_distribution_alone(lecture: ModuleType) -> None:
    """The last has a block by NUTS, whose state remembers data that are gone."""
    assert bl.joint_distribution_test(0, lecture.model, lecture.example(), GIBBS, level=1e-4).passes


@pytest.mark.slow
def test_so_do_sweeps_that_count_origins() -> None:
    method = counterpart(GIBBS)
    assert method is not None
    lecture = structure_admixture
    assert bl.joint_distribution_test(1, lecture.model, lecture.example(), method, level=1e-4).passes


@dataclass(frozen=True)
class Misread(bl.Gibbs):
    """Every sweep sees the data a tenth too large."""

    def plan(self, analysis: Analysis) -> Any:
        return _Misread(super().plan(analysis))


@dataclass(frozen=True)
class _Misread(SamplerWrapper):
    def prepare(self, bound: Bound) -> Any:
        return self.inner.prepare(replace(bound, observed=jax.tree.map(lambda y: 1.1 * y, bound.observed)))


@pytest.mark.parametrize(("method", "passes"), [(bl.Gibbs, 1), (Misread, 0)])
def test_a_sweep_that_misreads_data_by_a_tenth_is_found(method: type, passes: int) -> None:
    lecture = normal_gamma
    data = lecture.example() | {"mu0": 0.0, "alpha": 3.0, "beta": 3.0, "kappa0": 0.5}
    table = bl.joint_distribution_test(
        2, lecture.model, data, method(num_warmup=100, num_samples=1000, thinning=10), level=1e-4
    )
    assert table.attrs["passes"] == passes
    assert (table["spread_z"].sel(parameter="mu") > 4) == (not passes)


def known_spread() -> None:
    spread = numpyro.sample("spread", dist.HalfNormal(10.0))
    theta = numpyro.sample("theta", dist.Normal(0.0, spread))
    numpyro.sample("y", dist.Normal(theta, 1.0))


def test_refusals_say_why() -> None:
    lecture = normal_gamma
    with pytest.raises(TypeError, match=r"needs Gibbs\(\), whose sweeps suit any data, not NUTS"):
        bl.joint_distribution_test(0, lecture.model, lecture.example(), bl.NUTS())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="level must be a probability between 0 and 1, got 2"):
        bl.joint_distribution_test(0, lecture.model, lecture.example(), GIBBS, level=2)
    known = {"spread": 1.0, "y": 2.0}
    with pytest.raises(ValueError, match="prior of 'theta' depends on the observed site 'spread'"):
        bl.joint_distribution_test(0, known_spread, known, GIBBS)
    with pytest.raises(ValueError, match="so nothing is observed"):
        bl.joint_distribution_test(0, lecture.model, {"num_rows": 3}, GIBBS)


def labels_in_part(n: int) -> None:
    share = numpyro.sample("share", dist.Beta(1.0, 1.0))
    with numpyro.plate("class", 2):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    with numpyro.plate("row", n):
        label = numpyro.sample("label", dist.Bernoulli(share))
        numpyro.sample("x", dist.Normal(mu[label], 1.0))


def test_given_labels_are_simulated_with_the_data() -> None:
    data = {"n": 4, "label": np.array([0.0, np.nan, 1.0, np.nan]), "x": np.zeros(4)}
    table = bl.joint_distribution_test(3, labels_in_part, data, GIBBS, level=1e-4)
    assert table.attrs["passes"]
    assert {f"label[{row}]" for row in range(4)} <= {*table["parameter"].values}
