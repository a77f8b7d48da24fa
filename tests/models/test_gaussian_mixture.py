"""Mixtures of normal distributions: Gibbs against samplers in plain NumPy, labels against enumeration."""

from itertools import product
from types import ModuleType
from typing import Any

import arviz_stats as azs
import jax
import numpy as np
import pytest
from numpyro.infer.util import log_density
from scipy import special, stats
from xarray import Dataset, DataTree

import bayeslab as bl
from bayeslab.datasets import scaled_prior
from bayeslab.models import gaussian_mixture, multivariate_gaussian_mixture
from bayeslab.programs.program import precision_scope

Array = np.ndarray[Any, Any]
METHOD = bl.Gibbs(num_samples=2000, num_chains=2)


def three_groups() -> Array:
    """Thirty rows whose outer groups lie fifteen standard deviations from the one in between."""
    rng = np.random.default_rng(4)
    return np.concatenate([rng.normal(-5.0, 0.3, 6), rng.normal(0.0, 0.3, 10), rng.normal(6.0, 0.2, 14)])


SCALAR = {"num_rows": 30, "num_components": 3, "mu0": 0.4, "kappa0": 0.05, "alpha": 3.0, "beta": 0.3}
SCALAR |= {"concentration": 1.5, "y": three_groups()}


def crossing_groups() -> Array:
    """Forty rows of two features in two groups, correlated in opposite ways, a few rows between them."""
    rng = np.random.default_rng(5)
    first = rng.multivariate_normal([-1.5, 0.0], [[1.0, 0.6], [0.6, 0.8]], 15)
    return np.concatenate([first, rng.multivariate_normal([1.2, 1.0], [[0.7, -0.4], [-0.4, 0.9]], 25)])


PLANE = {"num_rows": 40, "num_components": 2, "mu0": np.array([0.2, 0.5]), "n0": 5.0, "kappa0": 0.1}
PLANE |= {"scale": np.array([[0.5, 0.1], [0.1, 0.4]]), "concentration": 2.0, "y": crossing_groups()}


def aligned(key: int, lecture: ModuleType, data: dict[str, Any]) -> DataTree:
    tree = bl.fit(key, lecture.model, data, METHOD, progress=False)
    return bl.align(tree, lecture.SITE_DIMS, lecture.LABELS)


def in_order(draws: Dataset) -> Dataset:
    """Components, and their labels, in increasing order of the first mean."""
    means = draws["mu"].mean(("chain", "draw")).values
    order = np.argsort(means.reshape(len(means), -1)[:, 0])
    return draws.isel(component=order).assign(z=draws["z"].copy(data=np.argsort(order)[draws["z"].values]))


def gaps(found: Dataset, oracle: dict[str, Array]) -> dict[str, float]:
    """The largest difference of posterior means of each site, in Monte Carlo standard errors of both."""
    largest = {}
    for name, values in oracle.items():
        error = azs.mcse(found, method="mean")[name].values
        batches = values.reshape(20, -1, *values.shape[1:]).mean(1)
        error = np.hypot(error, batches.std(0, ddof=1) / np.sqrt(20))
        gap = abs(found[name].mean(("chain", "draw")).values - values.mean(0))
        largest[name] = float((gap / np.where(error > 0, error, 1.0)).max())
    return largest


def sampler(y: Array, num_draws: int, mu0: float, kappa0: float, alpha: float, beta: float, concentration: float,
            **sizes: int) -> dict[str, Array]:  # fmt: skip
    """Gibbs for the scalar model, by the textbook: labels, then weights, then (mu, tau) of each component at once."""
    rng, k = np.random.default_rng(0), sizes["num_components"]
    mu, tau, weights = np.quantile(y, (np.arange(k) + 0.5) / k), np.ones(k), np.ones(k) / k
    kept: list[tuple[Array, ...]] = []
    for _ in range(num_draws + 100):
        logits = np.log(weights) + np.log(tau) / 2 - tau * (y[:, None] - mu) ** 2 / 2
        z = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
        one_hot = z[:, None] == np.arange(k)
        n = one_hot.sum(0)
        weights = rng.dirichlet(concentration + n)
        centre = (kappa0 * mu0 + y @ one_hot) / (kappa0 + n)
        squares = kappa0 * mu0**2 + y**2 @ one_hot - (kappa0 + n) * centre**2
        tau = rng.gamma(alpha + n / 2, 1 / (beta + squares / 2))
        mu = rng.normal(centre, 1 / np.sqrt((kappa0 + n) * tau))
        kept.append((weights, mu, tau, z))
    return dict(zip(("weights", "mu", "tau", "z"), map(np.stack, zip(*kept[100:], strict=True)), strict=True))


