"""A start for the shares and topics of documents, from expected counts that are updated by turns (over-relaxed EM).

Expected counts of topics in documents are updated given those of words, then those of words given those of documents. A
probability is a count and a little more over their sum, a mean and no maximum: what has lost its tokens can have them
again (as in A. Asuncion et al. 2009, "On smoothing and inference for topic models"). Each turn goes further than to
what is expected, as steps of EM may (R. Salakhutdinov and S. Roweis 2003, "Adaptive overrelaxed bound optimization
methods").

Documents share all topics at first, by a concentration that falls turn after turn: topics are found by what all
documents show before any document decides for some. And there are more topics than are wanted, since a start that ends
with one topic for two subjects has two topics for another; those are merged whose union costs the joint density least.
"""

from functools import partial
from math import ceil, log, pi
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from bayeslab.distributions.threefry import uniforms
from bayeslab.mixed_membership.devices import DeviceContext
from bayeslab.mixed_membership.tokens.document_word_pairs import NUM_PAIR_LANES, expected_topic_counts, find_pairs
from bayeslab.mixed_membership.tokens.topic_counts import TokenShape

INITIAL_TOPICS_PER_TOPIC = 1.5
"""Topics to begin with, for every topic that is wanted; they are rounded up so that vectors are full."""
NUM_SOFT_TURNS = 15
"""Number of turns in which the concentration of shares falls."""
NUM_MERGE_ROUNDS, TURNS_PER_MERGE_ROUND = 3, 5
"""Number of rounds in which topics are merged, and turns after each round."""
MAX_FINAL_TURNS, MOVED_SHARE_TOLERANCE = 30, 0.005
"""Most turns with the topics that are wanted, and the share of all tokens that the last of them moves at most."""
OVERRELAXATION_FACTOR, MIN_SHARE_OF_EXPECTED = 1.8, 0.1
"""Step of counts over the distance to what is expected, and the smallest counts after it over what is expected."""
SHARE_CONCENTRATION, TOPIC_CONCENTRATION = 0.1, 0.1
"""Concentrations of shares and of topics in the start, whatever the prior is."""
INITIAL_SHARE_CONCENTRATION = 4.0
"""Concentration of shares in the first turn."""


class SoftCounts(NamedTuple):
    """Expected counts of topics.

    document_counts: in documents (document, topic). word_counts: with words (word, topic). is_topic: 0 for topics that
    were merged into others, 1 for those that are left, (topic,).
    """

    document_counts: Array
    word_counts: Array
    is_topic: Array


def alternating_start(
    key: Array, tokens: Array, shape: TokenShape, is_allele: Array | None = None
) -> tuple[Array, Array]:
    """Shares (document, topic) and topics (topic, 1, word) near a maximum.

    is_allele: which alleles there are, as for genotypes; it is not used, since there are all words.
    """
    del is_allele
    shares, topics = shape.devices.run(
        partial(_start_on_device, shape=shape.part), jnp.zeros(shape.individuals), tokens, key
    )
    return shares, topics[:, None]


