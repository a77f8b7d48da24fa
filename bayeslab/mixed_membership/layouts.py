"""Genotypes and tokens of documents, which differ in how they lie in memory: the same passes over both."""

from collections.abc import Callable
from typing import Any, NamedTuple

from jax import Array

from bayeslab.mixed_membership.counts import Counts
from bayeslab.mixed_membership.genotypes.allele_counts import Shape, drawn_counts, expected_counts
from bayeslab.mixed_membership.genotypes.newton import stepped
from bayeslab.mixed_membership.genotypes.spectral_start import spectral_start
from bayeslab.mixed_membership.tokens.alternating_start import alternating_start
from bayeslab.mixed_membership.tokens.topic_counts import Tokens, drawn_of_tokens, expected_of_tokens, stepped_tokens


class Layout(NamedTuple):
    """Passes over packed data; weights (individual, population), components (population, locus, allele).

    drawn: (key, weights, components, data, shape) -> counts of origins. expected: (weights, components, data, shape) ->
    expected counts, and the log of the sums over origins. start: (key, data, shape, which alleles there are) -> weights
    and components. stepped: (weights, components, data, shape, what priors add) -> both after a step to the maximum of
    the likelihood, and the log likelihood before it. climb: how many such steps other methods begin with, at most.
    """

    drawn: Callable[..., Counts]
    expected: Callable[..., tuple[Counts, Array]]
    start: Callable[..., tuple[Array, Array]]
    stepped: Callable[..., tuple[Array, Array, Array]]
    climb: int


_LAYOUTS: dict[Any, Layout] = {
    Shape: Layout(drawn_counts, expected_counts, spectral_start, stepped, 30),
    Tokens: Layout(drawn_of_tokens, expected_of_tokens, alternating_start, stepped_tokens, 0),
}


def layout(shape: Shape | Tokens) -> Layout:
    """The passes over data of a shape."""
    return _LAYOUTS[type(shape)]
