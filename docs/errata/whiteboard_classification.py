"""Whiteboard notes: discriminants, naive Bayes, PCA, support vector machines."""

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.naive_bayes import GaussianNB

from errata.erratum import Erratum, Shown


def pooled_classes() -> Shown:
    generator = np.random.default_rng(0)
    first = generator.normal(size=(200, 2)) * [1.0, 0.5]
    second = generator.normal(size=(30, 2)) * [0.4, 1.5] + [1.0, 1.2]
    gap = second.mean(0) - first.mean(0)

    def direction(scatter: np.ndarray) -> float:
        w = np.linalg.solve(scatter, gap)
        return float(w[1] / w[0])

    one, two = np.cov(first.T, bias=True), np.cov(second.T, bias=True)
    library = LinearDiscriminantAnalysis(solver="lsqr").fit(np.vstack([first, second]), np.repeat([0, 1], [200, 30]))
    return Shown(
        "slope $w_2 / w_1$ of the discriminant direction of 200 and 30 points",
        printed=direction(one + two),
        right=direction(200 * one + 30 * two),
        truth=float(library.coef_[0, 1] / library.coef_[0, 0]),
        by="scikit-learn's Gaussian classes with a shared covariance",
    )


def derivative_of_determinant() -> Shown:
    a, step = np.array([[2.0, 0.3], [1.1, 1.5]]), np.array([[0.0, 1e-6], [0.0, 0.0]])
    inverse = np.linalg.inv(a)
    return Shown(
        "$\\partial \\det A / \\partial a_{12}$ at $A = (2, 0.3; 1.1, 1.5)$",
        printed=float(np.linalg.det(a) * inverse[0, 1]),
        right=float(np.linalg.det(a) * inverse[1, 0]),
        truth=float((np.linalg.det(a + step) - np.linalg.det(a - step)) / 2e-6),
        by="finite differences",
        tolerance=1e-6,
    )


def parameters_of_classes() -> Shown:
    x = np.array([[1.0, 0.2], [1.4, -0.3], [0.7, 0.5], [-0.2, 1.4], [0.1, 1.9], [-0.6, 1.2], [0.9, 0.4]])
    y, new = np.array([0, 0, 0, 1, 1, 1, 0]), np.array([0.5, 0.6])
    weights = np.array([(y == c).mean() for c in (0, 1)])
    means, variances = (np.array([of(x[y == c], axis=0) for c in (0, 1)]) for of in (np.mean, np.var))
    densities = np.exp(-((new - means) ** 2) / (2 * variances)) / np.sqrt(variances)
    posterior = weights * densities.prod(1)
    return Shown(
        "probability of the second class at a new point, seven points of two features",
        printed=float(weights[1]),
        right=float(posterior[1] / posterior.sum()),
        truth=float(GaussianNB(var_smoothing=0.0).fit(x, y).predict_proba(new[None])[0, 1]),
        by="scikit-learn",
    )


ERRATA = (
    Erratum(
        "W10",
        "linear discriminant analysis",
        r"$S_w = S_1 + S_2$, the covariances of the classes",
        r"$S_w = N_1 S_1 + N_2 S_2$",
        r"Sum and pooled covariance have the same direction only if $N_1 = N_2$ or $S_1 \propto S_2$.",
        pooled_classes,
    ),
    Erratum(
        "W11",
        "Gaussian discriminant analysis",
        r"Maximum a posteriori; $\partial |A| / \partial A = |A| A^{-1}$; $N_1 S_1 \Sigma^{-2}$",
        r"Maximum of the joint likelihood; $\partial |A| / \partial A = |A| A^{-\top}$;"
        r" $\Sigma^{-1} N_1 S_1 \Sigma^{-1}$",
        r"No prior is there. The final $\Sigma$ is right.",
        derivative_of_determinant,
    ),
    Erratum(
        "W12",
        "naive Bayes",
        r"$p(x_i \mid y) = N(\mu_i, \sigma_i^2)$; $p(x_i = i \mid y) = \theta_i$",
        r"$p(x_i \mid y = c) = N(\mu_{ic}, \sigma_{ic}^2)$; $p(x_i = j \mid y = c) = \theta_{ijc}$",
        "Parameters that no class owns tell no classes apart.",
        parameters_of_classes,
    ),
    Erratum(
        "W13",
        "dimension reduction",
        r"$\lim_{n \to 0}$ for the dimension $n$, with a constant $C$",
        r"$\lim_{n \to \infty}$, and $C$ depends on $n$",
    ),
    Erratum(
        "W14",
        "PCA",
        r"$\hat x_i = \sum_i (u_i^\top x_i) u_i$",
        r"$\hat x_i = \sum_j (u_j^\top x_i) u_j$",
    ),
    Erratum(
        "W15",
        "support vector machines",
        r"$\xi_i = 1 - y_i f(x_i)$; $k(x, x') = \varphi(x)^\top \varphi(x)$",
        r"$\xi_i = \max(0, 1 - y_i f(x_i))$, which needs no constraint beside it;"
        r" $k(x, x') = \varphi(x)^\top \varphi(x')$, from $k(x_1, x_1)$ on",
    ),
)
