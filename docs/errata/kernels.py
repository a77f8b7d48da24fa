"""Reproducing kernel Hilbert spaces, support vector machines, kernel logistic regression and Gaussian processes."""

import numpy as np
from scipy.integrate import quad
from scipy.optimize import brentq, minimize, minimize_scalar
from scipy.stats import multivariate_normal
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC

import bayeslab as bl
from bayeslab.models import kernel_logistic
from errata.erratum import Erratum, Shown

X = np.array([-1.5, -1.0, -0.6, -0.1, 0.2, 0.7, 1.1, 1.6])
LABELS = np.array([-1, -1, 1, -1, 1, 1, -1, 1])


def gram(x: np.ndarray, z: np.ndarray) -> np.ndarray:
    return np.exp(-((x[:, None] - z) ** 2) / 2)


def kernel_ridge_counts_points() -> Shown:
    y, penalty = np.sin(2 * X), 0.1
    kernel, new = gram(X, X), gram(np.array([0.5]), X)[0]
    factor = np.linalg.cholesky(kernel)

    def objective(root: np.ndarray) -> float:
        """root: coefficients of the columns of the Cholesky factor, in which the norm of f is the plain one."""
        return ((y - factor @ root) ** 2).mean() + penalty * root @ root

    root = minimize(objective, np.zeros(8), tol=1e-10).x
    return Shown(
        r"$f(0.5)$ fitted to eight values of $\sin 2x$, $K(u, v) = e^{-(u - v)^2/2}$, $\lambda = 0.1$",
        printed=new @ np.linalg.solve(kernel + penalty * np.eye(8), y),
        right=new @ np.linalg.solve(kernel + penalty * len(y) * np.eye(8), y),
        truth=new @ np.linalg.solve(factor.T, root),
        by=r"minimising $\frac1n \lVert y - Kc \rVert^2 + \lambda c'Kc$",
        tolerance=1e-4,
    )


def coefficients_of_support_vectors() -> Shown:
    kernel, n, penalty = gram(X, X), len(X), 0.05

    def negative_dual(alpha: np.ndarray) -> float:
        signed = alpha * LABELS
        return signed @ kernel @ signed / (4 * penalty) - alpha.sum()

    balance = {"type": "eq", "fun": lambda alpha: alpha @ LABELS}
    start = np.full(n, 0.5 / n)
    alpha = minimize(negative_dual, start, bounds=[(0, 1 / n)] * n, constraints=balance, tol=1e-12).x
    machine = SVC(C=1 / (2 * penalty * n), kernel="precomputed", tol=1e-10).fit(kernel, LABELS)
    first = list(machine.support_).index(0)
    return Shown(
        r"$c_1$ of a support vector machine on eight points, $\lambda = 0.05$",
        printed=(kernel @ (alpha * LABELS) / (2 * penalty))[0],
        right=(alpha * LABELS / (2 * penalty))[0],
        truth=machine.dual_coef_[0, first],
        by="scikit-learn",
        tolerance=1e-4,
    )


def lagrangian_halves_the_norm() -> Shown:
    kernel, n, cost = gram(X, X), len(X), 1.0
    machine = SVC(C=cost, kernel="precomputed", tol=1e-10).fit(kernel, LABELS)
    c = np.zeros(n)
    c[machine.support_] = machine.dual_coef_[0]
    value = LABELS * machine.decision_function(kernel)
    slack, alpha = np.maximum(0, 1 - value), np.abs(c)
    others = cost * slack.sum() - alpha @ (value - 1 + slack) - (cost - alpha) @ slack

    def primal(unknown: np.ndarray) -> float:
        return cost * unknown[n + 1 :].sum() + unknown[:n] @ kernel @ unknown[:n] / 2

    def excess(unknown: np.ndarray) -> np.ndarray:
        return LABELS * (kernel @ unknown[:n] + unknown[n]) - 1 + unknown[n + 1 :]

    start = np.append(np.zeros(n + 1), np.ones(n))
    bounds = [(None, None)] * (n + 1) + [(0, None)] * n
    best = minimize(primal, start, bounds=bounds, constraints={"type": "ineq", "fun": excess}, tol=1e-10)
    return Shown(
        r"the Lagrangian at the optimum, same points, $C = 1$, which is the least value of the objective",
        printed=others + c @ kernel @ c,
        right=others + c @ kernel @ c / 2,
        truth=best.fun,
        by=r"minimising $C \sum_i \xi_i + \frac12 c'Kc$ under its constraints",
        tolerance=1e-4,
    )


