"""Collapsed Gibbs sweeps over origins of tokens: probabilities of words are integrated out, block after block of words.

Where all origins are drawn given the probabilities p_kj, a word enters a topic only when it happens to have a
probability there, and sweeps are slow. So words are put into blocks. Given the share m_kb that topic k has of block b,
what words have of it is Dirichlet, independent of other blocks, and integrated out: a token of document i that shows
word j of block b comes from topic k with probability proportional to

    q_ik m_kb (n_kj + c_kj) / (sum of n_kj' + c_kj' over the words j' of the block),

where n counts the other tokens and c are concentrations. Shares of blocks are drawn given the counts before. Blocks
are lanes of vectors, the tokens of a block follow each other. A word that has a large part of the tokens of a lane is a
block by itself, where the quotient is 1 and its tokens may be in any lanes.

Between sweeps the origin of every token is kept, in a byte. Shares of documents are drawn again a few times in a sweep:
given them, documents forget slowly which topics they have.
"""

from functools import partial
from math import ceil, log2, sqrt
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from bayeslab.distributions.processor import on_accelerator
from bayeslab.distributions.threefry import uniforms
from bayeslab.mixed_membership.counts import Counts
from bayeslab.mixed_membership.dirichlet import draw_dirichlet
from bayeslab.mixed_membership.tokens.topic_counts import (
    INDEX_MODE,
    MAX_TOPICS_UNROLLED,
    TokenShape,
    append_row_of_ones,
    draw_by_cumulative_sums,
    restore_table,
    store_table,
    stored_index,
)

MIN_TOKENS_FOR_BLOCKS = 2**16
"""Number of tokens from which on origins are drawn in blocks."""
NUM_STEPS_UNROLLED = 4
"""Steps of all lanes that one iteration of a loop takes."""
MIN_LANES, MAX_LANES = 16, 128
"""Smallest and largest number of lanes."""
LANE_PARTS_PER_LONE_WORD = 8
"""A word with more than one in so many tokens of a lane is alone in its block, if it is one of the most frequent."""
MAX_LONE_WORDS_PER_LANE = 4
"""Most words that are alone in their block, for every lane."""
PARTS_PER_SWEEP = 4
"""Parts of a sweep, before each of which shares of documents are drawn."""


class WordBlocks(NamedTuple):
    """Tokens in lanes: rows of words, one a lane, the tokens of each under each other.

    documents: of tokens (step, lane), the index behind the last where there is no token.
    first: number of the first chunk of every row, (row + 1,).
    words: (row, lane), the index behind the last where there is none; the first rows are of words that are alone in
    their block.
    alone: these words, then the index behind the last. piece: of the first rows, the index in `alone` of every word.
    """

    documents: Array
    first: Array
    words: Array
    alone: Array
    piece: Array


class TokenOrigins(NamedTuple):
    """Origins of tokens. each: of every token (step, lane). counts: those of all tokens together."""

    each: Array
    counts: Counts


class SweepConstants(NamedTuple):
    """What stays the same in a sweep.

    masses: shares that topics have of blocks, (row, topic, lane). concentration: of words, (row, topic, lane).
    alone: number of rows of words that are alone. blocks: where tokens are.
    """

    masses: Array
    concentration: Array
    alone: int
    blocks: WordBlocks


class SweepState(NamedTuple):
    """What changes in a sweep.

    shares: of documents, for the next words. each: see `TokenOrigins`. document_counts: counts in documents, a flat
    stored table.
    word_counts: counts with words (row, topic, lane). number: counts in blocks, with concentrations, (topic, lane).
    """

    shares: Array
    each: Array
    document_counts: Array
    word_counts: Array
    number: Array


class BlockSizes(NamedTuple):
    """Sizes of the arrays of blocks.

    longest: most tokens in a lane of a word that is alone. alone: most words that are alone.
    rows: of words that are alone, and of all words.
    """

    lanes: int
    longest: int
    alone: int
    rows: tuple[int, int]
    steps: int


