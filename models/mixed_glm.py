"""A generalised linear model with effects of groups: classes or counts in place of the Normal of `mixed_regression`.

    w_j                       ~ Normal(0, tau0^2),    feature j = 1..p
    sd_k                      ~ HalfNormal(scale),    term k = 1..q
    cholesky cholesky'        ~ LKJ(concentration), the correlation of the terms
    effect_g | sd, cholesky   ~ Normal(0, diag(sd) cholesky cholesky' diag(sd)),    group g = 1..G
    y_i | w, effect           ~ family(w' x_i + effect_group(i)' z_i),    row i = 1..n

Effects of groups have no conditional in closed form here, so nothing is integrated out, unless `bl.augment` makes them
Normal given Polya-Gamma variables. Gelman and Hill (2006), chapters 14 and 15; the arrays are those of
`mixed_regression`. `logistic_regression` and `poisson_regression` are the cases without groups.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import Distribution

from bayeslab.models.mixed_regression import group_effects


def bernoulli(predictor: Array) -> Distribution:
    """Classes 0 and 1, with the predictor as log odds of 1."""
    return dist.Bernoulli(logits=predictor)


def poisson(predictor: Array) -> Distribution:
    """Counts, with the predictor as the log of their mean."""
    return dist.Poisson(jnp.exp(predictor))


def model(
    x: Array,
    group: dict[str, Array],
    num_groups: dict[str, int],
    design: dict[str, Array],
    family: Callable[[Array], Distribution] = bernoulli,
    tau0: Array | float = 2.5,
    scale: Array | float = 1.0,
    concentration: Array | float = 2.0,
) -> None:
    """Draw w (feature,), for every factor its sd, cholesky and effect (factor, term), and y (row,).

    x: (row, feature). By factor, group: codes (row,) from 0, num_groups: how many, design: z (row, term).
    family: from linear predictors (row,) to the distribution of y: `bernoulli`, `poisson` or another.
    """
    with numpyro.plate("feature", x.shape[1]):
        w = numpyro.sample("w", dist.Normal(0.0, tau0))
    predictor = x @ w + group_effects(group, num_groups, design, scale, concentration)
    with numpyro.plate("row", x.shape[0]):
        numpyro.sample("y", family(predictor))


def example() -> dict[str, Any]:
    """Sixteen rows of two classes in four groups with an intercept of their own."""
    covariate = np.array([-1.0, -0.3, 0.4, 1.1] * 4)
    x = np.stack([np.ones(16), covariate], axis=1)
    arrays = {"group": {"site": np.repeat([0, 1, 2, 3], 4)}, "num_groups": {"site": 4}}
    y = np.array([0, 0, 0, 1, 0, 1, 1, 1, 0, 0, 1, 1, 1, 0, 1, 1])
    return {"x": x, **arrays, "design": {"site": np.ones((16, 1))}, "y": y}


def data() -> dict[str, Any]:
    """The first 45 at bats of 18 players in 1970, each a hit or not, by player (Efron and Morris 1975)."""
    from bayeslab.datasets import at_bats, classification_data

    return classification_data(at_bats(), "hit ~ 1 + (1 | player)")
