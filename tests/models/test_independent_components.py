"""Independent components: the density of mixed sources, sources recovered, and those in noise."""

from functools import cache
from typing import Any

import arviz as az
import jax
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import check_grad
from sklearn.decomposition import FastICA

import bayeslab as bl
from bayeslab.datasets import simulated_cocktail_party
from bayeslab.models import ica, noisy_ica
from bayeslab.programs.program import precision_scope

Array = NDArray[Any]

W = np.array([[1.4, -0.3], [0.5, -0.8]])


def data_of(y: Array, **more: Any) -> dict[str, Any]:
    return {"num_rows": len(y), "num_features": y.shape[1], "y": y, **more}


def density(y: Array, w: Array) -> float:
    return float(stats.logistic.logpdf(y @ w.T).sum() + len(y) * np.log(abs(np.linalg.det(w))))


def test_density_is_that_of_the_sources_times_the_determinant() -> None:
    """The determinant is negative here: read as printed, without its absolute value, there is no density."""
    y = ica.example()["y"]
    with precision_scope():
        found = bl.bind(ica.model, data_of(y)).log_joint({"w": W})
    np.testing.assert_allclose(found, density(y, W) + stats.norm.logpdf(W).sum(), rtol=1e-12)
    assert np.linalg.det(W) < 0


def test_simulated_rows_are_mixed_sources() -> None:
    prior = bl.simulate(0, ica.model, {"num_rows": 1, "num_features": 2}, num_samples=2000)["prior"]
    sources = np.einsum("...jk,...ik->...j", prior["w"].values, prior["y"].values)
    assert min(stats.kstest(source, "logistic").pvalue for source in sources.reshape(-1, 2).T) > 1e-3


def test_gradient_is_that_of_the_density() -> None:
    def minus(flat: Array) -> float:
        return -density(y[None], flat.reshape(2, 2))

    y = ica.example()["y"][2]
    with jax.enable_x64(True):
        error = check_grad(minus, lambda flat: -np.asarray(ica.gradient(y, flat.reshape(2, 2))).ravel(), W.ravel())
    assert error < 1e-5


def likeness(one: Array, other: Array) -> float:
    """The smallest correlation between sources, in the better of their two orders, whatever their signs."""
    found = np.abs(np.corrcoef(one.T, other.T)[:2, 2:])
    return float(max(np.diag(found).min(), np.diag(found[:, ::-1]).min()))


@cache
def party() -> tuple[Array, Array]:
    found = simulated_cocktail_party(num_times=300)
    return found["y"].values, found["sources"].values


def test_the_mode_is_a_root_of_the_gradient_and_recovers_the_speakers() -> None:
    y, sources = party()
    w = bl.fit(0, ica.model, data_of(y), bl.MAP(), progress=False)["posterior"]["w"].values[0, 0]
    with jax.enable_x64(True):
        total = sum(np.asarray(ica.gradient(row, w)) for row in y)
    np.testing.assert_allclose(total, w, atol=1e-3)  # that of the prior is -w
    fast = likeness(FastICA(2, whiten="unit-variance", random_state=0).fit_transform(y), sources)
    assert likeness(y @ w.T, sources) > max(0.99, fast - 0.005)


def test_chains_agree_when_signs_and_places_do() -> None:
    y, sources = party()
    tree = bl.fit(0, ica.model, data_of(y), bl.NUTS(num_warmup=300, num_samples=300), progress=False)
    assert float(az.rhat(tree)["w"].max()) > 1.5
    aligned = bl.align(tree, ica.SITE_DIMS, up_to="signed permutations")
    assert float(az.rhat(aligned)["w"].max()) < 1.05
    assert likeness(y @ aligned["posterior"]["w"].mean(["chain", "draw"]).values.T, sources) > 0.99


def test_one_source_in_noise_is_that_of_quadrature() -> None:
    y, a = np.array([[1.5, 0.2, -0.4]]), np.array([[1.2], [-0.7], [0.3]])
    data = data_of(y, num_sources=1, a=a, tau=np.array(2.0))
    tree = bl.fit(0, noisy_ica.model, data, bl.NUTS(num_warmup=300, num_samples=1000), progress=False)
    s = np.linspace(-12, 12, 4001)
    logs = stats.logistic(0, np.sqrt(3) / np.pi).logpdf(s) + stats.norm(s[:, None] * a[:, 0], 0.5**0.5).logpdf(y).sum(1)
    share = np.exp(logs - logs.max())
    share /= share.sum()
    mean = float(share @ s)
    draws = tree["posterior"]["s"].values.ravel()
    error = float(az.mcse(tree)["s"].max())
    assert abs(draws.mean() - mean) < 5 * error
    np.testing.assert_allclose(draws.var(), share @ (s - mean) ** 2, rtol=0.15)


@pytest.mark.slow
def test_sources_in_noise_are_recovered_where_factors_are_turned() -> None:
    found = simulated_cocktail_party(num_times=150, num_microphones=3, noise=0.1)
    data = data_of(found["y"].values, num_sources=2)
    tree = bl.fit(0, noisy_ica.model, data, bl.NUTS(num_warmup=600, num_samples=300, num_chains=2), progress=False)
    aligned = bl.align(tree, noisy_ica.SITE_DIMS, up_to="signed permutations")
    s = aligned["posterior"]["s"].mean(["chain", "draw"]).values
    assert likeness(s, found["sources"].values) > 0.95


def test_more_sources_than_features_are_refused() -> None:
    with pytest.raises(ValueError, match="num_sources is 3, but 1 to 2, the number of features"):
        bl.bind(noisy_ica.model, data_of(party()[0], num_sources=3))


@pytest.mark.parametrize(
    "y", [party()[0][:1], party()[0][:9] * [1, 0], party()[0][:9, :1]], ids=["row", "column", "source"]
)
def test_one_row_a_constant_column_and_one_source_are_fitted(y: Array) -> None:
    w = bl.fit(0, ica.model, data_of(y), bl.MAP(), progress=False)["posterior"]["w"]
    assert np.isfinite(w).all()
