"""Population structure: STRUCTURE without and with admixture."""

import itertools

import numpy as np
from scipy.integrate import quad
from scipy.special import expit, gammaln

from errata.erratum import Erratum, Shown

# alleles 1, 2, 3 of four individuals at three loci, two copies each
GENOTYPES = np.array(
    [
        [[1, 1], [2, 2], [3, 1]],
        [[1, 2], [2, 2], [3, 3]],
        [[2, 3], [1, 3], [1, 2]],
        [[3, 3], [1, 1], [2, 2]],
    ]
)


def beta_posterior() -> Shown:
    alpha, beta, copies, ones = 2.0, 5.0, 10, 7

    def moment(power: int) -> float:
        return quad(lambda p: p ** (alpha - 1 + ones + power) * (1 - p) ** (beta - 1 + copies - ones), 0, 1)[0]

    return Shown(
        r"posterior mean of $p$ after 7 of 10 copies, prior $\text{Beta}(2, 5)$",
        printed=(ones + 1) / (copies + 2),
        right=(alpha + ones) / (alpha + beta + copies),
        truth=moment(1) / moment(0),
        by="quadrature",
    )


def counts_of_alleles() -> Shown:
    alleles = (GENOTYPES[..., None] == np.arange(1, 4)).sum(2)

    def sampled(added: np.ndarray) -> float:
        """added: (population, individual, locus, allele), what a genotype adds to a count."""
        generator = np.random.default_rng(0)
        origins, together = generator.integers(2, size=(1000, 4)), []
        for sweep in range(150):
            counts = np.einsum("cik,kilj->cklj", origins[..., None] == np.arange(2), added)
            gammas = generator.gamma(1.0 + counts)
            weights = np.einsum("ilj,cklj->cik", alleles, np.log(gammas / gammas.sum(-1, keepdims=True)))
            odds = weights[..., 0] - weights[..., 1]
            origins = (generator.random(odds.shape) > expit(odds)).astype(int)
            if sweep >= 50:
                together.append((origins[:, 0] == origins[:, 1]).mean())
        return float(np.mean(together))

    same = total = 0.0
    for origins in itertools.product(range(2), repeat=4):
        counts = np.array([alleles[np.array(origins) == k].sum(0) for k in range(2)])
        evidence = np.exp(gammaln(1.0 + counts).sum() - gammaln(3.0 + counts.sum(-1)).sum())
        total += evidence
        same += evidence * (origins[0] == origins[1])
    return Shown(
        "probability that the first two of four individuals share a population, three loci with three alleles,"
        " by Gibbs sampling",
        printed=sampled(np.stack([np.equal(GENOTYPES, k).sum(2)[..., None].repeat(3, -1) for k in (1, 2)])),
        right=sampled(np.stack([alleles, alleles])),
        truth=float(same / total),
        by="enumeration of all origins",
        tolerance=0.01,
    )


def kept_draws() -> Shown:
    correlation, thinning, kept, chains = 0.95, 5, 100, 4000
    generator = np.random.default_rng(0)
    spread = np.sqrt(1 - correlation**2)
    x = generator.normal(size=chains)
    total = np.zeros(chains)
    for step in range(kept * thinning):
        y = correlation * x + spread * generator.normal(size=chains)
        x = correlation * y + spread * generator.normal(size=chains)
        if step % thinning == thinning - 1:
            total += x
    gaps = np.abs(np.subtract.outer(np.arange(kept), np.arange(kept)))
    return Shown(
        "standard deviation of the mean of 100 kept draws, every fifth of a Gibbs sampler of two standard normals with"
        " correlation 0.95",
        printed=1 / kept**0.5,
        right=float((correlation ** (2 * thinning * gaps)).mean() ** 0.5),
        truth=float((total / kept).std()),
        by="4000 chains",
        tolerance=0.006,
    )


def origins_at_loci() -> Shown:
    shares = np.array([0.5, 0.5])
    frequencies = np.array([[0.9, 0.8], [0.2, 0.1]])  # of allele 1, population by locus
    generator = np.random.default_rng(0)
    origins = (generator.random((400_000, 2)) > shares[0]).astype(int)
    alleles = generator.random((400_000, 2)) < frequencies[origins, np.arange(2)]
    return Shown(
        "probability of allele 1 at both of two loci of one copy, half of the ancestry from either population",
        printed=float(shares @ frequencies.prod(1)),
        right=float((shares @ frequencies).prod()),
        truth=float(alleles.all(1).mean()),
        by="simulation",
        tolerance=0.004,
    )


ERRATA = (
    Erratum(
        "M44",
        "14",
        r"$p_{k\ell j}$ is the frequency of locus $j$; alleles $\{0, \dots, J_\ell\}$; $K > 2$",
        r"$p_{k\ell j}$ is the frequency of allele $j$ at locus $\ell$ in population $k$; alleles"
        r" $\{1, \dots, J_\ell\}$; $K \ge 2$",
    ),
    Erratum(
        "M45",
        "14",
        r"$\pi(p \mid X) \propto p^S (1 - p)^{n - S} = \text{Beta}(\alpha + S, \beta + n - S)$",
        r"$\pi(p \mid X) \propto p^{\alpha - 1} (1 - p)^{\beta - 1} p^S (1 - p)^{n - S}$, with $2n$ for $n$ where both"
        r" copies are counted",
        "The middle line forgets the prior; the result has it.",
        beta_posterior,
    ),
    Erratum(
        "M46",
        "14",
        r"$\Pr(X \mid P, Z = k) = \prod_\ell p_{k \ell x^{(i,1)}}\, p_{k \ell x^{(i,2)}}$",
        r"$\Pr(X^{(i)} \mid P, z^{(i)} = k) = \prod_\ell p_{k \ell x_\ell^{(i,1)}}\, p_{k \ell x_\ell^{(i,2)}}$",
        "The subscript is the allele at that locus, not the whole genotype.",
    ),
    Erratum(
        "M47",
        "14, twice",
        r"$n_{k\ell j} = \#\{(i, a): X_\ell^{(i,a)} = k,\ Z^{(i)} = k\}$",
        r"$n_{k\ell j} = \#\{(i, a): X_\ell^{(i,a)} = j,\ Z^{(i)} = k\}$",
        "As printed the count is the same for all alleles.",
        counts_of_alleles,
    ),
    Erratum(
        "M48",
        "14",
        r"The prior counts of alleles are $\alpha_j$ in the derivation and $\lambda_j$ in both algorithms",
        r"$\lambda_j$ throughout; $\alpha$ is the prior of the ancestry $q^{(i)}$ under admixture",
    ),
    Erratum(
        "M49",
        "14",
        r"Sample from $\Pr(Z, X)$ by the conditionals $\Pr(Z \mid P)$ and $\Pr(P \mid Z)$; the kept draws are i.i.d.",
        r"Sample from $\Pr(Z, P \mid X)$ by $\Pr(Z \mid P, X)$ and $\Pr(P \mid Z, X)$; the $(T - t_0)/a$ kept draws are"
        r" dependent",
        shown=kept_draws,
    ),
    Erratum(
        "M50",
        "14, admixture",
        r"Origins $z^{(i,a)}$; $q^{(i)} \sim \text{Dir}(\alpha + m_1, \dots, \alpha + m_k)$",
        r"Origins $z_\ell^{(i,a)}$, one at every locus, in the start, the counts and the conditional;"
        r" $q^{(i)} \sim \text{Dir}(\alpha + m_1^{(i)}, \dots, \alpha + m_K^{(i)})$",
        "With one origin for all loci a copy could not be of mixed ancestry.",
        origins_at_loci,
    ),
)
