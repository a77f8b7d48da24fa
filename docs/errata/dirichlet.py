"""The multinomial and the Dirichlet distribution."""

import numpy as np
from scipy.integrate import dblquad
from scipy.special import gammaln
from scipy.stats import dirichlet

from errata.erratum import Erratum, Shown

ALPHA, COUNTS = np.array([1.5, 2.0, 1.0]), np.array([3, 1, 2])


def joint_moment(power: int) -> float:
    """The integral of p_1^power p(letters | p) p(p) over the simplex."""

    def density(second: float, first: float) -> float:
        p = np.array([first, second, 1 - first - second])
        return float(first**power * (p**COUNTS).prod() * dirichlet.pdf(p, ALPHA))

    return dblquad(density, 0, 1, 0, lambda first: 1 - first, epsabs=1e-11)[0]


def posterior_adds_counts() -> Shown:
    shares = COUNTS / COUNTS.sum()
    return Shown(
        r"posterior mean of $p_1$ after six letters with counts (3, 1, 2), $\alpha = (1.5, 2, 1)$;"
        r" printed: $p$ read as their shares",
        printed=(shares[0] + ALPHA[0]) / (shares + ALPHA).sum(),
        right=(COUNTS[0] + ALPHA[0]) / (COUNTS + ALPHA).sum(),
        truth=joint_moment(1) / joint_moment(0),
        by="quadrature",
        tolerance=1e-6,
    )


def evidence_of_letters_in_their_order() -> Shown:
    after = ALPHA + COUNTS
    evidence = gammaln(ALPHA.sum()) - gammaln(after.sum()) + (gammaln(after) - gammaln(ALPHA)).sum()
    return Shown(
        "log evidence of the same six letters",
        printed=evidence + gammaln(COUNTS.sum() + 1) - gammaln(COUNTS + 1).sum(),
        right=evidence,
        truth=np.log(joint_moment(0)),
        by="quadrature",
        tolerance=1e-6,
    )


ERRATA = (
    Erratum(
        "M1",
        "1.1",
        r"$\alpha_j \ge 0$, $\alpha_j \in \mathbb{N}$",
        r"$\alpha_j > 0$, any real number",
        r"At $\alpha_j = 0$ the density cannot be normalised, and nothing in it asks for whole numbers.",
    ),
    Erratum(
        "M2",
        "1.1, last display",
        r"$\mathrm{Mult}(p) \times \mathrm{Dir}(\alpha) = \mathrm{Dir}(p_1 + \alpha_1, \ldots, p_k + \alpha_k)$",
        r"$\mathrm{Mult}(p) \times \mathrm{Dir}(\alpha) \propto \mathrm{Dir}(n_1 + \alpha_1, \ldots, n_k + \alpha_k)$",
        "The counts are added to the prior, as the display before it has it.",
        posterior_adds_counts,
    ),
    Erratum(
        "M3",
        "1.1",
        r"each letter is $\mathrm{Mult}(p)$",
        r"each letter is categorical: $p(D \mid p) = \prod_j p_j^{n_j}$",
        "The letters come in an order, so a multinomial coefficient has no place in their evidence.",
        evidence_of_letters_in_their_order,
    ),
)
