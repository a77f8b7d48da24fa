"""Regressions of the course against scikit-learn, statsmodels, quadrature and enumeration."""

from collections.abc import Callable
from itertools import product
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm
from arviz_stats import ess
from numpyro.handlers import seed, trace
from numpyro.infer.util import log_density
from scipy import special, stats
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Lasso, LogisticRegression, PoissonRegressor, Ridge
from statsmodels.miscmodels.ordinal_model import OrderedModel

import bayeslab as bl
from bayeslab.models import (
    bayesian_lasso,
    bayesian_lasso_scale_mixture,
    glm,
    gp_regression,
    james_stein,
    kernel_ridge,
    least_squares,
    locally_weighted_regression,
    logistic_regression,
    ordered_regression,
    poisson_regression,
    ridge,
    softmax_regression,
    sparse_additive,
    spike_slab,
)
from bayeslab.programs.program import precision_scope
from evidences import coefficients_marginalised, integral

Array = np.ndarray[Any, Any]


def fit(lecture: ModuleType, method: Any = None, **changed: Any) -> Any:
    return bl.fit(0, lecture.model, lecture.example() | changed, method, progress=False)


def mode(lecture: ModuleType, **changed: Any) -> dict[str, Array]:
    tree = fit(lecture, bl.MAP(), **changed)
    assert tree.attrs["converged"] == 1
    return {str(name): value.values[0, 0] for name, value in tree["posterior"].data_vars.items()}


def draws(tree: Any, name: str) -> Array:
    return tree["posterior"][name].stack(sample=("chain", "draw")).transpose("sample", ...).values


def assert_means(tree: Any, name: str, truth: Any) -> None:
    """Means within five Monte Carlo standard errors."""
    found = draws(tree, name)
    size = ess(tree["posterior"].dataset[name]).values if tree.posterior.sizes["chain"] > 1 else len(found)
    np.testing.assert_array_less(np.abs(found.mean(0) - truth), 5 * found.std(0) / np.sqrt(size) + 1e-12)


def test_the_flat_prior_gives_the_student_t_of_least_squares() -> None:
    """Mean, scale and degrees of freedom as statsmodels has them; the mode is the estimate itself."""
    data = least_squares.example()
    tree = fit(least_squares, bl.Exact(2000))
    fitted = sm.OLS(data["y"], data["x"]).fit()
    scaled = (draws(tree, "w") - fitted.params) / fitted.bse
    for column in scaled.T:
        assert stats.kstest(column, stats.t(fitted.df_resid).cdf).pvalue > 1e-3
    precision = stats.gamma(fitted.df_resid / 2, scale=2 / fitted.ssr)
    assert stats.kstest(draws(tree, "tau"), precision.cdf).pvalue > 1e-3


def test_least_squares_without_enough_rows_is_improper() -> None:
    data = least_squares.example()
    with pytest.raises(ValueError, match=r"improper|not positive definite|flat|constant"):
        fit(least_squares, x=data["x"][:, [0, 0]])


def test_ridge_is_the_mode_and_the_mean() -> None:
    data = ridge.example()
    by_library = Ridge(alpha=data["penalty"]).fit(data["x"], data["y"])
    found = mode(ridge)
    np.testing.assert_allclose(found["w"], by_library.coef_, atol=1e-6)
    np.testing.assert_allclose(found["intercept"], by_library.intercept_, atol=1e-6)


@pytest.mark.slow
def test_the_posterior_of_ridge() -> None:
    """Mean of w as scikit-learn's, whatever tau; a Gamma for tau from the penalised sum of squares."""
    data = ridge.example()
    by_library = Ridge(alpha=data["penalty"]).fit(data["x"], data["y"])
    tree = fit(ridge, bl.Exact(2000))
    assert_means(tree, "w", by_library.coef_)
    residual = data["y"] - by_library.predict(data["x"])
    penalised = residual @ residual + data["penalty"] * by_library.coef_ @ by_library.coef_
    precision = stats.gamma((len(residual) - 1) / 2, scale=2 / penalised)
    assert stats.kstest(draws(tree, "tau"), precision.cdf).pvalue > 1e-3


def shrinkage(y: Array, sigma: float) -> float:
    """The posterior mean of B = v / (v + variance): that of a Gamma below 1."""
    size, squares = y.shape[1], np.sum(y.mean(0) ** 2) / (sigma**2 / len(y))
    below = [special.gammainc(size / 2 - less, squares / 2) for less in (0, 1)]
    return (size - 2) / squares * below[0] / below[1]


@pytest.mark.slow
def test_the_posterior_mean_is_the_estimator_of_james_and_stein() -> None:
    """Exactly, but for the knowledge that the factor is positive; on the averages of 1970 it beats their raw means."""
    for data in (james_stein.example(), james_stein.data()):
        y = np.asarray(data["y"])
        tree = bl.fit(0, james_stein.model, data, progress=False)
        factor = 1 - shrinkage(y, data["sigma"])
        assert_means(tree, "theta", factor * y.mean(0))
    later = bl.datasets.batting_averages()["later"].to_numpy()
    first = bl.datasets.batting_averages()["first"].to_numpy()
    shrunk = first.mean() + factor * (first - first.mean())
    assert np.sum((shrunk - later) ** 2) < np.sum((first - later) ** 2) / 3


