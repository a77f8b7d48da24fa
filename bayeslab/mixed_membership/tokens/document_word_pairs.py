"""Pairs of a document and a word of it, and the expected counts of topics of one side given the other.

A token of document i that shows word j comes from topic k with a probability proportional to q_ik p_kj, so documents
expect q_ik times the sum over their words of n_ij p_kj / sum_l q_il p_lj, and words expect the same with sides changed.
On a CPU documents, or words, that have about as many pairs are lanes of vectors, whose pairs follow each other. An
accelerator has the whole table of documents and words, most of it zeros, and two products of matrices.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from bayeslab.distributions.processor import on_accelerator
from bayeslab.mixed_membership.tokens.topic_counts import INDEX_MODE, MIN_DIVISOR, append_row_of_ones

NUM_PAIR_LANES = 8
"""Documents, or words, whose pairs are treated as one vector."""
NUM_PAIRS_UNROLLED = 4
"""Pairs of a document, or of a word, in one step of a loop."""
MAX_TABLE_SIZE = 2**29
"""Largest number of cells of a table of documents and words: two gigabytes."""


class Pairs(NamedTuple):
    """Pairs in the order of the documents, or of the words, which are the entries of this side.

    other: the word, or document, of the other side (pair,). number: tokens of a pair (pair,).
    entry: entries in lanes (row, lane), the index behind the last where there is none.
    first, num_pairs: where the pairs of an entry begin, and how many there are, (row, lane).
    """

    other: Array
    number: Array
    entry: Array
    first: Array
    num_pairs: Array


def find_pairs(document: Array, word: Array, documents: int, words: int) -> tuple[Pairs | Array, Pairs | Array]:
    """Pairs in the order of documents, and in that of words; on an accelerator the numbers of tokens (entry, other).

    document, word: of tokens (token,), the indices behind the last for those that pad.
    """
    if on_accelerator() and documents * words <= MAX_TABLE_SIZE:
        table = jnp.zeros((documents + 1, words + 1), jnp.float32).at[document, word].add(1.0)[:-1, :-1]
        return table, table.T
    order = jnp.argsort(document)
    order = order[jnp.argsort(word[order])]
    document, word = document[order], word[order]
    new = (document[1:] != document[:-1]) | (word[1:] != word[:-1])
    pair = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(new, dtype=jnp.int32)])
    number = jnp.zeros(pair.shape, jnp.float32).at[pair].add(1.0)
    blank = jnp.zeros(pair.shape, jnp.int32)
    document, word = (
        (blank + behind).at[pair].set(column.astype(jnp.int32))
        for column, behind in ((document, documents), (word, words))
    )
    order = jnp.argsort(document)
    of_documents = _lay_out_pairs(document[order], word[order], number[order], documents)
    return of_documents, _lay_out_pairs(word, document, number, words)


def _lay_out_pairs(mine: Array, other: Array, number: Array, entries: int) -> Pairs:
    """Pairs laid out in lanes. mine: the entry of every pair, in ascending order."""
    num_pairs = jnp.zeros(entries + 1, jnp.int32).at[mine].add(1)
    first = jnp.cumsum(num_pairs, dtype=jnp.int32) - num_pairs
    longest = jnp.argsort(-num_pairs[:-1])
    entry = jnp.pad(longest, (0, -entries % NUM_PAIR_LANES), constant_values=entries).reshape(-1, NUM_PAIR_LANES)
    return Pairs(other, number, entry, first[entry], jnp.where(entry < entries, num_pairs[entry], 0))


def expected_topic_counts(shares: Array, other_shares: Array, pairs: Pairs | Array) -> Array:
    """Expected counts of topics (entry, topic) of one side.

    shares: shares of its entries (entry, topic). other_shares: those of the other side.
    """
    if not isinstance(pairs, Pairs):
        return shares * ((pairs / jnp.maximum(shares @ other_shares.T, MIN_DIVISOR)) @ other_shares)
    own = lax.optimization_barrier(append_row_of_ones(shares)[pairs.entry])
    table = append_row_of_ones(other_shares)

    def row(at: Array, counts: Array) -> Array:
        share, first, num_pairs = own[at], pairs.first[at], pairs.num_pairs[at]

        def chunk(step: Array, sums: Array) -> Array:
            inside = step * NUM_PAIRS_UNROLLED + jnp.arange(NUM_PAIRS_UNROLLED, dtype=jnp.int32)[:, None]
            index = jnp.minimum(first + inside, len(pairs.other) - 1)
            other = pairs.other.at[index].get(mode=INDEX_MODE)
            number = jnp.where(inside < num_pairs, pairs.number.at[index].get(mode=INDEX_MODE), 0.0)
            other, number = lax.optimization_barrier((other, number))
            other_share = lax.optimization_barrier(table.at[other].get(mode=INDEX_MODE))
            ratio = lax.optimization_barrier(number / jnp.maximum((other_share * share).sum(-1), MIN_DIVISOR))
            for which in range(NUM_PAIRS_UNROLLED):
                sums = sums + ratio[which][:, None] * other_share[which]
            return sums

        sums = lax.fori_loop(0, -(-num_pairs.max() // NUM_PAIRS_UNROLLED), chunk, jnp.zeros_like(share))
        return counts.at[at].set(sums * share)

    counts = lax.fori_loop(0, len(pairs.entry), row, jnp.zeros_like(own))
    return jnp.zeros((len(shares) + 1, shares.shape[1]), counts.dtype).at[pairs.entry].set(counts)[:-1]
