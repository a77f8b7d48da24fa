"""A collapsed sweep, origins summed out: Metropolis-Hastings steps of ancestry, of frequencies, and of both jointly."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from bayeslab.mixed_membership.dirichlet import Priors
from bayeslab.mixed_membership.genotypes.allele_counts import expected_counts
from bayeslab.mixed_membership.genotypes.ancestry_proposals import AncestryExpansion, expand_ancestry, metropolis_step
from bayeslab.mixed_membership.genotypes.biallelic import locus_log_likelihood_ratio
from bayeslab.mixed_membership.genotypes.frequency_proposals import (
    FrequencyExpansion,
    expand_frequencies,
    metropolis_step_of_loci,
)
from bayeslab.mixed_membership.genotypes.joint_moves import JointMoves, expand_joint_moves, joint_metropolis_step
from bayeslab.mixed_membership.genotypes.records import Genotypes, Position

OVERRELAXATION = 0.9
"""Over-relaxation of proposals, see `overrelaxed`. With 0 ancestry and frequencies would follow each other slowly,
along what one makes up for in the other: by turns to either side it is left behind sooner (Fox and Parker 2017,
doi:10.3150/16-BEJ863)."""
RANDOM_OVERRELAXATION_SHARE = 0.1
"""Share of individuals, drawn in every sweep, whose over-relaxation is uniform on either side of 0: an individual
whose opposite point is refused, or that is where proposals hardly lead, stays for long. (Loci are drawn with origins at
times.)"""
SWEEPS_PER_LIKELIHOOD_EVALUATION = 100
"""Sweeps after which the log likelihood is computed again; in between, log likelihood ratios are added to it."""


class Schedule(NamedTuple):
    """What one sweep does, all ().

    expand: whether the log likelihood is expanded about means of the sweeps since the last expansion.
    renew: whether joint moves are set up again. move_jointly: whether a joint move is proposed.
    learn: whether the mode and the angle of joint moves are adapted.
    evaluate_likelihood: whether the log likelihood is computed, and not updated by its ratios.
    """

    expand: Array
    renew: Array
    move_jointly: Array
    learn: Array
    evaluate_likelihood: Array


class CollapsedState(NamedTuple):
    """What collapsed sweeps carry from one to the next.

    ancestry: proposals of ancestry. loci: proposals of frequencies. joint_moves: moves of both; these two are None
    where frequencies are drawn with origins, as those of more than two alleles and known ones are.
    sums: of the mode of ancestry given frequencies, and of frequencies, since the log likelihood was expanded.
    number: sweeps since then. log_likelihood: after the last sweep, 0 where `loci` is None.
    """

    ancestry: AncestryExpansion
    loci: FrequencyExpansion | None
    joint_moves: JointMoves | None
    sums: tuple[Array, Array]
    number: Array
    log_likelihood: Array


def initial_collapsed_state(position: Position, genotypes: Genotypes, draws_frequencies: bool) -> CollapsedState:
    """The state before the first sweep, which expands the log likelihood.

    draws_frequencies: whether frequencies are drawn, too.
    """
    ones = jnp.ones_like(position.ancestry), jnp.ones_like(position.frequencies)
    flat = Priors(*ones, jnp.ones(genotypes.shape.table[1:], bool))

    def expansions() -> tuple[AncestryExpansion, FrequencyExpansion | None, JointMoves | None]:
        about, loci = _expand(position, position, genotypes, flat, draws_frequencies)
        return about, loci, expand_joint_moves(*position, about, loci, flat.is_allele) if loci else None

    shapes = jax.eval_shape(expansions)
    about, loci, joint_moves = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    sums = jnp.zeros_like(position.ancestry), jnp.zeros_like(position.frequencies)
    return CollapsedState(about, loci, joint_moves, sums, jnp.array(0), jnp.zeros((), jnp.result_type(float)))


def sweep_without_origins(
    key: Array,
    position: Position,
    genotypes: Genotypes,
    prior: Priors,
    state: CollapsedState,
    schedule: Schedule,
) -> tuple[Position, CollapsedState, dict[str, Array]]:
    """The position after a sweep, the new state, and statistics: the shares of individuals and of loci that accepted
    their proposals, and whether the joint move was accepted."""
    keys, draws_frequencies = jax.random.split(key, 4), state.loci is not None
    about, loci, joint_moves, sums, number, log_likelihood = state

    def expanded() -> tuple[AncestryExpansion, FrequencyExpansion | None]:
        centres = (
            jnp.where(number > 0, sum_ / jnp.maximum(number, 1), current)
            for sum_, current in zip(sums, position, strict=True)
        )
        return _expand(tuple(centres), position, genotypes, prior, draws_frequencies)

    about, loci = lax.cond(schedule.expand, expanded, lambda: (about, loci))
    sums, number = jax.tree.map(lambda leaf: jnp.where(schedule.expand, 0, leaf), (sums, number))
    overrelaxation = _draw_overrelaxation(keys[2], genotypes.shape.individuals) if draws_frequencies else jnp.zeros(())
    ancestry, gained, accepted, mode = metropolis_step(
        keys[0], position, genotypes, prior.weights, about, overrelaxation
    )
    position, stats = position._replace(ancestry=ancestry), {"accepted": accepted}
    if loci is not None and joint_moves is not None:
        frequencies, gained_by_loci, stats["accepted_loci"] = metropolis_step_of_loci(
            keys[1], position, genotypes, prior, loci, jnp.asarray(OVERRELAXATION)
        )
        position = position._replace(frequencies=frequencies)
        state = state._replace(ancestry=about, loci=loci)
        position, joint_moves, gained_jointly, stats["moved"] = _move_jointly(
            keys[3], position, genotypes, prior, state, schedule
        )
        updated_log_likelihood = log_likelihood + gained + gained_by_loci + gained_jointly
        evaluate = partial(expected_counts, *position, *genotypes)
        log_likelihood = lax.cond(
            schedule.evaluate_likelihood,
            lambda: evaluate()[1].astype(updated_log_likelihood.dtype),
            lambda: updated_log_likelihood,
        )
    sums = sums[0] + mode, sums[1] + position.frequencies
    return position, CollapsedState(about, loci, joint_moves, sums, number + 1, log_likelihood), stats


def after_jump(state: CollapsedState, before: Position, after: Position, genotypes: Genotypes) -> CollapsedState:
    """The state after the position changed by other moves."""
    pairs = (before.ancestry, after.ancestry), (before.frequencies, after.frequencies)
    gained = locus_log_likelihood_ratio(*pairs, *genotypes).sum()
    return state._replace(log_likelihood=state.log_likelihood + gained)


def _move_jointly(
    key: Array,
    position: Position,
    genotypes: Genotypes,
    prior: Priors,
    state: CollapsedState,
    schedule: Schedule,
) -> tuple[Position, JointMoves, Array, Array]:
    """The position after a joint move, where one is due and worth its time, the state of joint moves, the log
    likelihood ratio, and whether the move was accepted.

    state: with the expansions of this sweep.
    """
    expansion, loci, joint_moves, *_ = state
    assert loci is not None
    joint_moves = lax.cond(
        schedule.renew, lambda: expand_joint_moves(*position, expansion, loci, prior.is_allele), lambda: joint_moves
    )
    proposals = expansion.proposal, loci.proposal

    def move() -> tuple[Position, JointMoves, Array, Array]:
        new, updated, gained, taken = joint_metropolis_step(key, position, joint_moves, proposals, genotypes, prior)
        kept = jax.tree.map(lambda now, before: jnp.where(schedule.learn, now, before), updated, joint_moves)
        return new, kept, gained, taken

    def stay() -> tuple[Position, JointMoves, Array, Array]:
        return position, joint_moves, jnp.zeros((), jnp.result_type(float)), jnp.array(False)

    return lax.cond(schedule.move_jointly & joint_moves.moves, move, stay)


def _draw_overrelaxation(key: Array, number: int) -> Array:
    """Over-relaxation of every individual (individual,): the usual one, or for a share of them a random part of it."""
    value_key, choice_key = jax.random.split(key)
    anywhere = jax.random.uniform(value_key, (number,), minval=-OVERRELAXATION, maxval=OVERRELAXATION)
    return jnp.where(jax.random.uniform(choice_key, (number,)) < RANDOM_OVERRELAXATION_SHARE, anywhere, OVERRELAXATION)


def _expand(
    centres: tuple[Array, ...],
    position: Position,
    genotypes: Genotypes,
    prior: Priors,
    draws_frequencies: bool,
) -> tuple[AncestryExpansion, FrequencyExpansion | None]:
    """Expansions of ancestry about `at[0]` given the frequencies now, and of frequencies about `at[1]` given the
    ancestry now; the second None where frequencies are not drawn."""
    loci = (
        expand_frequencies(centres[1], position.ancestry, *genotypes, prior.components) if draws_frequencies else None
    )
    return expand_ancestry(centres[0], position.frequencies, *genotypes, prior.weights), loci
