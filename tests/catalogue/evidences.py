"""The evidence of the lectures that state one, by other means."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
from scipy import integrate, special, stats
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Matern

from bayeslab.models import (
    allele_frequency,
    beta_binomial,
    dirichlet_multinomial,
    gaussian_markov_net,
    gp_regression,
    inverse_gamma,
    linear_dynamics_model,
    linear_gaussian,
    linear_regression,
    linear_regression_known_noise,
    markov_chain,
    normal_gamma,
    normal_known_mean,
    normal_known_variance,
    normal_normal,
    normal_wishart,
    polynomial_regression,
    weight_matrix,
)


def letter_by_letter(y: Any, alpha: Any, **_: Any) -> float:
    """Polya's urn: each letter is predicted by the prior counts and the letters before it."""
    counts, result = np.array(alpha, float), 0.0
    for letter in y.ravel():
        result += np.log(counts[letter] / counts.sum())
        counts[letter] += 1
    return result


def counts_by_position(y: Any, alpha: Any, **_: Any) -> float:
    """Dirichlet-multinomial probability of the counts over the number of orders of the letters."""
    counts = np.array([(y == letter).sum(0) for letter in range(4)]).T
    orders = special.gammaln(len(y) + 1) - special.gammaln(counts + 1).sum(1)
    return np.sum(stats.dirichlet_multinomial(alpha, [len(y)] * len(counts)).logpmf(counts) - orders)


def probability_integrated(trials: Any, y: Any, alpha: float, beta: float) -> float:
    return integral(lambda p: stats.binom(trials, p).pmf(y).prod() * stats.beta(alpha, beta).pdf(p), 0, 1)


def mean_marginalised(y: Any, mu0: float, sigma0: float, sigma: float, **_: Any) -> float:
    covariance = sigma**2 * np.eye(len(y)) + sigma0**2
    return stats.multivariate_normal(np.full(len(y), mu0), covariance).logpdf(y)


def precision_integrated(y: Any, mu: float, alpha: float, beta: float, **_: Any) -> float:
    prior = stats.gamma(alpha, scale=1 / beta)
    return integral(lambda t: stats.norm(mu, 1 / np.sqrt(t)).pdf(y).prod() * prior.pdf(t), 0, np.inf)


def variance_integrated(y: Any, mu: float, alpha: float, beta: float, **_: Any) -> float:
    prior = stats.invgamma(alpha, scale=beta)
    return integral(lambda v: stats.norm(mu, np.sqrt(v)).pdf(y).prod() * prior.pdf(v), 0, np.inf)


def row_by_row(y: Any, mu0: float, kappa0: float, alpha: float, beta: float, **_: Any) -> float:
    """Each row is Student-t given the rows before it, which are then learned one at a time."""
    result = 0.0
    for row in y:
        width = np.sqrt(beta * (kappa0 + 1) / (alpha * kappa0))
        result += stats.t(2 * alpha, mu0, width).logpdf(row)
        beta += kappa0 / (kappa0 + 1) * (row - mu0) ** 2 / 2
        mu0, kappa0, alpha = (kappa0 * mu0 + row) / (kappa0 + 1), kappa0 + 1, alpha + 0.5
    return result


def vector_by_vector(y: Any, mu0: Any, scale: Any, n0: float, kappa0: float, **_: Any) -> float:
    result, rate = 0.0, np.linalg.inv(scale)
    for row in y:
        degrees = n0 - len(mu0) + 1
        shape = rate * (kappa0 + 1) / (kappa0 * degrees)
        result += stats.multivariate_t(mu0, shape, degrees).logpdf(row)
        rate = rate + kappa0 / (kappa0 + 1) * np.outer(row - mu0, row - mu0)
        mu0, kappa0, n0 = (kappa0 * mu0 + row) / (kappa0 + 1), kappa0 + 1, n0 + 1
    return result


def step_by_step(y: Any, state: Any, action: Any, scale: Any, n0: float, k0: Any) -> float:
    prior = np.eye(y.shape[1], len(k0)), k0, np.linalg.inv(scale), n0
    return matrix_normal_rows(y, np.concatenate([state, action], 1), *prior)


def matrix_normal_rows(y: Any, u: Any, m: Any, k: Any, rate: Any, degrees: float) -> float:
    """Each row is Student-t given those before it, from which the matrix and the noise are then learned."""
    result = 0.0
    for regressors, row in zip(u, y, strict=True):
        free = degrees - y.shape[1] + 1
        weights = np.linalg.solve(k, regressors)
        spread, error = 1 + regressors @ weights, row - m @ regressors
        result += stats.multivariate_t(m @ regressors, rate * spread / free, free).logpdf(row)
        m, k = m + np.outer(error, weights) / spread, k + np.outer(regressors, regressors)
        rate, degrees = rate + np.outer(error, error) / spread, degrees + 1
    return result


