"""A hidden Markov model whose states have normal distributions with one covariance for all.

    pi               ~ Dirichlet(concentration, ..., concentration)
    a_i              ~ Dirichlet(concentration, ..., concentration), with stickiness more at i
    precision        ~ Wishart(scale, n0),    scale (d, d), n0 > d - 1, mean n0 * scale
    mu_i | precision ~ Normal(mu0, (kappa0 precision)^-1),    state i = 1..K
    z_1              ~ Categorical(pi)
    z_t+1 | z        ~ Categorical(a_{z_t})
    y_t | z          ~ Normal(mu_{z_t}, precision^-1),    step t = 1..T of every sequence

`multivariate_gaussian_hmm` for states that differ in nothing but their means, which needs far fewer numbers. The sites
pi and a are initial and moves.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array

from bayeslab.distributions import MarkovChain

SITE_DIMS = {"initial": "state", "moves": ("state", "state_"), "mu": "state"}
LABELS = ("z",)


def model(
    num_sequences: int,
    num_steps: int,
    num_states: int,
    mu0: Array,
    scale: Array,
    n0: float,
    lengths: Array | None = None,
    kappa0: float = 0.1,
    concentration: float = 1.0,
    stickiness: float = 0.0,
) -> None:
    """Draw initial (state,), moves (state, state_), precision (feature, feature_), mu (state, feature),
    states z (sequence, step) and y (sequence, step, feature).

    mu0 (feature,), scale (feature, feature_) and n0 are those of `normal_wishart`. For standardised data zeros, the
    identity and three more than the number of features do.
    lengths: (sequence,), of sequences that end before num_steps; from there on their y is missing. None: all are whole.
    stickiness: prior moves from each state to itself, beyond concentration.
    """
    initial = dist.Dirichlet(jnp.full(num_states, concentration))
    initial = numpyro.sample("initial", initial, infer={"event_dims": ["state"]})
    wishart = dist.Wishart(n0, scale_matrix=scale)
    precision = numpyro.sample("precision", wishart, infer={"event_dims": ["feature", "feature_"]})
    with numpyro.plate("state", num_states):
        moves = dist.Dirichlet(concentration + stickiness * jnp.eye(num_states))
        moves = numpyro.sample("moves", moves, infer={"event_dims": ["state_"]})
        centre = dist.MultivariateNormal(mu0, precision_matrix=kappa0 * precision)
        mu = numpyro.sample("mu", centre, infer={"event_dims": ["feature"]})
    with numpyro.plate("sequence", num_sequences):
        chain = MarkovChain(initial, moves, num_steps, lengths=lengths)
        z = numpyro.sample("z", chain, infer={"event_dims": ["step"]})
        normal = dist.MultivariateNormal(mu[z], precision_matrix=precision).to_event(1)
        numpyro.sample("y", normal, infer={"event_dims": ["step", "feature"]})


def example() -> dict[str, Any]:
    """Two sequences of five pairs in two groups; one is missing."""
    first = [[1.0, 1.9, 0.2, -2.1, -3.0], [-2.6, np.nan, -1.5, 1.4, 2.3]]
    second = [[0.4, 1.5, -0.9, -1.2, -2.1], [-2.4, np.nan, -0.8, 0.3, 1.2]]
    prior = {"mu0": np.array([0.0, 1.0]), "scale": np.array([[0.6, -0.1], [-0.1, 0.3]]), "n0": 4.5, "kappa0": 0.2}
    chain = {"concentration": 2.0, "stickiness": 1.0}
    return {"num_sequences": 2, "num_steps": 5, "num_states": 2, **prior, **chain, "y": np.stack([first, second], -1)}


def data() -> dict[str, Any]:
    """Standardised log range of the price and log volume of Google's shares on 1,047 days to October 2008."""
    import xarray as xr

    from bayeslab.datasets import google_days

    y = google_days()
    features = y["feature"].values.tolist()
    mu0 = xr.DataArray(np.zeros(2), {"feature": features})
    scale = xr.DataArray(np.eye(2), {"feature": features, "feature_": features})
    prior = {"mu0": mu0, "scale": scale, "n0": 5.0, "stickiness": 8.0}
    y = y.rename(day="step").expand_dims(sequence=["GOOG"])
    return {"num_sequences": 1, "num_steps": y.sizes["step"], "num_states": 3, **prior, "y": y}
