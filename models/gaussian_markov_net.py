"""Normal nodes with an unknown precision matrix, whose zeros are the edges that a Markov network lacks.

    precision        ~ Wishart(scale, n0),    scale (node, node), n0 > nodes - 1, mean n0 * scale
    x_i | precision  ~ Normal(mu, precision^-1),    row i = 1..n

Whiteboard notes, "Gaussian networks". Nodes i and j are independent where their covariance is zero, and independent
given all others where lambda_ij is. The conditional of a node is

    x_i | rest ~ Normal(mu_i - sum over j of lambda_ij / lambda_ii (x_j - mu_j), 1 / lambda_ii);

the notes print the other sign and leave the means out. The density has node potentials -lambda_ii x_i^2 / 2 + h_i x_i,
h = precision mu, and edge potentials -lambda_ij x_i x_j. The posterior of the precision is Wishart(scale_n, n0 + n),
scale_n^-1 = scale^-1 + sum of (x_i - mu)(x_i - mu)'. It has no zeros: how near they are to zero is told by the partial
correlations -lambda_ij / sqrt(lambda_ii lambda_jj). With `mu` unknown too it is `normal_wishart`.

`sparse_model` has a prior whose mode has zeros (Wang 2012, doi:10.1214/12-BA729): over the positive definite matrices

    lambda_ij  ~ Laplace(0, spread) for i < j,    lambda_ii  ~ Exponential(1 / (2 spread)),

up to a constant. Its maximum a posteriori is the graphical lasso, and NUTS draws from the posterior.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import multigammaln
from numpyro.distributions import constraints

PRECISION = {"event_dims": ["node", "node_"]}


def model(num_rows: int, mu: Array, scale: Array, n0: float) -> None:
    """Draw precision (node, node_) and y (row, node). mu (node,), scale (node, node_).

    Deterministic: partial_correlation (node, node_), one on the diagonal.
    """
    precision = numpyro.sample("precision", dist.Wishart(n0, scale_matrix=scale), infer=PRECISION)
    _draw_rows(num_rows, mu, precision)


def sparse_model(num_rows: int, mu: Array, spread: float) -> None:
    """The same with Laplace priors on the elements of the precision beside its diagonal. spread: their scale."""
    size = len(mu)
    flat = dist.ImproperUniform(constraints.positive_definite, (), (size, size))
    precision = numpyro.sample("precision", flat, infer=PRECISION)
    above = precision[np.triu_indices(size, 1)]
    numpyro.factor("prior_of_edges", dist.Laplace(0.0, spread).log_prob(above).sum())
    numpyro.factor("prior_of_nodes", dist.Exponential(0.5 / spread).log_prob(jnp.diagonal(precision)).sum())
    _draw_rows(num_rows, mu, precision)


def _draw_rows(num_rows: int, mu: Array, precision: Array) -> None:
    with numpyro.plate("node", len(mu), dim=-2), numpyro.plate("node_", len(mu), dim=-1):
        numpyro.deterministic("partial_correlation", partial_correlation(precision))
    with numpyro.plate("row", num_rows):
        numpyro.sample("y", dist.MultivariateNormal(mu, precision_matrix=precision), infer={"event_dims": ["node"]})


def partial_correlation(precision: Array) -> Array:
    """The correlation of every two nodes given all others, (node, node_); one on the diagonal."""
    scale = jnp.sqrt(jnp.diagonal(precision))
    correlation = -precision / jnp.outer(scale, scale)
    return correlation + 2 * jnp.eye(len(scale))


def posterior(y: Array, mu: Array, scale: Array, n0: float) -> None:
    """Draw the precision from p(precision | y)."""
    wishart = dist.Wishart(n0 + len(y), rate_matrix=_rate(y, mu, scale))
    numpyro.sample("precision", wishart, infer=PRECISION)


def evidence(y: Array, mu: Array, scale: Array, n0: float) -> Array:
    """log p(y)."""
    rows, nodes = y.shape
    n_n = n0 + rows
    gammas = multigammaln(n_n / 2, nodes) - multigammaln(n0 / 2, nodes)
    scales = n_n * jnp.linalg.slogdet(_rate(y, mu, scale))[1] + n0 * jnp.linalg.slogdet(scale)[1]
    return gammas - (scales + rows * nodes * jnp.log(jnp.pi)) / 2


def conditional(x: Array, mu: Array, precision: Array) -> tuple[Array, Array]:
    """The mean and the variance of every node given all others, (node,) each."""
    own = jnp.diagonal(precision)
    others = precision - jnp.diag(own)
    return mu - others @ (x - mu) / own, 1 / own


def example() -> dict[str, Any]:
    """Seven rows of three nodes of a chain."""
    first = np.array([0.2, 1.1, -0.7, 0.5, 1.6, -0.3, 0.4])
    second = np.array([0.4, 1.5, -0.9, 0.3, 1.2, 0.1, 0.8])
    third = np.array([-0.1, 1.2, -0.3, 0.7, 0.6, 0.3, 1.0])
    scale = np.array([[0.6, -0.1, 0.0], [-0.1, 0.3, 0.05], [0.0, 0.05, 0.4]])
    y = np.stack([first, second, third], axis=1)
    return {"num_rows": 7, "mu": np.array([0.2, 0.5, 0.4]), "scale": scale, "n0": 4.5, "y": y}


def data() -> dict[str, Any]:
    """Four lengths in cm of 50 flowers of Iris setosa, less their averages (Anderson 1935)."""
    from bayeslab.datasets import iris_setosa

    flowers = iris_setosa().rename(feature="node")
    mu = flowers.isel(row=0, drop=True).copy(data=np.zeros(4))
    scale = (mu * mu.rename(node="node_")).copy(data=np.eye(4))
    return {"num_rows": len(flowers), "mu": mu, "scale": scale, "n0": 6.0, "y": flowers - flowers.mean("row")}


def _rate(y: Array, mu: Array, scale: Array) -> Array:
    """The inverse of scale_n, (node, node_)."""
    residual = y - mu
    return jnp.linalg.solve(scale, jnp.eye(len(scale))) + residual.T @ residual
