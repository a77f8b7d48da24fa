"""Tokens of documents, and the counts of their topics: drawn counts for Gibbs, expected counts for EM.

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

from bayeslab.distributions.processor import on_accelerator
from bayeslab.distributions.threefry import uniforms
from bayeslab.mixed_membership.counts import NUM_VECTOR_LANES, Counts, largest_divisor
from bayeslab.mixed_membership.devices import DeviceContext, Devices

TOKENS_PER_CHUNK = 2**10
"""Tokens of a chunk, about, unless there are few tokens."""
MIN_CHUNKS = 16
"""Smallest number of chunks, unless there are fewer tokens."""
MAX_CHUNKS_PER_STEP = 32
"""Most chunks in one step: what is computed of them stays in the cache."""
MAX_TOPICS_UNROLLED = 40
"""Most topics for which one loop over tokens has all of them, and looks them up one by one."""
TOPICS_PER_BLOCK = 16
"""Topics whose probabilities are summed together, where topics are many."""
MAX_PRODUCTS_PER_STEP = 2**16
"""Tokens times topics in one step, about, where all products are written down."""
MAX_PRODUCTS_ON_ACCELERATOR = 2**27
"""Tokens times topics in one step of an accelerator, about: half a gigabyte, and a step for a million tokens."""
INDEX_MODE = "promise_in_bounds"
"""Mode of look-ups whose indices are never out of bounds."""
MIN_DIVISOR = 1e-30
"""Smallest sum of counts that is divided by."""


class TokenShape(NamedTuple):
    """The sizes of tokens of documents, and how tokens are split into chunks.

    individuals: documents. alleles: words. populations: topics. max_tokens_per_device: tokens on one device, at most; 0
    for all.
    """

    individuals: int
    tokens: int
    alleles: int
    populations: int
    max_tokens_per_device: int = 0
    devices: Devices = Devices()

    @property
    def loci(self) -> int:
        """The single locus of words."""
        return 1

    @property
    def part(self) -> "TokenShape":
        """The shape of the tokens of one device."""
        return self._replace(individuals=self.devices.share(self.individuals), devices=Devices())

    @property
    def table(self) -> tuple[int, ...]:
        """The shape of components."""
        return self.populations, self.alleles

    @property
    def max_count(self) -> int:
        """The largest count that there can be."""
        return self.tokens

    @property
    def chunks_per_step(self) -> int:
        """Chunks in one step."""
        return min(self._needed, MAX_CHUNKS_PER_STEP)

    @property
    def chunks(self) -> int:
        """Number of chunks, a multiple of those in one step."""
        return ceil(self._needed / self.chunks_per_step) * self.chunks_per_step

    @property
    def width(self) -> int:
        """Tokens of a chunk on one device."""
        return ceil((self.max_tokens_per_device or self.tokens) / self.chunks / NUM_VECTOR_LANES) * NUM_VECTOR_LANES

    @property
    def product_chunks_per_step(self) -> int:
        """Chunks in one step where all products are written down."""
        return gcd(self.chunks_per_step, max(MAX_PRODUCTS_PER_STEP // self.populations // TOKENS_PER_CHUNK, 1))

    @property
    def _needed(self) -> int:
        """Number of chunks before it is made a multiple."""
        return max(ceil(self.tokens / TOKENS_PER_CHUNK), min(self.tokens, MIN_CHUNKS))


def pack_tokens(word: Array, present: Array | None, document: Array, shape: TokenShape) -> Array:
    """Tokens as integers (device, chunk, 3, token): document of the device, word, and number among all tokens.

    Neighbours, which are of one document, are in different chunks. Missing tokens, and those that pad, have the index
    behind the last as their document and word.
    """
    documents, devices, chunks = shape.part.individuals, shape.devices.number, shape.chunks
    is_present = jnp.ones(word.shape, bool) if present is None else present
    order = jnp.argsort(jnp.where(is_present, document, shape.individuals))
    device = jnp.where(is_present, document // documents, devices)[order]
    token, chunk = jnp.divmod(jnp.arange(len(order)) - jnp.searchsorted(device, device), chunks)
    columns = (document % documents, documents), (word, shape.alleles), (jnp.arange(len(order)), 0)
    empty = (jnp.full((devices, chunks, shape.width), behind, jnp.int32) for _, behind in columns)
    filled = [
        blank.at[device, chunk, token].set(column[order].astype(jnp.int32), mode="drop")
        for (column, _), blank in zip(columns, empty, strict=True)
    ]
    return shape.devices.spread(jnp.stack(filled, 2))


def draw_token_counts(key: Array, shares: Array, topics: Array, tokens: Array, shape: TokenShape) -> Counts:
    """Counts of origins that are drawn from their full conditional.

    key: (2,). shares: (document, topic). topics: (topic, 1, word). tokens: see `pack_tokens`.
    """
    return Counts(
        *shape.devices.run(partial(_draw_token_counts_on_device, shape=shape.part), shares, tokens, key, topics)
    )


def _draw_token_counts_on_device(
    device: DeviceContext, shares: Array, tokens: Array, key: Array, topics: Array, shape: TokenShape
) -> tuple[Array, Array]:
    """Counts of drawn origins: in the documents of this device, and with words over all devices."""
    number = shape.populations
    of_documents, of_words = (
        lax.optimization_barrier(store_table(append_row_of_ones(table))) for table in (shares, topics[:, 0].T)
    )

    def chunk(counts: tuple[Array, ...], given: Array) -> tuple[tuple[Array, ...], None]:
        document, word, token = given
        token = token.astype(jnp.uint32)
        uniform, _ = uniforms(key, token, jnp.zeros_like(token))
        origin = draw_origins(uniform, of_documents, of_words, document, word, number)
        document_counts, word_counts = (
            table.at[stored_index(origin, rows, table.size, number)].add(1, mode=INDEX_MODE)
            for table, rows in zip(counts, (document, word), strict=True)
        )
        return (document_counts, word_counts), None

    nothing = tuple(jnp.zeros(table.size, jnp.int32) for table in (of_documents, of_words))
    all_products = number > MAX_TOPICS_UNROLLED
    merged_chunks = _merge_chunks(
        tokens, number, shape.product_chunks_per_step if all_products else shape.chunks_per_step
    )
    document_counts, word_counts = (
        restore_table(table, number)[:-1] for table in lax.scan(chunk, nothing, merged_chunks)[0]
    )
    return document_counts, device.total(word_counts.T[:, None])


def store_table(table: Array) -> Array:
    """A table (row, topic) as it is stored for drawing origins.

    It is (topic, row) where topics are few: one of them stays in the fastest memory, and tokens look it up. It is
    (row, topic) where topics are many: all topics of a row are read at once.
    """
    return table.T if table.shape[1] <= MAX_TOPICS_UNROLLED else table


def stored_index(topic: Array, row: Array, size: int, topics: int) -> Array:
    """Indices of topics and rows in a flat stored table of this size."""
    return topic * (size // topics) + row if topics <= MAX_TOPICS_UNROLLED else row * topics + topic


def restore_table(flat: Array, topics: int) -> Array:
    """A flat stored table as (row, topic)."""
    return flat.reshape(topics, -1).T if topics <= MAX_TOPICS_UNROLLED else flat.reshape(-1, topics)


def draw_origins(uniform: Array, shares: Array, topics: Array, document: Array, word: Array, num_topics: int) -> Array:
    """Origins of tokens (token,), drawn with probabilities proportional to the products of shares and topics.

    uniform: numbers (token,) that the origins are drawn by. shares, topics: stored tables. num_topics: of topics.
    """
    if num_topics > MAX_TOPICS_UNROLLED:
        share, topic_share = (
            table.at[rows].get(mode=INDEX_MODE) for table, rows in ((shares, document), (topics, word))
        )
        weights = lax.optimization_barrier(share * topic_share)
        return lax.optimization_barrier(_draw_by_blocks(uniform, lax.optimization_barrier(weights.T)))
    return draw_by_cumulative_sums(
        uniform, [share[document] * topic_share[word] for share, topic_share in zip(shares, topics, strict=True)]
    )


def draw_by_cumulative_sums(uniform: Array, weights: list[Array]) -> Array:
    """Topics (token,) drawn by inversion: where cumulative weights pass a uniform number times their sum.

    weights: of every topic, (token,); for few topics.
    """
    sums = list(accumulate(weights))
    return lax.optimization_barrier(_count_sums_passed(sums, uniform * sums[-1]))


def _draw_by_blocks(uniform: Array, weights: Array) -> Array:
    """Topics (token,) drawn by inversion from weights (topic, token): first a block of topics, then a topic of it."""
    number, tokens = weights.shape
    blocks = [reduce(add, weights[first : first + TOPICS_PER_BLOCK]) for first in range(0, number, TOPICS_PER_BLOCK)]
    sums = list(accumulate(lax.optimization_barrier(blocks)))
    threshold = uniform * sums[-1]
    block = lax.optimization_barrier(_count_sums_passed(sums, threshold))
    before = sum((jnp.where(block == after, below, 0.0) for after, below in enumerate(sums[:-1], 1)), jnp.zeros(tokens))
    first = origin = block * TOPICS_PER_BLOCK
    token = jnp.arange(tokens, dtype=jnp.int32)
    for offset in range(TOPICS_PER_BLOCK - 1):
        index = jnp.minimum(first + offset, number - 1) * tokens + token
        before = before + weights.ravel().at[index].get(mode=INDEX_MODE)
        origin = origin + (before <= threshold).astype(jnp.int32)
    return jnp.minimum(origin, number - 1)


def _count_sums_passed(sums: list[Array], threshold: Array) -> Array:
    """Numbers (token,) of cumulative sums, but for the last, that are not above a threshold."""
    return sum(((below <= threshold).astype(jnp.int32) for below in sums[:-1]), jnp.zeros(len(threshold), jnp.int32))


def expected_token_counts(shares: Array, topics: Array, tokens: Array, shape: TokenShape) -> tuple[Counts, Array]:
    """Expected counts of origins given everything else, and the log of the sums of q_ik p_kj of all tokens, added up.

    That log is the log likelihood where q and p are probabilities.
    """
    run = partial(_expected_token_counts_on_device, shape=shape.part)
    individuals, (counted, log_sums) = shape.devices.run(run, shares, tokens, topics)
    return Counts(individuals, counted), log_sums


def _expected_token_counts_on_device(
    device: DeviceContext, shares: Array, tokens: Array, topics: Array, shape: TokenShape
) -> tuple[Array, tuple[Array, Array]]:
    """Expected counts in the documents of this device; expected counts with words and log sums over all devices."""
    tables = tuple(map(append_row_of_ones, (shares, topics[:, 0].T)))
    dtype = jnp.result_type(float)

    def chunk(carry: tuple[Array, ...], given: Array) -> tuple[tuple[Array, ...], None]:
        *counts, log_sums = carry
        document, word, _ = given
        weight = tables[0].at[document].get(mode=INDEX_MODE) * tables[1].at[word].get(mode=INDEX_MODE)
        total = weight.sum(1)
        log_sums += jnp.where(word < shape.alleles, jnp.log(total), 0.0).astype(dtype).sum()
        share = weight / total[:, None]
        document_counts, word_counts = (
            table.at[index].add(share, mode=INDEX_MODE) for table, index in zip(counts, (document, word), strict=True)
        )
        return (document_counts, word_counts, log_sums), None

    nothing = tuple(jnp.zeros_like(table) for table in tables)
    merged_chunks = _merge_chunks(tokens, shape.populations, shape.product_chunks_per_step)
    document_counts, word_counts, log_sums = lax.scan(chunk, (*nothing, jnp.zeros((), dtype)), merged_chunks)[0]
    return document_counts[:-1], device.total((word_counts[:-1].T[:, None], log_sums))


def em_step(
    shares: Array, topics: Array, tokens: Array, shape: TokenShape, pseudo_counts: tuple[Array, Array, Array]
) -> tuple[Array, Array, Array]:
    """Shares and topics after a step of EM, and the log likelihood before it.

    pseudo_counts: counts that the priors add to documents (document, topic) and to words (topic, 1, word), and which
    words there are.
    """
    counts, log_likelihood = expected_token_counts(shares, topics, tokens, shape)
    new = (counted + pseudo_count for counted, pseudo_count in zip(counts, pseudo_counts, strict=False))
    shares, topics = (table / jnp.maximum(table.sum(-1, keepdims=True), MIN_DIVISOR) for table in new)
    return shares, topics, log_likelihood


def _merge_chunks(tokens: Array, topics: int, chunks: int) -> Array:
    """Packed tokens as (step, 3, token), with this number of chunks in a step, or all that an accelerator holds."""
    if on_accelerator():
        chunks = largest_divisor(len(tokens), MAX_PRODUCTS_ON_ACCELERATOR // topics // tokens.shape[2])
    some = tokens.reshape(-1, chunks, *tokens.shape[1:])
    return some.transpose(0, 2, 1, 3).reshape(len(some), 3, -1)


def append_row_of_ones(table: Array) -> Array:
    """A table (row, topic) in single precision with a row of ones for tokens that pad.

    It is computed once, and not where it is looked up.
    """
    return lax.optimization_barrier(jnp.pad(table.astype(jnp.float32), ((0, 1), (0, 0)), constant_values=1.0))