def test_a_local_line_is_weighted_least_squares() -> None:
    """CS229, 1.4: a ridge with weights, and the evidence of rows whose noise grows with their distance."""
    data = locally_weighted_regression.example()
    away, sigma = data["x"] - data["query"], data["sigma"]
    weights = np.exp(-(away[:, 0] ** 2) / (2 * data["bandwidth"] ** 2))
    x = np.concatenate([np.ones_like(away), away], axis=1)
    tree = fit(locally_weighted_regression, bl.Exact(2000))
    by_library = Ridge(alpha=sigma**2 / 10.0**2, fit_intercept=False).fit(x, data["y"], weights)
    assert_means(tree, "w", by_library.coef_)
    marginal = stats.multivariate_normal(cov=np.diag(sigma**2 / weights) + 10.0**2 * x @ x.T)
    np.testing.assert_allclose(tree.attrs["log_evidence"], marginal.logpdf(data["y"]), rtol=1e-10)


def test_kernel_ridge_is_the_mean_of_a_process() -> None:
    """Mukherjee 6.2: scikit-learn's estimator, this mode and the lecture's mean of `gp_regression` are one curve."""
    data = kernel_ridge.example()
    with precision_scope():
        gram = np.asarray(data["kernel"](data["x"], data["x"]))
        stated = seed(gp_regression.posterior, 0)
        given = (data["x"], data["y"], data["kernel"], np.sqrt(data["penalty"]), 0.0)
        mean = trace(stated).get_trace(*given)["f"]["fn"].mean
    curve = KernelRidge(alpha=data["penalty"], kernel="precomputed").fit(gram, data["y"]).predict(gram)
    np.testing.assert_allclose(mean, curve, rtol=1e-10)
    np.testing.assert_allclose(mode(kernel_ridge)["f"], curve, atol=1e-6)


def test_the_lasso_is_the_mode() -> None:
    """Ke's objective, which is scikit-learn's: coefficients to 1e-6, and zeros to the last digit."""
    data = bayesian_lasso.example()
    for b in (0.3, 0.05):
        penalty = data["sigma"] ** 2 / (len(data["y"]) * b)
        by_library = Lasso(alpha=penalty, fit_intercept=False, tol=1e-12).fit(data["x"], data["y"])
        found = mode(bayesian_lasso, b=b)["w"]
        np.testing.assert_allclose(found, by_library.coef_, atol=1e-6)
        assert np.array_equal(np.abs(found) < 1e-15, by_library.coef_ == 0)


def test_mixtures_of_scales_are_the_priors_they_stand_for() -> None:
    """The Laplace of the lasso, and exp(-rate sqrt(m) |w|) of a group of m, up to what does not depend on w."""
    b, rate = bayesian_lasso_scale_mixture.example()["b"], 1.5

    def mixed(length: float, size: int, variance: Any) -> float:
        return integral(lambda v: variance.pdf(v) * np.exp(-(length**2) / (2 * v)) * v ** (-size / 2), 0, np.inf)

    for first, second in [(0.1, 0.4), (0.4, 2.0)]:
        slope = mixed(second, 1, stats.expon(scale=2 * b**2)) - mixed(first, 1, stats.expon(scale=2 * b**2))
        np.testing.assert_allclose(slope, -(second - first) / b, rtol=1e-6)
        for size in (1, 2, 3):
            group = stats.gamma((size + 1) / 2, scale=2 / (size * rate**2))
            slope = mixed(second, size, group) - mixed(first, size, group)
            np.testing.assert_allclose(slope, -rate * np.sqrt(size) * (second - first), rtol=1e-6)


def plane_means(log_joint: Callable[[Array], Array], span: float) -> Array:
    """Means of two numbers whose log density is given, by sums over a fine grid."""
    axis = np.linspace(-span, span, 801)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1)
    log_density = log_joint(grid)
    weights = np.exp(log_density - log_density.max())
    return np.einsum("ij,ijk->k", weights, grid) / weights.sum()


@pytest.mark.slow
@pytest.mark.parametrize("lecture", [bayesian_lasso, bayesian_lasso_scale_mixture], ids=["laplace", "mixture"])
def test_the_posterior_of_the_lasso(lecture: ModuleType) -> None:
    data = lecture.example()

    def log_joint(w: Array) -> Array:
        residual = data["y"] - w @ data["x"].T
        return -np.abs(w).sum(-1) / data["b"] - (residual**2).sum(-1) / (2 * data["sigma"] ** 2)

    assert_means(fit(lecture), "w", plane_means(log_joint, 3.0))


