"""A linear model with effects of groups: coefficients that all rows share, and others that differ between groups.

    sigma                     ~ HalfNormal(scale)
    w_j                       ~ Normal(0, tau0^2),    feature j = 1..p
    sd_k                      ~ HalfNormal(scale),    term k = 1..q
    cholesky cholesky'        ~ LKJ(concentration), the correlation of the terms
    effect_g | sd, cholesky   ~ Normal(0, diag(sd) cholesky cholesky' diag(sd)),    group g = 1..G
    y_i | w, effect, sigma    ~ Normal(w' x_i + effect_group(i)' z_i, sigma^2),    row i = 1..n

Sites sd, cholesky and effect are there for every factor that makes groups, named after it. In the notation of lme4,
y ~ x + (1 + x | site): `bayeslab.datasets.regression_data` makes the arrays of it. Gelman and Hill (2006), chapters 11
to 13; the prior of the correlation is that of Lewandowski, Kurowicka and Joe (2009). With one mean a group and a known
sigma it is the model of `james_stein`. `mixed_glm` has other distributions of y.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array


def model(
    x: Array,
    group: dict[str, Array],
    num_groups: dict[str, int],
    design: dict[str, Array],
    tau0: Array | float = 2.5,
    scale: Array | float = 1.0,
    concentration: Array | float = 2.0,
) -> None:
    """Draw sigma (), w (feature,), for every factor its sd, cholesky and effect (factor, term), and y (row,).

    x: (row, feature). By factor, group: codes (row,) from 0, num_groups: how many, design: z (row, term).
    tau0 and scale: for y and covariates of standard deviation 1, as `regression_data` makes them.
    """
    sigma = numpyro.sample("sigma", dist.HalfNormal(scale))
    with numpyro.plate("feature", x.shape[1]):
        w = numpyro.sample("w", dist.Normal(0.0, tau0))
    mean = x @ w + group_effects(group, num_groups, design, scale, concentration)
    with numpyro.plate("row", x.shape[0]):
        numpyro.sample("y", dist.Normal(mean, sigma))


def group_effects(
    group: dict[str, Array],
    num_groups: dict[str, int],
    design: dict[str, Array],
    scale: Array | float,
    concentration: Array | float,
) -> Array:
    """Draw the effects of groups, and give what they add to every row (row,)."""
    total = jnp.zeros(())
    for name, codes in group.items():
        z = design[name]
        terms = z.shape[1]
        with numpyro.plate(f"{name}_term", terms):
            sd = numpyro.sample(f"{name}_sd", dist.HalfNormal(scale))
        if terms == 1:  # a correlation of one term is no site
            factor = jnp.diag(sd)
        else:
            named = {"event_dims": [f"{name}_term", f"{name}_term_"]}
            cholesky = numpyro.sample(f"{name}_cholesky", dist.LKJCholesky(terms, concentration), infer=named)
            with numpyro.plate(f"{name}_term", terms, dim=-2), numpyro.plate(f"{name}_term_", terms, dim=-1):
                numpyro.deterministic(f"{name}_correlation", cholesky @ cholesky.T)
            factor = sd[:, None] * cholesky
        with numpyro.plate(name, num_groups[name]):
            normal = dist.MultivariateNormal(jnp.zeros(terms), scale_tril=factor)
            effect = numpyro.sample(f"{name}_effect", normal, infer={"event_dims": [f"{name}_term"]})
        total = total + jnp.sum(z * effect[codes], -1)
    return total


def example() -> dict[str, Any]:
    """Twelve rows in four groups, with an intercept and a slope of their own."""
    covariate = np.array([-1.0, 0.2, 1.1] * 4)
    codes = np.repeat([0, 1, 2, 3], 3)
    x = np.stack([np.ones(12), covariate], axis=1)
    effects = np.array([[-0.8, 0.3], [0.1, -0.4], [0.9, 0.5], [-0.2, 0.0]])
    noise = np.array([0.1, -0.2, 0.1, 0.3, -0.1, 0.0, -0.2, 0.2, 0.1, -0.1, -0.2, 0.1])
    y = x @ [0.5, 1.0] + np.sum(x * effects[codes], axis=1) + noise
    return {"x": x, "group": {"site": codes}, "num_groups": {"site": 4}, "design": {"site": x}, "y": y}


def data() -> dict[str, Any]:
    """150 irises: lengths of petals by those of sepals, with a line for each of three species (Fisher 1936)."""
    from bayeslab.datasets import irises, regression_data

    return regression_data(irises(), "`petal length` ~ `sepal length` + (1 + `sepal length` | species)")
