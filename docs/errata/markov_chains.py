"""Markov chains and Markov chain Monte Carlo."""

import numpy as np
from scipy import stats
from scipy.integrate import quad
from scipy.optimize import minimize_scalar

from errata.erratum import Erratum, Shown

CHAIN = np.array([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.2, 0.1, 0.7]])
REVERSIBLE = np.array([[0.5, 0.5, 0.0], [0.25, 0.5, 0.25], [0.0, 0.1, 0.9]])


def stationary(chain: np.ndarray) -> np.ndarray:
    """The solution of linear equations."""
    states = len(chain)
    return np.linalg.lstsq(np.vstack([chain.T - np.eye(states), np.ones(states)]), np.eye(states + 1)[-1])[0]


def side_of_the_matrix() -> Shown:
    start, power = np.array([0.2, 0.5, 0.3]), np.linalg.matrix_power(CHAIN, 200)
    return Shown(
        "limit of the probability of the third of three states, started at $(0.2, 0.5, 0.3)$",
        printed=float((power @ start)[2]),
        right=float((power.T @ start)[2]),
        truth=float(stationary(CHAIN)[2]),
        by="the equations $P^\\top \\nu^* = \\nu^*$, $\\sum_s \\nu^*_s = 1$",
    )


def spectral_form() -> Shown:
    steps, root = 5, np.sqrt(stationary(REVERSIBLE))
    values, vectors = (part.real for part in np.linalg.eig(REVERSIBLE))
    own, orthogonal = np.linalg.eigh(REVERSIBLE * root[:, None] / root)
    return Shown(
        "probability of a move from the first to the third state in five steps of a reversible chain",
        printed=float((vectors * values**steps @ vectors.T)[0, 2]),
        right=float((orthogonal * own**steps @ orthogonal.T)[0, 2] / root[0] * root[2]),
        truth=float(np.linalg.matrix_power(REVERSIBLE, steps)[0, 2]),
        by="multiplication of matrices",
    )


def rate() -> Shown:
    values = np.array([0.2, -0.5])
    contrasts = np.array([[1.0, 1.0], [1.0, -1.0], [-2.0, 0.0]]) / np.array([6.0, 2.0]) ** 0.5
    chain = np.full((3, 3), 1 / 3) + contrasts * values @ contrasts.T

    def distance(steps: int) -> float:
        return float(np.abs(np.linalg.matrix_power(chain, steps)[0] - 1 / 3).sum() / 2)

    return Shown(
        "factor by which a step brings a chain with eigenvalues 1, 0.2 and -0.5 closer to its limit, in total variation"
        " after 20 steps",
        printed=float(values[0]),
        right=float(np.abs(values).max()),
        truth=distance(21) / distance(20),
        by="powers of the matrix",
        tolerance=1e-6,
    )


def ring() -> Shown:
    chain = (np.roll(np.eye(6), 1, 1) + np.roll(np.eye(6), -1, 1)) / 2
    return Shown(
        "probability that a walk on a ring of six states is back at its start after 1000 steps",
        printed=1 / 6,
        right=(1 + (-1) ** 1000) / 6,
        truth=float(np.linalg.matrix_power(chain, 1000)[0, 0]),
        by="powers of the matrix",
    )


def rejections() -> Shown:
    target = np.array([1.0, 2.0, 3.0, 6.0]) / 12
    generator = np.random.default_rng(0)
    proposals, uniforms = generator.integers(4, size=100_000), generator.random(100_000)
    state, accepted, visited = 0, np.zeros(4), np.zeros(4)
    for proposal, uniform in zip(proposals, uniforms, strict=True):
        if uniform * target[state] <= target[proposal]:
            state = proposal
            accepted[state] += 1
        visited[state] += 1
    return Shown(
        "share of the last state, target $(1, 2, 3, 6) / 12$, proposals uniform, 100 000 of them",
        printed=float(accepted[3] / accepted.sum()),
        right=float(visited[3] / visited.sum()),
        truth=float(target[3]),
        by="the target",
        tolerance=0.01,
    )


