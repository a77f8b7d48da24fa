"""A Normal over an array of steps of which only neighbours meet: a linear Gaussian chain in the shape of the array."""

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import Distribution, constraints

from bayeslab.distributions.block_tridiagonal.small_cholesky import cholesky, solve_lower, solve_lower_transposed
from bayeslab.distributions.linear_gaussian_chain import LinearGaussianChain


class StepStructure(NamedTuple):
    """Several arrays with the same steps along their first axes, whose values are one array (step, number).

    names: of the arrays. shapes: theirs, (step, *own) each.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of that one array: (step, number)."""
        return self.shapes[0][0], sum(prod(shape[1:]) for shape in self.shapes)

    def join(self, arrays: Sequence[Array]) -> Array:
        """Arrays (*sample, step, *own) as one (*sample, step, number)."""
        flat = [
            array.reshape(*array.shape[: array.ndim - len(shape) + 1], -1)
            for array, shape in zip(arrays, self.shapes, strict=True)
        ]
        return jnp.concatenate(flat, axis=-1)

    def split(self, value: Array) -> list[Array]:
        """The arrays (*sample, step, *own) of one (*sample, step, number)."""
        ends = np.cumsum([prod(shape[1:]) for shape in self.shapes])[:-1]
        parts = jnp.split(value, ends, axis=-1)
        return [part.reshape(*value.shape[:-2], *shape) for part, shape in zip(parts, self.shapes, strict=True)]


class StepNormal(Distribution):
    """A Normal whose elements meet those of their own step and of its neighbours, steps along the first axis.

    chain: the same values as paths (*independent, step, size). coupled: the axes that are joint, the first one among
    them. whole: the shape of a value.
    """

    pytree_data_fields = ("chain",)
    pytree_aux_fields = ("coupled", "whole")
    arg_constraints: dict[str, constraints.Constraint] = {}

    def __init__(self, chain: LinearGaussianChain, coupled: tuple[int, ...], whole: tuple[int, ...]):
        self.chain, self.coupled, self.whole = chain, coupled, whole
        super().__init__((), whole)

    @property
    def support(self) -> constraints.Constraint:
        return constraints.independent(constraints.real, len(self.whole))

    @property
    def mean(self) -> Array:
        return path_to_array(self.chain.mean, self.coupled, self.whole)

    @property
    def conditional_scale(self) -> Array:
        """The standard deviation of every element given the others."""
        return path_to_array(self.chain.conditional_scale, self.coupled, self.whole)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        return path_to_array(self.chain.sample(key, sample_shape), self.coupled, self.whole)

    def log_prob(self, value: Array) -> Array:
        log_densities = self.chain.log_prob(array_to_path(value, self.coupled, len(self.whole)))
        return log_densities.sum(tuple(range(value.ndim - len(self.whole), log_densities.ndim)))

    def paths(self, corners: Any) -> Array:
        """Values with the means of all products of neighbours, see `LinearGaussianChain.paths`."""
        return path_to_array(self.chain.paths(corners), self.coupled, self.whole)


def array_to_path(value: Array, coupled: tuple[int, ...], ndim: int) -> Array:
    """Values (*sample, *whole) as paths (*sample, *independent, step, size). ndim: of one value."""
    extra = value.ndim - ndim
    independent = [axis for axis in range(ndim) if axis not in coupled]
    order = (*range(extra), *(extra + axis for axis in (*independent, *coupled)))
    moved = jnp.transpose(value, order)
    lead = moved.shape[: extra + len(independent)]
    return moved.reshape(*lead, moved.shape[len(lead)], -1)


def path_to_array(path: Array, coupled: tuple[int, ...], whole: tuple[int, ...]) -> Array:
    """Paths (*sample, *independent, step, size) as values (*sample, *whole)."""
    independent = [axis for axis in range(len(whole)) if axis not in coupled]
    order = (*independent, *coupled)
    extra = path.ndim - 2 - len(independent)
    split = path.reshape(*path.shape[:-2], *(whole[axis] for axis in coupled))
    inverse = [order.index(axis) for axis in range(len(whole))]
    return jnp.transpose(split, (*range(extra), *(extra + axis for axis in inverse)))


def chain_of_neighbours(own: Array, following: Array, linear: Array) -> LinearGaussianChain:
    """The chain with log density h' x - x' P x / 2, but for a constant, where P has blocks for neighbours alone.

    own: the blocks of every step (*batch, step, d, d). following: of a step and the one before it (*batch, step - 1, d,
    d). linear: h (*batch, step, d).
    Steps are eliminated from the last one on; what is left of each is the chain.
    """

    def step(later: tuple[Array, Array], now: tuple[Array, Array, Array]) -> Any:
        (precision, pull), (block, between, own_pull) = later, now
        matrix, offset = _solve(precision, between), _solve(precision, pull[..., None])[..., 0]
        before = block - between.mT @ matrix, own_pull - (between.mT @ offset[..., None])[..., 0]
        return before, (-matrix, offset, precision)

    first_own, first_linear = jnp.moveaxis(own, -3, 0), jnp.moveaxis(linear, -2, 0)
    moving = first_own[:-1], jnp.moveaxis(following, -3, 0), first_linear[:-1]
    start, later = jax.lax.scan(step, (first_own[-1], first_linear[-1]), moving, reverse=True)
    matrix, offset, precision = (
        jnp.moveaxis(leaf, 0, -2 if name == "offset" else -3)
        for name, leaf in zip(("matrix", "offset", "precision"), later, strict=True)
    )
    identity = jnp.eye(own.shape[-1], dtype=own.dtype)
    mean, covariance = _solve(start[0], start[1][..., None])[..., 0], _solve(start[0], identity)
    noise = _solve(precision, jnp.broadcast_to(identity, precision.shape))
    return LinearGaussianChain(mean, covariance, matrix, noise, offset, time_varying=True, validate_args=False)


def _solve(matrix: Array, right: Array) -> Array:
    if matrix.shape[-1] == 1:
        return right / matrix
    factor = cholesky(matrix)
    right = jnp.broadcast_to(right, (*matrix.shape[:-1], right.shape[-1]))
    return solve_lower_transposed(factor, solve_lower(factor, right))
