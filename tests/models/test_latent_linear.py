"""Factor models: exact given their loadings; without them, maxima, bounds and draws by several methods."""

from functools import cache
from types import ModuleType
from typing import Any

import jax
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from sklearn.decomposition import FactorAnalysis
from xarray import DataTree

import bayeslab as bl
from bayeslab.models import allele_frequency, factor_analysis, ppca
from quick_cases import quick_ones

Array = NDArray[Any]

FLAT = {"loading_scale": 1e6, "location_scale": 1e7, "alpha": 1.0, "beta": 1e-13}
"""Priors that say next to nothing: the mode is the maximum of the likelihood."""


@cache
def rows(num_rows: int = 60, num_features: int = 5, num_factors: int = 2) -> Array:
    rng = np.random.default_rng(3)
    w, noise = rng.normal(size=(num_features, num_factors)), rng.uniform(0.3, 0.9, num_features)
    z = rng.normal(size=(num_rows, num_factors))
    return z @ w.T + rng.normal(size=num_features) + noise * rng.normal(size=(num_rows, num_features))


def data_of(y: Array, num_factors: int = 2, **more: Any) -> dict[str, Any]:
    return {"num_rows": len(y), "num_features": y.shape[1], "num_factors": num_factors, "y": y, **more}


def fit(lecture: ModuleType, data: dict[str, Any], method: Any = None) -> DataTree:
    return bl.fit(0, lecture.model, data, method, progress=False)


def covariances(tree: DataTree) -> Array:
    """The covariance of the rows in every draw, (draw, feature, feature)."""
    draws = tree["posterior"].to_dataset().stack(sample=("chain", "draw")).transpose("sample", ...)
    w, tau = draws["w"].values, draws["tau"].values
    noise = 1 / np.broadcast_to(tau.reshape(len(tau), -1), w.shape[:2])
    return w @ np.swapaxes(w, 1, 2) + noise[:, :, None] * np.eye(w.shape[1])


KNOWN = {ppca: (2.5, 1.0, 0.1), factor_analysis: ([2.5, 1.0, 4.0, 0.7, 3.0], 2.0, 0.5)}
"""Precisions, and the concentration and the rate of their priors."""


@pytest.mark.parametrize("lecture", quick_ones(KNOWN, factor_analysis), ids=lambda one: one.__name__)
def test_factors_are_exact_given_the_loadings(lecture: ModuleType) -> None:
    """Also where elements of a row are missing, and all of another: these are integrated out."""
    rng, (tau, concentration, rate) = np.random.default_rng(0), KNOWN[lecture]
    known = {"w": rng.normal(size=(5, 2)), "mu": rng.normal(size=5), "tau": np.array(tau)}
    y = rows()[:6].copy()
    for missing in (False, True):
        if missing:
            y[1, [0, 3]], y[2] = np.nan, np.nan
        tree = fit(lecture, data_of(y, **known), bl.Exact(4000))
        covariance = known["w"] @ known["w"].T + np.diag(1 / np.broadcast_to(known["tau"], 5))
        expected = stats.norm(0, 1).logpdf(known["w"]).sum() + stats.norm(0, 10).logpdf(known["mu"]).sum()
        expected += stats.gamma(concentration, scale=1 / rate).logpdf(known["tau"]).sum()
        for row in y:
            seen = ~np.isnan(row)
            if seen.any():
                normal = stats.multivariate_normal(known["mu"][seen], covariance[np.ix_(seen, seen)])
                expected += normal.logpdf(row[seen])
        np.testing.assert_allclose(tree.attrs["log_evidence"], expected, rtol=1e-10)
        mean, within = map(np.asarray, lecture.factors(y[:1], known["w"], known["mu"], known["tau"]))
        z = tree["posterior"]["z"].values[0]
        np.testing.assert_allclose(z[:, 0].mean(0), mean[0], atol=5 * np.sqrt(within.max() / 4000))
        np.testing.assert_allclose(np.cov(z[:, 0].T), within, atol=0.1 * within.max())
        if missing:
            np.testing.assert_allclose(np.cov(z[:, 2].T), np.eye(2), atol=0.1)


@pytest.mark.slow
def test_em_finds_the_maximum_of_tipping_and_bishop() -> None:
    y = rows()
    found = covariances(fit(ppca, data_of(y, **FLAT), bl.EM(collapse=("z",), num_starts=3)))[0]
    with jax.enable_x64(True):
        w, _, tau = map(np.asarray, ppca.maximum_likelihood(y, 2))
    np.testing.assert_allclose(found, w @ w.T + np.eye(5) / tau, atol=1e-6 * found.max())


@pytest.mark.slow
def test_em_is_as_likely_as_factor_analysis_of_scikit_learn() -> None:
    y = rows(300, 6, 2)
    tree = fit(factor_analysis, data_of(y, **FLAT), bl.EM(collapse=("z",), num_starts=3))
    mean = tree["posterior"]["mu"].values[0, 0]
    likelihood = stats.multivariate_normal(mean, covariances(tree)[0]).logpdf(y).mean()
    other = FactorAnalysis(2, tol=1e-8, max_iter=20000, svd_method="lapack").fit(y).score(y)
    assert -1e-9 < likelihood - other < 1e-5  # scikit-learn stops earlier


