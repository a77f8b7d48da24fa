"""Origins of tokens drawn with the probabilities of words integrated out, block after block of words.

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

from bayeslab.distributions.threefry import uniforms
from bayeslab.mixed_membership.counts import Counts
from bayeslab.mixed_membership.dirichlet import dirichlet
from bayeslab.mixed_membership.tokens.topic_counts import (
    FEW,
    INSIDE,
    Tokens,
    chosen,
    place,
    stored,
    table_of,
    with_one_more,
)

ENOUGH = 2**16
"""Tokens."""
UNROLLED = 4
"""Steps that are taken together."""
FEWEST, MOST = 16, 128
"""Lanes."""
LARGE = 8
"""A word with more than this part of the tokens of a lane is alone in its block, if it is one of the most frequent."""
ALONE = 4
"""For one lane, how many are so at most."""
PARTS = 4
"""Of a sweep, before each of which shares of documents are drawn."""


class Blocks(NamedTuple):
    """Tokens in lanes: rows of words, one a lane, the tokens of each under each other.

    documents: (step, lane), where there is no token one behind the last. first: of the chunks of a row, (row + 1,).
    words: (row, lane), one behind the last where there is none; first rows of those that are alone in their block.
    alone: these words, then one behind the last. piece: of the first rows, the place in `alone` of every word.
    """

    documents: Array
    first: Array
    words: Array
    alone: Array
    piece: Array


class Origins(NamedTuple):
    """each: (step, lane). counts: of all."""

    each: Array
    counts: Counts


class Given(NamedTuple):
    """What stays in a sweep: shares of blocks and concentrations, (row, topic, lane), and how many rows are of words
    that are alone."""

    masses: Array
    concentration: Array
    alone: int


class Part(NamedTuple):
    """shares: of documents, for the next words. each: see `Origins`. mine: counts of documents, a stored table that is
    flat. counted: (row, topic, lane). number: in a block, with concentrations, (topic, lane)."""

    shares: Array
    each: Array
    mine: Array
    counted: Array
    number: Array


class Sizes(NamedTuple):
    """What arrays of blocks have room for. longest: tokens in a lane of a word that is alone. alone: words that may be
    so. rows: of these, and of all words."""

    lanes: int
    longest: int
    alone: int
    rows: tuple[int, int]
    steps: int


def pays(shape: Tokens) -> bool:
    """Sweeps are slower and mix better: of many tokens, few topics, on a processor where tokens follow each other."""
    here = shape.devices.number == 1 and jax.default_backend() == "cpu"
    return here and shape.tokens >= ENOUGH and shape.populations <= FEW


def sizes(shape: Tokens) -> Sizes:
    lanes = int(np.clip(2 ** round(log2(sqrt(shape.tokens))), FEWEST, MOST))
    longest = max(UNROLLED, ceil(shape.tokens / lanes / LARGE))
    alone = ALONE * lanes
    rows = ceil((alone + shape.tokens // longest) / lanes), ceil(shape.alleles / lanes)
    steps = ceil(shape.tokens / lanes) + longest + max(longest, shape.tokens // alone) + UNROLLED * sum(rows)
    return Sizes(lanes, longest, alone, rows, ceil(steps / UNROLLED) * UNROLLED)


def in_blocks(word: Array, present: Array | None, document: Array, shape: Tokens) -> Blocks:
    """Tokens laid out, words in the order of their frequency."""
    lanes, longest, room, (few, many), steps = sizes(shape)
    word = word if present is None else jnp.where(present, word, shape.alleles)
    number = jnp.zeros(shape.alleles + 1, jnp.int32).at[word].add(1)[:-1]
    by_rank = jnp.argsort(-number)
    rank = jnp.argsort(by_rank).astype(jnp.int32)
    alone = (number > longest) & (rank < room)
    apart = alone.sum()

    # words that are alone in pieces, the longest first
    pieces = jnp.where(alone, -(-number // longest), 0)
    first_piece = (jnp.cumsum(pieces[by_rank]) - pieces[by_rank])[rank]
    length = jnp.where(jnp.arange(few * lanes) < pieces.sum(), longest, 0)
    last = jnp.where(alone, first_piece + pieces - 1, few * lanes)
    length = length.at[last].set(number - longest * (pieces - 1), mode="drop")
    of_piece = jnp.argsort(jnp.argsort(-length))

    order = jnp.argsort(word)
    word, document = word[order], document[order]
    mine = jnp.minimum(word, shape.alleles - 1)
    before = jnp.arange(len(word)) - (jnp.cumsum(number) - number)[mine]
    piece, inside = jnp.divmod(before, longest)
    at = jnp.where(alone[mine], of_piece[first_piece[mine] + piece], few * lanes + rank[mine] - apart)
    row, lane = jnp.divmod(at, lanes)
    behind = apart + jnp.arange(many * lanes)  # ranks of words that are not alone
    of_rows = number[by_rank].at[behind[::lanes]].get(mode="fill", fill_value=0)
    longest_of = jnp.concatenate([-jnp.sort(-length)[::lanes], of_rows])
    first = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(-(-longest_of // UNROLLED), dtype=jnp.int32)])
    step = first[row] * UNROLLED + jnp.where(alone[mine], inside, before)
    row, step = (jnp.where(word < shape.alleles, one, sum((few, many, steps))) for one in (row, step))
    blank = jnp.full((steps, lanes), shape.individuals, jnp.int32)
    of_pieces = jnp.full((few, lanes), shape.alleles).at[row, lane].set(word, mode="drop")
    shared = by_rank.at[behind].get(mode="fill", fill_value=shape.alleles).reshape(many, lanes)
    return Blocks(
        blank.at[step, lane].set(document.astype(jnp.int32), mode="drop"),
        first,
        jnp.concatenate([of_pieces, shared]).astype(jnp.int32),
        jnp.where(jnp.arange(room) < apart, jnp.pad(by_rank, (0, room))[:room], shape.alleles),
        jnp.append(rank, 0)[of_pieces],
    )


def drawn_given(key: Array, shares: Array, topics: Array, blocks: Blocks, shape: Tokens) -> Origins:
    """Origins given everything else. shares: (document, topic). topics: (topic, 1, word)."""
    rows, lanes = blocks.words.shape
    masses = _at_words(topics[:, 0], blocks.words, 1.0)
    nothing = jnp.zeros((shape.populations, lanes), jnp.float32)
    each = jnp.zeros(blocks.documents.shape, jnp.int8)
    none = jnp.zeros((shape.individuals + 1) * shape.populations, jnp.int32)
    mine = _more(none, each, 1, blocks.documents, shape.populations)
    begin = Part(shares, each, mine, jnp.zeros((rows, *nothing.shape), jnp.float32), nothing)
    return _origins(_rows(key, 0, rows, begin, Given(masses, masses, rows), blocks, shape), blocks, shape)


def drawn_in_blocks(
    key: Array, shares: Array, prior: Array, concentration: Array, blocks: Blocks, origins: Origins, shape: Tokens
) -> Origins:
    """Origins after every one was drawn given all others, the probabilities of words integrated out.

    key: (2,). shares: (document, topic), and the concentrations of these. concentration: of topics, (topic, 1, word).
    """
    few = len(blocks.piece)
    of_masses, of_shares, of_origins = jax.random.split(key, 3)
    tables = concentration[:, 0], origins.counts.alleles[:, 0]
    more, number = (_at_words(table, blocks.words, 0.0) for table in tables)
    alone = tuple(_at_words(table, blocks.alone[None], 0.0)[0] for table in tables)
    of_lanes = more[few:].sum(0) + number[few:].sum(0)
    total = jnp.concatenate([alone[0] + alone[1], of_lanes], 1)
    masses = dirichlet(of_masses, total, total > 0)
    of_alone = masses[:, blocks.piece].swapaxes(0, 1)
    of_shared = jnp.broadcast_to(masses[:, blocks.alone.size :], more[few:].shape)
    counted = number.at[:few].set(0.0)  # pieces of a word are counted anew
    given = Given(jnp.concatenate([of_alone, of_shared]), more, few)
    steps = blocks.first[-1] * jnp.arange(PARTS + 1) // PARTS
    ends = jnp.searchsorted(blocks.first, steps).astype(jnp.int32)

    def part(at: Array, state: Part) -> Part:
        mine = table_of(state.mine, shape.populations)[:-1]
        drawn = partial(dirichlet, jax.random.fold_in(of_shares, at), prior + mine, jnp.array(True))
        state = state._replace(shares=lax.cond(at > 0, drawn, lambda: state.shares))
        return _rows(of_origins, ends[at], ends[at + 1], state, given, blocks, shape)

    mine = stored(jnp.pad(origins.counts.individuals, ((0, 1), (0, 0)))).ravel()
    begin = Part(shares, origins.each, mine, counted, of_lanes)
    return _origins(lax.fori_loop(0, PARTS, part, begin), blocks, shape)


def _at_words(table: Array, words: Array, elsewhere: float) -> Array:
    """(row, topic, lane) of a table (topic, word), for words (row, lane)."""
    padded = jnp.pad(table.astype(jnp.float32), ((0, 0), (0, 1)), constant_values=elsewhere)
    return padded[:, words].swapaxes(0, 1)


def _rows(
    key: Array, begin: Array | int, end: Array | int, state: Part, given: Given, blocks: Blocks, shape: Tokens
) -> Part:
    """Origins of the words of some rows anew."""
    topics = shape.populations
    table = lax.optimization_barrier(stored(with_one_more(state.shares)))
    lane, topic = jnp.arange(blocks.words.shape[1], dtype=jnp.uint32), jnp.arange(topics)[:, None]

    def row(at: Array, carry: tuple[Array, ...]) -> tuple[Array, ...]:
        each, counted, number = carry
        mass, more, single = given.masses[at], given.concentration[at], at < given.alone

        def chunk(step: Array, carry: tuple[Array, ...]) -> tuple[Array, ...]:
            each, number, here = carry
            first = step * UNROLLED
            documents = lax.dynamic_slice_in_dim(blocks.documents, first, UNROLLED)
            old, new = lax.dynamic_slice_in_dim(each, first, UNROLLED).astype(jnp.int32), []
            for u in range(UNROLLED):
                real = documents[u] < shape.individuals
                left = ((old[u] == topic) & real & ~single).astype(jnp.float32)
                here, number = (lax.optimization_barrier(one - left) for one in (here, number))
                factor = mass * jnp.where(single, 1.0, here / number)
                uniform, _ = uniforms(key, jnp.broadcast_to((first + u).astype(jnp.uint32), lane.shape), lane)
                share = (column.at[documents[u]].get(mode=INSIDE) for column in table)
                origin = chosen(uniform, [one * other for one, other in zip(share, factor, strict=True)])
                joined = ((origin == topic) & real).astype(jnp.float32)
                here, number = here + joined, number + jnp.where(single, 0.0, joined)
                new.append(origin)
            new_ = lax.optimization_barrier(jnp.stack(new)).astype(each.dtype)
            return lax.dynamic_update_slice_in_dim(each, new_, first, 0), number, here

        inside = each, number, counted[at] + more
        each, number, here = lax.fori_loop(blocks.first[at], blocks.first[at + 1], chunk, inside)
        return each, counted.at[at].set(jnp.round(here - more)), number

    def recount(step: Array, mine: Array) -> Array:
        documents, old, new = (
            lax.dynamic_slice_in_dim(one, step * UNROLLED, UNROLLED) for one in (blocks.documents, state.each, each)
        )
        return _more(_more(mine, old, -1, documents, topics), new, 1, documents, topics)

    each, counted, number = lax.fori_loop(begin, end, row, (state.each, state.counted, state.number))
    each = lax.optimization_barrier(each)
    mine = lax.fori_loop(blocks.first[begin], blocks.first[end], recount, state.mine)
    return Part(state.shares, each, mine, counted, number)


def _more(mine: Array, origins: Array, number: int, documents: Array, topics: int) -> Array:
    """Counts of documents, see `Part`, with so many more of every origin."""
    places = place(origins.astype(jnp.int32), documents, mine.size, topics)
    return mine.at[places.ravel()].add(number, mode=INSIDE)


def _origins(state: Part, blocks: Blocks, shape: Tokens) -> Origins:
    topics = shape.populations
    shown = jnp.zeros((shape.alleles + 1, topics), jnp.float32)
    shown = shown.at[blocks.words.ravel()].add(state.counted.swapaxes(1, 2).reshape(-1, topics))[:-1]
    counts = Counts(table_of(state.mine, topics)[:-1], shown.T[:, None].astype(jnp.int32))
    return Origins(state.each, counts)
