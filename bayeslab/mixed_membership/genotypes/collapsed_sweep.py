"""A collapsed sweep, origins summed out: Metropolis-Hastings steps of ancestry, of frequencies, and of both jointly."""

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
"""Over-relaxation of proposals, see `relaxed`. With 0 ancestry and frequencies would follow each other slowly, along
what one makes up for in the other: by turns to either side it is left behind sooner (Fox and Parker 2017,
doi:10.3150/16-BEJ863)."""
ANYWHERE = 0.1
"""Share of individuals, drawn in every sweep, whose over-relaxation is uniform between -BACK and BACK: an individual
whose opposite point is refused, or that is where proposals hardly lead, stays for long. (Loci are drawn with origins at
times.)"""
ANCHOR = 100
"""Sweeps after which the log likelihood is computed again; in between, log likelihood ratios are added to it."""


class Due(NamedTuple):
    """What one sweep does, all ().

    expand: whether the log likelihood is expanded about means of the sweeps since the last expansion.
    renew: whether joint moves are set up again. move: whether a joint move is proposed.
    learn: whether the mode and the angle of joint moves are adapted.
    anchor: whether the log likelihood is computed, and not carried along by its ratios.
    """

    expand: Array
    renew: Array
    move: Array
    learn: Array
    anchor: Array


class Summed(NamedTuple):
    """What collapsed sweeps carry from one to the next.

    ancestry: proposals of ancestry. loci: proposals of frequencies. exchange: joint moves; both of these None where
    frequencies are drawn with origins, as those of more than two alleles and known ones are.
    sums: of the mode of ancestry given frequencies, and of frequencies, since the log likelihood was expanded.
    number: sweeps since then. log_likelihood: after the last sweep, 0 where `loci` is None.
    """

    ancestry: Reference
    loci: LociReference | None
    exchange: Exchange | None
    sums: tuple[Array, Array]
    number: Array
    log_likelihood: Array


def first_summed(ancestry: Array, frequencies: Array, alleles: Array, shape: Shape, both: bool) -> Summed:
    """The state before the first sweep, which expands the log likelihood.

    both: whether frequencies are drawn, too.
    """
    now = ancestry, frequencies
    flat = Priors(jnp.ones_like(ancestry), jnp.ones_like(frequencies), jnp.ones(shape.table[1:], bool))

    def expansions() -> tuple[Reference, LociReference | None, Exchange | None]:
        about, loci = _expanded(now, now, alleles, shape, flat, both)
        return about, loci, exchange_about(*now, about, loci, flat.real) if loci else None

    shapes = jax.eval_shape(expansions)
    about, loci, exchange = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
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
    """Ancestry and frequencies after a sweep, the new state, and statistics: the shares of individuals and of loci that
    accepted their proposals, and whether the joint move was accepted."""
    keys, draws_frequencies = jax.random.split(key, 4), state.loci is not None
    about, loci, exchange, sums, number, log_likelihood = state

    def expanded() -> tuple[Reference, LociReference | None]:
        now = ancestry, frequencies
        centres = (
            jnp.where(number > 0, sum_ / jnp.maximum(number, 1), current)
            for sum_, current in zip(sums, now, strict=True)
        )
        return _expanded(tuple(centres), now, alleles, shape, prior, draws_frequencies)

    about, loci = lax.cond(due.expand, expanded, lambda: (about, loci))
    sums, number = jax.tree.map(lambda leaf: jnp.where(due.expand, 0, leaf), (sums, number))
    overrelaxation = _backs(keys[2], shape.individuals) if draws_frequencies else jnp.zeros(())
    ancestry, gained, accepted, mode = anew(
        keys[0], ancestry, frequencies, alleles, shape, prior.weights, about, overrelaxation
    )
    stats = {"accepted": accepted}
    if loci is not None and exchange is not None:
        position_and_data = ancestry, frequencies, alleles, shape, prior.components, prior.real
        frequencies, gained_by_loci, stats["accepted_loci"] = loci_anew(
            keys[1], *position_and_data, loci, jnp.asarray(BACK)
        )
        now, expansions_and_data = (ancestry, frequencies), (about, loci, alleles, shape, prior)
        ancestry, frequencies, exchange, gained_jointly, stats["moved"] = _together(
            keys[3], now, exchange, *expansions_and_data, due
        )
        carried = log_likelihood + gained + gained_by_loci + gained_jointly
        evaluate = partial(expected_counts, ancestry, frequencies, alleles, shape)
        log_likelihood = lax.cond(due.anchor, lambda: evaluate()[1].astype(carried.dtype), lambda: carried)
    sums = sums[0] + mode, sums[1] + frequencies
    return ancestry, frequencies, Summed(about, loci, exchange, sums, number + 1, log_likelihood), stats


def jumped(
    state: Summed, ancestry: tuple[Array, Array], frequencies: tuple[Array, Array], alleles: Array, shape: Shape
) -> Summed:
    """The state after ancestry and frequencies went from the first to the second of each pair by other moves."""
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
    """Ancestry and frequencies after a joint move, where one is due and worth its time, the state of joint moves, the
    log likelihood ratio, and whether the move was accepted."""
    exchange = lax.cond(due.renew, lambda: exchange_about(*now, about, loci, prior.real), lambda: exchange)
    proposals = about.proposal, loci.proposal

    def move() -> tuple[Array, Array, Exchange, Array, Array]:
        return exchanged(key, *now, exchange, proposals, alleles, shape, prior, due.learn)

    def stay() -> tuple[Array, Array, Exchange, Array, Array]:
        return *now, exchange, jnp.zeros((), jnp.result_type(float)), jnp.array(False)

    return lax.cond(due.move & exchange.moves, move, stay)


def _backs(key: Array, number: int) -> Array:
    """Over-relaxation of every individual (individual,): BACK, or a random part of it, see ANYWHERE."""
    value_key, choice_key = jax.random.split(key)
    anywhere = jax.random.uniform(value_key, (number,), minval=-BACK, maxval=BACK)
    return jnp.where(jax.random.uniform(choice_key, (number,)) < ANYWHERE, anywhere, BACK)


def _expanded(
    at: tuple[Array, ...], now: tuple[Array, Array], alleles: Array, shape: Shape, prior: Priors, both: bool
) -> tuple[Reference, LociReference | None]:
    """Expansions of ancestry about `at[0]` given the frequencies now, and of frequencies about `at[1]` given the
    ancestry now; the second None where frequencies are not drawn."""
    loci = loci_reference(at[1], now[0], alleles, shape, prior.components) if both else None
    return reference(at[0], now[1], alleles, shape, prior.weights), loci