@pytest.mark.slow
def test_mean_field_is_below_the_evidence_given_the_loadings() -> None:
    """Given w and the noise the factors and the mean are normal, so the evidence is an integral over one number."""
    y, w = rows()[:12, :3], np.random.default_rng(1).normal(size=(3, 1))
    data = data_of(y, 1, w=w, location_scale=2.0)
    tree = fit(ppca, data, bl.MeanField(num_starts=2))
    tau = np.exp(np.linspace(np.log(0.02), np.log(50), 300))
    logs = []
    for each in tau:
        within = w @ w.T + np.eye(3) / each
        joint = np.kron(np.eye(12), within) + np.kron(np.ones((12, 12)), 4.0 * np.eye(3))
        prior = stats.gamma(1.0, scale=10.0).logpdf(each)
        logs.append(stats.multivariate_normal(cov=joint).logpdf(y.ravel()) + prior)
    evidence = np.log(np.trapezoid(np.exp(np.array(logs) - max(logs)), tau)) + max(logs)
    evidence += stats.norm.logpdf(w).sum()
    assert evidence - 1.5 < tree.attrs["elbo"] < evidence


@pytest.mark.slow
@pytest.mark.parametrize("lecture", KNOWN, ids=lambda one: one.__name__)
def test_gibbs_and_nuts_without_the_factors_agree(lecture: ModuleType) -> None:
    """NUTS integrates the factors out, so that the two have little in common."""
    data = data_of(rows()[:30])
    gibbs = covariances(fit(lecture, data, bl.Gibbs(num_samples=4000)))
    nuts = covariances(fit(lecture, data, bl.NUTS(collapse=("z",))))
    scale = gibbs.std(0)
    assert (np.abs(gibbs.mean(0) - nuts.mean(0)) < 0.15 * scale).all()
    assert (np.abs(np.log(nuts.std(0) / scale)) < 0.2).all()


@pytest.mark.slow
def test_gibbs_is_close_to_the_maximum_where_rows_are_many() -> None:
    """The posterior of the covariance of 600 rows is that of their likelihood, but for its standard error."""
    y = rows(600)
    w, _, tau = map(np.asarray, ppca.maximum_likelihood(y, 2))
    draws = covariances(fit(ppca, data_of(y), bl.Gibbs(num_samples=500, num_chains=2)))
    error = np.abs(draws.mean(0) - w @ w.T - np.eye(5) / tau)
    assert (error < 0.5 * draws.std(0)).all()


@pytest.mark.parametrize(
    ("y", "num_factors", "words"),
    [(rows()[:4, :3], 4, "num_factors is 4, but 1 to 3"), (rows()[:4, :3], 0, "num_factors is 0")],
)
def test_impossible_numbers_of_factors_are_refused(y: Array, num_factors: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        bl.bind(factor_analysis.model, data_of(y, num_factors))


@pytest.mark.slow
def test_laplace_says_that_factors_may_be_rotated() -> None:
    """Given the loadings rotated the density is the same: there is a circle of modes, and no Normal around one."""
    with pytest.raises(ValueError, match="flat, or rises, along a curve"):
        fit(ppca, data_of(rows()), bl.Laplace(collapse=("z",)))


@pytest.mark.parametrize("y", [rows()[:1], np.column_stack([rows()[:8, :2], np.full(8, 3.0)])], ids=["row", "constant"])
def test_one_row_and_a_constant_column_are_fitted(y: Array) -> None:
    tree = fit(factor_analysis, data_of(y, 1), bl.Gibbs(num_samples=200, num_chains=2))
    assert np.isfinite(covariances(tree)).all()


def test_missing_copies_are_left_out_of_the_frequencies() -> None:
    data = allele_frequency.example()
    hidden = np.ma.masked_array(data["y"], np.zeros(data["y"].shape, bool))
    hidden[2, 1, 0] = np.ma.masked
    seen = fit(allele_frequency, data | {"y": hidden}, bl.Exact(20)).attrs["log_evidence"]
    counts = np.array([np.bincount(hidden[:, locus].compressed(), minlength=3) for locus in range(3)])
    expected = 0.0
    for size, count in zip(data["num_alleles"], counts, strict=True):
        prior = data["concentration"][:size]
        letters = np.repeat(np.arange(size), count[:size])
        urn = prior.copy()
        for allele in letters:
            expected += np.log(urn[allele] / urn.sum())
            urn[allele] += 1
    np.testing.assert_allclose(seen, expected, rtol=1e-12)


@pytest.mark.parametrize("locus", [0, 1])
def test_a_locus_with_one_allele_says_nothing(locus: int) -> None:
    data = allele_frequency.example() | {"concentration": 0.7}
    alleles, y = np.array([2, 3, 2]), np.array(data["y"])
    alleles[locus], y[:, locus] = 1, 0
    tree = fit(allele_frequency, data | {"num_alleles": alleles, "y": y}, bl.Exact(20))
    frequencies = tree["posterior"]["frequencies"].values[..., locus, :]
    np.testing.assert_array_equal(frequencies, np.broadcast_to(np.arange(alleles.max()) == 0, frequencies.shape))
    kept = [other for other in range(3) if other != locus]
    others = fit(allele_frequency, data | {"num_alleles": alleles[kept], "y": y[:, kept]}, bl.Exact(20))
    np.testing.assert_allclose(tree.attrs["log_evidence"], others.attrs["log_evidence"], rtol=1e-12)
