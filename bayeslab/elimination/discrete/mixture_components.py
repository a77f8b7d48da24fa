"""Which sites a discrete site selects among, as the label of a row selects the component of a mixture."""

from collections.abc import Sequence
from math import prod

from bayeslab.elimination.terms import Term, terms
from bayeslab.programs.program import Bound, Site


def component_sites(bound: Bound) -> frozenset[str]:
    """The continuous latent sites among whose elements a discrete latent site may select.

    Of `mu[z]` it is mu, which has elements beside those in the plates of the row that z belongs to; of `z * p`, where
    z says whether an animal is alive or a count comes from its process, there is none.
    """
    return _component_sites(bound, terms(bound).terms)


def component_sites_of_data(bound: Bound) -> frozenset[str]:
    """Those among them whose elements reach more than the probabilities of labels: means of components, not weights."""
    priors = terms(bound).priors
    others = [term for term in terms(bound).terms if term.name not in priors or not priors[term.name].discrete]
    return _component_sites(bound, others)


def _component_sites(bound: Bound, some_terms: Sequence[Term]) -> frozenset[str]:
    """The component sites that some terms tell of."""
    continuous = {name for name in bound.latent if not bound.sites[name].is_discrete}
    return frozenset(
        name
        for term in some_terms
        if term.depends - continuous
        for name in term.depends & continuous
        if _num_elements_of_a_row(bound.sites[name], bound.sites.get(term.name)) > 1
    )


def summation_cost(bound: Bound) -> float:
    """Numbers that a sum over all discrete sites reads and writes, about; infinite where the values of one have no
    end."""
    return sum(_summation_cost(bound, term) for term in terms(bound).terms)


def _summation_cost(bound: Bound, term: Term) -> float:
    priors = terms(bound).priors
    labels = [priors[name] for name in term.depends if priors[name].discrete]
    counts = [len(label.choices) if label.choices is not None else label.num_labels for label in labels]
    return term.cost * prod(float("inf") if count is None else count for count in counts) if labels else 0.0


def _num_elements_of_a_row(site: Site, term: Site | None) -> int:
    """How many elements of a site one element of a term may depend on: those that the plates of both do not tell
    apart."""
    shared = {(plate.dim, plate.size) for plate in term.plates} if term is not None else set()
    return prod(site.shape) // prod(plate.size for plate in site.plates if (plate.dim, plate.size) in shared)
