"""Tokens of documents, and the counts of topics that they lead to: drawn ones for Gibbs, expected ones for EM.

A token of document i that shows word j comes from topic k with probability proportional to q_ik p_kj: individuals are
documents, populations topics, alleles words, and there is a single locus
(`bayeslab.mixed_membership.genotypes.allele_counts`). Tokens are lanes of vectors; a topic's probabilities are looked
up by document and by word. Nothing is kept of an origin but the counts that it enters.
"""

from functools import partial, reduce
from itertools import accumulate
from math import ceil, gcd
from operator import add
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from bayeslab.distributions.threefry import uniforms
from bayeslab.mixed_membership.counts import LANES, Counts
from bayeslab.mixed_membership.devices import Devices, Here

CHUNK = 2**10
"""Tokens of a chunk, if there are many."""
CHUNKS = 16
"""At least, if there are as many tokens."""
TOGETHER = 32
"""Chunks that are looked at in one go, at most: what is computed of them stays in the cache."""
FEW = 40
"""Topics up to which one loop over tokens has all of them, and looks them up one by one."""
BLOCK = 16
"""Topics that are looked at together, of many."""
TABLE = 2**16
"""Tokens times topics that are looked at in one go, where all products are written down."""
INSIDE = "promise_in_bounds"
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
    def at_once(self) -> int:
        """Chunks that are looked at together where all products are written down."""
        return gcd(self.together, max(TABLE // self.populations // CHUNK, 1))

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
    number = shape.populations
    of_documents, of_words = (lax.optimization_barrier(stored(with_one_more(one))) for one in (shares, topics[:, 0].T))

    def chunk(counts: tuple[Array, ...], given: Array) -> tuple[tuple[Array, ...], None]:
        document, word, token = given
        token = token.astype(jnp.uint32)
        uniform, _ = uniforms(key, token, jnp.zeros_like(token))
        origin = drawn_origins(uniform, of_documents, of_words, document, word, number)
        mine, shown = (
            one.at[place(origin, of, one.size, number)].add(1, mode=INSIDE)
            for one, of in zip(counts, (document, word), strict=True)
        )
        return (mine, shown), None

    nothing = tuple(jnp.zeros(table.size, jnp.int32) for table in (of_documents, of_words))
    together = _together(tokens, shape.together if number <= FEW else shape.at_once)
    mine, shown = (table_of(one, number)[:-1] for one in lax.scan(chunk, nothing, together)[0])
    return mine, here.total(shown.T[:, None])


def stored(table: Array) -> Array:
    """A table (row, topic) as origins are drawn by it.

    (topic, row) where topics are few: one of them stays in the fastest memory, and tokens look it up. As it is where
    they are many: all topics of a row are read at once.
    """
    return table.T if table.shape[1] <= FEW else table


def place(topic: Array, row: Array, size: int, topics: int) -> Array:
    """In a stored table, which is flat and has that size."""
    return topic * (size // topics) + row if topics <= FEW else row * topics + topic


def table_of(flat: Array, topics: int) -> Array:
    """A stored table that is flat, as (row, topic)."""
    return flat.reshape(topics, -1).T if topics <= FEW else flat.reshape(-1, topics)


def drawn_origins(uniform: Array, shares: Array, topics: Array, document: Array, word: Array, number: int) -> Array:
    """Where cumulative products of shares and topics, stored tables, pass a uniform number times their sum, for every
    token. number: of topics."""
    if number > FEW:
        mine, shown = (table.at[of].get(mode=INSIDE) for table, of in ((shares, document), (topics, word)))
        weights = lax.optimization_barrier(mine * shown)
        return lax.optimization_barrier(_of_many(uniform, lax.optimization_barrier(weights.T)))
    return chosen(uniform, [mine[document] * shown[word] for mine, shown in zip(shares, topics, strict=True)])


def chosen(uniform: Array, weights: list[Array]) -> Array:
    """Where cumulative weights (token,) of few topics pass a uniform number times their sum."""
    sums = list(accumulate(weights))
    return lax.optimization_barrier(_passed(sums, uniform * sums[-1]))


def _of_many(uniform: Array, weights: Array) -> Array:
    """Of weights (topic, token), by blocks of topics: which block it is, then which of its topics."""
    number, tokens = weights.shape
    blocks = [reduce(add, weights[first : first + BLOCK]) for first in range(0, number, BLOCK)]
    sums = list(accumulate(lax.optimization_barrier(blocks)))
    threshold = uniform * sums[-1]
    block = lax.optimization_barrier(_passed(sums, threshold))
    before = sum((jnp.where(block == after, below, 0.0) for after, below in enumerate(sums[:-1], 1)), jnp.zeros(tokens))
    first = origin = block * BLOCK
    token = jnp.arange(tokens, dtype=jnp.int32)
    for more in range(BLOCK - 1):
        at = jnp.minimum(first + more, number - 1) * tokens + token
        before = before + weights.ravel().at[at].get(mode=INSIDE)
        origin = origin + (before <= threshold).astype(jnp.int32)
    return jnp.minimum(origin, number - 1)


def _passed(sums: list[Array], threshold: Array) -> Array:
    """How many of all sums but the last are not above a threshold."""
    return sum(((below <= threshold).astype(jnp.int32) for below in sums[:-1]), jnp.zeros(len(threshold), jnp.int32))


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
    tables = tuple(map(with_one_more, (shares, topics[:, 0].T)))
    exact = jnp.result_type(float)

    def chunk(carry: tuple[Array, ...], given: Array) -> tuple[tuple[Array, ...], None]:
        *counts, log_sums = carry
        document, word, _ = given
        weight = tables[0].at[document].get(mode=INSIDE) * tables[1].at[word].get(mode=INSIDE)
        total = weight.sum(1)
        log_sums += jnp.where(word < shape.alleles, jnp.log(total), 0.0).astype(exact).sum()
        share = weight / total[:, None]
        mine, shown = (one.at[at].add(share, mode=INSIDE) for one, at in zip(counts, (document, word), strict=True))
        return (mine, shown, log_sums), None

    nothing = tuple(jnp.zeros_like(table) for table in tables)
    together = _together(tokens, shape.at_once)
    mine, shown, log_sums = lax.scan(chunk, (*nothing, jnp.zeros((), exact)), together)[0]
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


def _together(tokens: Array, chunks: int) -> Array:
    """So many chunks in one, (some, 3, token)."""
    some = tokens.reshape(-1, chunks, *tokens.shape[1:])
    return some.transpose(0, 2, 1, 3).reshape(len(some), 3, -1)


def with_one_more(table: Array) -> Array:
    """Rows in single precision, and one of ones for what pads; computed once, not where it is looked up."""
    return lax.optimization_barrier(jnp.pad(table.astype(jnp.float32), ((0, 1), (0, 0)), constant_values=1.0))
