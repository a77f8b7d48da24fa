"""Naive Bayes with numbers: every feature is normal given the class, and independent of the others.

    share                  ~ Dirichlet(concentration, ..., concentration)
    tau_kj                 ~ Gamma(alpha, beta),    class k = 1..K, feature j = 1..p
    mu_kj | tau            ~ Normal(mu0, 1 / (kappa0 tau_kj))
    y_i | share            ~ Categorical(share)
    x_ij | y_i = k         ~ Normal(mu_kj, 1 / tau_kj),    row i = 1..n

Whiteboard notes, "Naive Bayes", whose means and variances lack the class. Features that belong together count as
evidence as often as they occur; `quadratic_discriminant` knows that they do.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist


def model(
    num_rows: int,
    num_features: int,
    num_classes: int,
    mu0: float = 0.0,
    kappa0: float = 0.1,
    alpha: float = 2.0,
    beta: float = 1.0,
    concentration: float = 1.0,
) -> None:
    """Draw share (class,), tau and mu (class, feature), y (row,) and x (row, feature)."""
    share = dist.Dirichlet(jnp.full(num_classes, concentration))
    share = numpyro.sample("share", share, infer={"event_dims": ["class"]})
    with numpyro.plate("class", num_classes, dim=-2), numpyro.plate("feature", num_features, dim=-1):
        tau = numpyro.sample("tau", dist.Gamma(alpha, beta))
        mu = numpyro.sample("mu", dist.Normal(mu0, 1 / jnp.sqrt(kappa0 * tau)))
    with numpyro.plate("row", num_rows):
        y = numpyro.sample("y", dist.Categorical(share))
        normal = dist.Normal(mu[y], 1 / jnp.sqrt(tau[y]))
        numpyro.sample("x", normal.to_event(1), infer={"event_dims": ["feature"]})


def example() -> dict[str, Any]:
    """Seven rows of two features in two classes."""
    x = np.array([[1.0, 0.2], [1.4, -0.3], [0.7, 0.5], [-0.2, 1.4], [0.1, 1.9], [-0.6, 1.2], [0.9, 0.4]])
    return {"num_rows": 7, "num_features": 2, "num_classes": 2, "x": x, "y": np.array([0, 0, 0, 1, 1, 1, 0])}


def data() -> dict[str, Any]:
    """178 wines of three cultivars by 13 chemical measurements, standardised (Forina et al. 1988)."""
    from bayeslab.datasets import classification_data, wines

    rows = classification_data(wines(), "cultivar", intercept=False)
    return {"num_rows": 178, "num_features": 13, "num_classes": 3, "x": rows["x"], "y": rows["y"]}
