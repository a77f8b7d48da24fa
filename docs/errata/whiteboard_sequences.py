"""Whiteboard notes: Markov chains, hidden Markov models, state space models and particles."""

import numpy as np
from scipy import stats
from scipy.optimize import minimize_scalar

from errata.erratum import Erratum, Shown
from errata.small_chain import (
    EMISSION,
    INITIAL,
    SYMBOLS,
    TRANSITION,
    backward,
    joint,
    paths,
    simulated_states,
)


def first_state_of_the_path() -> Shown:
    states = paths(3)
    moves = TRANSITION[states[:, :-1], states[:, 1:]].prod(1)
    last = states[:, 2] == 1
    return Shown(
        "probability of the second state at step 3, a sum over paths",
        printed=float((INITIAL[0] * moves)[last].sum()),
        right=float((INITIAL[states[:, 0]] * moves)[last].sum()),
        truth=float((simulated_states(3, 400_000)[:, 2] == 1).mean()),
        by="simulation",
        tolerance=0.003,
    )


def symbol_of_the_step() -> Shown:
    symbols = SYMBOLS[:4]

    def likelihood(after_the_first: np.ndarray) -> float:
        alpha = INITIAL * EMISSION[:, symbols[0]]
        for symbol in after_the_first:
            alpha = alpha @ TRANSITION * EMISSION[:, symbol]
        return float(alpha.sum())

    return Shown(
        "likelihood of the symbols 1, 3, 2, 3",
        printed=likelihood(symbols[:-1]),
        right=likelihood(symbols[1:]),
        truth=float(joint(paths(4), symbols).sum()),
        by="enumeration of all paths",
    )


def two_sequences() -> Shown:
    starts = [EMISSION[:, symbols[0]] * backward(symbols)[0] for symbols in (np.array([2, 2, 2, 2]), SYMBOLS, SYMBOLS)]
    given = np.array(starts)  # p(symbols | first state), sequence by state

    def limit(of_posterior: np.ndarray) -> float:
        """Fixed point of the update of pi; a weight for every sequence given its probability."""
        initial = INITIAL
        for _ in range(2000):
            weights = given * initial
            weights = weights / weights.sum(1, keepdims=True) ** of_posterior
            initial = weights.sum(0) / weights.sum()
        return float(initial[0])

    def loss(first: float) -> float:
        return -float(np.log(given @ [first, 1 - first]).sum())

    return Shown(
        "$\\pi_1$ at the end of EM for three sequences, $A$ and $B$ known",
        printed=limit(0),
        right=limit(1),
        truth=float(minimize_scalar(loss, bounds=(1e-6, 1 - 1e-6), method="bounded", options={"xatol": 1e-10}).x),
        by="maximisation of the likelihood",
        tolerance=1e-5,
    )


def importance_weights() -> Shown:
    z = 2 * np.random.default_rng(0).normal(size=100_000)
    weights = stats.norm.pdf(z) / stats.norm.pdf(z, 0, 2)
    return Shown(
        "$E[z^2]$ under $N(0, 1)$ from 100 000 draws of $N(0, 4)$",
        printed=float((z**2 * weights).sum()),
        right=float((z**2 * weights).mean()),
        truth=1.0,
        by="the variance of the target",
        tolerance=0.02,
    )


ERRATA = (
    Erratum(
        "W24",
        "Markov chain Monte Carlo",
        r"$\pi_i(x)$; rows or columns of $Q$ add up to one",
        r"$\pi_t(x)$; rows, as $q^{t+1} = q^t Q$ says",
        "The limit also needs a $Q$ with a basis of eigenvectors, and no second eigenvalue of modulus one.",
    ),
    Erratum(
        "W25",
        "hidden Markov models",
        r"$p(I \mid \lambda) = \pi_1 \prod_t a_{i_t i_{t+1}}$; the sum over all observed variables takes $O(N^T)$",
        r"$p(I \mid \lambda) = \pi_{i_1} \prod_t a_{i_t i_{t+1}}$; the sum over all hidden paths takes $O(T N^T)$",
        shown=first_state_of_the_path,
    ),
    Erratum(
        "W26",
        "hidden Markov models, and summary",
        r"$\alpha_{t+1}(j) = \sum_i b_j(o_t)\, a_{ij}\, \alpha_t(i)$",
        r"$\alpha_{t+1}(j) = \sum_i b_j(o_{t+1})\, a_{ij}\, \alpha_t(i)$",
        shown=symbol_of_the_step,
    ),
    Erratum(
        "W27",
        "hidden Markov models",
        r"$\beta_t(i) = p(o_{t+1}, o_{t+1}, \dots \mid i_t = q_i)$",
        r"$\beta_t(i) = p(o_{t+1}, o_{t+2}, \dots \mid i_t = q_i)$;"
        r" the recursions start with $\alpha_1(i) = \pi_i b_i(o_1)$ and $\beta_T(i) = 1$",
    ),
    Erratum(
        "W28",
        "hidden Markov models, learning",
        r"Expectations weighted by $p(O, I \mid \lambda^t)$",
        r"Expectations weighted by $p(I \mid O, \lambda^t)$",
        "For one sequence both lead to the same step, for several they do not: likely sequences count too much.",
        two_sequences,
    ),
    Erratum(
        "W29",
        "Viterbi",
        r"$\delta_t(j)$ is a maximum over paths with $i_t = q_i$; decoding is $p(z_1, \dots, z_t \mid x)$,"
        r" prediction and filtering",
        r"$i_t = q_j$; decoding is $\arg\max p(z_1, \dots, z_t \mid x)$, and prediction and filtering are other tasks",
    ),
    Erratum(
        "W30",
        "linear dynamical systems",
        r"The update of the filter is left out; $p(z_t \mid z_{t-1}) \sim N$",
        r"$m_t = m_t^- + K_t (x_t - C m_t^- - D)$, $P_t = (I - K_t C) P_t^-$ with"
        r" $K_t = P_t^- C^\top (C P_t^- C^\top + R)^{-1}$; $p(z_t \mid z_{t-1}) = N$",
    ),
    Erratum(
        "W31",
        "particle filter, summary",
        r"$\int f \frac p q\, q = \sum_i f(z_i) \frac{p(z_i)}{q(z_i)}$",
        r"$\int f \frac p q\, q \approx \frac 1 N \sum_i f(z_i) \frac{p(z_i)}{q(z_i)}$, or weights that add up to one",
        shown=importance_weights,
    ),
)