def jump(step: float) -> float:
    """Mean square of a jump of a random walk on the standard normal; a proposed h is taken with 2 Phi(-h/2)."""
    return 4 * quad(lambda h: h**2 * stats.norm.cdf(-h / 2) * stats.norm.pdf(h, 0, step), 0, 20, limit=100)[0]


def large_steps() -> Shown:
    generator = np.random.default_rng(0)
    now = generator.normal(size=1_000_000)
    proposal = now + 100 * generator.normal(size=now.size)
    accept = generator.random(now.size) < np.exp(np.minimum(0, (now**2 - proposal**2) / 2))
    return Shown(
        "correlation of consecutive draws, target standard normal, steps of standard deviation 100",
        printed=0.0,
        right=1 - jump(100) / 2,
        truth=float(np.corrcoef(now, np.where(accept, proposal, now))[0, 1]),
        by="simulation",
        tolerance=0.001,
    )


def best_acceptance() -> Shown:
    best = minimize_scalar(lambda step: -jump(step), bounds=(1, 5), method="bounded").x
    return Shown(
        "rate of acceptance with the longest mean square jump, standard normal target in one dimension",
        printed=0.25,
        right=0.44,
        truth=4 * quad(lambda h: stats.norm.cdf(-h / 2) * stats.norm.pdf(h, 0, best), 0, 20)[0],
        by="quadrature and maximisation over the step",
        tolerance=0.005,
    )


ERRATA = (
    Erratum(
        "M51",
        "15.1",
        r"Set $\theta_{22} \sim$ uniform",
        r"Set $\theta_2 \sim$ uniform",
        "The proof that follows is one of invariance; convergence needs irreducibility and aperiodicity too.",
    ),
    Erratum(
        "M52",
        "15.2",
        r"$\lim_T P^T \nu = \nu^*$ with $P_{s \to s'}$, whose rows add up to one",
        r"$\lim_N (P^\top)^N \nu = \nu^*$",
        shown=side_of_the_matrix,
    ),
    Erratum(
        "M53",
        "15.2",
        r"$P = U^\top \Lambda U$, $P^N = \sum_i \lambda_i^N u_i u_i^\top$",
        r"$P^N = D^{-1/2} \left(\sum_i \lambda_i^N u_i u_i^\top\right) D^{1/2}$ with $D = \text{diag}(\nu^*)$ and $u_i$"
        r" the eigenvectors of $D^{1/2} P D^{-1/2}$, for reversible $P$",
        "The printed form needs a symmetric $P$.",
        spectral_form,
    ),
    Erratum(
        "M54",
        "15.2",
        r"$L = P - I$ has eigenvalues $0 = \lambda_1 \le \lambda_2 \le \dots$;"
        r" $\lVert \nu^* - P \nu \rVert = O((1 - \lambda)^N)$ with the gap $\lambda = \lambda_2$",
        r"$I - P$ has them; $\lVert \nu^* - (P^\top)^N \nu \rVert = O(\lambda_*^N)$, $\lambda_*$ the largest modulus"
        r" of an eigenvalue of $P$ other than the first",
        "The gap does not see negative eigenvalues.",
        rate,
    ),
    Erratum(
        "M55",
        "15.2",
        r"An irreducible chain is ergodic",
        r"An irreducible and aperiodic chain is ergodic",
        shown=ring,
    ),
    Erratum(
        "M56",
        "15.3, step 5",
        r"On rejection go back to step 3",
        r"On rejection set $s^{(t+1)} = s^{(t)}$ and $t = t + 1$",
        "A state counts as often as it is kept.",
        rejections,
    ),
    Erratum(
        "M57",
        "15.3",
        r"With a large $\sigma^2$ consecutive draws are independent",
        r"With a large $\sigma^2$ they are almost always equal",
        "Nearly all proposals are rejected.",
        large_steps,
    ),
    Erratum(
        "M58",
        "15.3",
        r"The best rate of acceptance is $0.25$",
        r"It is $0.234$ in the limit of many dimensions and $0.44$ in one",
        shown=best_acceptance,
    ),
    Erratum(
        "M59",
        "15.3",
        r"$P(s \to s') = \alpha(s, s')\, Q(s'; s)$",
        r"for $s' \ne s$; $P(s \to s)$ also has the probability of all rejections",
    ),
)