def probability_of_log_odds() -> Shown:
    return Shown(
        r"$P(y = 1 \mid x)$ where the log odds $f(x)$ are 1.7",
        printed=1 / (1 + np.exp(1.7)),
        right=1 / (1 + np.exp(-1.7)),
        truth=brentq(lambda p: np.log(p / (1 - p)) - 1.7, 0.01, 0.99, xtol=1e-12),
        by=r"solving $\log \frac{p}{1 - p} = 1.7$",
    )


def slope_of_the_likelihood() -> Shown:
    def best(sign: int) -> float:
        return minimize_scalar(lambda slope: np.log1p(np.exp(sign * LABELS * slope * X)).sum(), tol=1e-10).x

    regression = LogisticRegression(C=np.inf, fit_intercept=False, tol=1e-10).fit(X[:, None], LABELS)
    return Shown(
        r"slope $s$ of greatest likelihood for $f(x) = s x$, same points",
        printed=best(1),
        right=best(-1),
        truth=regression.coef_[0, 0],
        by="scikit-learn",
        tolerance=1e-4,
    )


def penalty_of_a_gaussian_process() -> Shown:
    data = kernel_logistic.example()
    labels, precision = 2 * data["y"] - 1, np.linalg.inv(4 * gram(data["x"], data["x"]))

    def first(penalty: float) -> float:
        def objective(f: np.ndarray) -> float:
            return np.log1p(np.exp(-labels * f)).mean() + penalty * f @ precision @ f

        return minimize(objective, np.zeros(6), tol=1e-10).x[0]

    tree = bl.fit(0, kernel_logistic.model, data, bl.MAP(), progress=False)
    return Shown(
        r"most probable $f(x_1)$ for $f \sim \mathrm{GP}(0, K)$, data of `kernel_logistic.example()`",
        printed=first(1 / 6),
        right=first(1 / 12),
        truth=float(tree["posterior"]["f"][0, 0, 0]),
        by="`bl.MAP()`",
        tolerance=1e-4,
    )


def prediction_uses_the_prior_mean() -> Shown:
    x, y, noise = np.array([0.0, 1.0, 1.4]), np.array([2.5, 3.4]), 0.09
    mean, covariance = 2 + x, gram(x, x) + noise * np.eye(3)

    def moment(power: int) -> float:
        joint = multivariate_normal(mean, covariance)
        return quad(lambda new: new**power * joint.pdf([*y, new]), -5, 12, epsabs=1e-12, points=[3.5])[0]

    def predict(shift: np.ndarray) -> float:
        return shift[2] + covariance[2, :2] @ np.linalg.solve(covariance[:2, :2], y - shift[:2])

    return Shown(
        r"predictive mean at 1.4 after $Y = (2.5, 3.4)$ at $(0, 1)$, $\mu(x) = 2 + x$, $\sigma = 0.3$",
        printed=predict(np.zeros(3)),
        right=predict(mean),
        truth=moment(1) / moment(0),
        by="quadrature",
        tolerance=1e-6,
    )


