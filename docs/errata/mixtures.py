"""Mixtures, EM and k-means."""

import numpy as np
from scipy.stats import multivariate_normal

from errata.erratum import Erratum, Shown


def boundaries_are_curved() -> Shown:
    first = np.array([[1.0, 0.3], [0.3, 0.8]])
    second = np.array([[0.6, -0.1], [-0.1, 1.5]])
    point, step = np.array([0.4, -0.2]), np.array([0.5, 0.7])
    line = point + np.outer([-1, 0, 1], step)
    ratio = multivariate_normal.logpdf(line, [0, 0], first) - multivariate_normal.logpdf(line, [1, 1], second)
    return Shown(
        "second difference along a line of the log ratio of two components with unequal covariances",
        printed=0.0,
        right=step @ (np.linalg.inv(second) - np.linalg.inv(first)) @ step,
        truth=ratio[0] - 2 * ratio[1] + ratio[2],
        by="SciPy's normal densities at three points",
    )


ERRATA = (
    Erratum(
        "M40",
        "13.1.1",
        r"$\pi$ is in the $K$-dimensional simplex; $z_i \sim \mathrm{Mult}(\pi)$; $p(x_i \mid \mu_k, \Sigma_k, \pi)$",
        r"the $(K - 1)$-dimensional simplex; $z_i$ is categorical; $p(x_i \mid \mu_{1:K}, \Sigma_{1:K}, \pi)$",
    ),
    Erratum(
        "M41",
        "13.1.2",
        "hard clustering draws linear boundaries",
        r"linear if all $\Sigma_k$ are equal, otherwise quadratic",
        shown=boundaries_are_curved,
    ),
    Erratum(
        "M42",
        "13.2",
        r"$Q(\theta^{(t)})$; for the mode of the posterior add $\log p(\theta^{(t)})$; $r_{ik}^{t+1}$ in the E-step and"
        r" $r_{ik}^t$ in the M-step; $Q$ is the expected sufficient statistic",
        r"$Q(\theta \mid \theta^{(t)})$, maximised over $\theta$; add $\log p(\theta)$; the same $r_{ik}$ in both"
        r" steps; $Q$ is the expected complete log likelihood",
    ),
    Erratum(
        "M43",
        "13.3",
        r"$k = \arg\min_k \lVert x_i - \mu_k \rVert^2$; EM finds a local minimum of the likelihood",
        r"$k = \arg\min_j \lVert x_i - \mu_j \rVert^2$; a local maximum",
    ),
)
