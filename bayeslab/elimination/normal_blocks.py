"""The Normal conditional of several sites at once: one linear solve with their joint precision.

The log joint is quadratic in the sites together, so the products of its Hessian with a few directions are all of it:
elements that do not meet are moved together.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache, partial
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bayeslab.distributions.block_normal import OTHER, BlockNormal, Blocks, factorise, split_values
from bayeslab.distributions.precision_structure import PrecisionStructure, Sparsity
from bayeslab.elimination.terms import Term
from bayeslab.programs.program import Bound, Values
from bayeslab.programs.tracing.repeated_axes import gradient_and_changes
from bayeslab.programs.tracing.repeated_operations import Repeated

MAX_CONSTANTS = 2**16
"""Numbers of all directions, at most, that are constants of compiled code; more are computed."""


MAX_ERROR = 0.1
"""Nats of an evidence, at most, that may be rounding. Where scales are nearly zero it can be anything, and chains would
stay where it is large; that little of a posterior is there that it is left out."""

MIN_TERMS_JOINED = 8
"""Terms from which on fewer take less time to trace."""


Densities = Mapping[str, Callable[[Array], Array]]
"""Terms of the log joint by name, as functions of one vector (size,) of the values of some sites."""


class Probe(NamedTuple):
    """Directions in which one site moves: by one at one position of some axes, and at all positions of the others.

    place: the index of the site. start: the index of the first direction.
    """

    place: int
    axes: tuple[int, ...]
    start: int


class ScaledTerm(NamedTuple):
    """What one term says of Normal sites, where the other sites multiply it by a number.

    blocks: of the precision that it adds, at reference values of the other sites. slope: its gradient at the centre of
    the table there, (size,); None where the other sites do more to that than multiply it. curvature: of the term, along
    the direction of the table; None where it depends on no other site.
    """

    blocks: Blocks
    slope: Array | None
    curvature: Array | None


class PrecisionTable(NamedTuple):
    """What some terms say of jointly Normal sites, found once in place of at every gradient.

    centre: likely values of the sites as one vector (size,). direction: along which the curvature of a term tells what
    number multiplies it, (size,). terms: by name.
    """

    centre: Array
    direction: Array
    terms: dict[str, ScaledTerm]


def block_conditional(
    structure: PrecisionStructure, density: Callable[[Array], Array], initial: Array | None
) -> BlockNormal:
    """The Normal whose log density is a quadratic function of one vector (size,) but for a constant.

    initial: a likely value, at which the gradient is taken, once. Without it, it is taken at zero, and again at the
    mean that this gives, for rounding.
    """
    gradient = jax.grad(density)
    start = jnp.zeros(structure.size) if initial is None else initial
    slope, blocks = _slope_and_blocks(structure.factorised, gradient, start)
    normal = factorise(structure.factorised, blocks)
    mean = start + normal.solve(slope)
    if initial is None:  # the rest is rounding, which has no derivative
        mean += jax.lax.stop_gradient(normal.solve(gradient(mean)))
    return normal.moved(mean)


def table_name(names: Sequence[str]) -> str:
    """The name under which the table of some sites is among the values."""
    return f"precision of {', '.join(names)}"


def tabled_conditional(
    structure: PrecisionStructure, table: PrecisionTable, densities: Densities
) -> tuple[BlockNormal, Array]:
    """The Normal whose log density is a sum of some terms but for a constant, and the log of its integral.

    densities: of one vector (size,), by the names of the terms. Those in the table are known but for a number.
    """
    structure, centre = structure.factorised, table.centre
    known_slopes = {name for name, known in table.terms.items() if known.slope is not None}
    slope = jax.grad(_sum_of(densities, densities.keys() - known_slopes))(centre)
    blocks = {pair: jnp.zeros(()) for pair in _pairs(structure)}
    if rest := densities.keys() - table.terms.keys():
        blocks |= _slope_and_blocks(structure, jax.grad(_sum_of(densities, rest)), centre)[1]
    for name, known in table.terms.items():
        weight = (
            1.0 if known.curvature is None else curvature(densities[name], centre, table.direction) / known.curvature
        )
        if known.slope is not None:
            slope += weight * known.slope
        for pair, block in known.blocks.items():
            blocks[pair] += weight * block
    normal = factorise(structure, blocks)
    log_density, half_squares = _sum_of(densities, densities)(centre), 0.5 * (normal.whiten(slope) ** 2).sum()
    log_integral = log_density + half_squares - normal.log_determinant + 0.5 * structure.size * jnp.log(2 * jnp.pi)
    return normal.moved(centre + normal.solve(slope)), evidence_unless_rounded(normal, log_integral, half_squares)


def evidence_unless_rounded(normal: BlockNormal, log_integral: Array, largest: Array | float = 0.0) -> Array:
    """The log of the integral over some sites, -inf where too much of it is rounding.

    largest: the size of two numbers that it is the difference of, each a sum whose parts are rounded too.
    """
    rounding = jnp.finfo(log_integral.dtype).eps
    is_lost = normal.smallest_pivot < normal.structure.size * rounding / MAX_ERROR
    return jnp.where(is_lost | (4 * largest * rounding > MAX_ERROR), -jnp.inf, log_integral)


def _sum_of(densities: Densities, names: Collection[str]) -> Callable[[Array], Array]:
    """The sum of some terms, as a function of one vector."""
    return lambda x: sum((densities[name](x) for name in sorted(names)), 0.0 * x.sum())


def precision_table(
    structure: PrecisionStructure, site_terms: Sequence[Term], densities: Densities, slopes: Mapping[str, bool]
) -> PrecisionTable:
    """The table of some terms, with what the other sites are in their densities as reference values.

    site_terms: all that the sites reach. slopes: by the names of those in the table, whether it has their gradients.
    """
    gradients, precisions = gradients_and_precisions(structure, densities)
    normal = factorise(structure.factorised, jax.tree.map(lambda *parts: sum(parts), *precisions.values()))
    centre = normal.solve(sum(gradients.values(), jnp.zeros(structure.size)))
    direction = probe_direction(structure.size)
    gradients = _gradients(densities, centre)

    def scaled(term: Term) -> ScaledTerm:
        reached = {index for index, name in enumerate(structure.names) if structure.is_dense or name in term.depends}
        blocks = {pair: block for pair, block in precisions[term.name].items() if reached.issuperset(pair)}
        alone = term.depends <= set(structure.names)
        slope = gradients[term.name] if slopes[term.name] else None
        return ScaledTerm(blocks, slope, None if alone else curvature(densities[term.name], centre, direction))

    return PrecisionTable(centre, direction, {t.name: scaled(t) for t in site_terms if t.name in slopes})


def gradients_and_precisions(
    structure: PrecisionStructure, densities: Densities
) -> tuple[dict[str, Array], dict[str, Blocks]]:
    """Of every term, its gradient (size,) at zero and the blocks of the precision that it adds."""
    whole = structure.factorised
    gradients, products = gradient_and_changes(
        partial(_gradients, densities), jnp.zeros(structure.size), _directions(whole)
    )
    return gradients, {name: _blocks(whole, -product) for name, product in products.items()}


def _gradients(densities: Densities, x: Array) -> dict[str, Array]:
    return {name: jax.grad(density)(x) for name, density in densities.items()}


def curvature(density: Callable[[Array], Array], x: Array, direction: Array) -> Array:
    """The second derivative of a function along a direction."""
    return jax.jvp(lambda x: jax.jvp(density, (x,), (direction,))[1], (x,), (direction,))[1]


def probe_direction(size: int) -> Array:
    """A direction (size,) in general position."""
    return jnp.asarray(np.random.default_rng(0).normal(size=size))


def num_directions(structure: PrecisionStructure) -> int:
    """How many products of the Hessian with directions give all blocks."""
    probes = _probes(structure.factorised).values()
    return max(probe.start + _number(structure.factorised, *probe[:2]) for probe in probes)


def _slope_and_blocks(
    structure: PrecisionStructure, gradient: Callable[[Array], Array], at: Array
) -> tuple[Array, Blocks]:
    """The gradient (size,) of a quadratic log density at some values, and the blocks of its precision."""
    slope, products = gradient_and_changes(gradient, at, _directions(structure))
    return slope, _blocks(structure, -products)


def _blocks(structure: PrecisionStructure, products: Array) -> Blocks:
    """The blocks of a precision from its products (direction, size) with all directions."""
    probes = _probes(structure)
    responses = split_values(structure, products)
    sparsity, blocks = Sparsity(structure), {}
    for first, second in _pairs(structure):
        moved, other = _moved_first(structure, first, second)
        axes = _untied(sparsity, moved, other)
        shape = structure.shapes[moved]
        start = probes[moved, axes].start
        response = responses[other][start : start + prod(shape[axis] for axis in axes)]
        response = response.reshape((*(shape[axis] for axis in axes), *structure.shapes[other]))
        tied = {second_axis: axis for axis, second_axis in sparsity.ties_from(first, second)}
        own = list(range(len(structure.shapes[first])))
        columns = [OTHER + axis for axis in range(len(structure.shapes[second])) if axis not in tied]
        if moved == first:
            labels = [*axes, *(tied.get(axis, OTHER + axis) for axis in range(len(structure.shapes[second])))]
        else:
            labels = [*(OTHER + axis for axis in axes), *own]
        blocks[first, second] = jnp.einsum(response, labels, [*own, *columns])
    return blocks


def _pairs(structure: PrecisionStructure) -> list[tuple[int, int]]:
    """All pairs of sites that have a block."""
    return [
        *((index, index) for index in range(len(structure.names))),
        *((first, second) for first, second, _ in structure.ties),
    ]


def _untied(sparsity: Sparsity, index: int, other: int) -> tuple[int, ...]:
    tied = {axis for axis, _ in sparsity.ties_from(index, other)}
    return tuple(axis for axis in range(len(sparsity.shapes[index])) if axis not in tied)


def _moved_first(structure: PrecisionStructure, first: int, second: int) -> tuple[int, int]:
    """The site of a pair that has to be moved in fewer directions, and the other one."""
    sparsity = Sparsity(structure)

    def number(index: int, other: int) -> int:
        return prod(structure.shapes[index][axis] for axis in _untied(sparsity, index, other))

    return (first, second) if number(first, second) <= number(second, first) else (second, first)


@lru_cache(maxsize=256)
def _probes(structure: PrecisionStructure) -> dict[tuple[int, tuple[int, ...]], Probe]:
    """Directions for all blocks, by the site that moves and the axes along which it moves one position at a time.

    Sites move together where no third one meets both, as every third one of a chain.
    """
    sparsity = Sparsity(structure)
    needed: dict[tuple[int, tuple[int, ...]], None] = {}
    for pair in _pairs(structure):
        moved, other = _moved_first(structure, *pair)
        needed[moved, _untied(sparsity, moved, other)] = None
    meets = {index: {index} for index in range(len(structure.names))}
    for first, second, _ in structure.ties:
        meets[first].add(second)
        meets[second].add(first)
    slots: list[list[tuple[int, tuple[int, ...]]]] = []
    for index, axes in sorted(needed, key=lambda key: -_number(structure, *key)):
        free = (slot for slot in slots if all(meets[index].isdisjoint(meets[other]) for other, _ in slot))
        slot = next(free, None)
        if slot is None:
            slots.append([(index, axes)])
        else:
            slot.append((index, axes))
    probes: dict[tuple[int, tuple[int, ...]], Probe] = {}
    start = 0
    for slot in slots:
        probes |= {key: Probe(*key, start) for key in slot}
        start += max(_number(structure, *key) for key in slot)
    return probes


def _number(structure: PrecisionStructure, index: int, axes: tuple[int, ...]) -> int:
    """How many directions a probe has."""
    return prod(structure.shapes[index][axis] for axis in axes)


def _directions(structure: PrecisionStructure) -> Repeated:
    """All directions, (direction, size); known while tracing where they are few."""
    probes = tuple(_probes(structure).values())
    total = num_directions(structure)
    make: Any = np if total * structure.size <= MAX_CONSTANTS else jnp
    columns = []
    for index, shape in enumerate(structure.shapes):
        moves = make.zeros((total, *shape))
        for probe in probes:
            if probe.place == index:
                number = _number(structure, index, probe.axes)
                pattern = [shape[axis] if axis in probe.axes else 1 for axis in range(len(shape))]
                one_each = make.broadcast_to(make.eye(number).reshape((number, *pattern)), (number, *shape))
                before, after = make.zeros((probe.start, *shape)), total - probe.start - number
                moves = moves + make.concatenate([before, one_each, make.zeros((after, *shape))])
        columns.append(moves.reshape(total, -1))
    return Repeated((make.concatenate(columns, axis=-1),), (total, structure.size))


def joined_terms(site_terms: Sequence[Term], names: Sequence[str]) -> list[Term]:
    """Terms that some sites reach, those of their own priors as one and all others as another where they are many.

    Their numbers stand in a row, so that sums without signs are the same.
    """
    if len(site_terms) < MIN_TERMS_JOINED or any(term.reader or term.choices for term in site_terms):
        return list(site_terms)
    priors = tuple(term for term in site_terms if term.name in names)
    others = tuple(term for term in site_terms if term.name not in names)
    return [_joined(part) for part in (priors, others) if part]


@lru_cache(maxsize=256)
def _joined(parts: tuple[Term, ...]) -> Term:
    """One term with the numbers of several in a row, and the name of the first."""

    @jax.jit
    def numbers(bound: Bound, values: Values) -> Array:
        return jnp.concatenate([jnp.ravel(part.density(bound, values)) for part in parts])

    depends = frozenset().union(*(part.depends for part in parts))

    def density(bound: Bound, values: Values) -> Array:
        return numbers(bound, {name: values[name] for name in depends})

    return Term(parts[0].name, depends, density, 0)
