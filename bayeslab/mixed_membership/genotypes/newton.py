"""Ascent to the maximum of the density of ancestry and frequencies, origins summed over.

The log likelihood is concave in the ancestry of an individual given all frequencies, and in the frequencies of a locus
given all ancestry. A step takes Newton's step inside of the simplex for all loci, then for all individuals (Alexander,
Novembre and Lange 2009, Genome Research 19:1655), whose quadratic programs are solved by accelerated projected
gradients, all at once.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from bayeslab.mixed_membership.devices import Here
from bayeslab.mixed_membership.genotypes.allele_counts import (
    STEP,
    Shape,
    individual_sums,
    loci_of,
    rows_of,
    tiles_of,
    together,
)

INNER = 40
"""Steps of projected gradients, each of which costs little beside a pass over the data."""
FLOOR = 1e-6
"""Of a probability: at zero what is observed could become impossible."""


def stepped(
    ancestry: Array, frequencies: Array, alleles: Array, shape: Shape, pseudo: tuple[Array, Array, Array]
) -> tuple[Array, Array, Array]:
    """Ancestry and frequencies after a step, and the log likelihood before it.

    pseudo: counts that the priors add, of individuals (individual, population) and alleles (population, locus, allele),
    and which alleles a locus has (locus, allele).
    """
    of_individuals, of_alleles, real = pseudo
    loci = partial(_loci_stepped, shape=shape.part)
    frequencies, log_likelihood = shape.devices.run(loci, ancestry, alleles, frequencies, of_alleles, real)[1]
    gradient, curvature = curvature_of_individuals(ancestry, frequencies, alleles, shape)
    ancestry = _improved_individuals(ancestry, gradient, curvature, shape, of_individuals)
    return ancestry, frequencies, log_likelihood


def curvature_of_individuals(ancestry: Array, frequencies: Array, alleles: Array, shape: Shape) -> tuple[Array, Array]:
    """The gradient of the log likelihood (individual, population), and minus its second derivatives (individual, pair):
    the upper triangles, see `square`."""
    run = partial(_individual_curvature, shape=shape.part)
    return shape.devices.run(run, ancestry, alleles, frequencies)[0]


def inside(x: Array, real: Array | bool = True) -> Array:
    """Probabilities (..., category) on the simplex and away from zero. real: which categories there are."""
    up = jnp.where(real, jnp.maximum(x, FLOOR), 0.0)
    return up / up.sum(-1, keepdims=True)


def projected(x: Array) -> Array:
    """The nearest point of the simplex over the first axis (Michelot 1986, doi:10.1007/BF00938486)."""
    threshold = (x.sum(0) - 1) / len(x)
    for _ in range(len(x) - 1):
        active = (x > threshold).astype(x.dtype)
        threshold = ((x * active).sum(0) - 1) / active.sum(0)
    return jnp.maximum(x - threshold, 0.0)


def _loci_stepped(
    here: Here, ancestry: Array, alleles: Array, frequencies: Array, pseudo: Array, real: Array, shape: Shape
) -> tuple[tuple[()], tuple[Array, Array]]:
    rows, upper = rows_of(ancestry, shape), pairs(shape.populations)
    products = rows[..., upper[0]] * rows[..., upper[1]]
    of_all = jnp.broadcast_to(real, (shape.populations, *real.shape))

    def tile(given: tuple[Array, ...]) -> tuple[Array, Array]:
        frequencies, alleles, pseudo, real = given

        def step(carry: tuple[Array, ...], given: tuple[Array, ...]) -> tuple[Any, None]:
            (gradient, curvature, total), (q, products, shown) = carry, given
            first, second = [], []
            for allele in range(shape.alleles):
                gained, share, steep = _shares(q, frequencies[:, allele], shown == allele)
                total += gained
                first.append(q.T @ share)
                second.append(products.T @ steep)
            return (gradient + jnp.stack(first, 1), curvature + jnp.stack(second, 1), total), None

        few = together(STEP, rows, products, alleles)
        nothing = jnp.zeros_like(frequencies), jnp.zeros((len(upper[0]), *frequencies.shape[1:]), jnp.float32)
        gradient, curvature, total = here.total(lax.scan(step, (*nothing, jnp.zeros(())), few)[0])
        matrix = curvature[square(shape.populations)]  # (population, population, allele, locus)
        at = jnp.maximum(frequencies, FLOOR)
        gradient, bend = gradient + pseudo / at, pseudo / at**2
        steepness = jnp.maximum((jnp.abs(matrix).sum(1) + bend).max(1, keepdims=True), 1e-6)

        def times(d: Array) -> Array:
            return bend * d + sum(matrix[:, k] * d[k] for k in range(shape.populations))

        def project(x: Array) -> Array:
            return jnp.moveaxis(projected(jnp.moveaxis(jnp.where(real > 0, x, -1e6), 1, 0)), 0, 1)

        return _improved(frequencies, gradient, times, steepness, project), total

    new, total = lax.map(
        tile, (tiles_of(frequencies, shape), alleles, tiles_of(pseudo, shape), tiles_of(of_all, shape))
    )
    return (), (inside(loci_of(new, shape), real), total.sum())


def _individual_curvature(
    _: Here, ancestry: Array, alleles: Array, frequencies: Array, shape: Shape
) -> tuple[tuple[Array, Array], tuple[()]]:
    """The gradient of the log likelihood and the upper triangle of minus its curvature."""
    rows, upper = rows_of(ancestry, shape), pairs(shape.populations)

    def tile(given: tuple[Array, Array]) -> tuple[Array, Array]:
        frequencies, alleles = given
        products = frequencies[upper[0]] * frequencies[upper[1]]

        def step(carry: None, given: tuple[Array, Array]) -> tuple[None, tuple[Array, Array]]:
            q, shown = given
            first, second = jnp.zeros_like(q), jnp.zeros((len(q), len(upper[0])), q.dtype)
            for allele in range(shape.alleles):
                (_, share, steep) = _shares(q, frequencies[:, allele], shown == allele)
                first += share @ frequencies[:, allele].T
                second += steep @ products[:, allele].T
            return None, (first, second)

        few = together(STEP, rows, alleles)
        return lax.scan(step, None, few)[1]  # type: ignore[arg-type]

    gradient, curvature = lax.map(tile, (tiles_of(frequencies, shape), alleles))
    return (individual_sums(gradient.sum(0), shape), individual_sums(curvature.sum(0), shape)), ()


def _improved_individuals(ancestry: Array, gradient: Array, curvature: Array, shape: Shape, pseudo: Array) -> Array:
    gradient, curvature = gradient.T, curvature.T
    matrix = curvature[square(shape.populations)]  # (population, population, individual)
    here = jnp.maximum(ancestry.T.astype(jnp.float32), FLOOR)
    gradient, bend = gradient + pseudo.T / here, pseudo.T / here**2
    steepness = jnp.maximum((jnp.abs(matrix).sum(1) + bend).max(0, keepdims=True), 1e-6)

    def times(d: Array) -> Array:
        return bend * d + sum(matrix[:, k] * d[k] for k in range(shape.populations))

    return inside(_improved(here, gradient, times, steepness, projected).T)


def _shares(q: Array, table: Array, shown: Array) -> tuple[Array, Array, Array]:
    """Log likelihood of copies (row, 2, locus) that show an allele, and their number over its probability and over its
    square."""
    number = shown.astype(jnp.float32).sum(1)
    weight = q @ table
    gained = jnp.where(number > 0, number * jnp.log(weight), 0.0).astype(jnp.result_type(float)).sum()
    share = jnp.where(number > 0, number / weight, 0.0)
    return (gained, *lax.optimization_barrier((share, jnp.where(number > 0, share / weight, 0.0))))


def _improved(
    start: Array, gradient: Array, times: Callable[[Array], Array], steepness: Array, project: Callable[[Array], Array]
) -> Array:
    """Where gradient d - d curvature d / 2, d from the start, is large inside of simplices (Beck and Teboulle 2009,
    doi:10.1137/080716542, with restarts)."""

    def step(_: int, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        here, at, pace = state
        new = project(at + (gradient - times(at - start)) / steepness)
        faster = (1 + jnp.sqrt(1 + 4 * pace**2)) / 2
        back = ((at - new) * (new - here) * steepness).sum() > 0
        ahead = jnp.where(back, 0.0, (pace - 1) / faster)
        return new, new + ahead * (new - here), jnp.where(back, 1.0, faster)

    return lax.fori_loop(0, INNER, step, (start, start, jnp.ones((), start.dtype)))[0]


def pairs(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the upper triangle of a symmetric matrix."""
    first, second = np.triu_indices(size)
    return first, second


def square(size: int) -> np.ndarray:
    """Where the entries of a symmetric matrix are in its upper triangle."""
    place = np.zeros((size, size), int)
    place[pairs(size)] = np.arange(size * (size + 1) // 2)
    return np.maximum(place, place.T)
