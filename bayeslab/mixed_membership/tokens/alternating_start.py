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
from bayeslab.mixed_membership.devices import Here
from bayeslab.mixed_membership.tokens.document_word_pairs import LANES, expected, pairs_of
from bayeslab.mixed_membership.tokens.topic_counts import Tokens

MORE = 1.5
"""Topics to begin with, for every topic that is wanted; they are rounded up so that vectors are full."""
SOFT = 15
"""Number of turns in which the concentration of shares falls."""
JOINED, BETWEEN = 3, 5
"""Number of rounds in which topics are merged, and turns after each round."""
MOST, SETTLED = 30, 0.005
"""Most turns with the topics that are wanted, and the share of all tokens that the last of them moves at most."""
FURTHER, LEAST = 1.8, 0.1
"""Step of counts over the distance to what is expected, and the smallest counts after it over what is expected."""
SHARE, TOPIC = 0.1, 0.1
"""Concentrations of shares and of topics in the start, whatever the prior is."""
FIRST_SHARE = 4.0
"""Concentration of shares in the first turn."""


class Counts(NamedTuple):
    """Expected counts of topics.

    mine: in documents (document, topic). shown: with words (word, topic). there: 0 for topics that were merged into
    others, 1 for those that are left, (topic,).
    """

    mine: Array
    shown: Array
    there: Array


def alternating_start(key: Array, tokens: Array, shape: Tokens, real: Array | None = None) -> tuple[Array, Array]:
    """Shares (document, topic) and topics (topic, 1, word) near a maximum.

    real: which alleles there are, as for genotypes; it is not used, since there are all words.
    """
    del real
    shares, topics = shape.devices.run(partial(_run, shape=shape.part), jnp.zeros(shape.individuals), tokens, key)
    return shares, topics[:, None]


def _run(here: Here, _: Any, tokens: Array, key: Array, shape: Tokens) -> tuple[Array, Array]:
    """Shares (document, topic) of the documents of this device, and topics (topic, word)."""
    num_topics = (
        min(ceil(MORE * shape.populations / LANES) * LANES, 2 * shape.populations) if shape.populations > 1 else 1
    )
    document, word = (tokens[:, row].ravel() for row in range(2))
    of_documents, of_words = pairs_of(document, word, shape.individuals, shape.alleles)

    def turn(counts: Counts, share: Array | float) -> Counts:
        document_counts, word_counts, is_topic = counts
        topics = (word_counts + TOPIC) / (word_counts.sum(0) + TOPIC * shape.alleles) * is_topic
        document_counts = _further(document_counts, expected(document_counts + share, topics, of_documents))
        return Counts(
            document_counts,
            _further(word_counts, here.total(expected(topics, document_counts + share, of_words))),
            is_topic,
        )

    def soft_turn(step: Array, counts: Counts) -> Counts:
        return turn(counts, SHARE + (FIRST_SHARE - SHARE) * (1 - step / SOFT))

    def merge_round(step: Array, counts: Counts) -> Counts:
        extra = num_topics - shape.populations
        counts = _joined(here, counts, extra * (step + 1) // JOINED - extra * step // JOINED)
        return lax.fori_loop(0, BETWEEN, lambda _, counts: turn(counts, SHARE), counts)

    def is_moving(state: tuple[Array, Array, Counts]) -> Array:
        step, moved, (_, word_counts, _) = state
        return (step < MOST) & (moved > SETTLED * word_counts.sum())

    def final_turn(state: tuple[Array, Array, Counts]) -> tuple[Array, Array, Counts]:
        step, _, before = state
        after = turn(before, SHARE)
        return step + 1, jnp.abs(after.shown - before.shown).sum(), after

    random, _ = uniforms(
        jax.random.bits(key, (2,), jnp.uint32), (document + here.first).astype(jnp.uint32), word.astype(jnp.uint32)
    )
    origin = jnp.floor(random * num_topics).astype(jnp.int32)
    document_counts, word_counts = (
        jnp.zeros((size + 1, num_topics), jnp.float32).at[index, origin].add(1.0)[:-1]
        for size, index in ((shape.individuals, document), (shape.alleles, word))
    )
    counts = Counts(document_counts, here.total(word_counts), jnp.ones(num_topics, jnp.float32))
    counts = lax.fori_loop(0, JOINED, merge_round, lax.fori_loop(0, SOFT, soft_turn, counts))
    largest = jnp.argsort(-counts.there)[: shape.populations]
    counts = Counts(*(table[..., largest] for table in counts))
    *_, (document_counts, word_counts, _) = lax.while_loop(
        is_moving, final_turn, (jnp.array(0), jnp.array(jnp.inf, jnp.float32), counts)
    )
    shares, topics = document_counts + SHARE, word_counts.T + TOPIC
    return shares / shares.sum(1, keepdims=True), topics / topics.sum(1, keepdims=True)


def _further(counts: Array, expected: Array) -> Array:
    """Counts after an over-relaxed step to what is expected."""
    return jnp.maximum(counts + FURTHER * (expected - counts), LEAST * expected)


def _joined(here: Here, counts: Counts, times: Array) -> Counts:
    """Counts after merging, as often as `times` says, the two topics whose union costs the joint density least."""

    def log_density(mine: Array, shown: Array) -> Array:
        """Log joint densities of topics, up to a constant that does not depend on the number of topics."""
        of_words = _log_gamma(shown + TOPIC).sum(-1) - _log_gamma(shown.sum(-1) + TOPIC * shown.shape[-1])
        return here.total(_log_gamma(mine + SHARE).sum(-1)) + of_words

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

    document_counts, word_counts = counts.mine.T, counts.shown.T
    single = log_density(document_counts, word_counts)
    gain = lax.map(
        lambda topic: union_gains(topic, document_counts, word_counts, single), jnp.arange(len(document_counts))
    )
    document_counts, word_counts, is_topic, *_ = lax.fori_loop(
        0, times, join, (document_counts, word_counts, counts.there, single, gain)
    )
    return Counts(document_counts.T, word_counts.T, is_topic)


def _log_gamma(x: Array) -> Array:
    """The log of the Gamma function by Stirling's series at x + 1, to 3e-4 for any positive x.

    It is several times faster than the exact one.
    """
    inverse = 1 / (x + 1)
    series = inverse / 12 - inverse**3 / 360 + log(2 * pi) / 2
    return (x + 0.5) * jnp.log(x + 1) - (x + 1) + series - jnp.log(x)
