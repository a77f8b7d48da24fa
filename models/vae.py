"""The variational autoencoder: rows are what a neural network makes of a few normal numbers, and noise.

    z_i         ~ Normal(0, I),                          row i = 1..n, z_i (factor,)
    y_i | z_i   ~ Normal(g(z_i; theta), noise^2 I),      y_i (feature,)

CS229, 11.5 (y is x there), with the noise known and theta, the decoder, learned without a prior. `guide` is the
lecture's: z_i is Normal(q(y_i; phi), diag(v(y_i; psi))^2), where v is a standard deviation, with one network for q and
log v, learned along with theta for all rows at once (Kingma and Welling 2014, arXiv:1312.6114). With a linear decoder
this is `ppca`, and `linear_maximum` the best it can do, which a guide reaches that is linear too (Lucas et al. 2019,
arXiv:1911.02469). Rotations of the factors leave the density as it is.
"""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import Array

from bayeslab.models.bayesian_neural_network import require_widths
from bayeslab.models.factor_analysis import require_factors

SITE_DIMS = {"z": "factor"}


def model(
    num_rows: int,
    num_features: int,
    num_factors: int,
    hidden: Sequence[int] = (32,),
    noise: float = 0.5,
    batch: int | None = None,
) -> None:
    """Draw factors z (row, factor) and y (row, feature); the parameters of decoder are learned.

    hidden: the widths of the hidden layers; none for a linear decoder. batch: the number of rows in a step of SVI.
    Raises ValueError for more factors than features, and where hidden has what is no width. Needs flax.
    """
    require_factors(num_features, num_factors)
    require_widths(hidden)
    layers = network(hidden, num_features)
    from numpyro.contrib.module import flax_module

    decoder = flax_module("decoder", layers, input_shape=(num_factors,))
    with numpyro.plate("row", num_rows, subsample_size=batch):
        normal = dist.Normal().expand([num_factors]).to_event(1)
        z = numpyro.sample("z", normal, infer={"event_dims": ["factor"]})
        numpyro.sample("y", dist.Normal(decoder(z), noise).to_event(1), infer={"event_dims": ["feature"]})


def guide(y: Array, num_factors: int, hidden: Sequence[int] = (32,), batch: int | None = None) -> None:
    """Draw factors z (row, factor) given rows y (row, feature); the parameters of encoder are learned.

    The encoder has the hidden layers of the decoder, in the other order. It reads zero where entries are missing, NaN
    (Mattei and Frellsen 2019, arXiv:1812.02633); their bound is still one, but not that of an encoder for such rows.
    """
    layers = network(tuple(reversed(hidden)), 2 * num_factors)
    from numpyro.contrib.module import flax_module

    encoder = flax_module("encoder", layers, input_shape=y.shape[1:])
    with numpyro.plate("row", len(y), subsample_size=batch) as rows:
        batch_rows = y[rows]
        mean, log_scale = jnp.split(encoder(jnp.where(jnp.isnan(batch_rows), 0.0, batch_rows)), 2, axis=-1)
        numpyro.sample("z", dist.Normal(mean, jnp.exp(log_scale)).to_event(1))


def network(hidden: Sequence[int], num_outputs: int) -> Any:
    """A flax module: layers of so many units with tanh, and a linear one with the outputs.

    Raises ImportError where flax is not installed.
    """
    try:
        from flax import linen
    except ImportError as error:
        raise ImportError('this model has neural networks of flax; install it: pip install "bayeslab[deep]"') from error
    dtype = jnp.result_type(float)
    layers: list[Any] = []
    for width in hidden:
        layers += [linen.Dense(width, param_dtype=dtype), linen.tanh]
    return linen.Sequential([*layers, linen.Dense(num_outputs, param_dtype=dtype)])


def linear_maximum(y: Array, num_factors: int, noise: float) -> tuple[Array, Array, Array]:
    """The loadings w (feature, factor), the mean (feature,) and the log likelihood (row,) of the best linear decoder.

    Tipping and Bishop (1999), with the noise known: column k of w is eigenvector k of the covariance of the rows times
    the root of its eigenvalue less noise^2, and zero where that is negative. y (row, feature). Raises ValueError for
    more factors than features.
    """
    require_factors(y.shape[1], num_factors)
    mean = jnp.mean(y, axis=0)
    values, vectors = jnp.linalg.eigh((y - mean).T @ (y - mean) / len(y))
    excess = jnp.maximum(values[::-1][:num_factors] - noise**2, 0.0)
    w = vectors[:, ::-1][:, :num_factors] * jnp.sqrt(excess)
    rows = dist.LowRankMultivariateNormal(mean, w, jnp.full(len(mean), noise**2))
    return w, mean, rows.log_prob(y)


def example() -> dict[str, Any]:
    """Eight rows of four features by one factor and two hidden units."""
    from bayeslab.models import factor_analysis

    return {**factor_analysis.example(), "hidden": (2,)}


def data() -> dict[str, Any]:
    """Handwritten digits: 1797 images of 64 pixels, brightness from 0 to 1, by four factors."""
    from bayeslab.datasets import handwritten_digits

    y = handwritten_digits()
    sizes = {"num_rows": len(y), "num_features": y.shape[1], "num_factors": 4}
    return {**sizes, "hidden": (64,), "noise": 0.2, "y": y}
