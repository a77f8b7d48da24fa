"""A hidden Markov model: sequences of symbols from states that nobody saw, and that follow a Markov chain.

    pi        ~ Dirichlet(concentration, ..., concentration)
    a_i       ~ Dirichlet(concentration, ..., concentration), with stickiness more at i
    eta_i     ~ Dirichlet(emission_concentration, ..., emission_concentration),    state i = 1..K
    z_1       ~ Categorical(pi)
    z_t+1 | z ~ Categorical(a_{z_t})
    y_t | z   ~ Categorical(eta_{z_t}),    step t = 1..T of every sequence

Mukherjee, Probabilistic Machine Learning, 16 (its x_t is y_t here); the sites are initial (pi), moves (a) and emission
(eta). Rows are states to move from: a_ij = p(z_t+1 = j | z_t = i) and eta_ij = p(y_t = j | z_t = i), where 16.1 prints
the indices once the other way round. Given the states all rows are Dirichlet; given the rows the states are again a
Markov chain, by the forward and backward recursions. `align(tree, SITE_DIMS, LABELS)` gives the states of all draws one
order.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array

from bayeslab.distributions import MarkovChain

SITE_DIMS = {"initial": "state", "moves": ("state", "state_"), "emission": "state"}
LABELS = ("z",)


def model(
    num_sequences: int,
    num_steps: int,
    num_states: int,
    num_symbols: int,
    lengths: Array | None = None,
    emission_concentration: float = 1.0,
    concentration: float = 1.0,
    stickiness: float = 0.0,
) -> None:
    """Draw initial (state,), moves (state, state_), emission (state, symbol), states z and symbols y (sequence, step).

    lengths: (sequence,), of sequences that end before num_steps; from there on their y is missing. None: all are whole.
    stickiness: prior moves from each state to itself, beyond concentration.
    """
    initial = dist.Dirichlet(jnp.full(num_states, concentration))
    initial = numpyro.sample("initial", initial, infer={"event_dims": ["state"]})
    with numpyro.plate("state", num_states):
        moves = dist.Dirichlet(concentration + stickiness * jnp.eye(num_states))
        moves = numpyro.sample("moves", moves, infer={"event_dims": ["state_"]})
        emission = dist.Dirichlet(jnp.full(num_symbols, emission_concentration))
        emission = numpyro.sample("emission", emission, infer={"event_dims": ["symbol"]})
    with numpyro.plate("sequence", num_sequences):
        chain = MarkovChain(initial, moves, num_steps, lengths=lengths)
        z = numpyro.sample("z", chain, infer={"event_dims": ["step"]})
        symbols = dist.Categorical(emission[z]).to_event(1)
        numpyro.sample("y", symbols, infer={"event_dims": ["step"]})


def example() -> dict[str, Any]:
    """Two sequences of five of three symbols, the second with one missing, under unequal prior counts."""
    y = np.ma.masked_less([[0, 0, 2, 1, 2], [1, 0, 0, -1, 2]], 0)
    prior = {"emission_concentration": 1.5, "concentration": 2.0, "stickiness": 3.0}
    return {"num_sequences": 2, "num_steps": 5, "num_states": 2, "num_symbols": 3, **prior, "y": y}


def data() -> dict[str, Any]:
    """300 simulated throws in a casino that sometimes changes to a loaded die (no lecture has data)."""
    from bayeslab.datasets import dishonest_casino

    y = dishonest_casino(300)["y"]
    sizes = {"num_sequences": 1, "num_steps": 300, "num_states": 2, "num_symbols": 6}
    return {**sizes, "stickiness": 8.0, "y": y}
