"""CS229: supervised learning, networks, ICA."""

import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import betainc, expit

from errata.erratum import Erratum, Shown

UNMIXING = np.array([[0.4, 1.2], [1.5, -0.3]])
SIGNAL = np.array([0.8, -1.4])


def root_of_the_sum() -> Shown:
    size, dimension = 10**6, 1
    common = dimension / size * math.log(size / dimension)
    few, many = 150, 600

    def distance(level: int) -> float:
        """The distance from one half that a binomial share exceeds with probability exp(-level)."""
        return brentq(lambda t: math.log(betainc(size * (0.5 + t), size * (0.5 - t) + 1, 0.5)) + level, 0.001, 0.018)

    return Shown(
        "factor by which a training error of one half strays farther when $\\log(1/\\delta)$ grows from 150 to 600,"
        " $n = 10^6$, $D = 1$",
        printed=(math.sqrt(common) + many / size) / (math.sqrt(common) + few / size),
        right=math.sqrt((common + many / size) / (common + few / size)),
        truth=distance(many) / distance(few),
        by="the tails of the binomial distribution",
        tolerance=0.085,
    )


def size_of_the_determinant() -> Shown:
    side = np.linspace(-40, 40, 801)
    sources = np.stack(np.meshgrid(side, side), -1) @ UNMIXING.T
    product = (expit(sources) * expit(-sources)).prod(-1).sum() * (side[1] - side[0]) ** 2
    return Shown(
        "integral of the density of two mixed signals",
        printed=float(product * np.linalg.det(UNMIXING)),
        right=float(product * abs(np.linalg.det(UNMIXING))),
        truth=1.0,
        by="what a density integrates to",
        tolerance=1e-6,
    )


def step_of_ica() -> Shown:
    rate, step = 1e-3, np.array([[1e-6, 0.0], [0.0, 0.0]])

    def log_likelihood(w: np.ndarray) -> float:
        return float(np.log(expit(w @ SIGNAL) * expit(-w @ SIGNAL)).sum() + np.linalg.slogdet(w)[1])

    data = np.outer(1 - 2 * expit(UNMIXING @ SIGNAL), SIGNAL)
    volume = np.linalg.inv(UNMIXING.T)
    return Shown(
        "change of $w_{11}$ in one step of ascent, $\\alpha = 0.001$",
        printed=float((rate * data + volume)[0, 0]),
        right=float((rate * (data + volume))[0, 0]),
        truth=rate * (log_likelihood(UNMIXING + step) - log_likelihood(UNMIXING - step)) / 2e-6,
        by="finite differences of the log likelihood",
    )


ERRATA = (
    Erratum(
        "C1",
        "3.1, footnote",
        r"$b(a, \tau) \exp\left((\eta^\top T(y) - a(\eta)) / c(\tau)\right)$",
        r"$b(y, \tau) \exp\left((\eta^\top T(y) - a(\eta)) / c(\tau)\right)$",
    ),
    Erratum(
        "C2",
        "2.3",
        r"$\ell(\theta)$ is minus the log likelihood",
        r"a letter of its own: $\ell$ is the log likelihood in 2.1 and 2.4",
    ),
    Erratum("C3", "4.1.1", r"$\Sigma \ge 0$", r"$\Sigma > 0$, or there is no density"),
    Erratum("C4", "5.3", r"$O(n)$ for an update", r"$O(n)$ for one coefficient, $O(n^2)$ for all"),
    Erratum(
        "C5",
        "6.4, 6.5",
        r"$\hat\gamma$ in the constraint after it was set to one; $d^* = \max \theta_D(w)$",
        r"$1$ in its place; $d^* = \max \theta_D(\alpha, \beta)$",
    ),
    Erratum(
        "C6",
        "7.2 to 7.4",
        r"Sums over $j$ in (7.58) and $k$ in (7.64) to $n$; $B[\sigma, \cdot]$ in (7.79); the learned features"
        r" $a^{[r]}$; layer norm to a square of one",
        r"Sums to $m$; $B[\text{MM}, a^{[k]}]$; $a^{[r-1]}$; to a mean square of one",
    ),
    Erratum(
        "C7",
        "8.3.3",
        r"$O\left(\sqrt{\frac D n \log \frac n D} + \frac 1 n \log \frac 1 \delta\right)$; $n + 1$ parameters"
        r" $\theta_0, \dots, \theta_d$",
        r"$O\left(\sqrt{\frac D n \log \frac n D + \frac 1 n \log \frac 1 \delta}\right)$; $d + 1$ parameters",
        r"The root covers both terms; the numbers set every constant to one.",
        root_of_the_sum,
    ),
    Erratum("C8", "9.3", r"Subsets of $m/k$ examples; $k = m$", r"$n/k$ and $k = n$: there are $n$ examples"),
    Erratum("C9", "12", r"Data near a subspace of $n - 1$ dimensions", r"$d - 1$ dimensions"),
    Erratum(
        "C10",
        "13.1 to 13.3",
        r"$n = 2$; $p(x) = \prod_j p_s(w_j^\top x) \cdot |W|$",
        r"$d = 2$; $p(x) = \prod_j p_s(w_j^\top x) \cdot |\det W|$",
        "Read as a determinant, the bars make a density negative.",
        size_of_the_determinant,
    ),
    Erratum(
        "C11",
        "13.3",
        r"$W := W + \alpha\, (1 - 2 g(W x))\, x^\top + (W^\top)^{-1}$",
        r"$W := W + \alpha \left((1 - 2 g(W x))\, x^\top + (W^\top)^{-1}\right)$",
        "The step length belongs to the whole gradient.",
        step_of_ica,
    ),
    Erratum(
        "C19",
        "4.2.1",
        "Laplace smoothing is an estimate",
        r"It is the posterior mean under $\text{Beta}(1, 1)$, or $\text{Dir}(1, \dots, 1)$",
    ),
)