def _start_on_device(
    device: DeviceContext, _: Any, tokens: Array, key: Array, shape: TokenShape
) -> tuple[Array, Array]:
    """Shares (document, topic) of the documents of this device, and topics (topic, word)."""
    num_topics = (
        min(ceil(INITIAL_TOPICS_PER_TOPIC * shape.populations / NUM_PAIR_LANES) * NUM_PAIR_LANES, 2 * shape.populations)
        if shape.populations > 1
        else 1
    )
    document, word = (tokens[:, row].ravel() for row in range(2))
    of_documents, of_words = find_pairs(document, word, shape.individuals, shape.alleles)

    def turn(counts: SoftCounts, share: Array | float) -> SoftCounts:
        document_counts, word_counts, is_topic = counts
        topics = (
            (word_counts + TOPIC_CONCENTRATION) / (word_counts.sum(0) + TOPIC_CONCENTRATION * shape.alleles) * is_topic
        )
        document_counts = _overrelax(
            document_counts, expected_topic_counts(document_counts + share, topics, of_documents)
        )
        return SoftCounts(
            document_counts,
            _overrelax(word_counts, device.total(expected_topic_counts(topics, document_counts + share, of_words))),
            is_topic,
        )

    def soft_turn(step: Array, counts: SoftCounts) -> SoftCounts:
        return turn(
            counts,
            SHARE_CONCENTRATION + (INITIAL_SHARE_CONCENTRATION - SHARE_CONCENTRATION) * (1 - step / NUM_SOFT_TURNS),
        )

    def merge_round(step: Array, counts: SoftCounts) -> SoftCounts:
        extra = num_topics - shape.populations
        counts = _merge_topics(
            device, counts, extra * (step + 1) // NUM_MERGE_ROUNDS - extra * step // NUM_MERGE_ROUNDS
        )
        return lax.fori_loop(0, TURNS_PER_MERGE_ROUND, lambda _, counts: turn(counts, SHARE_CONCENTRATION), counts)

    def is_moving(state: tuple[Array, Array, SoftCounts]) -> Array:
        step, moved, (_, word_counts, _) = state
        return (step < MAX_FINAL_TURNS) & (moved > MOVED_SHARE_TOLERANCE * word_counts.sum())

    def final_turn(state: tuple[Array, Array, SoftCounts]) -> tuple[Array, Array, SoftCounts]:
        step, _, before = state
        after = turn(before, SHARE_CONCENTRATION)
        return step + 1, jnp.abs(after.word_counts - before.word_counts).sum(), after

    random, _ = uniforms(
        jax.random.bits(key, (2,), jnp.uint32), (document + device.first).astype(jnp.uint32), word.astype(jnp.uint32)
    )
    origin = jnp.floor(random * num_topics).astype(jnp.int32)
    document_counts, word_counts = (
        jnp.zeros((size + 1, num_topics), jnp.float32).at[index, origin].add(1.0)[:-1]
        for size, index in ((shape.individuals, document), (shape.alleles, word))
    )
    counts = SoftCounts(document_counts, device.total(word_counts), jnp.ones(num_topics, jnp.float32))
    counts = lax.fori_loop(0, NUM_MERGE_ROUNDS, merge_round, lax.fori_loop(0, NUM_SOFT_TURNS, soft_turn, counts))
    largest = jnp.argsort(-counts.is_topic)[: shape.populations]
    counts = SoftCounts(*(table[..., largest] for table in counts))
    *_, (document_counts, word_counts, _) = lax.while_loop(
        is_moving, final_turn, (jnp.array(0), jnp.array(jnp.inf, jnp.float32), counts)
    )
    shares, topics = document_counts + SHARE_CONCENTRATION, word_counts.T + TOPIC_CONCENTRATION
    return shares / shares.sum(1, keepdims=True), topics / topics.sum(1, keepdims=True)


def _overrelax(counts: Array, expected_counts: Array) -> Array:
    """Counts after an over-relaxed step to what is expected."""
    return jnp.maximum(
        counts + OVERRELAXATION_FACTOR * (expected_counts - counts), MIN_SHARE_OF_EXPECTED * expected_counts
    )


def _merge_topics(device: DeviceContext, counts: SoftCounts, num_merges: Array) -> SoftCounts:
    """Counts after merging, as often as `num_merges` says, the two topics whose union costs the joint density least."""

    def log_density(mine: Array, shown: Array) -> Array:
        """Log joint densities of topics, up to a constant that does not depend on the number of topics."""
        of_words = _log_gamma(shown + TOPIC_CONCENTRATION).sum(-1) - _log_gamma(
            shown.sum(-1) + TOPIC_CONCENTRATION * shown.shape[-1]
        )
        return device.total(_log_gamma(mine + SHARE_CONCENTRATION).sum(-1)) + of_words

    def union_gains(topic: Array, mine: Array, shown: Array, single: Array) -> Array:
        """Gains in log joint density of the unions of a topic with every other one."""
        return log_density(mine + mine[topic], shown + shown[topic]) - single - single[topic]

    def join(_: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
        document_counts, word_counts, is_topic, single, gain = state
        pairs = (is_topic[:, None] * is_topic * (1 - jnp.eye(len(is_topic)))) > 0
        best = jnp.argmax(jnp.where(pairs, gain, -jnp.inf)).astype(jnp.int32)
        kept, removed = best // len(is_topic), best % len(is_topic)
        document_counts, word_counts = (
            table.at[kept].add(table[removed]).at[removed].set(0.0) for table in (document_counts, word_counts)
        )
        single = single.at[kept].set(log_density(document_counts[kept], word_counts[kept]))
        new = union_gains(kept, document_counts, word_counts, single)
        return (
            document_counts,
            word_counts,
            is_topic.at[removed].set(0.0),
            single,
            gain.at[kept].set(new).at[:, kept].set(new),
        )

    document_counts, word_counts = counts.document_counts.T, counts.word_counts.T
    single = log_density(document_counts, word_counts)
    gain = lax.map(
        lambda topic: union_gains(topic, document_counts, word_counts, single), jnp.arange(len(document_counts))
    )
    document_counts, word_counts, is_topic, *_ = lax.fori_loop(
        0, num_merges, join, (document_counts, word_counts, counts.is_topic, single, gain)
    )
    return SoftCounts(document_counts.T, word_counts.T, is_topic)


def _log_gamma(x: Array) -> Array:
    """The log of the Gamma function by Stirling's series at x + 1, to 3e-4 for any positive x.

    It is several times faster than the exact one.
    """
    inverse = 1 / (x + 1)
    series = inverse / 12 - inverse**3 / 360 + log(2 * pi) / 2
    return (x + 0.5) * jnp.log(x + 1) - (x + 1) + series - jnp.log(x)
