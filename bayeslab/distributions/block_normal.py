"""A Normal over several arrays, by a sparse block factorisation of their joint precision."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import Distribution, constraints

from bayeslab.distributions.precision_structure import (
    Neighbour,
    PrecisionStructure,
    Sparsity,
    Step,
    Tie,
    elimination_steps,
    ties_after,
)

OTHER = 100
"""First label, in sums of products, of axes of the second array of a block; axes of the first count from 0."""
THIRD = 200
"""First label of axes of a third array."""
COUPLED = 99
"""Label of the coupled axes of an eliminated array, taken as one."""

Blocks = dict[tuple[int, int], Array]
"""Blocks of a precision matrix by pairs of arrays (first, second), first <= second: axes of the first, then those of
the second that have no tie."""


class BlockNormal(Distribution):
    """A Normal over several arrays, as one vector (size,) of all their elements.

    The precision is U' U, where U is block triangular: the rows of an array are its factor, transposed, and one weight
    for every array that is eliminated later.

    loc: the mean, (size,). conditional_scale: the standard deviation of every element given all others, (size,).
    factors: a Cholesky factor for every step of `elimination_steps`, (*independent, coupled, coupled).
    weights: for every step, those of its neighbours (*independent, coupled, *free).
    """

    pytree_data_fields = ("loc", "conditional_scale", "factors", "weights")
    pytree_aux_fields = ("structure",)
    arg_constraints: dict[str, constraints.Constraint] = {}
    support = constraints.real_vector

    def __init__(
        self,
        loc: Array,
        conditional_scale: Array,
        factors: tuple[Array, ...],
        weights: tuple[tuple[Array, ...], ...],
        structure: PrecisionStructure,
    ):
        self.loc, self.conditional_scale, self.factors, self.weights = loc, conditional_scale, factors, weights
        self.structure = structure
        super().__init__((), (structure.size,))

    @property
    def mean(self) -> Array:
        return self.loc

    def moved(self, loc: Array) -> "BlockNormal":
        """The same Normal around another mean (size,)."""
        return BlockNormal(loc, self.conditional_scale, self.factors, self.weights, self.structure)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        return self.from_noise(jax.random.normal(key, (*sample_shape, self.structure.size)))

    def from_noise(self, noise: Array) -> Array:
        """Values for standard noise (*sample, size)."""
        steps = jax.vmap(self._solve_upper)(noise.reshape(-1, noise.shape[-1])).reshape(noise.shape)
        return self.loc + steps

    def log_prob(self, value: Array) -> Array:
        distances = (value - self.loc).reshape(-1, self.structure.size)
        squares = jax.vmap(self._sum_of_squares)(distances).reshape(value.shape[:-1])
        return self.log_determinant - 0.5 * squares - 0.5 * self.structure.size * jnp.log(2 * jnp.pi)

    def log_prob_of_elements(self, value: Array) -> Array:
        """What every element of a value (size,) adds to its log density, given those that are eliminated later."""
        parts, added = split_values(self.structure, value - self.loc), {}
        for step, factor, weights in zip(elimination_steps(self.structure), self.factors, self.weights, strict=True):
            own = self._row_products(step, factor, weights, parts)
            log_density = jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)) - 0.5 * own**2 - 0.5 * jnp.log(2 * jnp.pi)
            added[step.place] = _unrows(step, log_density, self.structure.shapes[step.place])
        return join_values([added[index] for index in range(len(parts))])

    @property
    def log_determinant(self) -> Array:
        """The logarithm of the determinant of U, half of that of the precision."""
        diagonals = [jnp.diagonal(factor, axis1=-2, axis2=-1) for factor in self.factors]
        return sum((jnp.log(diagonal).sum() for diagonal in diagonals), jnp.zeros(()))

    @property
    def smallest_pivot(self) -> Array:
        """The smallest share of the precision of an element given all others that is left of it, once those that were
        eliminated before it are integrated out: where it is near the rounding of numbers it is nothing but rounding.
        """
        scales = split_values(self.structure, self.conditional_scale)
        smallest = jnp.ones(())
        for step, factor in zip(elimination_steps(self.structure), self.factors, strict=True):
            diagonal = jnp.diagonal(factor, axis1=-2, axis2=-1)
            smallest = jnp.minimum(smallest, ((diagonal * _rows(step, scales[step.place])) ** 2).min())
        return smallest

    def solve(self, linear: Array) -> Array:
        """The precision matrix, inverted, times a vector (size,)."""
        return self._solve_upper(self.whiten(linear))

    def whiten(self, linear: Array) -> Array:
        """The solution of U' x = linear (size,)."""
        rest = split_values(self.structure, linear)
        whitened: dict[int, Array] = {}
        for step, factor, weights in zip(elimination_steps(self.structure), self.factors, self.weights, strict=True):
            own = _solve_lower(factor, _rows(step, rest[step.place])[..., None])[..., 0]
            whitened[step.place] = _unrows(step, own, self.structure.shapes[step.place])
            for neighbour, weight in zip(step.neighbours, weights, strict=True):
                rest[neighbour.place] -= _transposed_product(step, neighbour, weight, own)
        return join_values([whitened[index] for index in range(len(rest))])

    def _sum_of_squares(self, distance: Array) -> Array:
        parts, total = split_values(self.structure, distance), jnp.zeros(())
        for step, factor, weights in zip(elimination_steps(self.structure), self.factors, self.weights, strict=True):
            total += (self._row_products(step, factor, weights, parts) ** 2).sum()
        return total

    def _row_products(self, step: Step, factor: Array, weights: tuple[Array, ...], values: list[Array]) -> Array:
        """The rows of U x of an array, (*independent, coupled)."""
        own = jnp.einsum("...ji,...j->...i", factor, _rows(step, values[step.place]))
        return own + self._weighted_sum(step, weights, values)

    def _solve_upper(self, right: Array) -> Array:
        """The solution x (size,) of U x = right: arrays that were eliminated last come first."""
        values = split_values(self.structure, right)
        steps = elimination_steps(self.structure)
        for step, factor, weights in zip(steps[::-1], self.factors[::-1], self.weights[::-1], strict=True):
            own = _rows(step, values[step.place]) - self._weighted_sum(step, weights, values)
            solved = _solve_lower(factor, own[..., None], transposed=True)[..., 0]
            values[step.place] = _unrows(step, solved, self.structure.shapes[step.place])
        return join_values(values)

    def _weighted_sum(self, step: Step, weights: tuple[Array, ...], values: list[Array]) -> Array:
        """What the neighbours of an array say of its rows of U x, (*independent, coupled)."""
        total: Any = 0.0
        for neighbour, weight in zip(step.neighbours, weights, strict=True):
            labels = _weight_labels(step, neighbour, OTHER)
            axes = _axis_labels(neighbour, OTHER, values[neighbour.place].ndim)
            total += jnp.einsum(weight, labels, values[neighbour.place], axes, [*step.independent, COUPLED])
        return total


