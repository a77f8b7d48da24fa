"""Predictions that use what is known of new rows: sites that the program draws, given others that the data hold.

The parameters keep the draws of the fit. Latent sites of new rows, or of new groups, are drawn from their conditionals
given these and all values that are known, which elimination finds.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple
from zlib import crc32

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import LowRankMultivariateNormal, MultivariateNormal
from numpyro.handlers import condition, seed, substitute, trace

from bayeslab.distributions import MarkovChain
from bayeslab.elimination.around import bit_masks
from bayeslab.elimination.sweep import feasible_point
from bayeslab.elimination.terms import terms
from bayeslab.programs.missing.imputation import chosen, whole_sites, with_split_sites
from bayeslab.programs.missing.known_states import clamped_states
from bayeslab.programs.missing.missing_data import PartlyObservedChain
from bayeslab.programs.missing.names import given_part, whole_site
from bayeslab.programs.probing import probe_splits
from bayeslab.programs.program import Bound, Site, Values, init_inside_support, is_random
from bayeslab.programs.tracing.compilation import OPTIMISED_OPTIONS
from bayeslab.programs.tracing.provenance import trace_data_flow
from bayeslab.programs.wrapped_distributions import innermost_distribution
from bayeslab.results.draw_batches import map_draws
from bayeslab.transforms.collapse import draw_eliminated, marginal


class Known(NamedTuple):
    """What is known of new rows.

    bound: the program and the new data, discrete sites that others depend on split, all leaves with a mask.
    own: latent sites of new rows and groups, which have no draws. leaves: observed sites that nothing depends on.
    by_draw: sites of which elements are known from the draws: those of groups of the fit, beside new ones.
    series: sites whose missing steps follow from known ones, about which nothing known says more.
    undrawn: leaves that no sampler draws.
    """

    bound: Bound
    own: tuple[str, ...]
    leaves: tuple[str, ...]
    by_draw: tuple[str, ...]
    series: tuple[str, ...] = ()
    undrawn: tuple[str, ...] = ()


def known_of(bound: Bound, latent: Values, groups: Mapping[str, tuple[int, ...]]) -> Known:
    """What the data hold of sites. latent: draws of sites that the result has (draw, *site).

    groups: sites with new groups, whose values among the draws of the result are in the first corner -> its shape.
    """
    inner = sites_that_others_depend_on(bound)
    complete = [n for n in inner if bound.sites[n].is_discrete and n not in bound.present and whole_site(n) == n]
    splits = probe_splits(replace(bound, present=bound.present | _all_present(bound, complete)), complete)
    classes = [name for name, split in splits.items() if split.possible]
    series = series_to_go_on(bound)
    leaves = tuple(n for n in bound.observed if n not in (*inner, *series) and whole_site(n) == n)
    masks = bound.present | _all_present(bound, [n for n in (*leaves, *classes) if n not in bound.present])
    corners = {name: _corner(mask, groups[name]) for name, mask in _all_present(bound, groups).items()}
    splits = probe_splits(replace(bound, present=bound.present | corners), list(groups))
    grown = tuple(name for name, split in splits.items() if split.possible)
    given = bound.observed | {name: latent[name][0] for name in grown}
    present = masks | {name: corners[name] for name in grown}
    bound = with_split_sites(replace(bound, present=present, observed=given), [*classes, *grown, *series])
    own = tuple(name for name in bound.latent if name not in latent or name in grown)
    return Known(bound, own, leaves, grown, series)


def series_to_go_on(bound: Bound) -> tuple[str, ...]:
    """The observed sites of a scan that are missing in part, whose steps follow from their own, and of which no known
    step follows from a missing one: else these would be latent.

    Raises ValueError for one whose distribution cannot draw some elements given others.
    """
    names = [n for n, mask in bound.present.items() if whole_site(n) == n and not mask.all()]
    series = tuple(name for name in names if goes_on_from_itself(bound, name))
    for name, split in probe_splits(bound, series).items():
        if not split.possible:
            raise ValueError(
                f"site '{name}' goes on from its own values, and of a {split.family} missing steps cannot be told from "
                "known ones; leave out the steps that are missing"
            )
    return series


def chains_to_go_on(bound: Bound) -> tuple[str, ...]:
    """The observed chains of states on which nothing depends, of which some states are missing."""
    inner = sites_that_others_depend_on(bound)
    families = (MarkovChain.__name__, PartlyObservedChain.__name__)
    chains = [name for name in bound.present if bound.sites[name].family in families and name not in inner]
    return tuple(n for n in chains if bound.present[n].shape == bound.sites[n].shape and not bound.present[n].all())


def goes_on_from_itself(bound: Bound, name: str) -> bool:
    """Whether a site is observed in a scan, and the density of some of its steps changes with its value at others."""
    if name not in bound.observed or not bound.sites[name].scanned:
        return False
    value, steps = bound.observed[name], bit_masks(bound.observed[name].shape[:1])[1]
    bare = replace(bound, present={n: mask for n, mask in bound.present.items() if n != name})
    before = np.asarray(_step_densities(bare, name))
    for moved in np.concatenate([steps, ~steps]):
        others = jnp.where(moved.reshape(-1, *(1 for _ in value.shape[1:])), jnp.roll(value, 1, axis=0), value)
        after = np.asarray(_step_densities(replace(bare, observed=bare.observed | {name: others}), name))
        if not np.array_equal(before[~moved], after[~moved], equal_nan=True):
            return True
    return False


@partial(jax.jit, static_argnames="name")
def _step_densities(bound: Bound, name: str) -> Array:
    """The log densities of a site of a scan, at some values of the latent sites."""
    model = substitute(seed(bound.program, jax.random.PRNGKey(0)), substitute_fn=init_inside_support)
    site = trace(model).get_trace()[name]
    return site["fn"].log_prob(site["value"])


def sites_that_others_depend_on(bound: Bound) -> list[str]:
    """The observed sites that reach the density of another site."""
    return sorted({name for name, _ in pairs_of_dependence(bound)})


def given_parameters(bound: Bound) -> tuple[str, ...]:
    """The observed sites that stand for values of parameters: other observed sites depend on them, and none of these
    shares rows with them, as the columns of a table of data do."""
    pairs = [(name, site) for name, site in pairs_of_dependence(bound) if site in bound.observed]
    rows = {name for name, site in pairs if _share_rows(bound.sites[name], bound.sites[site])}
    return tuple(dict.fromkeys(name for name, _ in pairs if name not in (*rows, *bound.present, *bound.computed)))


def pairs_of_dependence(bound: Bound) -> list[tuple[str, str]]:
    """Pairs of an observed site and another site whose density depends on it."""
    flow = trace_data_flow(bound, bound.latent_shapes)
    pairs = [(name, fact.site) for fact in flow.of("density") for name in fact.reached_by("observed")]
    return [(name, site) for name, site in pairs if whole_site(name) != whole_site(site)]


def _share_rows(parent: Site, child: Site) -> bool:
    """Whether a site has an element for every row of another: by plates, as a step of a scan, or as states of a chain
    have, by its shape."""
    if parent.scanned and child.scanned:
        return True
    plates, rows = ({plate.name for plate in site.plates} for site in (parent, child))
    if not parent.shape or not child.shape:
        return parent.shape == child.shape
    return bool(rows and rows <= plates) or (parent.is_discrete and parent.shape == child.shape[: len(parent.shape)])


def _all_present(bound: Bound, names: Collection[str]) -> Values:
    """Masks of sites of which nothing is missing."""
    return {name: jnp.ones(bound.sites[name].batch_shape, bool) for name in names}


def _corner(mask: Array, fitted: tuple[int, ...]) -> Array:
    """Which elements of a batch are in its first corner of another shape."""
    return (~mask).at[tuple(slice(0, size) for size in fitted[: mask.ndim])].set(True)


def informed_sites(known: Known) -> tuple[str, ...]:
    """The own sites about which known values say something: those that reach their density, through others or not."""
    own_terms, own = terms(known.bound).terms, set(known.own) - set(known.series)
    informed = {n for t in own_terms if t.name not in known.bound.latent for n in t.depends if n in own}
    while more := {n for t in own_terms if t.name in informed for n in t.depends if n in own and n not in informed}:
        informed |= more
    return tuple(name for name in known.own if name in informed)


def own_ancestors(known: Known, site: str) -> tuple[str, ...]:
    """The own sites on which the density of a site depends, through others or not."""
    densities, own = {term.name: term for term in terms(known.bound).terms}, set(known.own) - set(known.series)
    found = {site}
    while more := {n for name in found for n in densities[name].depends if n in own} - found:
        found |= more
    return tuple(name for name in known.own if name in found - {site})


def without_uninformed(known: Known, kept: Collection[str] = ()) -> Bound:
    """The program without the densities of own sites about which nothing is known, which integrate to one.

    kept: sites that stay all the same.
    """
    informed = {*informed_sites(known), *kept}
    names = [name for name in known.own if name not in informed]
    if not names:
        return known.bound
    bound = known.bound
    inside = feasible_point(jax.random.PRNGKey(0), bound)
    values = {name: inside[name] for name in names}
    none = {name: ~mask for name, mask in _all_present(bound, names).items()}
    return replace(bound, observed=bound.observed | values, present=bound.present | none)


class Predictions(NamedTuple):
    """Draws of all sites but those that the result has. values: (draw, *site). left_out: why some have none."""

    values: Values
    left_out: str = ""


def draws_given_known(key: Array, known: Known, latent: Values, num_draws: int) -> Predictions:
    """Draws of the sites of new rows, given as many draws of those of the result; it may have none but of its own rows.

    Own sites and missing entries are drawn given all that is known; entries of leaves that are known are drawn anew, as
    if no leaf were known.
    Raises ValueError where sites cannot be drawn given what is known.
    """
    bound, informed = known.bound, informed_sites(known)
    keys = jax.random.split(key, (5, num_draws))
    fixed = {name: value for name, value in latent.items() if name not in known.by_draw}
    by_draw = {given_part(name): latent[name] for name in known.by_draw}
    drawn_leaves = tuple(name for name in known.leaves if name not in known.undrawn)
    simulated = _simulated(keys[0], bound, fixed, by_draw, drawn_leaves)
    if not informed:
        return Predictions(_without_parts(bound, simulated, by_draw))
    try:
        collapsed = marginal(without_uninformed(known), informed)
    except ValueError as reason:
        gaps = [n for n in drawn_leaves if not np.all(bound.present[n]) and np.any(bound.present[n])]
        if gaps or _reach_more_than_leaves(known, informed):
            raise ValueError(f"predict cannot draw what is missing in new rows given what is known: {reason}") from None
        kept = {name: value for name, value in simulated.items() if name not in informed}
        return Predictions(_without_parts(bound, kept, by_draw), str(reason))
    start = fixed | {name: simulated[name] for name in informed}
    no_leaf = {name: jnp.zeros_like(bound.present[name]) for name in known.leaves}
    passes = []
    for hidden, own_keys, pass_keys in zip(({}, no_leaf), keys[1:3], keys[3:], strict=True):
        at = replace(collapsed, present=collapsed.present | hidden)
        drawn = _eliminated(own_keys, at, start, by_draw)
        all_fixed = fixed | {name: drawn[name] for name in informed}
        passes.append(_simulated(pass_keys, bound, all_fixed, by_draw, drawn_leaves))
    values, of_known_leaves = passes
    for name in drawn_leaves:
        ndim = values[name].ndim - 1
        values[name] = chosen(bound.present[name], of_known_leaves[name], values[name], ndim)
    return Predictions(_without_parts(bound, values, by_draw))


def continued_series(key: Array, bound: Bound, latent: Values, simulations: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Replications of series, with the steps that are missing drawn given those that are known."""
    if not (series := (*series_to_go_on(bound), *chains_to_go_on(bound))):
        return {}
    num_draws = len(next(iter(latent.values())))
    drawn, _ = draws_given_known(key, known_of(bound, latent, {}), latent, num_draws)
    return {
        name: np.asarray(chosen(bound.present[name], simulations[name], drawn[name], simulations[name].ndim - 1))
        for name in series
    }


