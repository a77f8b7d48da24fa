"""The plan of a fit: the method, by default the one that the program allows, and the sampler that it makes."""

from itertools import permutations
from math import prod
from typing import NamedTuple

from bayeslab.elimination.terms import terms
from bayeslab.methods.exact import Exact
from bayeslab.methods.gibbs import Gibbs
from bayeslab.methods.laplace import MAP
from bayeslab.methods.mcmc import NUTS
from bayeslab.methods.svi import SVI
from bayeslab.mixed_membership import methods as mixed_membership
from bayeslab.programs.program import Bound, Site
from bayeslab.sampling.protocols import Method, Sampler
from bayeslab.transforms.analysis import Analysis

MAX_SITES_FOR_EXACT = 12
"""Latent sites beyond which `fit` does not look for an order in which all of them can be eliminated."""


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
    if (learned := analysis.bound.learned) and not getattr(method, "learns", False):
        raise ValueError(
            f"{type(method).__name__} draws all sites, but numpyro.param '{learned[0]}' has no prior to draw from; "
            "MAP(), EM() and SVI() learn it, and numpyro.handlers.lift gives it a prior"
        )
    return Plan(method, method.plan(analysis))


def default_method(analysis: Analysis) -> Method:
    """Exact where all sites can be eliminated, else Gibbs where each has a conditional in closed form or one is
    discrete, else NUTS. Where origins of mixed membership are too many to be kept, Gibbs counts them; where the program
    has a numpyro.param, SVI learns it, or MAP if nothing else that is continuous is latent."""
    bound = analysis.bound
    if bound.learned:
        drawn = set(bound.latent) - set(bound.learned)
        return MAP() if all(bound.sites[name].is_discrete for name in drawn) else SVI()
    if mixed_membership.membership_at_size(analysis) is not None:
        return mixed_membership.Gibbs()
    try:
        findings = analysis.findings
    except ValueError:  # the program cannot be taken apart
        findings = ()
    closed = bool(findings) and all(finding.rule is not None for finding in findings)
    if closed and len(findings) <= MAX_SITES_FOR_EXACT and not _labels_are_shared(bound):
        try:
            Exact().plan(analysis)
        except ValueError:
            pass
        else:
            return Exact()
    return Gibbs() if closed or any(bound.sites[name].is_discrete for name in bound.latent) else NUTS()


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
