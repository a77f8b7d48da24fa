"""A hidden Markov model whose states have multivariate normal distributions, each with a covariance of its own.

    pi                  ~ Dirichlet(concentration, ..., concentration)
    a_i                 ~ Dirichlet(concentration, ..., concentration), with stickiness more at i
    precision_i         ~ Wishart(scale, n0),    scale (d, d), n0 > d - 1, mean n0 * scale
    mu_i | precision    ~ Normal(mu0, (kappa0 precision_i)^-1),    state i = 1..K
    z_1                 ~ Categorical(pi)
    z_t+1 | z           ~ Categorical(a_{z_t})
    y_t | z             ~ Normal(mu_{z_t}, precision_{z_t}^-1),    step t = 1..T of every sequence

The hidden chain of `hmm` (Mukherjee, Probabilistic Machine Learning, 16) with the emissions of
`multivariate_gaussian_mixture`. The sites pi and a are initial and moves. With a diagonal covariance it is
`diagonal_gaussian_hmm`, with one covariance for all states `tied_gaussian_hmm`.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array

from bayeslab.distributions import MarkovChain

SITE_DIMS = {"initial": "state", "moves": ("state", "state_"), "precision": "state", "mu": "state"}
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
    """Draw initial (state,), moves (state, state_), precision (state, feature, feature_), mu (state, feature),
    states z (sequence, step) and y (sequence, step, feature).

    mu0 (feature,), scale (feature, feature_) and n0 are those of `normal_wishart`. For standardised data zeros, the
    identity and three more than the number of features do.
    lengths: (sequence,), of sequences that end before num_steps; from there on their y is missing. None: all are whole.
    stickiness: prior moves from each state to itself, beyond concentration.
    """
    initial = dist.Dirichlet(jnp.full(num_states, concentration))
    initial = numpyro.sample("initial", initial, infer={"event_dims": ["state"]})
    with numpyro.plate("state", num_states):
        moves = dist.Dirichlet(concentration + stickiness * jnp.eye(num_states))
        moves = numpyro.sample("moves", moves, infer={"event_dims": ["state_"]})
        wishart = dist.Wishart(n0, scale_matrix=scale)
        precision = numpyro.sample("precision", wishart, infer={"event_dims": ["feature", "feature_"]})
        centre = dist.MultivariateNormal(mu0, precision_matrix=kappa0 * precision)
        mu = numpyro.sample("mu", centre, infer={"event_dims": ["feature"]})
    with numpyro.plate("sequence", num_sequences):
        chain = MarkovChain(initial, moves, num_steps, lengths=lengths)
        z = numpyro.sample("z", chain, infer={"event_dims": ["step"]})
        normal = dist.MultivariateNormal(mu[z], precision_matrix=precision[z]).to_event(1)
        numpyro.sample("y", normal, infer={"event_dims": ["step", "feature"]})


def example() -> dict[str, Any]:
    """Two sequences of five pairs in two groups that correlate in opposite ways; one is missing."""
    first = [[1.0, 1.9, 0.2, -2.1, -3.0], [-2.6, np.nan, -1.5, 1.4, 2.3]]
    second = [[0.4, 1.5, -0.9, 2.2, 3.1], [2.4, np.nan, 1.8, 0.3, 1.2]]
    prior = {"mu0": np.array([0.0, 1.0]), "scale": np.array([[0.6, -0.1], [-0.1, 0.3]]), "n0": 4.5, "kappa0": 0.2}
    chain = {"concentration": 2.0, "stickiness": 1.0}
    return {"num_sequences": 2, "num_steps": 5, "num_states": 2, **prior, **chain, "y": np.stack([first, second], -1)}


def data() -> dict[str, Any]:
    """Monthly returns in per cent of the shares of two companies, 1990 to 2022, calm and turbulent."""
    import xarray as xr

    from bayeslab.datasets import monthly_returns

    y = monthly_returns().sel(company=["IBM", "Xerox"]).rename(month="step", company="feature")
    features = y["feature"].values.tolist()
    mu0 = xr.DataArray(np.zeros(2), {"feature": features})
    scale = xr.DataArray(np.eye(2) / 200, {"feature": features, "feature_": features})
    prior = {"mu0": mu0, "scale": scale, "n0": 5.0, "stickiness": 8.0}
    y = y.expand_dims(sequence=["NYSE"])
    return {"num_sequences": 1, "num_steps": y.sizes["step"], "num_states": 2, **prior, "y": y}
