"""Ancestry and frequencies drawn by turns, each given the other alone, then moved together: a sweep without origins."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from bayeslab.mixed_membership.dirichlet import Priors
from bayeslab.mixed_membership.genotypes.allele_counts import Shape, expected_counts
from bayeslab.mixed_membership.genotypes.ancestry_proposals import Reference, anew, reference
from bayeslab.mixed_membership.genotypes.biallelic import gains_of_loci
from bayeslab.mixed_membership.genotypes.frequency_proposals import LociReference, loci_anew, loci_reference
from bayeslab.mixed_membership.genotypes.joint_moves import Exchange, exchange_about, exchanged

BACK = 0.9
"""How far proposals go back, see `relaxed`. With 0 both would follow each other slowly, along what one makes up for in
the other: by turns to either side it is left behind sooner (Fox and Parker 2017, doi:10.3150/16-BEJ863)."""
ANYWHERE = 0.1
"""The share of individuals, drawn in every sweep, whose proposals go back by any part of that, or stay near: one whose
opposite is refused, or that is where proposals hardly lead, stays for long. (Loci are drawn with origins at times.)"""
ANCHOR = 100
"""Sweeps after which the log likelihood is computed again; between, what proposals gain is added to it."""


class Due(NamedTuple):
    """In a sweep. expand: the log likelihood, about means since it was. renew: what is known of moves of both together.
    move: both together. learn: from that. anchor: the log likelihood is computed, and not added up."""

    expand: Array
    renew: Array
    move: Array
    learn: Array
    anchor: Array


class Summed(NamedTuple):
    """loci, exchange: None where frequencies are drawn with origins, as those of more than two alleles and known ones
    are.

    sums: of the likeliest ancestry given frequencies, and of frequencies, over so many sweeps since the log likelihood
    was expanded. log_likelihood: after the last sweep, 0 where `loci` is None.
    """

    ancestry: Reference
    loci: LociReference | None
    exchange: Exchange | None
    sums: tuple[Array, Array]
    number: Array
    log_likelihood: Array


def first_summed(ancestry: Array, frequencies: Array, alleles: Array, shape: Shape, both: bool) -> Summed:
    """Before the first sweep, which expands the log likelihood. both: whether frequencies are drawn, too."""
    now = ancestry, frequencies
    flat = Priors(jnp.ones_like(ancestry), jnp.ones_like(frequencies), jnp.ones(shape.table[1:], bool))

    def first() -> tuple[Reference, LociReference | None, Exchange | None]:
        about, loci = _expanded(now, now, alleles, shape, flat, both)
        return about, loci, exchange_about(*now, about, loci, flat.real) if loci else None

    like = jax.eval_shape(first)
    about, loci, exchange = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like)
    sums = jnp.zeros_like(ancestry), jnp.zeros_like(frequencies)
    return Summed(about, loci, exchange, sums, jnp.array(0), jnp.zeros((), jnp.result_type(float)))


def summed_sweep(
    key: Array,
    ancestry: Array,
    frequencies: Array,
    state: Summed,
    alleles: Array,
    shape: Shape,
    prior: Priors,
    due: Due,
) -> tuple[Array, Array, Summed, dict[str, Array]]:
    """Ancestry and frequencies, the shares of individuals and loci that took what was proposed, and whether both moved
    together."""
    keys, both = jax.random.split(key, 4), state.loci is not None
    about, loci, exchange, sums, number, log_likelihood = state

    def expanded() -> tuple[Reference, LociReference | None]:
        now = ancestry, frequencies
        at = (jnp.where(number > 0, sum_ / jnp.maximum(number, 1), one) for sum_, one in zip(sums, now, strict=True))
        return _expanded(tuple(at), now, alleles, shape, prior, both)

    about, loci = lax.cond(due.expand, expanded, lambda: (about, loci))
    sums, number = jax.tree.map(lambda one: jnp.where(due.expand, 0, one), (sums, number))
    back = _backs(keys[2], shape.individuals) if both else jnp.zeros(())
    ancestry, gained, accepted, top = anew(keys[0], ancestry, frequencies, alleles, shape, prior.weights, about, back)
    stats = {"accepted": accepted}
    if loci is not None and exchange is not None:
        given = ancestry, frequencies, alleles, shape, prior.components, prior.real
        frequencies, more, stats["accepted_loci"] = loci_anew(keys[1], *given, loci, jnp.asarray(BACK))
        now, of = (ancestry, frequencies), (about, loci, alleles, shape, prior)
        ancestry, frequencies, exchange, moved, stats["moved"] = _together(keys[3], now, exchange, *of, due)
        known = log_likelihood + gained + more + moved
        again = partial(expected_counts, ancestry, frequencies, alleles, shape)
        log_likelihood = lax.cond(due.anchor, lambda: again()[1].astype(known.dtype), lambda: known)
    sums = sums[0] + top, sums[1] + frequencies
    return ancestry, frequencies, Summed(about, loci, exchange, sums, number + 1, log_likelihood), stats


def jumped(
    state: Summed, ancestry: tuple[Array, Array], frequencies: tuple[Array, Array], alleles: Array, shape: Shape
) -> Summed:
    """After both went from the first to the second in another way."""
    gained = gains_of_loci(ancestry, frequencies, alleles, shape).sum()
    return state._replace(log_likelihood=state.log_likelihood + gained)


def _together(
    key: Array,
    now: tuple[Array, Array],
    exchange: Exchange,
    about: Reference,
    loci: LociReference,
    alleles: Array,
    shape: Shape,
    prior: Priors,
    due: Due,
) -> tuple[Array, Array, Exchange, Array, Array]:
    """Both moved together, where that is due and worth its time."""
    exchange = lax.cond(due.renew, lambda: exchange_about(*now, about, loci, prior.real), lambda: exchange)
    proposals = about.proposal, loci.proposal

    def move() -> tuple[Array, Array, Exchange, Array, Array]:
        return exchanged(key, *now, exchange, proposals, alleles, shape, prior, due.learn)

    def stay() -> tuple[Array, Array, Exchange, Array, Array]:
        return *now, exchange, jnp.zeros((), jnp.result_type(float)), jnp.array(False)

    return lax.cond(due.move & exchange.moves, move, stay)


def _backs(key: Array, number: int) -> Array:
    first, second = jax.random.split(key)
    anywhere = jax.random.uniform(first, (number,), minval=-BACK, maxval=BACK)
    return jnp.where(jax.random.uniform(second, (number,)) < ANYWHERE, anywhere, BACK)


def _expanded(
    at: tuple[Array, ...], now: tuple[Array, Array], alleles: Array, shape: Shape, prior: Priors, both: bool
) -> tuple[Reference, LociReference | None]:
    """Each at its place, given the other as it is now."""
    loci = loci_reference(at[1], now[0], alleles, shape, prior.components) if both else None
    return reference(at[0], now[1], alleles, shape, prior.weights), loci
