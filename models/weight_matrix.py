"""Letters of DNA motifs with one vector of probabilities for each position: the weight matrix.

    p_l      ~ Dirichlet(alpha),    independently for the positions l = 1..m
    y_il | p ~ Categorical(p_l),    motif i = 1..n, letters A, C, T, G = 0, 1, 2, 3

Mukherjee, Probabilistic Machine Learning, 1.1, example 1, before the counts n_lj of letter j at
position l are pooled over the positions. The posterior is one Dirichlet a position.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import gammaln
from jax.typing import ArrayLike

UNIFORM = np.ones(4)


def model(num_motifs: int, num_positions: int, alpha: ArrayLike = UNIFORM) -> None:
    """Draw p (position, letter) and the letters y (motif, position); alpha (letter,) are prior counts."""
    positions = numpyro.plate("position", num_positions, dim=-1)
    with positions:
        p = numpyro.sample("p", dist.Dirichlet(alpha), infer={"event_dims": ["letter"]})
    with numpyro.plate("motif", num_motifs, dim=-2), positions:
        numpyro.sample("y", dist.Categorical(p))


def posterior(y: Array, alpha: Array) -> None:
    """Draw p from p(p | y)."""
    with numpyro.plate("position", y.shape[1]):
        numpyro.sample("p", dist.Dirichlet(alpha + _counts(y, alpha)), infer={"event_dims": ["letter"]})


def evidence(y: Array, alpha: Array) -> Array:
    """log p(y) of the letters in their order: a sum over the positions."""
    counts = _counts(y, alpha)
    total = gammaln(jnp.sum(alpha)) - gammaln(jnp.sum(alpha) + len(y))
    return y.shape[1] * total + jnp.sum(gammaln(alpha + counts) - gammaln(alpha))


def example() -> dict[str, Any]:
    """Five motifs of four letters, with unequal prior counts."""
    y = np.array([[0, 1, 2, 3], [0, 1, 2, 2], [0, 0, 2, 3], [1, 1, 2, 3], [0, 1, 2, 0]])
    return {"num_motifs": 5, "num_positions": 4, "alpha": np.array([0.5, 2.0, 1.0, 1.5]), "y": y}


def data() -> dict[str, Any]:
    """Eight binding sites of the yeast protein ROX1."""
    from bayeslab.datasets import motif_data, rox1_sites

    return motif_data(rox1_sites())


def _counts(y: Array, alpha: Array) -> Array:
    """How often each letter occurs at each position, (position, letter)."""
    return jax.nn.one_hot(y, len(alpha)).sum(0)
