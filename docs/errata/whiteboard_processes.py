"""Whiteboard notes: Bayesian linear regression, Gaussian processes, partition functions."""

import numpy as np
from scipy import stats
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF

from errata.erratum import Erratum, Shown


def exponent_of_the_likelihood() -> Shown:
    generator = np.random.default_rng(0)
    x, y, variance, prior = generator.normal(size=(8, 2)), generator.normal(size=8), 0.25, np.diag([1.0, 2.0])
    precision = x.T @ x / variance + np.linalg.inv(prior)
    posterior = stats.multivariate_normal(np.linalg.solve(precision, x.T @ y) / variance, np.linalg.inv(precision))
    w = generator.normal(size=(50, 2))
    squares = ((y - w @ x.T) ** 2).sum(1)
    rest = stats.multivariate_normal(np.zeros(2), prior).logpdf(w) - posterior.logpdf(w)
    return Shown(
        "standard deviation of log joint minus log posterior over 50 random $w$",
        printed=float(np.std(-squares / (2 * variance**2) + rest)),
        right=float(np.std(-squares / (2 * variance) + rest)),
        truth=0.0,
        by="what every right posterior gives",
    )


def predictive_variance() -> Shown:
    x, y, variance, new = np.array([0.0, 0.5, 1.1, 1.4, 2.0]), np.array([0.1, 0.5, 0.8, 1.0, 0.9]), 0.04, 0.8
    kernel = np.exp(-(np.subtract.outer(x, x) ** 2) / 2) + variance * np.eye(5)
    across = np.exp(-((x - new) ** 2) / 2)
    process = GaussianProcessRegressor(RBF(1.0), alpha=variance, optimizer=None).fit(x[:, None], y)
    return Shown(
        "variance of $f(0.8)$ given five noisy values",
        printed=float(1 - across @ kernel @ across),
        right=float(1 - across @ np.linalg.solve(kernel, across)),
        truth=float(process.predict([[new]], return_std=True)[1][0] ** 2),
        by="scikit-learn",
    )


ERRATA = (
    Erratum(
        "W36",
        "Bayesian linear regression",
        r"$\exp\left(-\frac{1}{2 \sigma^2} (Y - X w)^\top \sigma^{-2} I\, (Y - X w) - \dots\right)$",
        r"$\exp\left(-\frac 1 2 (Y - X w)^\top \sigma^{-2} I\, (Y - X w) - \dots\right)$",
        r"The noise is divided by twice; the final $A$ and $\mu_w$ are right.",
        exponent_of_the_likelihood,
    ),
    Erratum(
        "W37",
        "Gaussian process regression, twice",
        r"$k(x^*, x^*) - k(x^*, X) [k(X, X) + \sigma^2 I]^{1} k(X, x^*)$",
        r"$k(x^*, x^*) - k(x^*, X) [k(X, X) + \sigma^2 I]^{-1} k(X, x^*)$",
        "A variance is not negative.",
        predictive_variance,
    ),
    Erratum(
        "W38",
        "Gaussian process regression",
        r"$\text{Cov} = E[\varphi^\top w w^\top \varphi']$; $\xi_{t_1 - t_n}$; $A$ for two matrices",
        r"That needs $E[w] = 0$; $(\xi_{t_1}, \dots, \xi_{t_n})$; two letters, where Woodbury's identity is used",
    ),
    Erratum(
        "W39",
        "partition function",
        r"$\log \hat p(x \mid \theta)$; phases are sums and the objective is a mean",
        r"$\log \hat p(x_i \mid \theta)$; phases and objective are all means",
    ),
)
