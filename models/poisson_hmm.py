"""A hidden Markov model of counts.

    pi         ~ Dirichlet(concentration, ..., concentration)
    a_i        ~ Dirichlet(concentration, ..., concentration), with stickiness more at i
    rate_i     ~ Gamma(alpha, beta),    state i = 1..K
    z_1        ~ Categorical(pi)
    z_t+1 | z  ~ Categorical(a_{z_t})
    y_t | z    ~ Poisson(rate_{z_t}),    step t = 1..T of every sequence

The hidden chain of `hmm` (Mukherjee, Probabilistic Machine Learning, 16) with other emissions; Zucchini, MacDonald and
Langrock (2016), Hidden Markov Models for Time Series, chapters 1 to 4. The sites pi and a are initial and moves.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array

from bayeslab.distributions import MarkovChain

SITE_DIMS = {"initial": "state", "moves": ("state", "state_"), "rate": "state"}
LABELS = ("z",)


def model(
    num_sequences: int,
    num_steps: int,
    num_states: int,
    lengths: Array | None = None,
    alpha: float = 1.0,
    beta: float = 0.1,
    concentration: float = 1.0,
    stickiness: float = 0.0,
) -> None:
    """Draw initial (state,), moves (state, state_), rate (state,), states z and counts y (sequence, step).

    lengths: (sequence,), of sequences that end before num_steps; from there on their y is missing. None: all are whole.
    alpha, beta: what is known of a rate before counts as alpha events in beta steps.
    stickiness: prior moves from each state to itself, beyond concentration.
    """
    initial = dist.Dirichlet(jnp.full(num_states, concentration))
    initial = numpyro.sample("initial", initial, infer={"event_dims": ["state"]})
    with numpyro.plate("state", num_states):
        moves = dist.Dirichlet(concentration + stickiness * jnp.eye(num_states))
        moves = numpyro.sample("moves", moves, infer={"event_dims": ["state_"]})
        rate = numpyro.sample("rate", dist.Gamma(alpha, beta))
    with numpyro.plate("sequence", num_sequences):
        chain = MarkovChain(initial, moves, num_steps, lengths=lengths)
        z = numpyro.sample("z", chain, infer={"event_dims": ["step"]})
        numpyro.sample("y", dist.Poisson(rate[z]).to_event(1), infer={"event_dims": ["step"]})


def example() -> dict[str, Any]:
    """Two sequences of five counts, about 1 and then about 8, the second with a missing entry."""
    y = np.array([[1, 0, 2, 9, 7], [8, 6, np.nan, 1, 0]])
    prior = {"alpha": 2.0, "beta": 0.5, "concentration": 2.0, "stickiness": 1.0}
    return {"num_sequences": 2, "num_steps": 5, "num_states": 2, **prior, "y": y}


def data() -> dict[str, Any]:
    """Numbers of major earthquakes in the world in each year from 1900 to 2006."""
    from bayeslab.datasets import earthquakes

    y = earthquakes().rename(year="step").expand_dims(sequence=["world"])
    sizes = {"num_sequences": 1, "num_steps": y.sizes["step"], "num_states": 3}
    return {**sizes, "alpha": 2.0, "beta": 0.1, "y": y}