def node_by_node(y: Any, mu: Any, scale: Any, n0: float, **_: Any) -> float:
    """Each row is predicted, by a multivariate t, from the rows before it."""
    result, rate = 0.0, np.linalg.inv(scale)
    for row in y:
        degrees = n0 - len(mu) + 1
        result += stats.multivariate_t(mu, rate / degrees, degrees).logpdf(row)
        rate, n0 = rate + np.outer(row - mu, row - mu), n0 + 1
    return result


def coefficients_marginalised(x: Any, y: Any, tau0: float, sigma: float) -> float:
    return stats.multivariate_normal(cov=sigma**2 * np.eye(len(y)) + tau0**2 * x @ x.T).logpdf(y)


def regression_marginalised(
    x: Any, y: Any, shrinkage: float = 0.1, a: float = 2.0, b: float = 1.0, weights: Any = 1.0
) -> float:
    shape = b / a * (np.diag(1 / np.broadcast_to(weights, len(y))) + x @ x.T / shrinkage)
    return stats.multivariate_t(np.zeros(len(y)), shape, 2 * a).logpdf(y)


def one_mean_integrated(y: float, theta0: float, tau0: float, sigma: float) -> float:
    prior = stats.norm(theta0, tau0)
    return integral(lambda theta: stats.norm(theta, sigma).pdf(y) * prior.pdf(theta), -20, 20)


def seen_given_its_parts(y: Any, mu: Any, precision: Any, a: Any, noise_precision: Any, b: Any) -> float:
    """p(y) = p(x) p(y | x) / p(x | y) at one x, with p(x | y) from the joint covariance of x and y."""
    prior, noise = np.linalg.inv(precision), np.linalg.inv(noise_precision)
    joint = np.block([[prior, prior @ a.T], [a @ prior, a @ prior @ a.T + noise]])
    split = len(mu)
    gain = joint[:split, split:] @ np.linalg.inv(joint[split:, split:])
    given = stats.multivariate_normal(
        mu + gain @ (y - a @ mu - b), joint[:split, :split] - gain @ joint[split:, :split]
    )
    x = mu + 0.3
    seen = stats.multivariate_normal(a @ x + b, noise).logpdf(y)
    return stats.multivariate_normal(mu, prior).logpdf(x) + seen - given.logpdf(x)


def copy_by_copy(y: Any, num_alleles: Any, concentration: Any, **_: Any) -> float:
    """Polya's urns, one a locus."""
    result = 0.0
    for locus, size in enumerate(num_alleles):
        urn = np.array(concentration[:size], float)
        for allele in y[:, locus].ravel():
            result += np.log(urn[allele] / urn.sum())
            urn[allele] += 1
    return result


def move_by_move(y: Any, num_states: int, lengths: Any, concentration: float, stickiness: float, **_: Any) -> float:
    """Polya's urns, one for first states and one for each state to move from."""
    urns, result = concentration + stickiness * np.eye(num_states + 1, num_states), 0.0
    urns[num_states] = concentration
    for path, length in zip(y, lengths, strict=True):
        for before, after in zip([num_states, *path[: length - 1]], path[:length], strict=True):
            result += np.log(urns[before, after] / urns[before].sum())
            urns[before, after] += 1
    return result


def weights_marginalised(x: Any, y: Any, degree: int, tau0: float, sigma: float) -> float:
    phi = np.vander(x, degree + 1, increasing=True)
    prior = tau0**2 * special.binom(degree, np.arange(degree + 1))
    return stats.multivariate_normal(cov=phi * prior @ phi.T + sigma**2 * np.eye(len(x))).logpdf(y)


def by_scikit_learn(x: Any, y: Any, kernel: Any, sigma: float, mu: float) -> float:
    """For the Matern kernel of the example."""
    process = GaussianProcessRegressor(Matern(1.0, "fixed", nu=1.5), alpha=sigma**2, optimizer=None)
    return process.fit(x[:, None], y - mu).log_marginal_likelihood_value_


ORACLES: dict[ModuleType, Callable[..., float]] = {
    dirichlet_multinomial: letter_by_letter,
    weight_matrix: counts_by_position,
    beta_binomial: probability_integrated,
    normal_normal: one_mean_integrated,
    linear_gaussian: seen_given_its_parts,
    allele_frequency: copy_by_copy,
    normal_known_variance: mean_marginalised,
    normal_known_mean: precision_integrated,
    inverse_gamma: variance_integrated,
    normal_gamma: row_by_row,
    normal_wishart: vector_by_vector,
    linear_dynamics_model: step_by_step,
    gaussian_markov_net: node_by_node,
    linear_regression_known_noise: coefficients_marginalised,
    linear_regression: regression_marginalised,
    markov_chain: move_by_move,
    polynomial_regression: weights_marginalised,
    gp_regression: by_scikit_learn,
}


def integral(density: Callable[[float], float], low: float, high: float) -> float:
    return np.log(integrate.quad(density, low, high, epsabs=0, epsrel=1e-10, limit=200)[0])
