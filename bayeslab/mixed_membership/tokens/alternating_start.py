"""A start for the shares and topics of documents, where expected counts of the one and of the other come to by turns.

Documents expect counts of topics given those of words, then words given those of documents. A probability is a count
and a little more over their sum, a mean and no maximum: what has lost its tokens can have them again (as in A. Asuncion
et al. 2009, "On smoothing and inference for topic models"). Each turn goes further than to what is expected, as steps
of EM may (R. Salakhutdinov and S. Roweis 2003, "Adaptive overrelaxed bound optimization methods").

Documents share all topics at first, by a concentration that falls turn after turn: topics are found by what all
documents show before any of these decides for some. And there are more of them than are wanted, since what ends with
one topic for two subjects has two for another; those are joined whose union costs the joint density least.
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
"""Topics to begin with, for one; and some, so that vectors are full."""
SOFT = 15
"""Turns in which the concentration of shares falls."""
JOINED, BETWEEN = 3, 5
"""How often topics are joined, and turns after each time."""
MOST, SETTLED = 30, 0.005
"""Turns with the topics that are wanted, at most; and the part of all tokens that the last of them moves."""
FURTHER, LEAST = 1.8, 0.1
"""How far counts go, for the way to what is expected; and what is left of that where they would fall below."""
SHARE, TOPIC = 0.1, 0.1
"""Concentrations of shares and topics: of a start, whatever the prior is."""
FIRST_SHARE = 4.0
"""Of shares."""


class Counts(NamedTuple):
    """mine: of documents (document, topic). shown: of words (word, topic). there: 0 for topics that were joined to
    others, 1 for those that are left, (topic,)."""

    mine: Array
    shown: Array
    there: Array


def alternating_start(key: Array, tokens: Array, shape: Tokens, real: Array | None = None) -> tuple[Array, Array]:
    """Shares (document, topic) and topics (topic, 1, word). real: as for genotypes; all words are."""
    del real
    share, shown = shape.devices.run(partial(_run, shape=shape.part), jnp.zeros(shape.individuals), tokens, key)
    return share, shown[:, None]


def _run(here: Here, _: Any, tokens: Array, key: Array, shape: Tokens) -> tuple[Array, Array]:
    many = min(ceil(MORE * shape.populations / LANES) * LANES, 2 * shape.populations) if shape.populations > 1 else 1
    document, word = (tokens[:, row].ravel() for row in range(2))
    of_documents, of_words = pairs_of(document, word, shape.individuals, shape.alleles)

    def turn(counts: Counts, share: Array | float) -> Counts:
        mine, shown, there = counts
        topics = (shown + TOPIC) / (shown.sum(0) + TOPIC * shape.alleles) * there
        mine = _further(mine, expected(mine + share, topics, of_documents))
        return Counts(mine, _further(shown, here.total(expected(topics, mine + share, of_words))), there)

    def softly(step: Array, counts: Counts) -> Counts:
        return turn(counts, SHARE + (FIRST_SHARE - SHARE) * (1 - step / SOFT))

    def fewer(step: Array, counts: Counts) -> Counts:
        extra = many - shape.populations
        counts = _joined(here, counts, extra * (step + 1) // JOINED - extra * step // JOINED)
        return lax.fori_loop(0, BETWEEN, lambda _, counts: turn(counts, SHARE), counts)

    def moving(state: tuple[Array, Array, Counts]) -> Array:
        step, moved, (_, shown, _) = state
        return (step < MOST) & (moved > SETTLED * shown.sum())

    def settling(state: tuple[Array, Array, Counts]) -> tuple[Array, Array, Counts]:
        step, _, before = state
        after = turn(before, SHARE)
        return step + 1, jnp.abs(after.shown - before.shown).sum(), after

    random, _ = uniforms(
        jax.random.bits(key, (2,), jnp.uint32), (document + here.first).astype(jnp.uint32), word.astype(jnp.uint32)
    )
    origin = jnp.floor(random * many).astype(jnp.int32)
    mine, shown = (
        jnp.zeros((size + 1, many), jnp.float32).at[at, origin].add(1.0)[:-1]
        for size, at in ((shape.individuals, document), (shape.alleles, word))
    )
    counts = Counts(mine, here.total(shown), jnp.ones(many, jnp.float32))
    counts = lax.fori_loop(0, JOINED, fewer, lax.fori_loop(0, SOFT, softly, counts))
    kept = jnp.argsort(-counts.there)[: shape.populations]
    counts = Counts(*(one[..., kept] for one in counts))
    *_, (mine, shown, _) = lax.while_loop(moving, settling, (jnp.array(0), jnp.array(jnp.inf, jnp.float32), counts))
    shares, topics = mine + SHARE, shown.T + TOPIC
    return shares / shares.sum(1, keepdims=True), topics / topics.sum(1, keepdims=True)


def _further(counts: Array, expected: Array) -> Array:
    return jnp.maximum(counts + FURTHER * (expected - counts), LEAST * expected)


def _joined(here: Here, counts: Counts, times: Array) -> Counts:
    """So often the two topics are joined whose union costs least."""

    def density(mine: Array, shown: Array) -> Array:
        """Its log, up to what is the same for every number of topics."""
        of_words = _log_gamma(shown + TOPIC).sum(-1) - _log_gamma(shown.sum(-1) + TOPIC * shown.shape[-1])
        return here.total(_log_gamma(mine + SHARE).sum(-1)) + of_words

    def gains(topic: Array, mine: Array, shown: Array, single: Array) -> Array:
        """Of its union with every other topic."""
        return density(mine + mine[topic], shown + shown[topic]) - single - single[topic]

    def join(_: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
        mine, shown, there, single, gain = state
        pairs = (there[:, None] * there * (1 - jnp.eye(len(there)))) > 0
        best = jnp.argmax(jnp.where(pairs, gain, -jnp.inf)).astype(jnp.int32)
        kept, gone = best // len(there), best % len(there)
        mine, shown = (one.at[kept].add(one[gone]).at[gone].set(0.0) for one in (mine, shown))
        single = single.at[kept].set(density(mine[kept], shown[kept]))
        new = gains(kept, mine, shown, single)
        return mine, shown, there.at[gone].set(0.0), single, gain.at[kept].set(new).at[:, kept].set(new)

    mine, shown = counts.mine.T, counts.shown.T
    single = density(mine, shown)
    gain = lax.map(lambda topic: gains(topic, mine, shown, single), jnp.arange(len(mine)))
    mine, shown, there, *_ = lax.fori_loop(0, times, join, (mine, shown, counts.there, single, gain))
    return Counts(mine.T, shown.T, there)


def _log_gamma(x: Array) -> Array:
    """By Stirling's series at x + 1, to 3e-4 for any positive x; several times faster than the exact one."""
    inverse = 1 / (x + 1)
    series = inverse / 12 - inverse**3 / 360 + log(2 * pi) / 2
    return (x + 0.5) * jnp.log(x + 1) - (x + 1) + series - jnp.log(x)
