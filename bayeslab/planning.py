"""The plan of a fit: the method, by default the one that the program allows, and the sampler that it makes."""

from itertools import permutations
from math import prod
from typing import NamedTuple

from bayeslab.elimination.terms import terms
from bayeslab.methods.exact import Exact
from bayeslab.methods.gibbs import Gibbs
from bayeslab.methods.mcmc import NUTS
from bayeslab.mixed_membership import methods as mixed_membership
from bayeslab.programs.program import Bound, Site
from bayeslab.sampling.protocols import Method, Sampler
from bayeslab.transforms.analysis import Analysis
from bayeslab.verification.findings import rules_of

MAX_SITES_FOR_EXACT = 12
"""Eliminations, of a latent site or of jointly Normal ones, beyond which `fit` does not look for their order."""


class Plan(NamedTuple):
    """How a posterior will be drawn from."""

    method: Method
    sampler: Sampler


def plan(analysis: Analysis, method: Method | None = None) -> Plan:
    """The plan of a fit. method: by default that of `default_method`.

    A program of mixed membership with many origins has methods of its own (`bayeslab.mixed_membership.methods`), which
    take the place of those of the same names.
    Raises ValueError where the method does not apply.
    """
    method = default_method(analysis) if method is None else mixed_membership.method_at_size(analysis, method)
    return Plan(method, method.plan(analysis))


def default_method(analysis: Analysis) -> Method:
    """Exact where all sites can be eliminated, else Gibbs where each has a conditional in closed form or one is
    discrete, else NUTS. Where origins of mixed membership are too many to be kept, Gibbs counts them."""
    bound = analysis.bound
    if mixed_membership.membership_at_size(analysis) is not None:
        return mixed_membership.Gibbs()
    try:
        findings = analysis.findings
    except ValueError:  # the program cannot be taken apart
        findings = ()
    closed = bool(findings) and all(finding.rule is not None for finding in findings)
    if closed and _num_eliminations(analysis) <= MAX_SITES_FOR_EXACT and not _labels_are_shared(bound):
        try:
            Exact().plan(analysis)
        except ValueError:
            pass
        else:
            return Exact()
    return Gibbs() if closed or any(bound.sites[name].is_discrete for name in bound.latent) else NUTS()


def _num_eliminations(analysis: Analysis) -> int:
    """How many sites, and sets of jointly Normal ones, there are to eliminate."""
    return len(analysis.findings) - sum(len(rule.sites) - 1 for rule in rules_of(analysis.normal_blocks))


def _labels_are_shared(bound: Bound) -> bool:
    """Whether several elements of a discrete site meet one element of another site, as the labels of a mixture do.

    They depend on each other once that site is eliminated, and make a mixture of it when they go first: `Exact` would
    search in vain.
    """

    def shared(label: Site, other: Site) -> bool:
        common = prod(plate.size for plate in label.plates if plate in other.plates)
        return label.is_discrete and prod(label.shape) > common

    pairs = (pair for term in terms(bound).terms for pair in permutations(term.depends, 2))
    return any(shared(bound.sites[label], bound.sites[other]) for label, other in pairs)
