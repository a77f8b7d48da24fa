"""Sequences of states that are seen, from a Markov chain.

    pi          ~ Dirichlet(concentration, ..., concentration)
    P_i         ~ Dirichlet(concentration, ..., concentration), with stickiness more at i,    state i = 1..K
    y_1 | pi    ~ Categorical(pi)
    y_t+1 | y_t ~ Categorical(P_{y_t}),    step t = 1..T of every sequence

Mukherjee, Probabilistic Machine Learning, 15.2, read as a model of data. Rows are states to move from, so that a law nu
of the states becomes P'nu after a step, where 15.2 has P nu. The posterior adds to P how often each move was made, and
to pi how often each state came first; a row whose state was never left keeps its prior. The sites are initial (pi) and
moves (P).
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import gammaln

from bayeslab.distributions import MarkovChain


def model(
    num_sequences: int,
    num_steps: int,
    num_states: int,
    lengths: Array | None = None,
    concentration: float = 1.0,
    stickiness: float = 0.0,
) -> None:
    """Draw initial (state,), moves (state, state_) and the states y (sequence, step).

    lengths: (sequence,), of sequences that end before num_steps; from there on their y is missing. None: all are whole.
    stickiness: prior moves from each state to itself, beyond concentration.
    """
    initial = dist.Dirichlet(jnp.full(num_states, concentration))
    initial = numpyro.sample("initial", initial, infer={"event_dims": ["state"]})
    with numpyro.plate("state", num_states):
        moves = dist.Dirichlet(concentration + stickiness * jnp.eye(num_states))
        moves = numpyro.sample("moves", moves, infer={"event_dims": ["state_"]})
    with numpyro.plate("sequence", num_sequences):
        chain = MarkovChain(initial, moves, num_steps, lengths=lengths)
        numpyro.sample("y", chain, infer={"event_dims": ["step"]})


def posterior(y: Array, num_states: int, lengths: Array | None, concentration: float, stickiness: float) -> None:
    """Draw initial and moves from p(initial, moves | y)."""
    first, moves = _prior(num_states, concentration, stickiness)
    came_first, made = _counts(y, num_states, lengths)
    numpyro.sample("initial", dist.Dirichlet(first + came_first), infer={"event_dims": ["state"]})
    with numpyro.plate("state", num_states):
        numpyro.sample("moves", dist.Dirichlet(moves + made), infer={"event_dims": ["state_"]})


def evidence(y: Array, num_states: int, lengths: Array | None, concentration: float, stickiness: float) -> Array:
    """log p(y): a Dirichlet-multinomial for the first states and one for the moves from each state."""
    first, moves = _prior(num_states, concentration, stickiness)
    came_first, made = _counts(y, num_states, lengths)
    return _log_evidence(first, came_first) + _log_evidence(moves, made).sum()


def example() -> dict[str, Any]:
    """Three sequences of seven, four and one of three states; after its end the last state fills a sequence up."""
    y = np.array([[0, 0, 1, 0, 1, 2, 1], [1, 1, 0, 2, 2, 2, 2], [0, 0, 0, 0, 0, 0, 0]])
    sizes = {"num_sequences": 3, "num_steps": 7, "num_states": 3, "lengths": np.array([7, 4, 1])}
    return {**sizes, "concentration": 0.5, "stickiness": 1.5, "y": y}


def data() -> dict[str, Any]:
    """Vowels and consonants in the lines of a stanza of Eugene Onegin, the text that Markov counted in 1913."""
    from bayeslab.datasets import onegin_stanza, sequences

    return {"num_states": 2, **sequences(onegin_stanza())}


def _prior(num_states: int, concentration: float, stickiness: float) -> tuple[Array, Array]:
    """Prior counts of first states (state,), and of moves (state, state_)."""
    return jnp.full(num_states, concentration), concentration + stickiness * jnp.eye(num_states)


def _counts(y: Array, num_states: int, lengths: Array | None) -> tuple[Array, Array]:
    """How often each state came first (state,), and each move was made (state, state_)."""
    states = jax.nn.one_hot(y, num_states)
    before, after = states[:, :-1], states[:, 1:]
    if lengths is not None:
        before *= (jnp.arange(1, y.shape[1]) < lengths[:, None])[..., None]
    return states[:, 0].sum(0), jnp.einsum("nti,ntj->ij", before, after)


def _log_evidence(prior: Array, counts: Array) -> Array:
    """log p of counts in one order, a Dirichlet-multinomial without its coefficient, for every row."""
    total = gammaln(prior.sum(-1)) - gammaln((prior + counts).sum(-1))
    return total + (gammaln(prior + counts) - gammaln(prior)).sum(-1)