def _without_parts(bound: Bound, values: Values, by_draw: Values) -> Values:
    """Values of sites, whole where they are split, by the names that data have for them."""
    whole = whole_sites(bound, values | by_draw)
    return {name: value for name, value in whole.items() if whole_site(name) == name}


def _reach_more_than_leaves(known: Known, informed: Collection[str]) -> bool:
    """Whether known values other than those of leaves say something about own sites."""
    terms_of_known = [t for t in terms(known.bound).terms if t.name not in (*known.bound.latent, *known.leaves)]
    return any(not t.depends.isdisjoint(informed) for t in terms_of_known)


@jax.jit
def _eliminated(keys: Array, collapsed: Bound, values: Values, by_draw: Values) -> Values:
    """Draws of the sites that are integrated out, (draw, *site)."""

    def run(at: tuple[Array, Values, Values]) -> Values:
        key, start, given = at
        return draw_eliminated(key, replace(collapsed, observed=collapsed.observed | given), start)

    return map_draws(run, (keys, values, by_draw))


@partial(jax.jit, static_argnames="leaves", compiler_options=OPTIMISED_OPTIONS)
def _simulated(keys: Array, bound: Bound, fixed: Values, by_draw: Values, leaves: tuple[str, ...]) -> Values:
    """Runs of the program (draw, *site) with some latent sites fixed. Of the observed ones leaves are drawn; missing
    numbers of a Normal vector, and states of a chain, are drawn given the others."""

    def run(at: tuple[Array, Values, Values]) -> Values:
        key, values, given = at
        known = {n: v for n, v in (bound.observed | given).items() if n not in leaves and n not in bound.computed}
        model = substitute(condition(bound.unconditioned(key), data=known), data=values)
        return {
            name: _with_missing_given_known(key, site, bound.observed[name], bound.present[name])
            if name in leaves and name in bound.present
            else jnp.asarray(site["value"])
            for name, site in trace(model).get_trace(**bound.inputs).items()
            if name not in (*bound.computed, *known) and (is_random(site) or site["type"] == "deterministic")
        }

    return map_draws(run, (keys, fixed, by_draw))