def plane_sampler(y: Array, num_draws: int, mu0: Array, scale: Array, n0: float, kappa0: float, concentration: float,
                  **sizes: int) -> dict[str, Array]:  # fmt: skip
    """The same for two components in any dimension, with the Wishart distribution of SciPy."""
    rng = np.random.default_rng(1)
    mu, precision, weights = y[[0, -1]], np.stack([np.eye(y.shape[1])] * 2), np.ones(2) / 2
    kept: list[tuple[Array, ...]] = []
    for _ in range(num_draws + 100):
        away = y[:, None] - mu
        squares = np.einsum("nki,kij,nkj->nk", away, precision, away)
        logits = np.log(weights) + np.linalg.slogdet(precision)[1] / 2 - squares / 2
        z = (rng.uniform(size=len(y)) < 1 / (1 + np.exp(logits[:, 0] - logits[:, 1]))).astype(int)
        groups = [y[z == 0], y[z == 1]]
        weights = rng.dirichlet([concentration + len(group) for group in groups])
        mu, precision = mu.copy(), precision.copy()
        for k, group in enumerate(groups):
            kappa = kappa0 + len(group)
            centre = (kappa0 * mu0 + group.sum(0)) / kappa
            outer = kappa0 * np.outer(mu0, mu0) + group.T @ group - kappa * np.outer(centre, centre)
            scale_n = np.linalg.inv(np.linalg.inv(scale) + outer)
            precision[k] = stats.wishart(n0 + len(group), scale_n).rvs(random_state=rng)
            mu[k] = rng.multivariate_normal(centre, np.linalg.inv(kappa * precision[k]))
        kept.append((weights, mu, precision, z))
    return dict(zip(("weights", "mu", "precision", "z"), map(np.stack, zip(*kept[100:], strict=True)), strict=True))


def test_gibbs_agrees_with_a_sampler_in_numpy() -> None:
    tree = aligned(0, gaussian_mixture, SCALAR)
    assert bl.diagnose(tree) == ""
    largest = gaps(in_order(tree["posterior"].to_dataset()), sampler(**SCALAR | {"num_draws": 20_000}))
    assert max(largest.values()) < 5, largest


@pytest.mark.slow
def test_multivariate_gibbs_agrees_with_a_sampler_in_numpy() -> None:
    """Rows between the groups have labels that move, so that their probabilities are compared as well."""
    tree = aligned(1, multivariate_gaussian_mixture, PLANE)
    oracle = plane_sampler(**PLANE | {"num_draws": 4000})
    share = oracle["z"].mean(0)
    assert ((share > 0.05) & (share < 0.95)).sum() >= 3
    largest = gaps(in_order(tree["posterior"].to_dataset()), oracle)
    assert max(largest.values()) < 5, largest


def test_one_feature_is_the_scalar_model() -> None:
    """The densities of both programs at one point; in one dimension a Wishart is a Gamma."""
    scalar, z = gaussian_mixture.example(), np.array([0, 1, 0, 0, 0, 1, 1, 1])
    y = {"weights": np.array([0.4, 0.6]), "z": z, "y": scalar.pop("y")}
    mu, tau = np.array([-0.3, 1.7]), np.array([0.9, 2.2])
    scale, mu0 = np.array([[1 / (2 * scalar["beta"])]]), np.array([scalar["mu0"]])
    line = scalar | {"mu0": mu0, "scale": scale, "n0": 2 * scalar["alpha"]}
    line = {name: value for name, value in line.items() if name not in ("alpha", "beta")}
    column = y | {"y": y["y"][:, None], "mu": mu[:, None], "precision": tau[:, None, None]}
    with jax.enable_x64(True):
        one = log_density(gaussian_mixture.model, (), scalar, y | {"mu": mu, "tau": tau})[0]
        other = log_density(multivariate_gaussian_mixture.model, (), line, column)[0]
    np.testing.assert_allclose(one, other, rtol=1e-12)


