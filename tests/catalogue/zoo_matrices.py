"""Programs of the zoo with a matrix of coefficients whose rows share the covariance of the noise."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array

sample, plate = numpyro.sample, numpyro.plate
RNG = np.random.default_rng(5)
REGRESSORS = RNG.normal(size=(6, 3))
AFTER = RNG.normal(size=(6, 2))
MEAN = np.array([[1.0, 0.0, 0.2], [0.0, 1.0, -0.1]])
COLUMNS = np.array([[0.7, 0.1, 0.0], [0.1, 0.5, -0.2], [0.0, -0.2, 0.4]])
"""The precision matrix of columns."""
RATE, DEGREES = np.array([[1.2, 0.3], [0.3, 0.8]]), 3.5


def coefficients(rows: Array) -> Array:
    """theta (2, 3), whose rows have this covariance."""
    columns = jnp.linalg.cholesky(jnp.linalg.inv(COLUMNS))
    return sample("theta", dist.MatrixNormal(MEAN, jnp.linalg.cholesky(rows), columns))


def matrix_normal_wishart() -> None:
    precision = sample("precision", dist.Wishart(DEGREES, rate_matrix=RATE))
    theta = coefficients(jnp.linalg.inv(precision))
    with plate("row", 6):
        sample("y", dist.MultivariateNormal(REGRESSORS @ theta.T, precision_matrix=precision))


def matrix_normal_inverse_wishart() -> None:
    covariance = sample("covariance", dist.InverseWishart(DEGREES, scale_matrix=RATE))
    theta = coefficients(covariance)
    with plate("row", 6):
        sample("y", dist.MultivariateNormal(REGRESSORS @ theta.T, covariance_matrix=covariance))


def precision_as_covariance() -> None:
    """Rows have the precision of the noise for their covariance: no Wishart is left."""
    precision = sample("precision", dist.Wishart(DEGREES, rate_matrix=RATE))
    theta = coefficients(precision)
    with plate("row", 6):
        sample("y", dist.MultivariateNormal(REGRESSORS @ theta.T, precision_matrix=precision))


def nonlinear_dynamics() -> None:
    """The state moves by a sine of what is linear."""
    theta = coefficients(jnp.asarray(RATE))
    with plate("row", 6):
        sample("y", dist.MultivariateNormal(jnp.sin(REGRESSORS @ theta.T), covariance_matrix=RATE))
