"""Successes among independent trials, with a Beta prior on their probability.

    p       ~ Beta(alpha, beta)
    y_i | p ~ Binomial(trials_i, p),    experiment i = 1..n

Mukherjee, Probabilistic Machine Learning, 4.1, for one experiment (there x successes in n trials). The
posterior adds the successes to alpha and the failures to beta.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import gammaln
from jax.typing import ArrayLike


def model(trials: Array, alpha: float = 1.0, beta: float = 1.0) -> None:
    """Draw p () and the successes y (experiment,) among the trials (experiment,)."""
    p = numpyro.sample("p", dist.Beta(alpha, beta))
    with numpyro.plate("experiment", len(trials)):
        numpyro.sample("y", dist.Binomial(trials, p))


def posterior(trials: Array, y: Array, alpha: float, beta: float) -> None:
    """Draw p from p(p | y)."""
    numpyro.sample("p", dist.Beta(alpha + jnp.sum(y), beta + jnp.sum(trials - y)))


def evidence(trials: Array, y: Array, alpha: float, beta: float) -> Array:
    """log p(y) of the counts."""
    coefficients = gammaln(trials + 1.0) - gammaln(y + 1.0) - gammaln(trials - y + 1.0)
    updated = _log_beta(alpha + jnp.sum(y), beta + jnp.sum(trials - y))
    return jnp.sum(coefficients) + updated - _log_beta(alpha, beta)


def example() -> dict[str, Any]:
    """Three experiments with 15 successes in 22 trials, and a prior that leans the other way."""
    return {"trials": np.array([10, 7, 5]), "alpha": 1.5, "beta": 3.0, "y": np.array([7, 4, 4])}


def data() -> dict[str, Any]:
    """Mendel's seven experiments with peas: the share of the dominant trait is 3/4 in his theory."""
    from bayeslab.datasets import mendel_peas

    peas = mendel_peas()
    return {"trials": peas["dominant"] + peas["recessive"], "y": peas["dominant"]}


def _log_beta(alpha: ArrayLike, beta: ArrayLike) -> Array:
    """log B(alpha, beta); JAX's own betaln is right to 1e-8 only."""
    return gammaln(alpha) + gammaln(beta) - gammaln(jnp.add(alpha, beta))
