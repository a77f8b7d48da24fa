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

from bayeslab.mixed_membership.devices import DeviceContext
from bayeslab.mixed_membership.genotypes.allele_counts import (
    ROWS_PER_STEP,
    GenotypeShape,
    from_tiles,
    group_rows,
    sum_to_individuals,
    to_rows,
    to_tiles,
)

NUM_GRADIENT_STEPS = 40
"""Projected gradient steps of one quadratic program, each of which costs little beside a pass over the data."""
MIN_PROBABILITY = 1e-6
"""Smallest probability that a step leads to: at zero an observation could become impossible."""


def newton_step(
    ancestry: Array, frequencies: Array, alleles: Array, shape: GenotypeShape, pseudo_counts: tuple[Array, Array, Array]
) -> tuple[Array, Array, Array]:
    """Ancestry and frequencies after a Newton step of each, and the log likelihood before it.

    pseudo_counts: counts that the priors add to individuals (individual, population) and alleles (population, locus,
    allele), and which alleles a locus has (locus, allele).
    """
    of_individuals, *of_loci = pseudo_counts
    step_loci = partial(_step_frequencies, shape=shape.part)
    frequencies, log_likelihood = shape.devices.run(step_loci, ancestry, alleles, frequencies, tuple(of_loci))[1]
    gradient, curvature = ancestry_derivatives(ancestry, frequencies, alleles, shape)
    ancestry = _step_ancestry(ancestry, gradient, curvature, shape, of_individuals)
    return ancestry, frequencies, log_likelihood


def ancestry_derivatives(
    ancestry: Array, frequencies: Array, alleles: Array, shape: GenotypeShape
) -> tuple[Array, Array]:
    """The gradient of the log likelihood by ancestry (individual, population), and minus its second derivatives as
    upper triangles (individual, pair), see `symmetric_indices`."""
    run = partial(_ancestry_derivatives_on_device, shape=shape.part)
    return shape.devices.run(run, ancestry, alleles, frequencies)[0]


def clip_to_simplex(x: Array, is_allele: Array | bool = True) -> Array:
    """Probabilities (..., category), moved away from zero and then normalised.

    is_allele: which categories there are.
    """
    up = jnp.where(is_allele, jnp.maximum(x, MIN_PROBABILITY), 0.0)
    return up / up.sum(-1, keepdims=True)


def project_to_simplex(x: Array) -> Array:
    """The nearest point of the simplex over the first axis (Michelot 1986, doi:10.1007/BF00938486)."""
    threshold = (x.sum(0) - 1) / len(x)
    for _ in range(len(x) - 1):
        active = (x > threshold).astype(x.dtype)
        threshold = ((x * active).sum(0) - 1) / active.sum(0)
    return jnp.maximum(x - threshold, 0.0)


def _step_frequencies(
    device: DeviceContext,
    ancestry: Array,
    alleles: Array,
    frequencies: Array,
    pseudo_counts: tuple[Array, Array],
    shape: GenotypeShape,
) -> tuple[tuple[()], tuple[Array, Array]]:
    """Frequencies (population, locus, allele) after a Newton step, and the log likelihood before it.

    pseudo_counts: counts that the prior adds to alleles, and which alleles a locus has, see `newton_step`.
    """
    of_alleles, is_allele = pseudo_counts
    rows, upper = to_rows(ancestry, shape), upper_triangle(shape.populations)
    products = rows[..., upper[0]] * rows[..., upper[1]]
    is_allele_by_population = jnp.broadcast_to(is_allele, (shape.populations, *is_allele.shape))

    def tile(given: tuple[Array, ...]) -> tuple[Array, Array]:
        frequencies, alleles, pseudo, is_allele_of_tile = given

        def step(carry: tuple[Array, ...], given: tuple[Array, ...]) -> tuple[Any, None]:
            (gradient, curvature, total), (q, products, observed_allele) = carry, given
            gradients, curvatures = [], []
            for allele in range(shape.alleles):
                log_likelihood, share, share_of_square = _allele_derivatives(
                    q, frequencies[:, allele], observed_allele == allele
                )
                total += log_likelihood
                gradients.append(q.T @ share)
                curvatures.append(products.T @ share_of_square)
            return (gradient + jnp.stack(gradients, 1), curvature + jnp.stack(curvatures, 1), total), None

        steps = group_rows(ROWS_PER_STEP, rows, products, alleles)
        nothing = jnp.zeros_like(frequencies), jnp.zeros((len(upper[0]), *frequencies.shape[1:]), jnp.float32)
        gradient, curvature, total = device.total(lax.scan(step, (*nothing, jnp.zeros(())), steps)[0])
        matrix = curvature[symmetric_indices(shape.populations)]  # (population, population, allele, locus)
        positive = jnp.maximum(frequencies, MIN_PROBABILITY)
        gradient, bend = gradient + pseudo / positive, pseudo / positive**2
        steepness = jnp.maximum((jnp.abs(matrix).sum(1) + bend).max(1, keepdims=True), 1e-6)

        def times(d: Array) -> Array:
            return bend * d + sum(matrix[:, k] * d[k] for k in range(shape.populations))

        def project(x: Array) -> Array:
            return jnp.moveaxis(project_to_simplex(jnp.moveaxis(jnp.where(is_allele_of_tile > 0, x, -1e6), 1, 0)), 0, 1)

        return _accelerated_projected_gradient(frequencies, gradient, times, steepness, project), total

    new, total = lax.map(
        tile,
        (
            to_tiles(frequencies, shape),
            alleles,
            to_tiles(of_alleles, shape),
            to_tiles(is_allele_by_population, shape),
        ),
    )
    return (), (clip_to_simplex(from_tiles(new, shape), is_allele), total.sum())


