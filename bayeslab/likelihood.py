"""Log likelihoods of rows, with the latent sites that belong to a row integrated out.

Leave-one-out cross-validation leaves out a row with everything that is its own: given its own label or effect the
density of a row says how well these fit it, not how well it is predicted.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from numpyro.handlers import substitute, trace

from bayeslab.collapse import Marginal, marginal
from bayeslab.program import Bound, Values
from bayeslab.terms import Term

BATCH = 64
"""Draws that are evaluated at once."""


class Likelihood(NamedTuple):
    """values: (draw, *batch) of observed sites, NaN where they are missing; of several sites that share latent ones,
    their names are joined. like: what a joined name has its dimensions from. integrated_out: latent sites."""

    values: Values
    like: dict[str, str]
    integrated_out: tuple[str, ...]


def log_likelihood(bound: Bound, latent: Values) -> Likelihood:
    """log p(row | draw) of every entry of the observed sites. latent: (draw, *site)."""
    private = rows_own(bound)
    left = _without(bound, private)
    joint = _joint(left)
    if not joint:
        left, private = bound, ()
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


@jax.jit
def _evaluated(bound: Bound, latent: Values) -> Values:
    joint, plain = _joint(bound), bound.plain

    def run(values: Values) -> Values:
        found = {}
        for names, term in joint.items():
            found[names] = _gaps(plain, names.split(", "), term.density(plain, values))
        sites = trace(substitute(bound.program, data=values)).get_trace()
        for name in bound.observed:
            if not any(name in term.holds for term in joint.values()):
                found[name] = _gaps(plain, [name], sites[name]["fn"].log_prob(sites[name]["value"]))
        return found

    if not latent:  # all sites belong to rows
        return {name: value[None] for name, value in run({}).items()}
    return jax.lax.map(run, latent, batch_size=BATCH)


def _gaps(bound: Bound, names: list[str], density: Array) -> Array:
    """The density (*batch), NaN where no site has an entry."""
    if not all(name in bound.present for name in names):
        return density
    there = [bound.present[name].any(tuple(range(density.ndim, bound.present[name].ndim))) for name in names]
    return jnp.where(jnp.stack(there).any(0), density, jnp.nan)
