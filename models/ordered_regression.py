"""Ordered regression: classes in an order, cut out of a line by a predictor and the noise about it.

    w         ~ Normal(0, tau0^2 I)
    cut_1     ~ Normal(0, width^2)
    log(cut_k+1 - cut_k) ~ Normal(0, 1),    k = 1..K - 2
    y_i | w   = the number of cuts below w' x_i + noise_i,    row i = 1..n

The noise is logistic for ordered logistic regression, standard normal for ordered probit: P(y_i <= k) = cdf(cut_k+1 -
w' x_i). A generalised linear model in the sense of CS229, 3, that the lecture leaves out (McCullagh 1980, Regression
models for ordinal data). There is no intercept: the cuts have its place.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import log_ndtr

LogCdf = Callable[[Array], Array]


def logit(z: Array) -> Array:
    """The log distribution function of logistic noise."""
    return jax.nn.log_sigmoid(z)


def probit(z: Array) -> Array:
    """The log distribution function of standard normal noise."""
    return log_ndtr(z)


def model(x: Array, num_classes: int, link: LogCdf = logit, tau0: float = 1.0, width: float = 2.0) -> None:
    """Draw w (feature,), cuts (cut,) and y (row,), 0 to num_classes - 1, for covariates x (row, feature).

    link: the log distribution function of noise that is symmetric about 0, `logit` or `probit`.
    """
    rows, features = x.shape
    scale = jnp.ones(num_classes - 1).at[0].set(width)
    ordered = dist.TransformedDistribution(dist.Normal(0.0, scale).to_event(1), dist.transforms.OrderedTransform())
    cuts = numpyro.sample("cuts", ordered, infer={"event_dims": ["cut"]})
    with numpyro.plate("feature", features):
        w = numpyro.sample("w", dist.Normal(0.0, tau0))
    with numpyro.plate("row", rows):
        numpyro.sample("y", dist.Categorical(logits=_log_probabilities(cuts - (x @ w)[:, None], link)))


def example() -> dict[str, Any]:
    """Nine rows of one covariate in three classes that overlap."""
    x = np.array([-1.8, -1.2, -0.9, -0.3, 0.0, 0.4, 0.8, 1.3, 1.9])[:, None]
    return {"x": x, "num_classes": 3, "link": probit, "y": np.array([0, 0, 1, 0, 1, 1, 2, 1, 2])}


def data() -> dict[str, Any]:
    """Progression of diabetes in 442 patients, in thirds, by ten covariates, standardised: ordered logistic."""
    from bayeslab.datasets import diabetes, regression_data

    table = diabetes()
    rows = regression_data(table, "progression", intercept=False)
    third = np.searchsorted(table["progression"].quantile([1 / 3, 2 / 3]), table["progression"])
    return {"x": rows["x"], "num_classes": 3, "y": rows["y"].copy(data=third)}


def _log_probabilities(z: Array, link: LogCdf) -> Array:
    """log P of every class (row, class), for cuts less predictors z (row, cut), which increase."""
    below, above = link(z), link(-z)
    # F(high) - F(low) = F(high) (1 - F(low)) - F(low) (1 - F(high)), which keeps its digits in both tails
    kept, lost = below[:, 1:] + above[:, :-1], below[:, :-1] + above[:, 1:]
    between = kept + jnp.log1p(-jnp.exp(lost - kept))
    return jnp.concatenate([below[:, :1], between, above[:, -1:]], axis=1)
