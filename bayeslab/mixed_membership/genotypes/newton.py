"""Newton's steps to the maximum of the density of ancestry and frequencies, origins summed over.

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
"""Projected gradient steps of one quadratic program, each of which costs little beside a pass over the data."""
FLOOR = 1e-6
"""Smallest probability that a step leads to: at zero an observation could become impossible."""


def stepped(
    ancestry: Array, frequencies: Array, alleles: Array, shape: Shape, pseudo: tuple[Array, Array, Array]
) -> tuple[Array, Array, Array]:
    """Ancestry and frequencies after a Newton step of each, and the log likelihood before it.

    pseudo: counts that the priors add to individuals (individual, population) and alleles (population, locus,
    allele), and which alleles a locus has (locus, allele).
    """
    of_individuals, of_alleles, is_allele = pseudo
    step_loci = partial(_loci_stepped, shape=shape.part)
    frequencies, log_likelihood = shape.devices.run(step_loci, ancestry, alleles, frequencies, of_alleles, is_allele)[1]
    gradient, curvature = curvature_of_individuals(ancestry, frequencies, alleles, shape)
    ancestry = _improved_individuals(ancestry, gradient, curvature, shape, of_individuals)
    return ancestry, frequencies, log_likelihood


def curvature_of_individuals(ancestry: Array, frequencies: Array, alleles: Array, shape: Shape) -> tuple[Array, Array]:
    """The gradient of the log likelihood by ancestry (individual, population), and minus its second derivatives as
    upper triangles (individual, pair), see `square`."""
    run = partial(_individual_curvature, shape=shape.part)
    return shape.devices.run(run, ancestry, alleles, frequencies)[0]


def inside(x: Array, real: Array | bool = True) -> Array:
    """Probabilities (..., category), moved away from zero and then normalised.

    real: which categories there are.
    """
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
    """Frequencies (population, locus, allele) after a Newton step, and the log likelihood before it."""
    rows, upper = rows_of(ancestry, shape), pairs(shape.populations)
    products = rows[..., upper[0]] * rows[..., upper[1]]
    is_allele_by_population = jnp.broadcast_to(real, (shape.populations, *real.shape))

    def tile(given: tuple[Array, ...]) -> tuple[Array, Array]:
        frequencies, alleles, pseudo, is_allele_of_tile = given

        def step(carry: tuple[Array, ...], given: tuple[Array, ...]) -> tuple[Any, None]:
            (gradient, curvature, total), (q, products, observed_allele) = carry, given
            gradients, curvatures = [], []
            for allele in range(shape.alleles):
                log_likelihood, share, share_of_square = _shares(q, frequencies[:, allele], observed_allele == allele)
                total += log_likelihood
                gradients.append(q.T @ share)
                curvatures.append(products.T @ share_of_square)
            return (gradient + jnp.stack(gradients, 1), curvature + jnp.stack(curvatures, 1), total), None

        steps = together(STEP, rows, products, alleles)
        nothing = jnp.zeros_like(frequencies), jnp.zeros((len(upper[0]), *frequencies.shape[1:]), jnp.float32)
        gradient, curvature, total = here.total(lax.scan(step, (*nothing, jnp.zeros(())), steps)[0])
        matrix = curvature[square(shape.populations)]  # (population, population, allele, locus)
        positive = jnp.maximum(frequencies, FLOOR)
        gradient, bend = gradient + pseudo / positive, pseudo / positive**2
        steepness = jnp.maximum((jnp.abs(matrix).sum(1) + bend).max(1, keepdims=True), 1e-6)

        def times(d: Array) -> Array:
            return bend * d + sum(matrix[:, k] * d[k] for k in range(shape.populations))

        def project(x: Array) -> Array:
            return jnp.moveaxis(projected(jnp.moveaxis(jnp.where(is_allele_of_tile > 0, x, -1e6), 1, 0)), 0, 1)

        return _improved(frequencies, gradient, times, steepness, project), total

    new, total = lax.map(
        tile, (tiles_of(frequencies, shape), alleles, tiles_of(pseudo, shape), tiles_of(is_allele_by_population, shape))
    )
    return (), (inside(loci_of(new, shape), real), total.sum())


def _individual_curvature(
    _: Here, ancestry: Array, alleles: Array, frequencies: Array, shape: Shape
) -> tuple[tuple[Array, Array], tuple[()]]:
    """The results of `curvature_of_individuals` for the individuals of one device."""
    rows, upper = rows_of(ancestry, shape), pairs(shape.populations)

    def tile(given: tuple[Array, Array]) -> tuple[Array, Array]:
        frequencies, alleles = given
        products = frequencies[upper[0]] * frequencies[upper[1]]

        def step(carry: None, given: tuple[Array, Array]) -> tuple[None, tuple[Array, Array]]:
            q, observed_allele = given
            row_gradient, row_curvature = jnp.zeros_like(q), jnp.zeros((len(q), len(upper[0])), q.dtype)
            for allele in range(shape.alleles):
                (_, share, share_of_square) = _shares(q, frequencies[:, allele], observed_allele == allele)
                row_gradient += share @ frequencies[:, allele].T
                row_curvature += share_of_square @ products[:, allele].T
            return None, (row_gradient, row_curvature)

        steps = together(STEP, rows, alleles)
        return lax.scan(step, None, steps)[1]  # type: ignore[arg-type]

    gradient, curvature = lax.map(tile, (tiles_of(frequencies, shape), alleles))
    return (individual_sums(gradient.sum(0), shape), individual_sums(curvature.sum(0), shape)), ()


def _improved_individuals(ancestry: Array, gradient: Array, curvature: Array, shape: Shape, pseudo: Array) -> Array:
    """Ancestry (individual, population) after a Newton step."""
    gradient, curvature = gradient.T, curvature.T
    matrix = curvature[square(shape.populations)]  # (population, population, individual)
    positive = jnp.maximum(ancestry.T.astype(jnp.float32), FLOOR)
    gradient, bend = gradient + pseudo.T / positive, pseudo.T / positive**2
    steepness = jnp.maximum((jnp.abs(matrix).sum(1) + bend).max(0, keepdims=True), 1e-6)

    def times(d: Array) -> Array:
        return bend * d + sum(matrix[:, k] * d[k] for k in range(shape.populations))

    return inside(_improved(positive, gradient, times, steepness, projected).T)


def _shares(q: Array, table: Array, shown: Array) -> tuple[Array, Array, Array]:
    """The log likelihood of copies (row, 2, locus) that show an allele, and their numbers (row, locus) over its
    probability and over the square of that.

    q: ancestry (row, population). table: frequencies of the allele (population, locus).
    shown: which copies show it.
    """
    number = shown.astype(jnp.float32).sum(1)
    weight = q @ table
    log_likelihood = jnp.where(number > 0, number * jnp.log(weight), 0.0).astype(jnp.result_type(float)).sum()
    share = jnp.where(number > 0, number / weight, 0.0)
    return (log_likelihood, *lax.optimization_barrier((share, jnp.where(number > 0, share / weight, 0.0))))


def _improved(
    start: Array, gradient: Array, times: Callable[[Array], Array], steepness: Array, project: Callable[[Array], Array]
) -> Array:
    """The point inside of simplices where gradient d - d curvature d / 2, with d the distance from the start, is large.

    It is found by accelerated projected gradients with restarts (FISTA; Beck and Teboulle 2009, doi:10.1137/080716542).
    times: multiplies by the curvature. steepness: bound of the curvature.
    project: returns the nearest feasible point.
    """

    def step(_: int, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        current, extrapolated, pace = state
        new = project(extrapolated + (gradient - times(extrapolated - start)) / steepness)
        faster = (1 + jnp.sqrt(1 + 4 * pace**2)) / 2
        restart = ((extrapolated - new) * (new - current) * steepness).sum() > 0
        momentum = jnp.where(restart, 0.0, (pace - 1) / faster)
        return new, new + momentum * (new - current), jnp.where(restart, 1.0, faster)

    return lax.fori_loop(0, INNER, step, (start, start, jnp.ones((), start.dtype)))[0]


def pairs(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the upper triangle of a symmetric matrix."""
    rows, columns = np.triu_indices(size)
    return rows, columns


def square(size: int) -> np.ndarray:
    """Indices (row, column) of the entries of a symmetric matrix in its upper triangle."""
    index = np.zeros((size, size), int)
    index[pairs(size)] = np.arange(size * (size + 1) // 2)
    return np.maximum(index, index.T)
