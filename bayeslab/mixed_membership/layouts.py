"""One table of passes over data, for genotypes and for tokens of documents, which differ in how they lie in memory."""

from collections.abc import Callable
from typing import Any, NamedTuple

from jax import Array

from bayeslab.mixed_membership.counts import Counts
from bayeslab.mixed_membership.genotypes.allele_counts import GenotypeShape, draw_counts, expected_counts
from bayeslab.mixed_membership.genotypes.newton import newton_step
from bayeslab.mixed_membership.genotypes.spectral_start import spectral_start
from bayeslab.mixed_membership.tokens.alternating_start import alternating_start
from bayeslab.mixed_membership.tokens.topic_counts import TokenShape, draw_token_counts, em_step, expected_token_counts


class Layout(NamedTuple):
    """Passes over packed data, given weights (individual, population) and components (population, locus, allele).

    drawn: (key, weights, components, data, shape) -> counts of drawn origins.
    expected: (weights, components, data, shape) -> expected counts of origins, and the log of the sums over origins.
    start: (key, data, shape, which alleles a locus has) -> weights and components.
    ascent_step: (weights, components, data, shape, pseudo counts of the priors) -> weights and components after a step
    to the maximum of the likelihood (Newton's for genotypes, EM for tokens), and the log likelihood before it.
    climb: how many such steps other methods begin with, at most.
    """

    drawn: Callable[..., Counts]
    expected: Callable[..., tuple[Counts, Array]]
    start: Callable[..., tuple[Array, Array]]
    ascent_step: Callable[..., tuple[Array, Array, Array]]
    climb: int


_LAYOUTS: dict[Any, Layout] = {
    GenotypeShape: Layout(draw_counts, expected_counts, spectral_start, newton_step, 30),
    TokenShape: Layout(draw_token_counts, expected_token_counts, alternating_start, em_step, 0),
}


def layout(shape: GenotypeShape | TokenShape) -> Layout:
    """The passes over data of this shape."""
    return _LAYOUTS[type(shape)]
