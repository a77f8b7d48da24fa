"""Conditionals of chains of labels, linear Gaussian chains and Gaussian processes, which are made of their prior."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import Distribution

from bayeslab.distributions.markov.log_likelihoods import Evidence, ProductEvidence
from bayeslab.elimination.family import Local
from bayeslab.elimination.matrix_families import (
    symmetric,
)
from bayeslab.programs.program import unwrapped


def read_chain(local: Local, at: Array, prior: Distribution) -> Evidence:
    """What the children say of every state at every step, (*batch, step, state)."""
    if isinstance(local.known, ProductEvidence):
        return local.known
    shape, states = prior.shape(), jnp.arange(unwrapped(prior).num_states)
    found = jax.vmap(lambda state: local.likelihood(jnp.full(shape, state)), out_axes=-1)(states)
    return found if local.known is None else found + local.known


def chain_evidence(eta: Evidence, prior: Distribution) -> Array:
    """A masked prior is 1 for every path. What it leaves is a chain only where all paths are equally likely."""
    chain = unwrapped(prior)
    found = chain.log_marginal(eta)
    while isinstance(prior, dist.ExpandedDistribution | dist.Independent):
        prior = prior.base_dist
    if not isinstance(prior, dist.MaskedDistribution):
        return found
    anywhere = jnp.zeros(prior.shape(), int)
    return found - jnp.where(prior._mask, 0.0, jax.tree.map(jnp.asarray, chain).log_prob(anywhere))


def of_probabilities(change: Callable[[Array], Array], chain: Any) -> Any:
    """A chain with its probabilities changed, and not its integers."""
    return jax.tree.map(lambda leaf: change(leaf) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf, chain)


def read_linear_gaussian_chain(local: Local, at: Array, prior: Distribution) -> tuple[Array, Array]:
    """J (*batch, step, d, d) and h (*batch, step, d) of the children: their Hessian has a block for every step."""
    slope, change = jax.linearize(jax.grad(lambda x: local.likelihood(x).sum()), at)
    units = jnp.eye(at.shape[-1], dtype=at.dtype)
    precision = -jax.vmap(lambda unit: change(jnp.broadcast_to(unit, at.shape)), out_axes=-1)(units)
    return symmetric(precision), slope + (precision @ at[..., None])[..., 0]


def read_process(local: Local, at: Array, prior: Distribution) -> tuple[Array, Array, Array]:
    """Of what the children say of every value by itself: precision, linear coefficient (*batch, row), sum at its peak.

    At the peak nothing cancels, however precise the children are.
    """
    slope, curvature = jax.jvp(jax.grad(lambda x: local.likelihood(x).sum()), (at,), (jnp.ones_like(at),))
    known = curvature < 0
    peak = jnp.where(known, at - slope / jnp.where(known, curvature, 1.0), at)
    return -curvature, slope - curvature * at, local.likelihood(peak).sum(-1)
