"""A hidden Markov model of several features that are independent given the state.

    pi            ~ Dirichlet(concentration, ..., concentration)
    a_i           ~ Dirichlet(concentration, ..., concentration), with stickiness more at i
    tau_ij        ~ Gamma(alpha, beta)
    mu_ij | tau   ~ Normal(mu0, 1 / (kappa0 tau_ij)),    state i = 1..K, feature j = 1..d
    z_1           ~ Categorical(pi)
    z_t+1 | z     ~ Categorical(a_{z_t})
    y_tj | z      ~ Normal(mu_{z_t j}, 1 / tau_{z_t j}),    step t = 1..T of every sequence

`gaussian_hmm` with more features, or `multivariate_gaussian_hmm` without covariances. The sites pi and a are initial
and moves.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array

from bayeslab.distributions import MarkovChain

SITE_DIMS = {"initial": "state", "moves": ("state", "state_"), "tau": "state", "mu": "state"}
LABELS = ("z",)


def model(
    num_sequences: int,
    num_steps: int,
    num_states: int,
    num_features: int,
    lengths: Array | None = None,
    mu0: float = 0.0,
    kappa0: float = 0.1,
    alpha: float = 2.0,
    beta: float = 0.5,
    concentration: float = 1.0,
    stickiness: float = 0.0,
) -> None:
    """Draw initial (state,), moves (state, state_), tau and mu (state, feature), states z (sequence, step) and
    y (sequence, step, feature).

    lengths: (sequence,), of sequences that end before num_steps; from there on their y is missing. None: all are whole.
    stickiness: prior moves from each state to itself, beyond concentration.
    The defaults suit standardised data: a state has a third to all of their spread.
    """
    initial = dist.Dirichlet(jnp.full(num_states, concentration))
    initial = numpyro.sample("initial", initial, infer={"event_dims": ["state"]})
    with numpyro.plate("state", num_states):
        moves = dist.Dirichlet(concentration + stickiness * jnp.eye(num_states))
        moves = numpyro.sample("moves", moves, infer={"event_dims": ["state_"]})
        gamma = dist.Gamma(alpha, beta).expand([num_features]).to_event(1)
        tau = numpyro.sample("tau", gamma, infer={"event_dims": ["feature"]})
        centre = dist.Normal(mu0, 1 / jnp.sqrt(kappa0 * tau)).to_event(1)
        mu = numpyro.sample("mu", centre, infer={"event_dims": ["feature"]})
    with numpyro.plate("sequence", num_sequences):
        chain = MarkovChain(initial, moves, num_steps, lengths=lengths)
        z = numpyro.sample("z", chain, infer={"event_dims": ["step"]})
        normal = dist.Normal(mu[z], 1 / jnp.sqrt(tau[z])).to_event(2)
        numpyro.sample("y", normal, infer={"event_dims": ["step", "feature"]})


def example() -> dict[str, Any]:
    """Two sequences of five pairs in two groups; one pair and one half of another are missing."""
    first = [[1.0, 1.9, 0.2, -2.1, -3.0], [-2.6, np.nan, -1.5, 1.4, 2.3]]
    second = [[0.4, 1.5, -0.9, 2.2, 3.1], [2.4, np.nan, 1.8, np.nan, 1.2]]
    prior = {"mu0": 0.5, "kappa0": 0.2, "alpha": 3.0, "beta": 0.6, "concentration": 2.0, "stickiness": 1.0}
    sizes = {"num_sequences": 2, "num_steps": 5, "num_states": 2, "num_features": 2}
    return {**sizes, **prior, "y": np.stack([first, second], -1)}


def data() -> dict[str, Any]:
    """Standardised log range of the price and log volume of Google's shares on 1,047 days to October 2008."""
    from bayeslab.datasets import google_days

    y = google_days().rename(day="step").expand_dims(sequence=["GOOG"])
    sizes = {"num_sequences": 1, "num_steps": y.sizes["step"], "num_states": 3, "num_features": 2}
    return {**sizes, "stickiness": 8.0, "y": y}