@pytest.mark.slow
def test_inclusion_probabilities_are_those_of_all_models() -> None:
    """Sixteen models, each with the evidence of a regression on its columns and the prior of its size."""
    data = spike_slab.example()
    x, size = data["x"], data["x"].shape[1]
    weights, included = [], []
    for flags in product([0, 1], repeat=size):
        chosen = np.array(flags, bool)
        log_prior = special.betaln(1 + chosen.sum(), 1 + size - chosen.sum())
        log_evidence = coefficients_marginalised(x[:, chosen], data["y"], data["tau0"], data["sigma"])
        weights.append(log_prior + log_evidence)
        included.append(chosen)
    truth, found = special.softmax(weights) @ np.array(included), draws(fit(spike_slab), "gamma")
    error = 5 * np.sqrt(truth * (1 - truth) / (len(found) / 4))  # draws are worth a quarter at least
    np.testing.assert_array_less(np.abs(found.mean(0) - truth), error)


def test_the_functions_of_a_sparse_additive_model_are_centred_polynomials() -> None:
    x = sparse_additive.example()["x"]
    with precision_scope():
        phi = np.asarray(sparse_additive.basis(x, 4))
    scaled = 2 * (x - x.min(0)) / np.ptp(x, axis=0) - 1
    for degree in range(1, 5):
        legendre = special.eval_legendre(degree, scaled)
        np.testing.assert_allclose(phi[..., degree - 1], legendre - legendre.mean(0), atol=1e-12)


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "lecture",
    [logistic_regression, pytest.param(softmax_regression, marks=SLOW), pytest.param(poisson_regression, marks=SLOW)],
    ids=["logistic", "softmax", "poisson"],
)
def test_the_mode_is_the_estimate_of_scikit_learn(lecture: ModuleType) -> None:
    """It penalises as the prior does."""
    data = lecture.example()
    if lecture is poisson_regression:
        estimator = PoissonRegressor(alpha=1 / (len(data["y"]) * data["tau0"] ** 2), fit_intercept=False, tol=1e-10)
    else:
        estimator = LogisticRegression(C=data["tau0"] ** 2, fit_intercept=False, tol=1e-10)
    coefficients = estimator.fit(data["x"], data["y"]).coef_
    np.testing.assert_allclose(mode(lecture)["w"], np.squeeze(coefficients), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gamma", "negative_binomial"])
def test_a_glm_is_that_of_statsmodels(family: str) -> None:
    """The most likely coefficients under a prior that says nothing, at the dispersion that is found."""
    data = glm.example()
    y = data["y"] + 0.5 if family == "gamma" else data["y"]
    found = mode(glm, family=getattr(glm, family), y=y, tau0=1e4)
    link = sm.families.links.Log()
    by_library = {
        "gamma": sm.families.Gamma(link),
        "negative_binomial": sm.families.NegativeBinomial(link, alpha=1 / found["dispersion"]),
    }
    fitted = sm.GLM(y, data["x"], by_library[family]).fit(tol=1e-12)
    np.testing.assert_allclose(found["w"], fitted.params, atol=1e-5)


@pytest.mark.parametrize("link", ["logit", "probit"])
def test_ordered_regression_is_that_of_statsmodels(link: str) -> None:
    """The log likelihood at any cuts and coefficients, and far out, where a difference of two ones is nothing."""
    data = ordered_regression.example() | {"link": getattr(ordered_regression, link)}
    model = OrderedModel(data["y"], data["x"], distr=link)
    with precision_scope():
        for w, cuts in [(0.7, [-0.5, 1.2]), (-2.0, [0.3, 0.4])]:
            values = {"w": np.array([w]), "cuts": np.array(cuts)}
            arguments = {name: value for name, value in data.items() if name != "y"}
            _, terms = log_density(ordered_regression.model, (), arguments, values | {"y": data["y"]})
            found = float(terms["y"]["fn"].log_prob(data["y"]).sum())
            packed = np.array([w, cuts[0], np.log(cuts[1] - cuts[0])])
            np.testing.assert_allclose(found, model.loglike(packed), rtol=1e-10)
        tail = {"logit": special.expit, "probit": special.ndtr}[link]
        for far in (9.0, -9.0):
            cuts = np.sort(np.array([far - 0.5, far + 0.5]))
            values = {"w": np.zeros(1), "cuts": cuts, "y": np.ones(len(data["x"]), int)}
            _, terms = log_density(ordered_regression.model, (), arguments, values)
            found = terms["y"]["fn"].log_prob(values["y"])
            np.testing.assert_allclose(found, np.log(tail(-8.5) - tail(-9.5)), rtol=1e-9)


@pytest.mark.slow
def test_the_posterior_of_logistic_regression() -> None:
    data = logistic_regression.example()
    sign = 2 * data["y"] - 1

    def log_joint(w: Array) -> Array:
        return -np.sum(w**2, -1) / (2 * data["tau0"] ** 2) - np.logaddexp(0, -sign * (w @ data["x"].T)).sum(-1)

    assert_means(fit(logistic_regression), "w", plane_means(log_joint, 9.0))
