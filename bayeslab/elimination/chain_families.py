"""Conditionals of Markov chains, linear Gaussian chains and Gaussian processes: their priors, updated."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import Distribution

from bayeslab.distributions.block_tridiagonal.integral import integral, solution
from bayeslab.distributions.block_tridiagonal.step_normal import (
    StepNormal,
    StepStructure,
    array_to_path,
    chain_of_neighbours,
    path_to_array,
)
from bayeslab.distributions.markov.log_likelihoods import FactoredLogLikelihood, LogLikelihood
from bayeslab.elimination import cubature
from bayeslab.elimination.around import around_mean
from bayeslab.elimination.family import Family, Local, SiteFunction
from bayeslab.elimination.matrix_families import symmetric_part
from bayeslab.elimination.normal_blocks import MAX_ERROR
from bayeslab.programs.wrapped_distributions import innermost_distribution


def read_chain(local: Local, point: Array, prior: Distribution) -> LogLikelihood:
    """Log likelihoods of every state at every step, (*batch, step, state), from the children of a Markov chain."""
    if isinstance(local.known, FactoredLogLikelihood):
        return local.known
    shape, states = prior.shape(), jnp.arange(innermost_distribution(prior).num_states)
    log_likelihoods = jax.vmap(lambda state: local.likelihood(jnp.full(shape, state)), out_axes=-1)(states)
    return log_likelihoods if local.known is None else log_likelihoods + local.known


def chain_log_evidence(eta: LogLikelihood, prior: Distribution) -> Array:
    """The local log evidence of a Markov chain: forward filtering, corrected where the prior is masked.

    A masked prior is 1 for every path. What it leaves is a chain only where all paths are equally likely.
    """
    chain = innermost_distribution(prior)
    log_evidence = chain.log_marginal(eta)
    while isinstance(prior, dist.ExpandedDistribution | dist.Independent):
        prior = prior.base_dist
    if not isinstance(prior, dist.MaskedDistribution):
        return log_evidence
    path = jnp.zeros(prior.shape(), int)
    return log_evidence - jnp.where(prior._mask, 0.0, jax.tree.map(jnp.asarray, chain).log_prob(path))


def map_probabilities(change: Callable[[Array], Array], chain: Any) -> Any:
    """A chain with a function applied to its probabilities, and its integers as they are."""
    return jax.tree.map(lambda leaf: change(leaf) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf, chain)


def read_linear_gaussian_chain(local: Local, point: Array, prior: Distribution) -> tuple[Array, Array]:
    """The information pair of the children: J (*batch, step, d, d) and h (*batch, step, d).

    Their Hessian has a block for every step.
    """
    slope, change = jax.linearize(jax.grad(lambda x: local.likelihood(x).sum()), point)
    units = jnp.eye(point.shape[-1], dtype=point.dtype)
    precision = -jax.vmap(lambda unit: change(jnp.broadcast_to(unit, point.shape)), out_axes=-1)(units)
    return symmetric_part(precision), slope + (precision @ point[..., None])[..., 0]


NUM_COLOURS = 3
"""Steps of one colour have no neighbour in common."""


def read_steps(density: SiteFunction, point: Array, coupled: tuple[int, ...]) -> tuple[Array, ...]:
    """The precision and the linear part of a Normal of which neighbouring steps meet, as in `chain_of_neighbours`.

    Products of the Hessian with all steps of one colour show the blocks of all of them at once.
    """
    slope, change = jax.linearize(jax.grad(density), point)
    flat = array_to_path(point, coupled, point.ndim)
    num_steps, size = flat.shape[-2:]
    colour = jnp.arange(num_steps)[:, None] % NUM_COLOURS

    def response(which: Array, unit: Array) -> Array:
        direction = jnp.broadcast_to(jnp.where(colour == which, unit, 0.0), flat.shape)
        return -array_to_path(change(path_to_array(direction, coupled, point.shape)), coupled, point.ndim)

    units = jnp.eye(size, dtype=point.dtype)
    columns = [jax.vmap(lambda unit, c=c: response(c, unit), out_axes=-1)(units) for c in range(NUM_COLOURS)]

    def blocks(shift: int) -> Array:
        """The blocks of every step with the one that far behind it."""
        count = num_steps - abs(shift)
        rows, steps = slice(max(shift, 0), max(shift, 0) + count), slice(max(-shift, 0), max(-shift, 0) + count)
        chosen = [
            jnp.where((colour == c)[steps, :, None], each[..., rows, :, :], 0.0) for c, each in enumerate(columns)
        ]
        return sum(chosen[1:], chosen[0])

    own, following = symmetric_part(blocks(0)), (blocks(1) + blocks(-1).mT) / 2
    linear = array_to_path(slope, coupled, point.ndim) + (own @ flat[..., None])[..., 0]
    linear = linear.at[..., 1:, :].add((following @ flat[..., :-1, :, None])[..., 0])
    linear = linear.at[..., :-1, :].add((following.mT @ flat[..., 1:, :, None])[..., 0])
    return own, following, linear


@lru_cache(maxsize=64)
def normal_by_steps(coupled: tuple[int, ...]) -> Family:
    """The family of a Normal along the first axis of a site, of which neighbouring steps meet. coupled: joint axes."""

    def build(eta: tuple[Array, ...], prior: Distribution) -> StepNormal:
        return StepNormal(chain_of_neighbours(*eta), coupled, prior.shape())

    return Family(
        "Normal, step by step",
        lambda local, point, prior: read_steps(local.density, point, coupled),
        build,
        mode=lambda q: q.mean,
        points=cubature.of_step_normal,
        middle=lambda key, q, old: q.mean,
        typical=lambda q, otherwise: jax.lax.stop_gradient(jnp.where(jnp.isfinite(mean := q.mean), mean, otherwise)),
        around=around_mean,
        by_steps=True,
    )


def step_block_conditional(
    structure: StepStructure, density: SiteFunction, initial: Array | None
) -> tuple[StepNormal, Array]:
    """The Normal of several arrays of which neighbouring steps meet, and the log of the integral over them.

    density: its log density but for a constant, a function of one array (step, number). initial: a likely value, in
    place of zero, at which it is read. The log of the integral is -inf where too much of it is rounding: of the log of
    a pivot that is as much as the pivot is smaller, and of all of them, with either sign, as much as the root of their
    number.
    """
    start = jnp.zeros(structure.shape) if initial is None else initial
    coupled = (0, 1)
    own, following, linear = read_steps(density, start, coupled)
    normal = StepNormal(chain_of_neighbours(own, following, linear), coupled, structure.shape)
    point = jax.lax.stop_gradient(solution(own, following, linear))
    point = jnp.where(jnp.isfinite(point), point, start)
    square, log_determinant, smallest_pivot = integral(own, following, jax.grad(density)(point))
    log_integral = density(point) + 0.5 * (square - log_determinant) + 0.5 * point.size * jnp.log(2 * jnp.pi)
    least = point.size**0.5 * jnp.finfo(point.dtype).eps / MAX_ERROR
    is_known = (smallest_pivot >= least) & (0.5 * square <= MAX_ERROR)  # the square is zero but for rounding
    return normal, jnp.where(is_known, log_integral, -jnp.inf)


def read_process(local: Local, point: Array, prior: Distribution) -> tuple[Array, Array, Array]:
    """The information pair of every value, (*batch, row) each, and the log likelihood at its peak, added up over rows.

    The children depend on every value by itself. At the peak nothing cancels, however precise they are.
    """
    slope, curvature = jax.jvp(jax.grad(lambda x: local.likelihood(x).sum()), (point,), (jnp.ones_like(point),))
    is_informative = curvature < 0
    peak = jnp.where(is_informative, point - slope / jnp.where(is_informative, curvature, 1.0), point)
    return -curvature, slope - curvature * point, local.likelihood(peak).sum(-1)
