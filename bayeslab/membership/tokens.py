"""Tokens of documents, and the counts of topics that they lead to: drawn ones for Gibbs, expected ones for EM.

A token of document i that shows word j comes from topic k with probability proportional to q_ik p_kj: individuals are
documents, populations topics, alleles words, and there is a single locus (`bayeslab.membership.alleles`). Tokens are
lanes of vectors; a topic's probabilities are looked up by document and by word. Nothing is kept of an origin but the
counts that it enters.
"""

from functools import partial
from math import ceil
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from bayeslab.distributions.random_bits import uniforms
from bayeslab.membership.alleles import LANES, Counts
from bayeslab.membership.devices import Devices, Here

CHUNK = 2**10
"""Tokens of a chunk, if there are many."""
CHUNKS = 16
"""At least, if there are as many tokens."""
TOGETHER = 32
"""Chunks that are looked at in one go, at most: what is computed of them stays in the cache."""
FEW = 40
"""Topics up to which one loop over tokens has all of them; it would be long to compile."""
BLOCK = 16
"""Topics that are looked at together, of many."""
TINY = 1e-30


class Tokens(NamedTuple):
    """held: tokens on one device, at most; 0 for all."""

    individuals: int
    tokens: int
    alleles: int
    populations: int
    held: int = 0
    devices: Devices = Devices()

    @property
    def loci(self) -> int:
        return 1

    @property
    def part(self) -> "Tokens":
        """Of the documents of one device."""
        return self._replace(individuals=self.devices.share(self.individuals), devices=Devices())

    @property
    def table(self) -> tuple[int, ...]:
        """The shape of components."""
        return self.populations, self.alleles

    @property
    def most(self) -> int:
        """The largest count that there can be."""
        return self.tokens

    @property
    def together(self) -> int:
        return min(self._needed, TOGETHER)

    @property
    def chunks(self) -> int:
        """A multiple of those that are looked at together."""
        return ceil(self._needed / self.together) * self.together

    @property
    def width(self) -> int:
        """Of a chunk on one device."""
        return ceil((self.held or self.tokens) / self.chunks / LANES) * LANES

    @property
    def _needed(self) -> int:
        return max(ceil(self.tokens / CHUNK), min(self.tokens, CHUNKS))


