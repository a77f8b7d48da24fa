"""Independent component analysis: what each sensor hears is a mixture of all sources, without noise.

    w_jk        ~ Normal(0, scale^2),    source j = 1..d, feature k = 1..d
    s_ij        ~ Logistic(0, 1),        row i = 1..n
    y_i         = w^-1 s_i,              so that s_i = w y_i

CS229, 13 (y is x there, and w, the unmixing matrix, a parameter without a prior). The density of a row is that of its
sources times |det w|, the absolute value of the determinant; bars around a matrix (13.1 to 13.3) mean just this.
`gradient` is that of the log likelihood: the rule of 13.3 misprints it, its step length belongs to both terms. Sources
have a median of zero, so rows should be centred. Their scale is that of the logistic density; signs and places of
sources leave the density as it is: `align(tree, SITE_DIMS, up_to="signed permutations")`. Normal sources could be
rotated too, and cannot be found. With noise it is `noisy_ica`.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import constraints
from numpyro.distributions.transforms import Transform

SITE_DIMS = {"w": "source"}


def model(num_rows: int, num_features: int, scale: float = 1.0) -> None:
    """Draw the unmixing matrix w (source, feature) and y (row, feature); there are as many sources as features."""
    with numpyro.plate("source", num_features, dim=-2), numpyro.plate("feature", num_features, dim=-1):
        w = numpyro.sample("w", dist.Normal(0.0, scale))
    row = dist.TransformedDistribution(dist.Logistic().expand([num_features]).to_event(1), Mixing(w))
    with numpyro.plate("row", num_rows):
        numpyro.sample("y", row, infer={"event_dims": ["feature"]})


class Mixing(Transform):
    """What sensors hear of sources, for an unmixing matrix w (source, feature) of full rank: solves w y = s."""

    domain = constraints.real_vector
    codomain = constraints.real_vector

    def __init__(self, w: Array):
        self.w = w

    def __call__(self, x: Array) -> Array:
        return jnp.linalg.solve(self.w, x[..., None])[..., 0]

    def _inverse(self, y: Array) -> Array:
        return sources(y, self.w)

    def log_abs_det_jacobian(self, x: Array, y: Array, intermediates: Any = None) -> Array:
        return jnp.broadcast_to(-jnp.linalg.slogdet(self.w)[1], x.shape[:-1])

    def tree_flatten(self) -> Any:
        return (self.w,), (("w",), {})


def sources(y: Array, w: Array) -> Array:
    """The sources s (..., source) of rows y (..., feature)."""
    return y @ w.T


def gradient(y: Array, w: Array) -> Array:
    """The gradient (source, feature) of the log likelihood of one row y (feature,): (1 - 2 g(w y)) y' + w'^-1.

    g is the logistic function.
    """
    return jnp.outer(1 - 2 * jax.nn.sigmoid(w @ y), y) + jnp.linalg.inv(w).T


def example() -> dict[str, Any]:
    """Ten rows of two features, centred."""
    y = np.array(
        [
            [0.4, -0.2], [1.9, 1.1], [-2.6, -1.0], [0.3, 0.9], [-0.7, -1.2],
            [3.1, 1.4], [-0.9, 0.1], [-1.8, -1.6], [0.6, -0.3], [-0.3, 0.8],
        ]
    )  # fmt: skip
    return {"num_rows": 10, "num_features": 2, "y": y}


def data() -> dict[str, Any]:
    """The cocktail party, simulated: two speakers, one of them louder, recorded by two microphones at 400 times."""
    from bayeslab.datasets import simulated_cocktail_party

    y = simulated_cocktail_party()["y"]
    return {"num_rows": len(y), "num_features": y.shape[1], "y": y}
