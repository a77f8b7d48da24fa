"""Ke, Lecture 2: least squares, lasso, reproducing kernels."""

import math

import numpy as np
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from sklearn.covariance import empirical_covariance

from errata.erratum import Erratum, Shown

X = np.array([[1.0, 0.4], [-0.5, 1.1], [0.3, -0.9], [-1.2, -0.2], [0.8, 0.6]])
Y = np.array([1.4, -0.3, 0.2, -1.9, 1.3])


def covariance() -> Shown:
    return Shown(
        "entry $(1, 1)$ of $\\hat\\Sigma$ for five points in the plane; the printed form is one number",
        printed=float(np.mean([x @ x for x in X])),
        right=float(np.mean([np.outer(x, x) for x in X], 0)[0, 0]),
        truth=float(empirical_covariance(X, assume_centered=True)[0, 0]),
        by="scikit-learn",
    )


def gradient() -> Shown:
    beta, step = np.array([2.0, -1.0]), np.array([1e-5, 0.0])

    def squares(b: np.ndarray) -> float:
        return float(((Y - X @ b) ** 2).sum())

    half = float((X.T @ (Y - X @ beta))[0])
    return Shown(
        "$\\partial \\lVert Y - X \\beta \\rVert^2 / \\partial \\beta_1$ at $\\beta = (2, -1)$",
        printed=2 * half,
        right=-2 * half,
        truth=(squares(beta + step) - squares(beta - step)) / 2e-5,
        by="finite differences",
        tolerance=1e-6,
    )


def restricted_eigenvalue() -> Shown:
    def ratio(slope: float) -> float:
        return float(((X @ [slope, 1.0]) ** 2).sum() / 5 / (slope**2 + 1))

    return Shown(
        "$\\kappa$ for five points in the plane and $S = \\{2\\}$",
        printed=1 / 5,
        right=float(np.linalg.eigvalsh(X.T @ X / 5)[0]),  # its direction is in the cone
        truth=min(minimize_scalar(ratio, bounds=side, method="bounded").fun for side in [(-3, 0), (0, 3)]),
        by="minimisation over the cone",
        tolerance=1e-6,
    )


def penalty_of_the_lasso() -> Shown:
    size = features = 100_000
    generator = np.random.default_rng(0)
    truth, level = np.eye(1, features)[0], math.log(2 * features / 0.05)

    def kept(penalty: float) -> float:
        """Share of 20 lassos with an error below 3 sqrt(s) penalty / kappa; the columns are orthogonal, kappa = 1."""
        errors = []
        for _ in range(20):
            z = truth + generator.normal(size=features) / math.sqrt(size)
            lasso = np.sign(z) * np.maximum(np.abs(z) - penalty, 0)
            errors.append(np.linalg.norm(lasso - truth))
        return float(np.mean(np.array(errors) <= 3 * penalty))

    return Shown(
        "share of 20 lassos with an error within the bound, orthogonal columns, $n = d = 10^5$, $s = 1$,"
        " $\\delta = 0.05$",
        printed=kept(math.sqrt(level / (2 * size))),
        right=kept(2 * math.sqrt(2 * level / size)),
        truth=0.95,
        by="the theorem, at least",
        tolerance=0.051,
    )


def norm_of_a_function() -> Shown:
    points, alpha = np.array([0.2, 0.5, 0.9]), np.array([2.0, -4.0, 3.0])
    form = float(alpha @ np.minimum.outer(points, points) @ alpha)

    def slope(t: float) -> float:
        return float(alpha[points > t].sum())

    return Shown(
        "norm of $2 k(\\cdot, 0.2) - 4 k(\\cdot, 0.5) + 3 k(\\cdot, 0.9)$ with the kernel $k(s, t) = \\min(s, t)$ on"
        " $[0, 1]$",
        printed=form,
        right=math.sqrt(form),
        truth=math.sqrt(quad(lambda t: slope(t) ** 2, 0, 1, points=points)[0]),
        by="quadrature of the squared derivative",
    )


ERRATA = (
    Erratum(
        "K1",
        "slide 13",
        r"$\hat\Sigma = \frac 1 n \sum_i X_i^\top X_i$",
        r"$\hat\Sigma = \frac 1 n \sum_i X_i X_i^\top$",
        shown=covariance,
    ),
    Erratum(
        "K2",
        "slides 15 and 36",
        r"$\partial \lVert Y - X \beta \rVert^2 / \partial \beta = 2 X^\top (Y - X \beta)$",
        r"$\partial \lVert Y - X \beta \rVert^2 / \partial \beta = -2 X^\top (Y - X \beta)$",
        "Of no consequence where it is set to zero.",
        gradient,
    ),
    Erratum(
        "K3",
        "slide 26",
        r"$\min_\Delta \frac 1 n \lVert \Delta \rVert^2 / \lVert \Delta \rVert^2 \ge \kappa$",
        r"$\min_\Delta \frac 1 n \lVert X \Delta \rVert^2 / \lVert \Delta \rVert^2 \ge \kappa$",
        shown=restricted_eigenvalue,
    ),
    Erratum(
        "K4",
        "slide 28",
        r"$\lambda = \sigma \sqrt{\frac{\log(2d/\delta)}{2n}}$,"
        r" $\lVert \hat\beta - \beta^* \rVert \le \frac{3 \sigma}{2 \kappa} \sqrt{\frac{2 s \log(2d/\delta)}{n}}$",
        r"$\lambda = 2 \sigma \sqrt{\frac{2 \log(2d/\delta)}{n}}$,"
        r" $\lVert \hat\beta - \beta^* \rVert \le \frac{6 \sigma}{\kappa} \sqrt{\frac{2 s \log(2d/\delta)}{n}}$",
        r"The proof needs $\lambda \ge 2 \lVert X^\top \varepsilon / n \rVert_\infty$, with the objective"
        r" $\frac{1}{2n} \lVert Y - X \beta \rVert^2 + \lambda \lVert \beta \rVert_1$.",
        penalty_of_the_lasso,
    ),
    Erratum("K5", "slide 39", r"The inner product $\lVert \cdot \rVert_H$", r"The norm $\lVert \cdot \rVert_H$"),
    Erratum(
        "K6",
        "slide 48",
        r"$\lVert f \rVert_H = \alpha^\top K \alpha$; $\lVert f \rVert_n^2 = \frac 1 n \sum_i f(x_i)$",
        r"$\lVert f \rVert_H^2 = \alpha^\top K \alpha$; $\lVert f \rVert_n^2 = \frac 1 n \sum_i f(x_i)^2$",
        shown=norm_of_a_function,
    ),
    Erratum(
        "K7",
        "slide 31",
        r"$\lVert Y - X \beta \rVert^2 + \lambda \sum_g \lVert \beta_{S_g} \rVert$; components"
        r" $\beta^*_{jk\, k=1}{}^\infty$",
        r"weights $\sqrt{m_g}$ for groups of unequal size, $\frac 1 n$ as on slide 33; $\{\beta^*_{jk}\}_{k=1}^\infty$",
    ),
    Erratum(
        "K8",
        "slides 18 and 37",
        r"$\hat\beta$ is optimal for $\lVert Y - X \hat\beta \rVert^2$; $\hat\beta^*$; both $N$ and $n$",
        r"for $\lVert Y - X \beta \rVert^2$; $\beta^*$; $n$",
    ),
)
