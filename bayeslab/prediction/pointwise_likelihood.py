"""Log likelihoods of rows, with the latent sites that belong to a row integrated out.

Leave-one-out cross-validation leaves out a row with everything that is its own: given its own label or effect the
density of a row says how well these fit it, not how well it is predicted.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import prod
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import Distribution, ExpandedDistribution, MaskedDistribution
from numpyro.handlers import seed, substitute, trace

from bayeslab.elimination.around import bit_masks
from bayeslab.elimination.terms import Term, terms
from bayeslab.prediction.group_elements import NO_GROUP, elements_of_groups
from bayeslab.prediction.row_quadrature import with_groups_integrated
from bayeslab.programs.missing.observed_values import known_values
from bayeslab.programs.program import Bound, Site, Values, init_inside_support
from bayeslab.programs.validation import listed_sites
from bayeslab.results.draw_batches import map_draws
from bayeslab.transforms.analysis import Analysis
from bayeslab.transforms.collapse import Marginal, marginal
from bayeslab.verification.findings import rules_of

RELATIVE_TOLERANCE = 1e-9
"""The largest relative change of the log likelihood of a row, when other rows are hidden, that is rounding."""

MAX_CHOICES_OF_ROW = 1024
"""Values that the labels of a row have together, at most, where each row is summed over by itself."""
NUM_CHECKED_DRAWS = 8
"""Draws at which quadrature over sites of rows is checked."""


class PointwiseLikelihood(NamedTuple):
    """Pointwise log likelihoods.

    values: by observed site (draw, *batch), NaN where entries are missing or masked; several sites that share latent
    ones have one value, by their joined names. dims_from: by joined name, the site that it has its dimensions from.
    integrated_out: latent sites. reason: why what belongs to rows was not integrated out, where that was so.
    """

    values: Values
    dims_from: dict[str, str]
    integrated_out: tuple[str, ...]
    reason: str = ""


def log_likelihood(bound: Bound, latent: Values, kept: Mapping[str, np.ndarray] | None = None) -> PointwiseLikelihood:
    """log p(row | draw) of every entry of the observed sites. latent: (draw, *site); of none there is one draw.

    kept: by site, which elements (*site) are those of a fit to other data, and keep their draws.
    The result is empty where sites that belong to rows can neither be integrated out row by row nor have draws.
    """
    marginal_bound, reason = _closed_form(bound, latent)
    if marginal_bound is None:
        marginal_bound, why_no_quadrature = _by_quadrature(bound, latent, kept or {})
        is_integrated = marginal_bound.transform is not None
        reason = "" if is_integrated else why_no_quadrature or reason
    joint_terms = _marginal_terms(marginal_bound)
    private = marginal_bound.transform.sites if isinstance(marginal_bound.transform, Marginal) else ()
    if any(name not in latent for name in bound.latent if name not in private):
        return PointwiseLikelihood({}, {}, ())
    given = {name: value for name, value in latent.items() if name not in private or name in (kept or {})}
    values = _row_likelihoods(marginal_bound, given)
    number = len(next(iter(latent.values()), [()]))
    values = {name: jnp.broadcast_to(value, (number, *value.shape[1:])) for name, value in values.items()}
    return PointwiseLikelihood(values, {names: names.split(", ")[0] for names in joint_terms}, private, reason)


def row_sites(bound: Bound) -> tuple[str, ...]:
    """Latent sites with an element for every row of an observed site."""
    return tuple(name for name in bound.latent if belongs_to_rows(name, bound.observed, bound))


def belongs_to_rows(name: str, observed: "dict[str, Array] | list[str]", bound: Bound) -> bool:
    """Whether a latent site is in all plates of an observed one."""
    site_plates = {plate.name for plate in bound.sites[name].plates}
    plates_of_rows = [{plate.name for plate in bound.sites[n].plates} for n in observed if n in bound.sites]
    return any(plates and plates <= site_plates for plates in plates_of_rows)


def _closed_form(bound: Bound, latent: Values) -> tuple[Bound | None, str]:
    """The program with the sites of its rows integrated out in closed form; None where there is none, and why."""
    if not (private := row_sites(bound)):
        steps = [name for name in bound.latent if bound.sites[name].scanned]
        return (
            None,
            f"rows are given the steps of {listed_sites(steps)}, which follow each other in a scan" if steps else "",
        )
    if any(name not in latent for name in bound.latent if name not in private):
        return None, ""
    analysis = Analysis(bound)
    try:
        integrated = marginal(bound, private, analysis)
    except ValueError as error:
        return None, str(error)
    first = {name: value[0] for name, value in latent.items() if name not in private}
    if _factorises_by_rows(integrated, first):
        return integrated, ""
    one_by_one = labels_one_by_one(integrated, analysis, first)
    if one_by_one is not None and _factorises_by_rows(one_by_one, first):
        return one_by_one, ""
    return None, f"what is left without {listed_sites(private)} is not a sum over rows"


def labels_one_by_one(joint: Bound, analysis: Analysis, values: Values) -> Bound | None:
    """The program with its labels of rows summed over one after the other, each row by itself; None where that is not
    the sum over all of them.

    Labels that meet are summed over together, which does not say what is of which row. joint: the program without them.
    values: of one draw, at which both ways have to agree.
    """
    transform = joint.transform
    assert isinstance(transform, Marginal)
    rules = rules_of(analysis.findings_of(transform.sites))[::-1]
    if len(rules) < len(transform.sites) or not all(rule.family.enumerates for rule in rules):
        return None
    choices = [terms(joint.plain).priors[rule.site].choices for rule in rules]
    if prod(len(each) for each in choices if each is not None) > MAX_CHOICES_OF_ROW:
        return None
    one_by_one = replace(joint, transform=Marginal(rules))
    together, alone = (
        sum(float(term.density(joint.plain, values).sum()) for term in _marginal_terms(bound).values())
        for bound in (joint, one_by_one)
    )
    return one_by_one if np.isclose(together, alone, rtol=RELATIVE_TOLERANCE, atol=RELATIVE_TOLERANCE) else None


def _by_quadrature(bound: Bound, latent: Values, kept: Mapping[str, np.ndarray]) -> tuple[Bound, str]:
    """The program with what belongs to each row integrated out by quadrature, or as it is where there is no such thing,
    or where it cannot be, and why."""
    if not latent or all(np.prod(bound.sites[name].batch_shape) <= 1 for name in bound.observed):
        return bound, ""
    draws, reason = checked_draws(bound, latent), ""
    if any(name not in draws[0] for name in bound.latent):
        return bound, ""
    shapes = {bound.sites[name].batch_shape for name in bound.observed}
    for shape in sorted((shape for shape in shapes if prod(shape) > 1), key=prod, reverse=True):
        codes = {n: _row_numbers(bound, n) for n in bound.observed if bound.sites[n].batch_shape == shape}
        numbered = np.stack([*codes.values()])
        if (numbered != numbered[0]).any() or numbered.max() < 1:
            continue
        try:
            if own := elements_of_groups(bound, draws, codes, kept):
                places = np.flatnonzero(numbered[0].ravel() != NO_GROUP)
                return with_groups_integrated(bound, own, places, shape, draws), ""
        except ValueError as error:
            reason = str(error)
    return bound, reason


def checked_draws(bound: Bound, latent: Values) -> list[Values]:
    """Some draws: the first and the last, those between, and those where a number is smallest or largest.

    Sites that have no draws, as effects of new rows, have some from their prior, where that can be drawn from.
    """
    number = len(next(iter(latent.values())))
    chosen = set(np.linspace(0, number - 1, NUM_CHECKED_DRAWS).astype(int).tolist())
    for value in latent.values():
        if value.ndim == 1:
            chosen |= {int(value.argmin()), int(value.argmax())}
    draws = [{name: value[index] for name, value in latent.items()} for index in sorted(chosen)]
    if all(name in latent for name in bound.latent):
        return draws
    with suppress(NotImplementedError):
        for draw in draws:
            sites = bound.prior_draw(jax.random.PRNGKey(0), known_values(bound) | draw)
            draw |= {name: jnp.asarray(sites[name]["value"]) for name in bound.latent if name not in draw}
    return draws


def _row_numbers(bound: Bound, name: str) -> np.ndarray:
    """The number (*batch) of every row of a site that has entries."""
    shape = bound.sites[name].batch_shape
    present = np.ones(shape, bool)
    if name in bound.present:
        present = np.asarray(bound.present[name])
        present = np.broadcast_to(present.any(tuple(range(len(shape), present.ndim))), shape)
    return np.where(present, present.ravel().cumsum().reshape(shape) - 1, NO_GROUP)


def _marginal_terms(bound: Bound) -> dict[str, Term]:
    """Marginal likelihood terms by the joined names of the observed sites that each is the density of, together with
    factors.

    There are none where one of them is more than a density of observed sites and factors.
    """
    if not isinstance(bound.transform, Marginal):
        return {}
    plain = bound.plain
    joint_terms = {}
    for term in bound.transform.terms(plain):
        if term.holds:
            held = [name for name in plain.sites if name in term.holds and name not in bound.transform.sites]
            names = [name for name in held if name in plain.observed and plain.sites[name].role != "factor"]
            if not names or any(plain.sites[name].role != "factor" for name in {*held} - {*names}):
                return {}
            joint_terms[", ".join(names)] = term
    return joint_terms


def _density_of_rows(bound: Bound, names: str, values: Values) -> Array:
    """The marginal log likelihood (*batch) of the rows of some sites, by their joined names.

    Factors of what was integrated out are a part of its prior, which they need not leave normalised: what they come to
    without an observed row is taken off.
    """
    term, plain = _marginal_terms(bound)[names], bound.plain
    density = term.density(plain, values)
    if all(plain.sites[name].role != "factor" for name in term.holds if name in plain.sites):
        return density
    nothing = {name: present_in_rows(bound, name, jnp.zeros((), bool)) for name in names.split(", ")}
    hidden = replace(bound, present=bound.present | nothing)
    return density - _marginal_terms(hidden)[names].density(hidden.plain, values)


def _factorises_by_rows(bound: Bound, values: Values) -> bool:
    """Whether all marginal likelihoods have an element for every row, to which no other row contributes.

    A site that is looked up, th[order], may leave the likelihood of a row at the position of another one. So half of
    the rows are hidden, those with a given bit in their position and then those without: any two rows differ in some
    bit.
    values: of one draw.
    """
    joint, plain = _marginal_terms(bound), bound.plain
    for names, term in joint.items():
        sites = [plain.sites[name] for name in names.split(", ")]
        shape = jax.eval_shape(term.density, plain, values).shape
        if not any(shape in (site.batch_shape, _plate_shape(site)) for site in sites):
            return False
        if not all(_is_broadcastable(shape, site.batch_shape) for site in sites):
            return False
        hidden = bit_masks(shape)[1]
        shown = np.concatenate([np.ones((1, *shape), bool), ~hidden, hidden])
        log_likelihoods = np.asarray(_likelihood_of_shown_rows(bound, names, values, shown))
        with np.errstate(invalid="ignore"):
            is_unchanged = np.isclose(
                log_likelihoods, log_likelihoods[0], rtol=RELATIVE_TOLERANCE, atol=RELATIVE_TOLERANCE, equal_nan=True
            )
        if not is_unchanged[shown].all():
            return False
    return bool(joint)


def _plate_shape(site: Site) -> tuple[int, ...]:
    """The part of the batch shape of a site that is in plates."""
    sizes = {plate.dim: plate.size for plate in site.plates}
    return tuple(sizes.get(dim, 1) for dim in range(min(sizes, default=0), 0))


def _is_broadcastable(shape: tuple[int, ...], batch: tuple[int, ...]) -> bool:
    """Whether an array of a shape broadcasts to a batch shape."""
    lead = len(batch) - len(shape)
    return lead >= 0 and all(size in (1, own) for size, own in zip(shape, batch[lead:], strict=True))


@partial(jax.jit, static_argnames="names")
def _likelihood_of_shown_rows(bound: Bound, names: str, values: Values, shown: Array) -> Array:
    """The marginal log likelihood of some sites (mask, *batch) where only the rows of a mask are observed."""

    def run(rows: Array) -> Array:
        present = {name: present_in_rows(bound, name, rows) for name in names.split(", ")}
        masked_bound = replace(bound, present=bound.present | present)
        return _density_of_rows(masked_bound, names, values)

    return jax.lax.map(run, shown)


def present_in_rows(bound: Bound, name: str, rows: Array) -> Array:
    """Which entries of a site are observed, if only some rows are."""
    batch = bound.plain.sites[name].batch_shape
    present = bound.present.get(name, jnp.ones(batch, bool))
    rows = jnp.broadcast_to(rows, batch)
    return present & rows.reshape(batch + (1,) * (present.ndim - rows.ndim))


@jax.jit
def _row_likelihoods(bound: Bound, latent: Values) -> Values:
    """The log likelihood of every row for every draw (draw, *batch), by site or joined names."""
    joint, plain = _marginal_terms(bound), bound.plain

    def run(values: Values) -> tuple[Values, Values]:
        densities, masked = {}, {}
        for names in joint:
            densities[names] = _nan_at_missing(plain, names.split(", "), _density_of_rows(bound, names, values))
            if all(plain.sites[name].masked for name in names.split(", ")):
                masked[names] = _rows_all_masked(plain, names.split(", "), values, densities[names].shape)
        sites = trace(substitute(bound.program, data=values)).get_trace()
        for name in bound.observed:
            if not any(name in term.holds for term in joint.values()):
                densities[name] = _nan_at_missing(plain, [name], sites[name]["fn"].log_prob(sites[name]["value"]))
                masked[name] = masked_rows(sites[name]["fn"])
        return densities, masked

    if latent:
        densities, masked = map_draws(run, latent)
    else:  # all sites belong to rows
        densities, masked = jax.tree.map(lambda value: value[None], run({}))
    never = {name: rows.all(0) for name, rows in masked.items()}
    return densities | {name: jnp.where(rows, jnp.nan, densities[name]) for name, rows in never.items()}


def _rows_all_masked(bound: Bound, names: list[str], values: Values, rows: tuple[int, ...]) -> Array:
    """Which rows (*batch) a mask hides in all of some sites. rows: their shape."""
    program = seed(substitute(bound.program, data=values), jax.random.PRNGKey(0))
    sites = trace(substitute(program, substitute_fn=init_inside_support)).get_trace()
    hidden = [masked_rows(sites[name]["fn"]) for name in names]
    return jnp.stack([_over_axes_of_rows(jnp.all, each, each.ndim, rows) for each in hidden]).all(0)


def masked_rows(fn: Distribution) -> Array:
    """Which rows a mask hides, (*batch)."""
    hidden = jnp.zeros(fn.batch_shape, bool)
    while isinstance(fn, ExpandedDistribution | MaskedDistribution):
        hidden |= ~jnp.asarray(fn._mask) if isinstance(fn, MaskedDistribution) else False
        fn = fn.base_dist
    return hidden


def _nan_at_missing(bound: Bound, names: list[str], density: Array) -> Array:
    """The density (*batch), NaN where no site has an entry."""
    if not all(name in bound.present for name in names):
        return density
    is_present = [
        _over_axes_of_rows(jnp.any, bound.present[name], len(bound.sites[name].batch_shape), density.shape)
        for name in names
    ]
    return jnp.where(jnp.stack(is_present).any(0), density, jnp.nan)


def _over_axes_of_rows(reduce: Callable[..., Array], entries: Array, batch_ndim: int, rows: tuple[int, ...]) -> Array:
    """What holds of entries (*batch, *event) of a site, for each of its rows: their axes are the last ones of the
    batch, as those of plates are, and of size one where a row has all entries along them."""
    lead = batch_ndim - len(rows)
    entries = reduce(entries, axis=(*range(lead), *range(batch_ndim, entries.ndim)))
    return reduce(entries, axis=tuple(axis for axis, size in enumerate(rows) if size == 1), keepdims=True)