def packed_tokens(word: Array, present: Array | None, document: Array, shape: Tokens) -> Array:
    """Tokens as integers (device, chunk, 3, token): document of the device, word, and number among all tokens.

    Neighbours, of one document, are in different chunks. Missing tokens, and those that pad, are of a document and a
    word behind the last.
    """
    documents, devices, chunks = shape.part.individuals, shape.devices.number, shape.chunks
    there = jnp.ones(word.shape, bool) if present is None else present
    order = jnp.argsort(jnp.where(there, document, shape.individuals))
    device = jnp.where(there, document // documents, devices)[order]
    token, chunk = jnp.divmod(jnp.arange(len(order)) - jnp.searchsorted(device, device), chunks)
    columns = (document % documents, documents), (word, shape.alleles), (jnp.arange(len(order)), 0)
    empty = (jnp.full((devices, chunks, shape.width), behind, jnp.int32) for _, behind in columns)
    filled = [
        blank.at[device, chunk, token].set(column[order].astype(jnp.int32), mode="drop")
        for (column, _), blank in zip(columns, empty, strict=True)
    ]
    return shape.devices.spread(jnp.stack(filled, 2))


def drawn_of_tokens(key: Array, shares: Array, topics: Array, tokens: Array, shape: Tokens) -> Counts:
    """Counts of origins that are drawn given everything else.

    key: (2,). shares: (document, topic). topics: (topic, 1, word). tokens: see `packed_tokens`.
    """
    return Counts(*shape.devices.run(partial(_drawn, shape=shape.part), shares, tokens, key, topics))


def _drawn(here: Here, shares: Array, tokens: Array, key: Array, topics: Array, shape: Tokens) -> tuple[Array, Array]:
    of_documents, of_words = (_with_one_more(table).T for table in (shares, topics[:, 0].T))
    sizes = of_documents.shape[1], of_words.shape[1]

    def chunk(counts: tuple[Array, ...], given: Array) -> tuple[tuple[Array, ...], None]:
        document, word, number = given
        number = number.astype(jnp.uint32)
        uniform, _ = uniforms(key, number, jnp.zeros_like(number))
        origin = drawn_origins(uniform, of_documents, of_words, document, word)
        places = (origin * size + of for size, of in zip(sizes, (document, word), strict=True))
        mine, shown = (one.at[at].add(1, mode="promise_in_bounds") for one, at in zip(counts, places, strict=True))
        return (mine, shown), None

    nothing = tuple(jnp.zeros(shape.populations * size, jnp.int32) for size in sizes)
    mine, shown = (
        one.reshape(shape.populations, -1)[:, :-1] for one in lax.scan(chunk, nothing, _together(tokens, shape))[0]
    )
    return mine.T, here.total(shown[:, None])


class Others(NamedTuple):
    """Where the tables are counts: of all tokens but the one that is drawn, whose origin is (token,), they make
    (shares + share) (topics + topic) scale, the last (topic,)."""

    origin: Array
    share: float
    topic: float
    scale: Array


def drawn_origins(
    uniform: Array, shares: Array, topics: Array, document: Array, word: Array, counts: Others | None = None
) -> Array:
    """Where cumulative products of shares (topic, document) and topics (topic, word) pass a uniform number times their
    sum, for every token. counts: where the tables are such."""
    draw = _of_few if len(shares) <= FEW else _of_many
    return lax.optimization_barrier(draw(uniform, shares, topics, document, word, counts))


def _of_few(uniform: Array, shares: Array, topics: Array, document: Array, word: Array, counts: Others | None) -> Array:
    sums: list[Array] = []
    for topic, (share, table) in enumerate(zip(shares, topics, strict=True)):
        part = _product(share[document], table[word], topic, counts)
        sums.append(sums[-1] + part if sums else part)
    threshold = uniform * sums[-1]
    return sum(((below <= threshold).astype(jnp.int32) for below in sums[:-1]), jnp.zeros_like(document))


def _of_many(
    uniform: Array, shares: Array, topics: Array, document: Array, word: Array, counts: Others | None
) -> Array:
    """By blocks of topics: which block it is, then which of its topics."""
    number, blocks = len(shares), ceil(len(shares) / BLOCK)
    more = blocks * BLOCK - number
    shares, topics = (jnp.pad(table, ((0, more), (0, 0))) for table in (shares, topics))
    if counts is not None:
        counts = counts._replace(scale=jnp.pad(counts.scale, (0, more)))

    def block(before: Array, given: tuple[Array, ...]) -> tuple[Array, Array]:
        shares, topics, first = given
        for place, (share, table) in enumerate(zip(shares, topics, strict=True)):
            before = before + _product(share[document], table[word], first + place, counts)
        return before, before

    firsts = jnp.arange(blocks, dtype=jnp.int32) * BLOCK
    by_block = *(table.reshape(blocks, BLOCK, -1) for table in (shares, topics)), firsts
    total, sums = lax.scan(block, jnp.zeros(document.shape, jnp.float32), by_block)
    threshold = uniform * total
    chosen = (sums[:-1] <= threshold).astype(jnp.int32).sum(0, dtype=jnp.int32)
    before = jnp.where(chosen > 0, jnp.take_along_axis(sums, jnp.maximum(chosen - 1, 0)[None], 0)[0], 0.0)
    first = origin = chosen * BLOCK
    sizes = shares.shape[1], topics.shape[1]
    for place in range(BLOCK - 1):
        at = ((first + place) * size + of for size, of in zip(sizes, (document, word), strict=True))
        of_document, of_word = (table.ravel()[here] for table, here in zip((shares, topics), at, strict=True))
        before = before + _product(of_document, of_word, first + place, counts)
        origin = origin + (before <= threshold).astype(jnp.int32)
    return jnp.minimum(origin, number - 1).astype(jnp.int32)


def _product(of_document: Array, of_word: Array, topic: Array | int, counts: Others | None) -> Array:
    if counts is None:
        return of_document * of_word
    own = (counts.origin == topic).astype(jnp.float32)
    return (of_document - own + counts.share) * (of_word - own + counts.topic) * counts.scale[topic]


def expected_of_tokens(shares: Array, topics: Array, tokens: Array, shape: Tokens) -> tuple[Counts, Array]:
    """Expected counts of origins given everything else, and the log of the sums of q_ik p_kj of all tokens, added up.

    With probabilities, that is the log likelihood.
    """
    run = partial(_expected, shape=shape.part)
    individuals, (counted, log_sums) = shape.devices.run(run, shares, tokens, topics)
    return Counts(individuals, counted), log_sums


def _expected(
    here: Here, shares: Array, tokens: Array, topics: Array, shape: Tokens
) -> tuple[Array, tuple[Array, Array]]:
    tables = tuple(map(_with_one_more, (shares, topics[:, 0].T)))
    exact = jnp.result_type(float)

    def chunk(carry: tuple[Array, ...], given: Array) -> tuple[tuple[Array, ...], None]:
        *counts, log_sums = carry
        document, word, _ = given
        weight = tables[0][document] * tables[1][word]
        total = weight.sum(1)
        log_sums += jnp.where(word < shape.alleles, jnp.log(total), 0.0).astype(exact).sum()
        share = weight / total[:, None]
        mine, shown = (
            one.at[at].add(share, mode="promise_in_bounds") for one, at in zip(counts, (document, word), strict=True)
        )
        return (mine, shown, log_sums), None

    nothing = tuple(jnp.zeros_like(table) for table in tables)
    mine, shown, log_sums = lax.scan(chunk, (*nothing, jnp.zeros((), exact)), _together(tokens, shape))[0]
    return mine[:-1], here.total((shown[:-1].T[:, None], log_sums))


def stepped_tokens(
    shares: Array, topics: Array, tokens: Array, shape: Tokens, pseudo: tuple[Array, Array, Array]
) -> tuple[Array, Array, Array]:
    """Shares and topics after a step of EM, and the log likelihood before it.

    pseudo: counts that the priors add, of documents (document, topic) and of words (topic, 1, word), and which words
    there are.
    """
    counts, log_likelihood = expected_of_tokens(shares, topics, tokens, shape)
    new = (counted + more for counted, more in zip(counts, pseudo, strict=False))
    shares, topics = (one / jnp.maximum(one.sum(-1, keepdims=True), TINY) for one in new)
    return shares, topics, log_likelihood


def _together(tokens: Array, shape: Tokens) -> Array:
    """Several chunks in one, (some, 3, token)."""
    some = tokens.reshape(-1, shape.together, *tokens.shape[1:])
    return some.transpose(0, 2, 1, 3).reshape(len(some), 3, -1)


def _with_one_more(table: Array) -> Array:
    """Rows in single precision, and one of ones for what pads; computed once, not where it is looked up."""
    return lax.optimization_barrier(jnp.pad(table.astype(jnp.float32), ((0, 1), (0, 0)), constant_values=1.0))
