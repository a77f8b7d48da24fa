"""Missing elements of discrete sites as elements to ask for, also where no other site depends on them."""

from typing import NamedTuple

import numpy as np

from bayeslab.elimination.discrete.fields import Field
from bayeslab.elimination.terms import terms
from bayeslab.programs.missing.gaps import Gaps, missing_elements, without_given_elements
from bayeslab.programs.missing.imputation import with_split_sites
from bayeslab.programs.missing.names import given_part, whole_site
from bayeslab.programs.probing import probe_splits
from bayeslab.programs.program import Bound


class SiteLayout(NamedTuple):
    """Where the elements of a field are in a site.

    elements: their numbers in the field. places: of each in the flat site. known: the values of the flat site as the
    data have them, NaN where an element is latent.
    """

    elements: range
    places: np.ndarray
    known: np.ndarray

    @property
    def latent(self) -> list[tuple[int, int]]:
        """The number of every latent element and its place."""
        pairs = zip(self.elements, map(int, self.places), strict=True)
        return [(element, place) for element, place in pairs if np.isnan(self.known[place])]


def with_latent_leaves(bound: Bound) -> Bound:
    """The Bound in which missing elements with finitely many values are latent also where nothing depends on them.

    Methods of `fit` leave such elements out, since they sum to one; here they may be asked for.
    """
    leaves = [name for name in bound.present if name in bound.sites and whole_site(name) == name]
    discrete = [name for name in leaves if bound.sites[name].is_discrete]
    splits = probe_splits(bound, discrete)
    possible = [name for name in discrete if splits[name].possible]
    priors = terms(with_split_sites(bound, possible)).priors
    return with_split_sites(bound, [name for name in possible if priors[name].choices is not None])


def with_missing_elements_alone(bound: Bound) -> Bound:
    """The same Bound, in which sites that are missing in part hold their missing elements and no others.

    Where parameters are integrated out, all rows meet, and those that are given would be summed over with the others.
    Where they are not, this form hides which rows do not meet.
    """
    bound = with_latent_leaves(bound)
    discrete = [name for name in bound.imputed if bound.sites[name].is_discrete and not bound.sites[name].scanned]
    splits = probe_splits(bound, [given_part(name) for name in discrete])
    gaps = []
    for name in discrete:
        ndim = splits[given_part(name)].elements_ndim
        if ndim is not None:
            number = int(np.sum(missing_elements(bound, Gaps(name, ndim, 0))))
            gaps.append(Gaps(name, ndim, number))
    return without_given_elements(bound, gaps)


def layouts_of(field: Field, bound: Bound) -> dict[str, SiteLayout]:
    """Where the elements of every site of a field are. bound: that the field was found for."""
    layouts, start = {}, 0
    for site, size in zip(field.names, field.sizes, strict=True):
        known, places = np.full(size, np.nan), np.arange(size)
        if site in bound.imputed:
            values = np.asarray(bound.observed[given_part(site)])
            present = np.asarray(bound.present[given_part(site)])
            present = np.broadcast_to(
                present.reshape(present.shape + (1,) * (values.ndim - present.ndim)), values.shape
            )
            known = np.where(present, values, np.nan).ravel()
            places = np.asarray(bound.gaps[site]).ravel() if site in bound.gaps else np.arange(values.size)
        layouts[site] = SiteLayout(range(start, start + size), places, known)
        start += size
    return layouts
