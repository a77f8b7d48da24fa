"""Least squares, ridge and Bayesian regression, and the choice of variables."""

from itertools import combinations

import numpy as np
from scipy.optimize import minimize

from errata.erratum import Erratum, Shown

X = np.array([[1.0, 0.3], [0.4, -1.2], [-0.7, 0.5], [1.6, 0.9], [-1.1, -0.4], [0.2, 1.4]])
Y = np.array([1.9, -0.3, -0.8, 3.6, -2.4, 1.5])


def ridge_counts_rows() -> Shown:
    penalty, rows = 0.2, len(Y)

    def objective(beta: np.ndarray) -> float:
        return ((Y - X @ beta) ** 2).mean() + penalty * beta @ beta

    return Shown(
        r"first ridge coefficient, six rows, two columns, $\lambda = 0.2$",
        printed=np.linalg.solve((X.T @ X + penalty * np.eye(2)) * rows, X.T @ Y)[0],
        right=np.linalg.solve(X.T @ X + penalty * rows * np.eye(2), X.T @ Y)[0],
        truth=minimize(objective, np.zeros(2), tol=1e-10).x[0],
        by=r"minimising $\frac1n \lVert Y - X\beta \rVert^2 + \lambda \lVert \beta \rVert^2$",
        tolerance=1e-5,
    )


def prediction_is_a_number() -> Shown:
    sigma, tau0, new = 0.5, 1.3, np.array([0.8, -0.6])
    covariance = np.linalg.inv(np.eye(2) / tau0**2 + X.T @ X / sigma**2)
    rng = np.random.default_rng(1)
    beta = rng.normal(0, tau0, (400_000, 2))
    log_weight = -((Y - beta @ X.T) ** 2).sum(1) / (2 * sigma**2)
    weight = np.exp(log_weight - log_weight.max())
    return Shown(
        r"predictive mean at $x_* = (0.8, -0.6)$, same rows, $\sigma = 0.5$, $\tau_0 = 1.3$",
        printed=float("nan"),
        right=new @ covariance @ X.T @ Y / sigma**2,
        truth=weight @ (beta @ new) / weight.sum(),
        by="draws of the prior weighted by their likelihood",
        tolerance=0.01,
    )


def penalty_counts_coefficients_in_use() -> Shown:
    rng = np.random.default_rng(2)
    beta = np.array([2.0, 0.0, -1.5, 0.0])
    x = rng.normal(size=(30, 4))
    y = x @ beta + rng.normal(0, 0.5, 30)
    subsets = [list(subset) for size in range(5) for subset in combinations(range(4), size)]
    losses = [((y - x[:, subset] @ np.linalg.lstsq(x[:, subset], y)[0]) ** 2).mean() for subset in subsets]
    sizes, penalty = np.array([len(subset) for subset in subsets]), 0.2
    return Shown(
        r"variables chosen among 4 by trying every subset, 30 rows, $\lambda = 0.2$",
        printed=sizes[np.argmin(losses + penalty * (4 - sizes))],
        right=sizes[np.argmin(losses + penalty * sizes)],
        truth=np.count_nonzero(beta),
        by="counting the coefficients that made the data",
    )


ERRATA = (
    Erratum(
        "M4",
        "2.1",
        r"$Y$ is $p \times 1$; the derivative is taken with respect to $\theta$",
        r"$Y$ is $n \times 1$; the derivative is taken with respect to $\beta$",
    ),
    Erratum(
        "M5",
        "2.1",
        r"$X'X$ has rank $n$; $L = \sum_i (y_i - x_i'\beta)^2$ is the negative log likelihood",
        r"rank at most $\min(n, p)$; the negative log likelihood is $L / (2\sigma^2) + n \log \sigma$ and a constant",
        r"What is left out does not move the best $\beta$, but would that of $\sigma$.",
    ),
    Erratum(
        "M6",
        "2.4",
        r"$X'Y = (X'X + \lambda I)\, n\, \beta$",
        r"$X'Y = (X'X + \lambda n I)\, \beta$",
        "The solution in the line after it is right.",
        ridge_counts_rows,
    ),
    Erratum(
        "M14",
        "4.2",
        r"$\mu_* = \sigma^{-2}\, \Sigma_1 X'Y x_*$",
        r"$\mu_* = \sigma^{-2}\, x_*' \Sigma_1 X'Y$",
        r"As printed, a column is multiplied by a column.",
        prediction_is_a_number,
    ),
    Erratum(
        "M28",
        "10",
        r"$\lVert \beta \rVert_0 = \sum_j I(\beta_j = 0)$",
        r"$\lVert \beta \rVert_0 = \sum_j I(\beta_j \ne 0)$",
        shown=penalty_counts_coefficients_in_use,
    ),
    Erratum(
        "M29",
        "10",
        r"trying all subsets is already huge for $p = 10$",
        r"$2^{10} = 1024$ least-squares fits take a moment; the search is hopeless as $p$ grows",
    ),
    Erratum(
        "M30",
        "10.1.1",
        "the equivalence of the two forms of the lasso, illegible in a scan of the lecture",
        r"for each $\lambda$ there is a $\tau$ such that $\min_\beta \frac1n \lVert Y - X\beta \rVert^2 + \lambda"
        r" \lVert \beta \rVert_1$ and $\min_\beta \frac1n \lVert Y - X\beta \rVert^2$ subject to"
        r" $\lVert \beta \rVert_1 \le \tau$ have the same solution",
    ),
    Erratum(
        "M31",
        "10.1.2",
        "the path of the lasso is piecewise continuous",
        r"it is continuous, and piecewise linear in $\lambda$",
        "A lasso coefficient can stay at zero. A ridge coefficient may pass through zero,"
        r" but all of them vanish only as $\lambda \to \infty$.",
    ),
)
