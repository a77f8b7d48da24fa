"""Log likelihoods of rows, with the latent sites that belong to a row integrated out.

Leave-one-out cross-validation leaves out a row with everything that is its own: given its own label or effect the
density of a row says how well these fit it, not how well it is predicted.
"""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import Distribution, ExpandedDistribution, MaskedDistribution
from numpyro.handlers import substitute, trace

from bayeslab.elimination.around import halves
from bayeslab.elimination.terms import Term
from bayeslab.programs.program import Bound, Site, Values
from bayeslab.transforms.collapse import Marginal, marginal

BATCH = 64
"""Draws that are evaluated at once."""
TOLERANCE = 1e-9
"""What the evidence of a row may change, relative to it, when others are hidden: rounding."""


class Likelihood(NamedTuple):
    """values: (draw, *batch) of observed sites, NaN where they are missing or masked; of several sites that share
    latent ones, their names are joined. like: what a joined name has its dimensions from. integrated_out: latent
    sites."""

    values: Values
    like: dict[str, str]
    integrated_out: tuple[str, ...]


def log_likelihood(bound: Bound, latent: Values) -> Likelihood:
    """log p(row | draw) of every entry of the observed sites. latent: (draw, *site).

    Nothing where sites that belong to rows can neither be integrated out row by row nor have draws.
    """
    private = rows_own(bound)
    left = _without(bound, private)
    joint = _joint(left)
    if not _by_rows(left, {name: value[0] for name, value in latent.items() if name not in private}):
        left, private, joint = bound, (), {}
    if any(name not in latent for name in bound.latent if name not in private):
        return Likelihood({}, {}, ())
    values = _evaluated(left, {name: value for name, value in latent.items() if name not in private})
    number = len(next(iter(latent.values())))
    values = {name: jnp.broadcast_to(value, (number, *value.shape[1:])) for name, value in values.items()}
    return Likelihood(values, {names: names.split(", ")[0] for names in joint}, private)


def rows_own(bound: Bound) -> tuple[str, ...]:
    """Latent sites with an element for every row of an observed site."""
    return tuple(name for name in bound.latent if belongs_to_rows(name, bound.observed, bound))


def belongs_to_rows(name: str, observed: "dict[str, Array] | list[str]", bound: Bound) -> bool:
    """Whether a latent site is in all plates of an observed one."""
    mine = {plate.name for plate in bound.sites[name].plates}
    rows = [{plate.name for plate in bound.sites[n].plates} for n in observed if n in bound.sites]
    return any(plates and plates <= mine for plates in rows)


def _without(bound: Bound, private: tuple[str, ...]) -> Bound:
    try:
        return marginal(bound, private)
    except ValueError:
        return bound


def _joint(bound: Bound) -> dict[str, Term]:
    """Pieces of evidence by the observed sites that each is the density of; nothing where one is more than that."""
    if not isinstance(bound.transform, Marginal):
        return {}
    plain = bound.plain
    found = {}
    for term in bound.transform.terms(plain):
        if term.holds:
            names = [name for name in plain.sites if name in term.holds and name not in bound.transform.sites]
            if not names or not set(names) <= set(plain.observed):
                return {}
            found[", ".join(names)] = term
    return found


def _by_rows(bound: Bound, values: Values) -> bool:
    """Whether all evidence has an element for every row, to which no other row contributes. values: of one draw.

    A site that is looked up, th[order], may leave the evidence of a row at the place of another one. So half of the
    rows are hidden, those with a given bit in their place and then those without: any two rows differ in some bit.
    """
    joint, plain = _joint(bound), bound.plain
    for names, term in joint.items():
        sites = [plain.sites[name] for name in names.split(", ")]
        shape = jax.eval_shape(term.density, plain, values).shape
        if not any(shape in (_batch(site), _plates(site)) for site in sites):
            return False
        if not all(_fits(shape, _batch(site)) for site in sites):
            return False
        hidden = halves(shape)[1]
        shown = np.concatenate([np.ones((1, *shape), bool), ~hidden, hidden])
        found = np.asarray(_of_shown(bound, names, values, shown))
        with np.errstate(invalid="ignore"):
            same = np.isclose(found, found[0], rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)
        if not same[shown].all():
            return False
    return bool(joint)


def _batch(site: Site) -> tuple[int, ...]:
    return site.shape[: len(site.shape) - site.event_dim]


def _plates(site: Site) -> tuple[int, ...]:
    """The part of its batch that is in plates."""
    sizes = {plate.dim: plate.size for plate in site.plates}
    return tuple(sizes.get(dim, 1) for dim in range(min(sizes, default=0), 0))


def _fits(shape: tuple[int, ...], batch: tuple[int, ...]) -> bool:
    """Whether an array of a shape broadcasts to a batch."""
    lead = len(batch) - len(shape)
    return lead >= 0 and all(size in (1, own) for size, own in zip(shape, batch[lead:], strict=True))


@partial(jax.jit, static_argnames="names")
def _of_shown(bound: Bound, names: str, values: Values, shown: Array) -> Array:
    """The evidence of some sites (mask, *batch) where only the rows of a mask are there."""

    def run(rows: Array) -> Array:
        there = {name: _shown(bound, name, rows) for name in names.split(", ")}
        part = replace(bound, present=bound.present | there)
        return _joint(part)[names].density(part.plain, values)

    return jax.lax.map(run, shown)


def _shown(bound: Bound, name: str, rows: Array) -> Array:
    """Which entries of a site are there, of some rows only."""
    batch = _batch(bound.plain.sites[name])
    present = bound.present.get(name, jnp.ones(batch, bool))
    rows = jnp.broadcast_to(rows, batch)
    return present & rows.reshape(batch + (1,) * (present.ndim - rows.ndim))


@jax.jit
def _evaluated(bound: Bound, latent: Values) -> Values:
    joint, plain = _joint(bound), bound.plain

    def run(values: Values) -> tuple[Values, Values]:
        found, masked = {}, {}
        for names, term in joint.items():
            found[names] = _gaps(plain, names.split(", "), term.density(plain, values))
        sites = trace(substitute(bound.program, data=values)).get_trace()
        for name in bound.observed:
            if not any(name in term.holds for term in joint.values()):
                found[name] = _gaps(plain, [name], sites[name]["fn"].log_prob(sites[name]["value"]))
                masked[name] = masked_rows(sites[name]["fn"])
        return found, masked

    if latent:
        found, masked = jax.lax.map(run, latent, batch_size=BATCH)
    else:  # all sites belong to rows
        found, masked = jax.tree.map(lambda value: value[None], run({}))
    never = {name: rows.all(0) for name, rows in masked.items()}
    return found | {name: jnp.where(rows, jnp.nan, found[name]) for name, rows in never.items()}


def masked_rows(fn: Distribution) -> Array:
    """Which rows a mask hides, (*batch)."""
    hidden = jnp.zeros(fn.batch_shape, bool)
    while isinstance(fn, ExpandedDistribution | MaskedDistribution):
        hidden |= ~jnp.asarray(fn._mask) if isinstance(fn, MaskedDistribution) else False
        fn = fn.base_dist
    return hidden


def _gaps(bound: Bound, names: list[str], density: Array) -> Array:
    """The density (*batch), NaN where no site has an entry."""
    if not all(name in bound.present for name in names):
        return density
    there = [bound.present[name].any(tuple(range(density.ndim, bound.present[name].ndim))) for name in names]
    return jnp.where(jnp.stack(there).any(0), density, jnp.nan)