def factorise(structure: PrecisionStructure, blocks: Blocks) -> BlockNormal:
    """The Normal with mean zero and a precision matrix, by blocks; not a number where that is not positive definite."""
    sparsity, blocks = Sparsity(structure), dict(blocks)
    diagonal = []
    for index, shape in enumerate(structure.shapes):
        labels = list(range(len(shape)))
        own = blocks[index, index]
        diagonal.append(jnp.einsum(own, [*labels, *structure.coupled[index]], labels))
    factors, weights = [], []
    for step in elimination_steps(structure):
        own = _block_rows(blocks.pop((step.place, step.place)), step, step.coupled)
        joint = own.shape[len(step.independent)]
        own = own.reshape(*own.shape[: len(step.independent)], joint, joint)
        factor = jnp.sqrt(own) if joint == 1 else jnp.linalg.cholesky((own + own.mT) / 2)
        columns = []
        for neighbour in step.neighbours:
            block = _oriented(blocks, sparsity, step.place, neighbour.place)
            kept = frozenset(neighbour.ties)
            block = _without_ties(
                block, structure, (step.place, neighbour.place), sparsity.ties_from(step.place, neighbour.place), kept
            )
            columns.append(_block_rows(block, step, neighbour.free))
        solved = _solve_columns(factor, columns)
        before = sparsity.copy()
        sparsity.eliminate(step)
        for place, first in enumerate(step.neighbours):
            blocks.pop((min(step.place, first.place), max(step.place, first.place)))
            for second, other in zip(step.neighbours[place:], solved[place:], strict=True):
                change = -_product(step, first, second, solved[place], other)
                pair, added = (first.place, second.place), ties_after(first, second)
                target = sparsity.ties_from(*pair)
                change = _without_ties(change, structure, pair, added, target)
                if pair in blocks:
                    change += _without_ties(blocks[pair], structure, pair, before.ties_from(*pair), target)
                blocks[pair] = change
        factors.append(factor)
        weights.append(tuple(solved))
    scale = 1 / jnp.sqrt(join_values(diagonal))
    return BlockNormal(jnp.zeros(structure.size), scale, tuple(factors), tuple(weights), structure)


def split_values(structure: PrecisionStructure, vector: Array) -> list[Array]:
    """The arrays (*sample, *shape) whose elements a vector (*sample, size) holds."""
    parts = jnp.split(vector, np.cumsum(structure.sizes)[:-1], axis=-1)
    return [part.reshape(*vector.shape[:-1], *shape) for part, shape in zip(parts, structure.shapes, strict=True)]


def join_values(values: Any) -> Array:
    """The elements of several arrays as one vector."""
    return jnp.concatenate([jnp.ravel(value) for value in values])


def _axis_labels(neighbour: Neighbour, base: int, ndim: int) -> list[int]:
    """Labels of the axes of a neighbour: those of the eliminated array where they are tied, else its own."""
    tied = {axis: own for own, axis in neighbour.ties}
    return [tied.get(axis, base + axis) for axis in range(ndim)]