def _ancestry_derivatives_on_device(
    _: DeviceContext, ancestry: Array, alleles: Array, frequencies: Array, shape: GenotypeShape
) -> tuple[tuple[Array, Array], tuple[()]]:
    """The results of `ancestry_derivatives` for the individuals of one device."""
    rows, upper = to_rows(ancestry, shape), upper_triangle(shape.populations)

    def tile(given: tuple[Array, Array]) -> tuple[Array, Array]:
        frequencies, alleles = given
        products = frequencies[upper[0]] * frequencies[upper[1]]

        def step(carry: None, given: tuple[Array, Array]) -> tuple[None, tuple[Array, Array]]:
            q, observed_allele = given
            row_gradient, row_curvature = jnp.zeros_like(q), jnp.zeros((len(q), len(upper[0])), q.dtype)
            for allele in range(shape.alleles):
                (_, share, share_of_square) = _allele_derivatives(q, frequencies[:, allele], observed_allele == allele)
                row_gradient += share @ frequencies[:, allele].T
                row_curvature += share_of_square @ products[:, allele].T
            return None, (row_gradient, row_curvature)

        steps = group_rows(ROWS_PER_STEP, rows, alleles)
        return lax.scan(step, None, steps)[1]  # type: ignore[arg-type]

    gradient, curvature = lax.map(tile, (to_tiles(frequencies, shape), alleles))
    return (sum_to_individuals(gradient.sum(0), shape), sum_to_individuals(curvature.sum(0), shape)), ()


def _step_ancestry(
    ancestry: Array, gradient: Array, curvature: Array, shape: GenotypeShape, pseudo_counts: Array
) -> Array:
    """Ancestry (individual, population) after a Newton step."""
    gradient, curvature = gradient.T, curvature.T
    matrix = curvature[symmetric_indices(shape.populations)]  # (population, population, individual)
    positive = jnp.maximum(ancestry.T.astype(jnp.float32), MIN_PROBABILITY)
    gradient, bend = gradient + pseudo_counts.T / positive, pseudo_counts.T / positive**2
    steepness = jnp.maximum((jnp.abs(matrix).sum(1) + bend).max(0, keepdims=True), 1e-6)

    def times(d: Array) -> Array:
        return bend * d + sum(matrix[:, k] * d[k] for k in range(shape.populations))

    return clip_to_simplex(_accelerated_projected_gradient(positive, gradient, times, steepness, project_to_simplex).T)


def _allele_derivatives(q: Array, table: Array, is_observed: Array) -> tuple[Array, Array, Array]:
    """The log likelihood of copies (row, 2, locus) that show an allele, and their numbers (row, locus) over its
    probability and over the square of that.

    q: ancestry (row, population). table: frequencies of the allele (population, locus).
    is_observed: which copies show it.
    """
    number = is_observed.astype(jnp.float32).sum(1)
    weight = q @ table
    log_likelihood = jnp.where(number > 0, number * jnp.log(weight), 0.0).astype(jnp.result_type(float)).sum()
    share = jnp.where(number > 0, number / weight, 0.0)
    return (log_likelihood, *lax.optimization_barrier((share, jnp.where(number > 0, share / weight, 0.0))))


def _accelerated_projected_gradient(
    start: Array,
    gradient: Array,
    times_curvature: Callable[[Array], Array],
    steepness: Array,
    project: Callable[[Array], Array],
) -> Array:
    """The point inside of simplices where gradient d - d curvature d / 2, with d the distance from the start, is large.

    It is found by accelerated projected gradients with restarts (FISTA; Beck and Teboulle 2009, doi:10.1137/080716542).
    times_curvature: multiplies by the curvature. steepness: bound of the curvature.
    project: returns the nearest feasible point.
    """

    def step(_: int, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        current, extrapolated, pace = state
        new = project(extrapolated + (gradient - times_curvature(extrapolated - start)) / steepness)
        faster = (1 + jnp.sqrt(1 + 4 * pace**2)) / 2
        restart = ((extrapolated - new) * (new - current) * steepness).sum() > 0
        momentum = jnp.where(restart, 0.0, (pace - 1) / faster)
        return new, new + momentum * (new - current), jnp.where(restart, 1.0, faster)

    return lax.fori_loop(0, NUM_GRADIENT_STEPS, step, (start, start, jnp.ones((), start.dtype)))[0]


def upper_triangle(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the upper triangle of a symmetric matrix."""
    rows, columns = np.triu_indices(size)
    return rows, columns


def symmetric_indices(size: int) -> np.ndarray:
    """Indices (row, column) of the entries of a symmetric matrix in its upper triangle."""
    index = np.zeros((size, size), int)
    index[upper_triangle(size)] = np.arange(size * (size + 1) // 2)
    return np.maximum(index, index.T)
