"""float32 on request: densities and evidences agree with those of float64, to the tolerance that the guide states."""

from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import bayeslab as bl
from bayeslab.datasets import genotypes, simulated_genotypes
from bayeslab.models import (
    LECTURES,
    gaussian_mixture,
    gp_regression,
    hmm,
    lda,
    linear_dynamical_system,
    linear_regression,
    local_level,
    structure_admixture,
)
from bayeslab.planning import default_method
from bayeslab.programs.program import precision_scope
from bayeslab.transforms.analysis import Analysis
from quick_cases import quick_ones

SHORT = (linear_regression, gp_regression)
"""A block of Normal sites and a factorised matrix."""
TOLERANCE = 1e-4
"""Of a log density, relative to it or to one, whichever is larger."""

WITHOUT_EVIDENCE = (gaussian_mixture, hmm, local_level, structure_admixture, lda)


def name(lecture: ModuleType) -> str:
    return lecture.__name__.rpartition(".")[2]


def far(found: Any, truth: Any) -> np.ndarray:
    return np.abs(found - truth) / np.maximum(np.abs(truth), 1.0)


@pytest.mark.parametrize(
    "lecture", quick_ones((lecture for lecture in LECTURES if hasattr(lecture, "posterior")), *SHORT), ids=name
)
def test_evidence_and_draws_of_exact_posteriors(lecture: ModuleType) -> None:
    single, double = (
        bl.fit(0, lecture.model, lecture.example(), bl.Exact(200), dtype=dtype, progress=False)
        for dtype in (jnp.float32, jnp.float64)
    )
    assert far(single.attrs["log_evidence"], double.attrs["log_evidence"]) < TOLERANCE
    for site, draws in single["posterior"].data_vars.items():
        if draws.dtype.kind == "f":
            assert draws.dtype == np.float32, site


@pytest.mark.parametrize(
    "lecture",
    quick_ones([*WITHOUT_EVIDENCE, linear_dynamical_system], gaussian_mixture, structure_admixture),
    ids=name,
)
def test_the_log_joint_of_draws(lecture: ModuleType) -> None:
    """The density that a sampler recorded, and that of its draws in float64.

    Not of Gaussian processes: next to a singular kernel matrix the jitter, which depends on the precision, counts.
    """
    data = lecture.example()
    with precision_scope():
        method = default_method(Analysis(bl.bind(lecture.model, data))).method
    small = {"num_warmup": 20, "num_samples": 30, "num_chains": 1} if not isinstance(method, bl.Exact) else {}
    tree = bl.fit(0, lecture.model, data, type(method)(**small), dtype=jnp.float32, progress=False)
    with precision_scope():
        bound = bl.bind(lecture.model, data)
        draws = {site: jnp.asarray(tree["posterior"][site].values[0]) for site in bound.latent}
        wide = {s: v.astype(np.float64) if jnp.issubdtype(v.dtype, jnp.floating) else v for s, v in draws.items()}
        truth = jax.lax.map(bound.log_joint, wide)
    assert far(tree["sample_stats"]["lp"].values[0], np.asarray(truth)).max() < TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("method", ["MeanField", "MAP"])
def test_counts_of_origins_lose_little(method: str) -> None:
    """Bounds and maxima of counts, in single precision, and of the program as it is written, in double precision."""
    y = simulated_genotypes(30, 60, 2, seed=1, fst=0.05)["y"]
    data = genotypes(y) | {"num_populations": 2, "alpha": 2.0, "concentration": 2.0}
    found = [
        bl.fit(0, structure_admixture.model, data, getattr(methods, method)(num_starts=3), progress=False)[
            "sample_stats"
        ]
        for methods in (bl.mixed_membership, bl)
    ]
    name = "lp" if method == "MAP" else "evidence_bound"
    counted, written = (float(stats[name].mean()) for stats in found)
    assert counted != written
    assert far(counted, written) < 1e-6


def test_products_keep_their_digits_on_any_device() -> None:
    """What is compiled asks for them; three digits of ten are a GPU's default."""
    for dtype in (np.float32, np.float64):
        with precision_scope(dtype):
            code = jax.jit(jnp.matmul).lower(jnp.ones((4, 4), jnp.float32), jnp.ones((4, 4), jnp.float32)).as_text()
        assert "HIGHEST" in code


def test_data_that_a_fit_has_rounded_are_those_of_the_fit() -> None:
    def program(x: Any) -> None:
        slope = numpyro.sample("slope", dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(slope * x, 0.5))

    rng = np.random.default_rng(0)
    data = {"x": rng.normal(size=8), "y": rng.normal(size=8)}
    tree = bl.fit(0, program, data, bl.Exact(num_samples=10), dtype=jnp.float32, progress=False)
    assert "log_likelihood" in bl.predict(1, program, data, tree).children
    other = data | {"y": data["y"] + 1e-3}
    assert "log_likelihood" not in bl.predict(1, program, other, tree).children
