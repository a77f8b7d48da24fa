"""Whiteboard notes: mathematical basics and linear regression."""

import math

import numpy as np
from scipy import stats
from scipy.integrate import quad
from scipy.optimize import minimize, minimize_scalar
from sklearn.linear_model import Lasso

from errata.erratum import Erratum, Shown

X = np.array([[1.0, 0.4], [-0.5, 1.1], [0.3, -0.9], [-1.2, -0.2], [0.8, 0.6], [0.1, -1.0]])
Y = np.array([1.4, -0.3, 0.2, -1.9, 1.3, 0.0])


def likeliest_mean() -> Shown:
    x = np.array([1.2, 0.7, 2.5, 1.9])
    return Shown(
        "likeliest mean of the numbers 1.2, 0.7, 2.5 and 1.9 under a normal distribution",
        printed=math.inf,
        right=float(x.mean()),
        truth=float(minimize_scalar(lambda mu: -stats.norm.logpdf(x, mu).sum(), tol=1e-10).x),
        by="maximisation of the likelihood",
        tolerance=1e-6,
    )


def unbiased_variance() -> Shown:
    x = np.random.default_rng(0).normal(size=(200_000, 5))
    return Shown(
        "expectation of the estimate from five draws of variance 1, by simulation",
        printed=float((x**2).sum(1).mean() / 4),
        right=float(x.var(1, ddof=1).mean()),
        truth=1.0,
        by="the variance of the draws",
        tolerance=0.01,
    )


def shared_factor() -> Shown:
    generator = np.random.default_rng(0)
    loadings, noise = np.array([[1.0, 0.5], [0.8, -0.6]]), np.array([0.4, 0.9])
    x = generator.normal(size=(200_000, 2)) @ loadings.T + noise**0.5 * generator.normal(size=(200_000, 2))
    return Shown(
        "covariance of two observations with loadings $(1, 0.5)$ and $(0.8, -0.6)$",
        printed=0.0,
        right=float((loadings @ loadings.T + np.diag(noise))[0, 1]),
        truth=float(np.cov(x.T)[0, 1]),
        by="simulation",
        tolerance=0.015,
    )


def normal_density() -> Shown:
    sigma = 2.0

    def integral(constant: float) -> float:
        return constant * quad(lambda x: math.exp(-(x**2) / (2 * sigma**2)), -40, 40, points=[0])[0]

    return Shown(
        "integral of the normal density, $\\sigma = 2$",
        printed=integral(1 / math.sqrt(2 * math.pi * sigma)),
        right=integral(1 / (math.sqrt(2 * math.pi) * sigma)),
        truth=1.0,
        by="what a density integrates to",
    )


def full_row_rank() -> Shown:
    wide, y = np.array([[1.0, -0.5, 0.7]]), np.array([1.5])
    return Shown(
        "first coefficient of the shortest solution of one equation in three unknowns",
        printed=math.nan,
        right=float((wide.T @ np.linalg.solve(wide @ wide.T, y))[0]),
        truth=float(np.linalg.lstsq(wide, y)[0][0]),
        by="NumPy",
    )


def laplace_prior() -> Shown:
    variance, scale = 0.25, 0.2
    penalty = 2 * variance / scale

    def loss(parts: np.ndarray) -> float:
        """Minus log posterior of w = positive part - negative part."""
        residuals = Y - X @ (parts[:2] - parts[2:])
        return residuals @ residuals / (2 * variance) + parts.sum() / scale

    best = minimize(loss, np.full(4, 0.5), bounds=[(0, None)] * 4, tol=1e-12).x
    lasso = Lasso(alpha=penalty / (2 * len(Y)), fit_intercept=False, tol=1e-12).fit(X, Y)
    return Shown(
        "second coefficient that is most probable under the prior Laplace(0, 0.2), $\\sigma^2 = 0.25$",
        printed=float(np.linalg.solve(X.T @ X + penalty * np.eye(2), X.T @ Y)[1]),
        right=float(lasso.coef_[1]),
        truth=float(best[1] - best[3]),
        by="maximisation of the posterior density",
        tolerance=1e-6,
    )


ERRATA = (
    Erratum(
        "W1",
        "mathematical basics",
        r"$\mu_{MLE} = \arg\max_\mu \sum_i (x_i - \mu)^2$",
        r"$\mu_{MLE} = \arg\min_\mu \sum_i (x_i - \mu)^2$",
        "The sum of squares has no maximum.",
        likeliest_mean,
    ),
    Erratum(
        "W2",
        "mathematical basics",
        r"$\hat\sigma^2 = \frac{1}{N - 1} \sum_i (x_i - \mu)^2$",
        r"$\hat\sigma^2 = \frac{1}{N - 1} \sum_i (x_i - \bar x)^2$; with a known mean $\frac 1 N \sum_i (x_i - \mu)^2$",
        shown=unbiased_variance,
    ),
    Erratum(
        "W3",
        "mathematical basics",
        r"Factor analysis assumes a diagonal $\Sigma$, probabilistic PCA an isotropic one",
        r"They assume it of the noise: $\Sigma = W W^\top + \Psi$ with $\Psi$ diagonal, or isotropic",
        shown=shared_factor,
    ),
    Erratum("W4", "mathematical basics, summary", r"$y \sim A x + b$", r"$y = A x + b$"),
    Erratum(
        "W5",
        "linear regression",
        r"$\log \frac{1}{\sqrt{2 \pi \sigma}}$",
        r"$\log \frac{1}{\sqrt{2 \pi}\, \sigma}$",
        shown=normal_density,
    ),
    Erratum(
        "W6",
        "linear regression, MAP",
        r"$(y - w^\top x)^2$; $w \sim N(0, \sigma_0^2)$",
        r"$\sum_i (y_i - w^\top x_i)^2$; $w \sim N(0, \sigma_0^2 I)$",
    ),
    Erratum(
        "W7",
        "linear regression",
        r"$X^+ = (X^\top X)^{-1} X^\top$ for full row or column rank",
        r"for full column rank; $X^+ = X^\top (X X^\top)^{-1}$ for full row rank; $X^+ = V \Sigma^+ U^\top$ always",
        r"With more columns than rows $X^\top X$ has no inverse.",
        full_row_rank,
    ),
    Erratum(
        "W8",
        "linear regression, both summaries",
        r"The Gaussian or Laplace prior of the noise; $L_1$ belongs to Gaussian, $L_2$ to Laplace",
        r"The prior of $w$; $L_1$ belongs to Laplace, $L_2$ to Gaussian",
        "Only $L_1$ makes coefficients exactly zero.",
        laplace_prior,
    ),
    Erratum("W9", "summary", "The perceptron under the heading PCA", "PLA, the perceptron's algorithm"),
)