def test_labels_given_everything_else_are_those_of_enumeration() -> None:
    """log p(z | y) of every draw and log p(y), against a sum over all 32 vectors of labels."""
    y, weights = np.array([-1.2, 0.3, 0.9, 2.5, 0.6]), np.array([0.3, 0.7])
    mu, tau = np.array([-0.5, 1.5]), np.array([1.3, 0.8])
    known = {"weights": weights, "mu": mu, "tau": tau}
    data = {"num_rows": 5, "num_components": 2, "y": y} | known
    tree = bl.fit(2, gaussian_mixture.model, data, bl.Exact(500), progress=False)
    gamma, normal = stats.gamma(2.0, scale=2.0), stats.norm(0.0, 1 / np.sqrt(0.1 * tau))
    prior = stats.dirichlet([1.0, 1.0]).logpdf(weights) + gamma.logpdf(tau).sum() + normal.logpdf(mu).sum()
    joint = {}
    for labels in product([0, 1], repeat=5):
        z = np.array(labels)
        joint[labels] = prior + (np.log(weights[z]) + stats.norm(mu[z], 1 / np.sqrt(tau[z])).logpdf(y)).sum()
    evidence = special.logsumexp(list(joint.values()))
    np.testing.assert_allclose(tree.attrs["log_evidence"], evidence, rtol=1e-10)
    draws = tree["posterior"]["z"].values[0]
    log_q = [joint[tuple(map(int, labels))] - evidence for labels in draws]
    np.testing.assert_allclose(tree["sample_stats"]["log_q"].values[0], log_q, rtol=1e-10)
    probability = sum(np.exp(value - evidence) * np.array(labels) for labels, value in joint.items())
    np.testing.assert_allclose(draws.mean(0), probability, atol=5 * 0.5 / np.sqrt(500))


def test_one_component_and_one_row_are_normal_gamma() -> None:
    """The textbook means: mu0 counts as kappa0 rows."""
    data = {"num_rows": 1, "num_components": 1, "y": np.array([1.3])}
    draws = bl.fit(3, gaussian_mixture.model, data, METHOD, progress=False)["posterior"].to_dataset()
    assert (draws["z"] == 0).all()
    np.testing.assert_allclose(draws["weights"], 1.0)
    mean = draws.mean(("chain", "draw"))
    error = azs.mcse(draws[["mu", "tau"]], method="mean")
    assert abs(mean["mu"] - 1.3 / 1.1).item() < 5 * error["mu"].item()
    assert abs(mean["tau"] - 2.5 / (0.5 + 0.1 * 1.3**2 / (2 * 1.1))).item() < 5 * error["tau"].item()


@pytest.mark.parametrize(("wrong", "words"), [({"concentration": -1.0}, "concentration"), ({"beta": 0.0}, "rate")])
def test_impossible_priors_are_refused(wrong: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        bl.bind(gaussian_mixture.model, gaussian_mixture.example() | wrong)


def test_a_scaled_prior_is_the_default_of_standardised_data() -> None:
    """Log joints of y in its units and of standardised y differ by one number, wherever the sites are."""
    y = 1e8 + 5 * np.append(three_groups(), np.nan)
    place, scale = np.nanmean(y), np.nanstd(y)
    size = {"num_rows": len(y), "num_components": 2}
    with precision_scope():
        raw = bl.bind(gaussian_mixture.model, {"y": y} | size | scaled_prior(y))
        standard = bl.bind(gaussian_mixture.model, {"y": (y - place) / scale} | size)
        rng, gaps = np.random.default_rng(0), []
        for _ in range(5):
            weights, tau = rng.dirichlet([1, 1]), rng.gamma(2.0, 2.0, 2)
            z, mu = {"z": rng.integers(2, size=len(y)), "weights": weights}, rng.normal(size=2)
            mine = raw.log_joint(z | {"mu": place + scale * mu, "tau": tau / scale**2})
            gaps.append(float(mine - standard.log_joint(z | {"mu": mu, "tau": tau})))
    np.testing.assert_allclose(gaps, gaps[0], atol=1e-5)
    for wrong in ([1.0], [2.0, 2.0], [np.inf, 1.0], []):
        with pytest.raises(ValueError, match="different finite numbers; expected two at least"):
            scaled_prior(wrong)
