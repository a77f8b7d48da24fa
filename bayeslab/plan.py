"""The plan: how every site of a program will be handled, and why. `explain` shows it, `fit` follows it."""

from itertools import permutations
from math import prod
from typing import NamedTuple

import numpy as np

from bayeslab.distributions.gaussian_process import solver_of
from bayeslab.draws import Method
from bayeslab.membership.found import Membership, membership_to_count
from bayeslab.methods.exact import Exact
from bayeslab.methods.gibbs import Gibbs
from bayeslab.methods.mcmc import NUTS
from bayeslab.points import points
from bayeslab.program import Bound, Site, unwrapped
from bayeslab.proof import Found, find_all
from bayeslab.terms import terms

PROCESS = "GaussianProcess"
MANY = 12
"""Latent sites beyond which `fit` does not look for an order in which all of them can be eliminated."""


class Row(NamedTuple):
    """One site, as text.

    shape: from the outermost dimension inwards, plates with their names.
    conditional: given all other sites. law: the residual of its proof.
    """

    site: str
    role: str
    distribution: str
    support: str
    shape: str
    children: str
    conditional: str
    law: str


def rows(bound: Bound) -> list[Row]:
    """One row a site, in program order."""
    if (membership := membership_to_count(bound, None)) is not None:
        return [_row_of_counts(site, bound, membership) for site in bound.sites.values()]
    found = {one.site: one for one in _found(bound)}
    return [_row(site, bound, found.get(site.name)) for site in bound.sites.values()]


def planned(bound: Bound) -> Method:
    """The method of `fit` where none is given.

    Exact where all sites can be eliminated, else Gibbs where each has a conditional in closed form or one is discrete,
    else NUTS. Where origins are too many to be kept, Gibbs counts them.
    """
    if membership_to_count(bound, None) is not None:
        return Gibbs()
    found = _found(bound)
    closed = bool(found) and all(one.rule is not None for one in found)
    if closed and len(found) <= MANY and not _labels_are_shared(bound):
        method = Exact()
        try:
            method.plan(bound)
        except ValueError:
            pass
        else:
            return method
    return Gibbs() if closed or any(bound.sites[name].is_discrete for name in bound.latent) else NUTS()


def _found(bound: Bound) -> list[Found]:
    """What is found for every latent site; nothing where the program cannot be taken apart."""
    try:
        return find_all(bound)
    except ValueError:
        return []


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


def _row_of_counts(site: Site, bound: Bound, membership: Membership) -> Row:
    """Of a program of mixed membership at size: the proof is one for all."""
    weights, components, origins, observed = membership[:4]
    how = {
        weights: (origins, f"{site.family}, from counts of '{origins}'"),
        components: (observed, f"{site.family}, from counts of '{origins}'"),
        origins: (observed, "enumerated; counted, not kept"),
        observed: ("", ""),
    }
    return Row(*_about(site, bound), *how.get(site.name, ("", f"by NUTS, given '{weights}' and '{components}'")), "")


def _about(site: Site, bound: Bound) -> tuple[str, str, str, str, str]:
    role = site.role
    if site.name in bound.present:
        present = np.asarray(bound.present[site.name])
        role = f"observed, {int((~present).sum())} of {present.size} missing"
    if role == "factor":
        return site.name, role, "", "", " x ".join(map(str, site.shape[:-1]))
    return site.name, role, site.family, site.support, _shape(site)


def _row(site: Site, bound: Bound, found: Found | None) -> Row:
    how = _about(site, bound)
    if found is None:
        return Row(*how, "", "", "")
    children = ", ".join(found.children)
    if found.rule is None:
        return Row(*how, children, f"not in closed form: {found.reason}", _number(found.residual))
    joint = f", joint over {_sizes(site, found.rule.coupled)}" if found.rule.coupled else ""
    by = f", {_solver(bound, site.name)}" if found.rule.family == PROCESS else ""
    return Row(*how, children, found.rule.family + joint + by, _number(found.residual))


def _solver(bound: Bound, site: str) -> str:
    """How a Gaussian process is computed with, in words."""
    process = unwrapped(terms(bound).priors[site].distribution(*points(bound)[1]))
    name = type(solver_of(process.kernel, process.x, process.solver)).__name__
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name).strip()


def _shape(site: Site) -> str:
    names = {len(site.shape) - site.event_dim + plate.dim: plate.name for plate in site.plates}
    return " x ".join(f"{names[axis]} {size}" if axis in names else str(size) for axis, size in enumerate(site.shape))


def _sizes(site: Site, axes: tuple[int, ...]) -> str:
    return " x ".join(str(site.shape[axis]) for axis in axes)


def _number(residual: float) -> str:
    return "" if np.isnan(residual) else f"{residual:.0e}"