ERRATA = (
    Erratum(
        "M15",
        "5.1.1",
        r"$\int K(s, t) \varphi_k(t)\, dt = \lambda_k \varphi_k(t)$; $L_K f = g(t)$;"
        r" $\lVert f \rVert^2 = \langle f, f \rangle^2$; $\langle f(\cdot, K(\cdot, x)) \rangle$",
        r"$\lambda_k \varphi_k(s)$; $g(s)$; $\lVert f \rVert^2 = \langle f, f \rangle = \sum_j c_j^2 / \lambda_j$;"
        r" $\langle f, K(\cdot, x) \rangle = f(x)$",
    ),
    Erratum(
        "M16",
        "functional analysis, 4.1 and 5.2",
        r"$C[a, b]$ with the largest absolute value as norm is a Hilbert space; $x^3 + \delta(x - c)$ is in $L_2$",
        r"a Banach space; in neither $L_1$ nor $L_2$, for $\delta$ is no function",
    ),
    Erratum("M17", "6.1", r"$\varphi_i(x_i)$ in the proof of the representer theorem", r"$K(\cdot, x_i)$"),
    Erratum(
        "M18",
        "6.2",
        r"$(Kc - y)^2$; $c = (K + \lambda I)^{-1} y$ in the remarks",
        r"$\lVert Kc - y \rVert^2$; $c = (K + \lambda n I)^{-1} y$",
        r"The number of points is $\ell$, $N$ and $n$ in turn.",
        kernel_ridge_counts_points,
    ),
    Erratum("M19", "6.3", r"$\min_{f, \alpha}$ in (6.2) and (6.3)", r"$\min_f \max_{\alpha \ge 0}$"),
    Erratum(
        "M20",
        "7.1",
        r"$c = \frac{1}{2\lambda} \sum_i \alpha_i y_i K_i$",
        r"$c_i = \frac{\alpha_i y_i}{2\lambda}$",
        r"From $2\lambda K c = K (\alpha \circ y)$. The dual problem that follows is right.",
        coefficients_of_support_vectors,
    ),
    Erratum(
        "M21",
        "7.3",
        r"Lagrangian with $c'Kc$",
        r"with $\frac12 c'Kc$, and $\alpha_i \ge 0$ among the constraints",
        shown=lagrangian_halves_the_norm,
    ),
    Erratum(
        "M22",
        "8",
        r"$P(y = 1 \mid x) = \frac{1}{1 + e^{f}}$, $P(y = -1 \mid x) = \frac{1}{1 + e^{-f}}$",
        r"$P(y = 1 \mid x) = \frac{1}{1 + e^{-f}}$, $P(y = -1 \mid x) = \frac{1}{1 + e^{f}}$,"
        r" in one formula $\frac{1}{1 + e^{-y f}}$",
        r"With $f = \log \frac{P(y = 1 \mid x)}{P(y = -1 \mid x)}$, as the lecture defines it.",
        probability_of_log_odds,
    ),
    Erratum(
        "M23",
        "8",
        r"likelihood $\prod_i \frac{1}{1 + e^{y_i f(x_i)}}$, alone and with a prior",
        r"$\prod_i \frac{1}{1 + e^{-y_i f(x_i)}}$",
        r"The objective in the end has the right sign.",
        slope_of_the_likelihood,
    ),
    Erratum(
        "M24",
        "8 and 9.1",
        r"prior $e^{-\lVert f \rVert^2}$ in 8, which makes $\lambda = \frac1n$, but $e^{-\lVert f \rVert^2/2}$ in 9.1",
        r"$e^{-\lVert f \rVert^2/2}$ for $f \sim \mathrm{GP}(0, K)$, which makes $\lambda = \frac{1}{2n}$",
        r"The prior of 8 is that of $\mathrm{GP}(0, K/2)$.",
        penalty_of_a_gaussian_process,
    ),
    Erratum(
        "M25",
        "8 and 8.1",
        r"$P(y = \pm 1 \mid x) \propto y f(x)$; gradient $\frac12 H (x - x_0) + \frac12 (x - x_0)' H$",
        r"$P$ increases with $y f(x)$; gradient $H (x - x_0)$",
    ),
    Erratum("M26", "9.1", r"$K(x_1, x_n)$ in the lower left corner", r"$K(x_n, x_1)$"),
    Erratum(
        "M27",
        "9.2",
        r"$E[Y_* \mid Y] = K(X_*, X) (K + \sigma^2 I)^{-1} Y$ though the prior has mean $\mu(\cdot)$",
        r"$E[Y_* \mid Y] = \mu(X_*) + K(X_*, X) (K + \sigma^2 I)^{-1} (Y - \mu(X))$",
        shown=prediction_uses_the_prior_mean,
    ),
)
