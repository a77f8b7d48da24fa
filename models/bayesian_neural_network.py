"""A Bayesian neural network: a perceptron of several layers whose weights and biases are normal before rows are seen.

    W^[k]            ~ Normal(0, weight_scale^2 / m_{k-1}),    layer k = 1..r, entries (unit of k - 1, unit of k)
    b^[k]            ~ Normal(0, bias_scale^2)
    a^[k]            = tanh(a^[k-1] W^[k] + b^[k]),            a^[0] = x, layers k = 1..r - 1
    y_i | x_i, W, b  ~ Normal(a^[r-1] W^[r] + b^[r], sigma^2), row i = 1..n

CS229, 7.1, 7.2 and 9.1 (theta there is all weights, without a prior; units are rows of W there, columns here). The mode
is the minimum of the squared loss with weight decay: of the loss divided by n, lambda = sigma^2 / (n scale^2). Scales
are divided by the root of the number of inputs of a layer, so that wide networks have a limit, which is a Gaussian
process (Neal 1996, Bayesian Learning for Neural Networks, 2). Units may change places, and signs with tanh, so weights
cannot be compared, only functions: `f`. Given all layers but the last this is `linear_regression_known_noise` on the
features a^[r-1], hence exact.
"""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array


def model(
    x: Array,
    hidden: Sequence[int] = (16,),
    sigma: float = 0.1,
    weight_scale: float = 1.0,
    bias_scale: float = 1.0,
) -> None:
    """Draw for layer k = 1..r weights w_k (unit of k - 1, unit of k) and biases b_k (unit of k,), and y (row,).

    x (row, input). hidden: the widths of the hidden layers; none is linear regression. Deterministic: f (row,), what y
    is without noise. Raises ValueError where x has other axes, or hidden what is no width.
    """
    require_widths(hidden)
    if jnp.ndim(x) != 2:
        raise ValueError(f"x has shape {jnp.shape(x)}, but needs axes (row, input), as x[:, None] has them")
    units, names = x, "input"
    for layer, width in enumerate((*hidden, 1), start=1):
        above = f"unit_{layer}" if layer <= len(hidden) else "output"
        fan_in = units.shape[-1]
        with numpyro.plate(names, fan_in, dim=-2), numpyro.plate(above, width, dim=-1):
            w = numpyro.sample(f"w_{layer}", dist.Normal(0.0, weight_scale / fan_in**0.5))
        with numpyro.plate(above, width):
            b = numpyro.sample(f"b_{layer}", dist.Normal(0.0, bias_scale))
        units, names = units @ w + b, above
        units = jnp.tanh(units) if layer <= len(hidden) else units
    with numpyro.plate("row", len(x)):
        f = numpyro.deterministic("f", units[:, 0])
        numpyro.sample("y", dist.Normal(f, sigma))


def require_widths(hidden: Any) -> None:
    """Raise ValueError unless the widths of hidden layers are a tuple or list of whole numbers from 1."""
    is_width = [isinstance(each, int | np.integer) and each >= 1 for each in hidden] if np.iterable(hidden) else [False]
    if isinstance(hidden, str) or not all(is_width):
        raise ValueError("hidden must be the widths of layers, whole numbers from 1, such as (16,)")


def last_layer(num_hidden: int) -> tuple[str, str]:
    """The sites of the last layer, given all others of which the posterior is a Normal."""
    return f"w_{num_hidden + 1}", f"b_{num_hidden + 1}"


def example() -> dict[str, Any]:
    """Eight points of a wave, by two hidden units."""
    x = np.linspace(-1.0, 1.0, 8)
    noise = np.array([0.05, -0.11, 0.08, 0.02, -0.09, 0.1, -0.04, 0.03])
    return {"x": x[:, None], "hidden": (2,), "y": np.sin(3 * x) + noise}


def data() -> dict[str, Any]:
    """Prices of 47 houses in Portland by area and bedrooms, standardised (CS229, 1.1), by eight hidden units."""
    from bayeslab.datasets import portland_houses

    table = portland_houses().rename_axis(index="row", columns="input")
    standardised = (table - table.mean()) / table.std()
    x = standardised[["area", "bedrooms"]].stack().to_xarray()
    return {"x": x, "hidden": (8,), "sigma": 0.5, "y": standardised["price"].to_xarray()}