def _with_missing_given_known(key: Array, site: dict[str, Any], known: Array, present: Array) -> Array:
    """The drawn value of a site, missing numbers of a multivariate Normal, or states of a chain, given those of its
    event that are known.

    A draw x of the whole event becomes one given the known numbers y when C (x's covariance with these) times the
    inverse of their own covariance times y - x is added to it. Numbers that are known keep their draws, and so do
    events of which all numbers are known or none is, and other distributions.
    known, present: the values of the site, and which of them are known.
    """
    drawn, fn = jnp.asarray(site["value"]), innermost_distribution(site["fn"])
    if isinstance(fn, MarkovChain) and present.ndim == drawn.ndim:
        given = fn.condition(clamped_states(fn, present, known.astype(drawn.dtype)))
        key = jax.random.fold_in(key, crc32(site["name"].encode()))
        return jnp.where(present, drawn, given.sample(key).astype(drawn.dtype))
    if not isinstance(fn, MultivariateNormal | LowRankMultivariateNormal) or present.ndim < drawn.ndim:
        return drawn
    is_known = present.astype(drawn.dtype)
    covariance = jnp.broadcast_to(fn.covariance_matrix, (*drawn.shape, drawn.shape[-1]))
    of_known = covariance * is_known[..., :, None] * is_known[..., None, :]
    of_known += jnp.eye(drawn.shape[-1]) * (1 - is_known)[..., None]
    residual = jnp.where(present, known - drawn, 0.0)
    weights = jnp.linalg.solve(of_known, residual[..., None])
    return jnp.where(present, drawn, drawn + (covariance @ weights)[..., 0])