def blocks_are_worthwhile(shape: TokenShape) -> bool:
    """Whether blocks are worth their time, since sweeps are slower and mix better: with many tokens and few topics, on
    a CPU, where tokens follow each other."""
    on_one_processor = shape.devices.number == 1 and not on_accelerator()
    return on_one_processor and shape.tokens >= MIN_TOKENS_FOR_BLOCKS and shape.populations <= MAX_TOPICS_UNROLLED


def block_sizes(shape: TokenShape) -> BlockSizes:
    """Sizes that have room for any tokens of this shape."""
    lanes = int(np.clip(2 ** round(log2(sqrt(shape.tokens))), MIN_LANES, MAX_LANES))
    longest = max(NUM_STEPS_UNROLLED, ceil(shape.tokens / lanes / LANE_PARTS_PER_LONE_WORD))
    alone = MAX_LONE_WORDS_PER_LANE * lanes
    rows = ceil((alone + shape.tokens // longest) / lanes), ceil(shape.alleles / lanes)
    steps = ceil(shape.tokens / lanes) + longest + max(longest, shape.tokens // alone) + NUM_STEPS_UNROLLED * sum(rows)
    return BlockSizes(lanes, longest, alone, rows, ceil(steps / NUM_STEPS_UNROLLED) * NUM_STEPS_UNROLLED)


def lay_out_blocks(word: Array, present: Array | None, document: Array, shape: TokenShape) -> WordBlocks:
    """Tokens laid out in lanes, with words in the order of their frequency."""
    lanes, longest, room, (lone_rows, all_rows), steps = block_sizes(shape)
    word = word if present is None else jnp.where(present, word, shape.alleles)
    number = jnp.zeros(shape.alleles + 1, jnp.int32).at[word].add(1)[:-1]
    by_rank = jnp.argsort(-number)
    rank = jnp.argsort(by_rank).astype(jnp.int32)
    alone = (number > longest) & (rank < room)
    num_alone = alone.sum()

    # words that are alone in pieces, the longest first
    pieces = jnp.where(alone, -(-number // longest), 0)
    first_piece = (jnp.cumsum(pieces[by_rank]) - pieces[by_rank])[rank]
    length = jnp.where(jnp.arange(lone_rows * lanes) < pieces.sum(), longest, 0)
    last = jnp.where(alone, first_piece + pieces - 1, lone_rows * lanes)
    length = length.at[last].set(number - longest * (pieces - 1), mode="drop")
    piece_rank = jnp.argsort(jnp.argsort(-length))

    order = jnp.argsort(word)
    word, document = word[order], document[order]
    real_word = jnp.minimum(word, shape.alleles - 1)
    before = jnp.arange(len(word)) - (jnp.cumsum(number) - number)[real_word]
    piece, inside = jnp.divmod(before, longest)
    slot = jnp.where(
        alone[real_word], piece_rank[first_piece[real_word] + piece], lone_rows * lanes + rank[real_word] - num_alone
    )
    row, lane = jnp.divmod(slot, lanes)
    shared_ranks = num_alone + jnp.arange(all_rows * lanes)  # ranks of words that are not alone
    longest_shared = number[by_rank].at[shared_ranks[::lanes]].get(mode="fill", fill_value=0)
    longest_in_row = jnp.concatenate([-jnp.sort(-length)[::lanes], longest_shared])
    first = jnp.concatenate(
        [jnp.zeros(1, jnp.int32), jnp.cumsum(-(-longest_in_row // NUM_STEPS_UNROLLED), dtype=jnp.int32)]
    )
    step = first[row] * NUM_STEPS_UNROLLED + jnp.where(alone[real_word], inside, before)
    row, step = (jnp.where(word < shape.alleles, index, sum((lone_rows, all_rows, steps))) for index in (row, step))
    blank = jnp.full((steps, lanes), shape.individuals, jnp.int32)
    piece_words = jnp.full((lone_rows, lanes), shape.alleles).at[row, lane].set(word, mode="drop")
    shared_words = by_rank.at[shared_ranks].get(mode="fill", fill_value=shape.alleles).reshape(all_rows, lanes)
    return WordBlocks(
        blank.at[step, lane].set(document.astype(jnp.int32), mode="drop"),
        first,
        jnp.concatenate([piece_words, shared_words]).astype(jnp.int32),
        jnp.where(jnp.arange(room) < num_alone, jnp.pad(by_rank, (0, room))[:room], shape.alleles),
        jnp.append(rank, 0)[piece_words],
    )


def initial_origins(key: Array, shares: Array, topics: Array, blocks: WordBlocks, shape: TokenShape) -> TokenOrigins:
    """Origins drawn from their full conditional. shares: (document, topic). topics: (topic, 1, word)."""
    rows, lanes = blocks.words.shape
    masses = _columns_of_words(topics[:, 0], blocks.words, 1.0)
    nothing = jnp.zeros((shape.populations, lanes), jnp.float32)
    each = jnp.zeros(blocks.documents.shape, jnp.int8)
    none = jnp.zeros((shape.individuals + 1) * shape.populations, jnp.int32)
    document_counts = _add_to_counts(none, each, 1, blocks.documents, shape.populations)
    begin = SweepState(shares, each, document_counts, jnp.zeros((rows, *nothing.shape), jnp.float32), nothing)
    constants = SweepConstants(masses, masses, rows, blocks)
    return _collect_origins(_sweep_rows(key, (0, rows), begin, constants, shape), blocks, shape)


def sweep_blocks(
    key: Array,
    shares: Array,
    priors: tuple[Array, Array],
    blocks: WordBlocks,
    origins: TokenOrigins,
    shape: TokenShape,
) -> TokenOrigins:
    """Origins after a collapsed sweep: each is drawn given all others, the probabilities of words integrated out.

    key: (2,). shares: (document, topic). priors: concentrations of shares, and those of topics, (topic, 1, word).
    """
    of_shares, concentration = priors
    lone_rows = len(blocks.piece)
    mass_key, share_key, origin_key = jax.random.split(key, 3)
    tables = concentration[:, 0], origins.counts.alleles[:, 0]
    row_concentration, number = (_columns_of_words(table, blocks.words, 0.0) for table in tables)
    lone_tables = tuple(_columns_of_words(table, blocks.alone[None], 0.0)[0] for table in tables)
    of_lanes = row_concentration[lone_rows:].sum(0) + number[lone_rows:].sum(0)
    total = jnp.concatenate([lone_tables[0] + lone_tables[1], of_lanes], 1)
    masses = draw_dirichlet(mass_key, total, total > 0)
    of_alone = masses[:, blocks.piece].swapaxes(0, 1)
    of_shared = jnp.broadcast_to(masses[:, blocks.alone.size :], row_concentration[lone_rows:].shape)
    counted = number.at[:lone_rows].set(0.0)  # pieces of a word are counted anew
    constants = SweepConstants(jnp.concatenate([of_alone, of_shared]), row_concentration, lone_rows, blocks)
    steps = blocks.first[-1] * jnp.arange(PARTS_PER_SWEEP + 1) // PARTS_PER_SWEEP
    ends = jnp.searchsorted(blocks.first, steps).astype(jnp.int32)

    def sweep_part(at: Array, state: SweepState) -> SweepState:
        document_counts = restore_table(state.document_counts, shape.populations)[:-1]
        draw_shares = partial(
            draw_dirichlet, jax.random.fold_in(share_key, at), of_shares + document_counts, jnp.array(True)
        )
        state = state._replace(shares=lax.cond(at > 0, draw_shares, lambda: state.shares))
        return _sweep_rows(origin_key, (ends[at], ends[at + 1]), state, constants, shape)

    document_counts = store_table(jnp.pad(origins.counts.individuals, ((0, 1), (0, 0)))).ravel()
    begin = SweepState(shares, origins.each, document_counts, counted, of_lanes)
    return _collect_origins(lax.fori_loop(0, PARTS_PER_SWEEP, sweep_part, begin), blocks, shape)


def _columns_of_words(table: Array, words: Array, elsewhere: float) -> Array:
    """Columns (row, topic, lane) of a table (topic, word) for words (row, lane)."""
    padded = jnp.pad(table.astype(jnp.float32), ((0, 0), (0, 1)), constant_values=elsewhere)
    return padded[:, words].swapaxes(0, 1)


def _sweep_rows(
    key: Array, rows: tuple[Array | int, Array | int], state: SweepState, constants: SweepConstants, shape: TokenShape
) -> SweepState:
    """The state after the origins of the words of some rows were drawn. rows: the first, and the first after them."""
    (begin, end), topics, blocks = rows, shape.populations, constants.blocks
    table = lax.optimization_barrier(store_table(append_row_of_ones(state.shares)))
    lane, topic = jnp.arange(blocks.words.shape[1], dtype=jnp.uint32), jnp.arange(topics)[:, None]

    def row(at: Array, carry: tuple[Array, ...]) -> tuple[Array, ...]:
        each, counted, number = carry
        mass, concentration, single = constants.masses[at], constants.concentration[at], at < constants.alone

        def chunk(step: Array, carry: tuple[Array, ...]) -> tuple[Array, ...]:
            each, number, counts = carry
            first = step * NUM_STEPS_UNROLLED
            documents = lax.dynamic_slice_in_dim(blocks.documents, first, NUM_STEPS_UNROLLED)
            old, new = lax.dynamic_slice_in_dim(each, first, NUM_STEPS_UNROLLED).astype(jnp.int32), []
            for u in range(NUM_STEPS_UNROLLED):
                real = documents[u] < shape.individuals
                removed = ((old[u] == topic) & real & ~single).astype(jnp.float32)
                counts, number = (lax.optimization_barrier(table - removed) for table in (counts, number))
                factor = mass * jnp.where(single, 1.0, counts / number)
                uniform, _ = uniforms(key, jnp.broadcast_to((first + u).astype(jnp.uint32), lane.shape), lane)
                share = (column.at[documents[u]].get(mode=INDEX_MODE) for column in table)
                origin = draw_by_cumulative_sums(
                    uniform, [table * topic_factor for table, topic_factor in zip(share, factor, strict=True)]
                )
                added = ((origin == topic) & real).astype(jnp.float32)
                counts, number = counts + added, number + jnp.where(single, 0.0, added)
                new.append(origin)
            new_ = lax.optimization_barrier(jnp.stack(new)).astype(each.dtype)
            return lax.dynamic_update_slice_in_dim(each, new_, first, 0), number, counts

        initial = each, number, counted[at] + concentration
        each, number, counts = lax.fori_loop(blocks.first[at], blocks.first[at + 1], chunk, initial)
        return each, counted.at[at].set(jnp.round(counts - concentration)), number

    def recount(step: Array, mine: Array) -> Array:
        documents, old, new = (
            lax.dynamic_slice_in_dim(table, step * NUM_STEPS_UNROLLED, NUM_STEPS_UNROLLED)
            for table in (blocks.documents, state.each, each)
        )
        return _add_to_counts(_add_to_counts(mine, old, -1, documents, topics), new, 1, documents, topics)

    each, counted, number = lax.fori_loop(begin, end, row, (state.each, state.word_counts, state.number))
    each = lax.optimization_barrier(each)
    document_counts = lax.fori_loop(blocks.first[begin], blocks.first[end], recount, state.document_counts)
    return SweepState(state.shares, each, document_counts, counted, number)


def _add_to_counts(document_counts: Array, origins: Array, number: int, documents: Array, topics: int) -> Array:
    """Counts of documents, see `SweepState`, with a number added for every origin."""
    places = stored_index(origins.astype(jnp.int32), documents, document_counts.size, topics)
    return document_counts.at[places.ravel()].add(number, mode=INDEX_MODE)


def _collect_origins(state: SweepState, blocks: WordBlocks, shape: TokenShape) -> TokenOrigins:
    """Origins, and their counts, of a state."""
    topics = shape.populations
    word_counts = jnp.zeros((shape.alleles + 1, topics), jnp.float32)
    word_counts = word_counts.at[blocks.words.ravel()].add(state.word_counts.swapaxes(1, 2).reshape(-1, topics))[:-1]
    counts = Counts(restore_table(state.document_counts, topics)[:-1], word_counts.T[:, None].astype(jnp.int32))
    return TokenOrigins(state.each, counts)
