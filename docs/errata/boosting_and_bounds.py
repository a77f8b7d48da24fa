"""Boosting, concentration inequalities and uniform convergence."""

from itertools import product
from math import comb

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.stats import binom

from errata.erratum import Erratum, Shown


def step_of_a_boosting_round() -> Shown:
    error = 0.2
    odds = np.log((1 - error) / error)

    def normaliser(step: float) -> float:
        return (1 - error) * np.exp(-step) + error * np.exp(step)

    return Shown(
        r"least normaliser $Z_t$ of the weights for $\epsilon = 0.2$; the proof has $2\sqrt{\epsilon(1-\epsilon)}$",
        printed=normaliser(odds),
        right=normaliser(odds / 2),
        truth=minimize_scalar(normaliser).fun,
        by=r"minimising over $\alpha_t$",
    )


def error_of_three_votes() -> Shown:
    error = 0.1
    votes = [np.array(vote) for vote in product([0, 1], repeat=3)]
    return Shown(
        r"error of the majority of three independent classifiers, $\epsilon = 0.1$ each",
        printed=2 * error**2 - 3 * error**3,
        right=3 * error**2 - 2 * error**3,
        truth=sum(float(np.where(vote, error, 1 - error).prod()) for vote in votes if vote.sum() > 1),
        by="the eight outcomes",
    )


def hoeffding() -> Shown:
    n, far = 50, 10
    probability = 2 * binom.sf((n + far) // 2 - 1, n, 0.5)
    return Shown(
        r"by how much $P(\lvert \sum x_i \rvert \ge 10)$ exceeds its bound, 50 fair signs $x_i = \pm 1$",
        printed=max(0.0, probability - 2 * np.exp(-2 * far**2 / n)),
        right=max(0.0, probability - 2 * np.exp(-(far**2) / (2 * n))),
        truth=0.0,
        by="the meaning of a bound",
    )


def labellings_of_intervals() -> Shown:
    points, dimension = 5, 2
    cuts = range(points + 1)
    labellings = {tuple(first <= i < last for i in range(points)) for first in cuts for last in cuts}
    return Shown(
        "labellings of five points on a line by intervals, whose VC dimension is 2 and which attain the bound",
        printed=sum(comb(points, i) for i in range(1, dimension + 1)),
        right=sum(comb(points, i) for i in range(dimension + 1)),
        truth=len(labellings),
        by="enumeration",
    )


ERRATA = (
    Erratum(
        "M32",
        "11.4",
        r"$\alpha_t = \log \frac{1 - \epsilon_t}{\epsilon_t}$",
        r"$\alpha_t = \frac12 \log \frac{1 - \epsilon_t}{\epsilon_t}$",
        "So it stands in 11.5, and so the proof needs it.",
        step_of_a_boosting_round,
    ),
    Erratum(
        "M33",
        "11.3 to 11.5",
        r"improved error $2\epsilon^2 - 3\epsilon^3$; errors counted by $I\{h(x_i) = y_i\}$;"
        r" exponential loss least at $f = -\frac12 \log \frac{P(y = 1 \mid x)}{P(y = -1 \mid x)}$",
        r"$3\epsilon^2 - 2\epsilon^3$; $I\{h(x_i) \ne y_i\}$, also in $p_i$, $q$, $w$, $EX_2$ and $EX_3$;"
        r" $f = +\frac12 \log \frac{P(y = 1 \mid x)}{P(y = -1 \mid x)}$",
        shown=error_of_three_votes,
    ),
    Erratum(
        "M34",
        "concentration inequalities, 11.3; 12.5",
        r"$P(\lvert \sum_i x_i \rvert \ge \epsilon) \le 2 e^{-2\epsilon^2 / \sum_i M_i^2}$ for"
        r" $\lvert x_i \rvert \le M_i$, from $E e^{\lambda x} \le e^{\lambda^2 M^2/8}$; for means $2 e^{-2\epsilon^2}$",
        r"$2 e^{-\epsilon^2 / (2 \sum_i M_i^2)}$, from $E e^{\lambda x} \le e^{\lambda^2 M^2/2}$; for means"
        r" of $\lvert x_i \rvert \le 1$, $2 e^{-n \epsilon^2/2}$",
        r"The printed constants belong to $x_i$ in an interval of length $M_i$; here it is $2 M_i$.",
        hoeffding,
    ),
    Erratum(
        "M35",
        "concentration inequalities, 11.2",
        r"$P(\lvert x \rvert \ge \epsilon) \le \inf_{\lambda < 0} e^{-\lambda\epsilon} E e^{\lambda x}$",
        r"$P(x \ge \epsilon) \le \inf_{\lambda > 0} e^{-\lambda\epsilon} E e^{\lambda x}$",
        "Two theorems and their proofs have run into one another.",
    ),
    Erratum(
        "M36",
        "concentration inequalities, 11.3",
        r"$n$ missing from the exponent of (11.5); $2 e^{(\cdot)} = e^{-u}$ in the proof of Bernstein's inequality",
        r"$e^{-\lambda\epsilon} \exp\left(\frac{n\sigma^2}{M^2} (e^{\lambda M} - 1 - \lambda M)\right)$;"
        r" $e^{(\cdot)} = e^{-u}$, hence $\epsilon^2 - \frac23 u M \epsilon - 2 n \sigma^2 u = 0$",
    ),
    Erratum(
        "M37",
        "11 and 12",
        r"$\lceil M^2 t \rceil / n$, $\lceil 2 \sigma^2 u \rceil / n$",
        r"$\sqrt{M^2 t / n}$, $\sqrt{2 \sigma^2 u / n}$",
        "So in a scan of the lecture, which may have lost the root sign itself.",
    ),
    Erratum(
        "M38",
        "12.5 and 12.8",
        r"at most $\sum_{i=1}^d \binom{n}{i}$ labellings; all sets of $n$ points are shattered; loss $I\{f(x) = y\}$;"
        r" Rademacher variables 0 or 1",
        r"$\sum_{i=0}^d \binom{n}{i}$; some set of $n$ points; $I\{f(x) \ne y\}$; $-1$ or $1$",
        shown=labellings_of_intervals,
    ),
    Erratum(
        "M39",
        "12.4",
        r"balls of radius $\epsilon / 4M$ in one place, $\epsilon / 8M$ in another; $P(\sup D)$",
        r"the same radius in both; $P(\sup D \ge \epsilon)$",
    ),
)
