"""A hidden Markov model whose states have normal distributions of their own.

    pi           ~ Dirichlet(concentration, ..., concentration)
    a_i          ~ Dirichlet(concentration, ..., concentration), with stickiness more at i
    tau_i        ~ Gamma(alpha, beta)
    mu_i | tau   ~ Normal(mu0, 1 / (kappa0 tau_i)),    state i = 1..K
    z_1          ~ Categorical(pi)
    z_t+1 | z    ~ Categorical(a_{z_t})
    y_t | z      ~ Normal(mu_{z_t}, 1 / tau_{z_t}),    step t = 1..T of every sequence

The hidden chain of `hmm` (Mukherjee, Probabilistic Machine Learning, 16) with the emissions of `gaussian_mixture`,
which it would be if all rows of a were pi. The sites pi and a are initial and moves.
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
    lengths: Array | None = None,
    mu0: float = 0.0,
    kappa0: float = 0.1,
    alpha: float = 2.0,
    beta: float = 0.5,
    concentration: float = 1.0,
    stickiness: float = 0.0,
) -> None:
    """Draw initial (state,), moves (state, state_), tau (state,), mu (state,), states z and y (sequence, step).

    lengths: (sequence,), of sequences that end before num_steps; from there on their y is missing. None: all are whole.
    stickiness: prior moves from each state to itself, beyond concentration.
    The defaults suit standardised data: a state has a third to all of their spread; `datasets.scaled_prior(y)` is for
    others.
    """
    initial = dist.Dirichlet(jnp.full(num_states, concentration))
    initial = numpyro.sample("initial", initial, infer={"event_dims": ["state"]})
    with numpyro.plate("state", num_states):
        moves = dist.Dirichlet(concentration + stickiness * jnp.eye(num_states))
        moves = numpyro.sample("moves", moves, infer={"event_dims": ["state_"]})
        tau = numpyro.sample("tau", dist.Gamma(alpha, beta))
        mu = numpyro.sample("mu", dist.Normal(mu0, 1 / jnp.sqrt(kappa0 * tau)))
    with numpyro.plate("sequence", num_sequences):
        chain = MarkovChain(initial, moves, num_steps, lengths=lengths)
        z = numpyro.sample("z", chain, infer={"event_dims": ["step"]})
        normal = dist.Normal(mu[z], 1 / jnp.sqrt(tau[z])).to_event(1)
        numpyro.sample("y", normal, infer={"event_dims": ["step"]})


def example() -> dict[str, Any]:
    """Two sequences of five, about -1 and then about 2, the second with a missing entry."""
    y = np.array([[-1.1, -0.7, -1.4, 2.3, 1.8], [2.1, 1.6, np.nan, -0.9, -1.0]])
    prior = {"mu0": 0.5, "kappa0": 0.2, "alpha": 3.0, "beta": 0.6, "concentration": 2.0, "stickiness": 1.0}
    return {"num_sequences": 2, "num_steps": 5, "num_states": 2, **prior, "y": y}


def data() -> dict[str, Any]:
    """Monthly returns in per cent of the shares in the S&P 500, 1990 to 2022, calm and turbulent."""
    from bayeslab.datasets import monthly_returns

    y = monthly_returns().sel(company=["S&P 500"]).rename(company="sequence", month="step").transpose()
    prior = {"alpha": 2.0, "beta": 20.0, "stickiness": 8.0}
    return {"num_sequences": 1, "num_steps": y.sizes["step"], "num_states": 2, **prior, "y": y}