def _weight_labels(step: Step, neighbour: Neighbour, base: int) -> list[int]:
    return [*step.independent, COUPLED, *(base + axis for axis in neighbour.free)]


def _rows(step: Step, value: Array) -> Array:
    """An array with its coupled axes as one, the last: (*independent, coupled)."""
    ordered = jnp.transpose(value, (*step.independent, *step.coupled))
    return ordered.reshape(*ordered.shape[: len(step.independent)], -1)


def _unrows(step: Step, rows: Array, shape: tuple[int, ...]) -> Array:
    """The array of some rows (*independent, coupled)."""
    order = (*step.independent, *step.coupled)
    ordered = rows.reshape(tuple(shape[axis] for axis in order))
    return jnp.transpose(ordered, tuple(order.index(axis) for axis in range(len(shape))))


def _block_rows(block: Array, step: Step, others: tuple[int, ...]) -> Array:
    """A block with the coupled axes of its first array as one: (*independent, coupled, *others)."""
    first = (*step.independent, *step.coupled)
    ordered = jnp.transpose(block, (*first, *range(len(first), block.ndim)))
    num_independent = len(step.independent)
    return ordered.reshape(*ordered.shape[:num_independent], -1, *ordered.shape[len(first) :])


def _solve_lower(factor: Array, right: Array, transposed: bool = False) -> Array:
    """The solution of L x = right (..., coupled, column), or of L' x = right."""
    if factor.shape[-1] == 1:
        return right / factor
    return jax.scipy.linalg.solve_triangular(factor, right, trans=int(transposed), lower=True)


def _solve_columns(factor: Array, columns: list[Array]) -> list[Array]:
    """The solutions for several arrays of columns (*independent, coupled, *free), of the same shapes, at once."""
    if not columns:
        return []
    num_rows = factor.ndim - 1
    flat = [column.reshape(*column.shape[:num_rows], -1) for column in columns]
    solved = _solve_lower(factor, jnp.concatenate(flat, -1))
    parts = jnp.split(solved, np.cumsum([part.shape[-1] for part in flat])[:-1], axis=-1)
    return [part.reshape(column.shape) for part, column in zip(parts, columns, strict=True)]


def _transposed_product(step: Step, neighbour: Neighbour, weight: Array, rows: Array) -> Array:
    """A weight, transposed, times rows (*independent, coupled): of the shape of the neighbour."""
    ndim = len(neighbour.free) + len(neighbour.ties)
    labels = _weight_labels(step, neighbour, OTHER)
    return jnp.einsum(weight, labels, rows, [*step.independent, COUPLED], _axis_labels(neighbour, OTHER, ndim))


def _product(step: Step, first: Neighbour, second: Neighbour, weight: Array, other: Array) -> Array:
    """A weight, transposed, times another: a block of the two neighbours, with the ties of `ties_after`."""
    tied = {axis for _, axis in ties_after(first, second)}
    ndim, other_ndim = (len(each.free) + len(each.ties) for each in (first, second))
    columns = [label for axis, label in enumerate(_axis_labels(second, THIRD, other_ndim)) if axis not in tied]
    result = [*_axis_labels(first, OTHER, ndim), *columns]
    return jnp.einsum(weight, _weight_labels(step, first, OTHER), other, _weight_labels(step, second, THIRD), result)


def _oriented(blocks: Blocks, sparsity: Sparsity, index: int, other: int) -> Array:
    """The block of two arrays with the axes of the first one first."""
    if index < other:
        return blocks[index, other]
    own = dict(sparsity.ties_from(other, index))
    num, other_num = len(sparsity.shapes[index]), len(sparsity.shapes[other])
    tied = set(own.values())
    labels = [own.get(axis, OTHER + axis) for axis in range(other_num)]
    untied = [OTHER + axis for axis in range(other_num) if axis not in own]
    given = [*labels, *(axis for axis in range(num) if axis not in tied)]
    return jnp.einsum(blocks[other, index], given, [*range(num), *untied])


def _without_ties(
    block: Array, structure: PrecisionStructure, pair: tuple[int, int], ties: frozenset[Tie], kept: frozenset[Tie]
) -> Array:
    """A block with fewer ties: elements that no longer meet at equal positions alone get zeros between them."""
    shape, other_shape = (structure.shapes[index] for index in pair)
    for tie in sorted(ties - kept):
        axis, other = tie
        tied = {each for _, each in ties}
        labels = [*range(len(shape)), *(OTHER + each for each in range(len(other_shape)) if each not in tied)]
        ties = ties - {tie}
        tied = {each for _, each in ties}
        result = [*range(len(shape)), *(OTHER + each for each in range(len(other_shape)) if each not in tied)]
        block = jnp.einsum(block, labels, jnp.eye(shape[axis]), [axis, OTHER + other], result)
    return block
