"""A start for the shares and topics of documents, where a sampler with both integrated out has come to.

An origin is drawn given all others with probability proportional to (n_dk + a) (n_kw + b) / (n_k + V b). That chain
finds good topics soon (T. Griffiths and M. Steyvers 2004, doi:10.1073/pnas.0307752101), but often has one for two
subjects and two for another. Here it begins with more topics than are wanted, and those are joined whose union costs
the joint density least. All tokens of a chunk are drawn at once from the counts before: that is no exact sampler, and
needs to be none, since exact ones start from it.
"""

from functools import partial
from math import ceil
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.scipy.special import gammaln

from bayeslab.distributions.random_bits import uniforms
from bayeslab.membership.devices import Here
from bayeslab.membership.tokens import INSIDE, Others, Tokens, drawn_origins, place, stored, table_of

MORE = 1.25
"""Topics to begin with, for one."""
SWEEPS = 30, 20
"""With those, and after some were joined."""
BEFORE_BLOCKS = SWEEPS[0], 5
"""Where a sampler goes on that moves as far in a sweep."""
SHARE, TOPIC = 0.1, 0.1
"""Concentrations of shares and topics: of a start, whatever the prior is."""

Counts = tuple[Array, Array, Array]
"""Of origins: by document and by word, stored tables with a row more for what pads, and of all words, (topic,)."""


def collapsed_start(
    key: Array, tokens: Array, shape: Tokens, real: Array | None = None, sweeps: tuple[int, int] = SWEEPS
) -> tuple[Array, Array]:
    """Shares (document, topic) and topics (topic, 1, word). real: as for genotypes; all words are."""
    del real
    run = partial(_run, shape=shape.part, sweeps=sweeps)
    share, shown = shape.devices.run(run, jnp.zeros(shape.individuals), tokens, key)
    return share, shown[:, None]


def _run(here: Here, _: Any, tokens: Array, key: Array, shape: Tokens, sweeps: tuple[int, int]) -> tuple[Array, Array]:
    many = min(ceil(MORE * shape.populations) + 1, 2 * shape.populations) if shape.populations > 1 else 1
    document, word, number = (tokens[:, row] for row in range(3))
    keys = jax.random.bits(key, (sum(sweeps) + 1, 2), jnp.uint32)
    random, _ = uniforms(keys[-1], number.astype(jnp.uint32), jnp.zeros(number.shape, jnp.uint32))
    origins = jnp.floor(random * many).astype(jnp.int32)

    def counted(origins: Array, topics: int) -> Counts:
        sizes = (shape.individuals, document), (shape.alleles, word)
        mine, shown = (
            jnp.zeros((size + 1, topics), jnp.int32).at[of, origins].add(1).astype(jnp.float32) for size, of in sizes
        )
        shown = here.total(shown)
        return stored(mine), stored(shown), shown[:-1].sum(0)

    def swept(origins: Array, topics: int, keys: Array) -> tuple[Array, Array, Array]:
        """Origins, and their counts (document, topic) and (word, topic)."""

        def sweep(state: tuple[Array, Counts], key: Array) -> tuple[tuple[Array, Counts], None]:
            origins, (mine, *before) = state
            step = partial(_chunk, key, words=shape.alleles)
            (mine, *after), origins = lax.scan(step, (mine, *before), (document, word, number, origins))
            shown, of_all = (old + here.total(new - old) for old, new in zip(before, after, strict=True))
            return (origins, (mine, shown, of_all)), None

        origins, (mine, shown, _) = lax.scan(sweep, (origins, counted(origins, topics)), keys)[0]
        mine, shown = (table_of(table.ravel(), topics)[:-1] for table in (mine, shown))
        return origins, mine, shown

    origins, mine, shown = swept(origins, many, keys[: sweeps[0]])
    becomes = _joined(here, mine.T, shown.T, many - shape.populations)
    _, mine, shown = swept(becomes[origins], shape.populations, keys[sweeps[0] : -1])
    shares, topics = mine + SHARE, shown.T + TOPIC
    return shares / shares.sum(1, keepdims=True), topics / topics.sum(1, keepdims=True)


def _chunk(key: Array, counts: Counts, given: tuple[Array, ...], words: int) -> tuple[Counts, Array]:
    """Origins of a chunk anew, each given those of all others before."""
    (mine, shown, of_all), (document, word, number, old) = counts, given
    uniform, _ = uniforms(key, number.astype(jnp.uint32), jnp.zeros(number.shape, jnp.uint32))
    topics, others = len(of_all), Others(old, SHARE, TOPIC, 1 / (of_all + TOPIC * words))
    new = drawn_origins(uniform, mine, shown, document, word, topics, others)
    here = (word < words).astype(jnp.float32)
    of_all = of_all.at[new].add(here, mode=INSIDE).at[old].add(-here, mode=INSIDE)
    mine, shown = (_moved(table, of, old, new, topics) for table, of in ((mine, document), (shown, word)))
    return (mine, shown, of_all), new


def _moved(table: Array, of: Array, old: Array, new: Array, topics: int) -> Array:
    """Counts after tokens went from old topics to new ones. One update of flat memory makes no copy."""
    ones = jnp.ones(len(of), table.dtype)
    places = jnp.concatenate([place(topic, of, table.size, topics) for topic in (old, new)])
    return table.ravel().at[places].add(jnp.concatenate([-ones, ones]), mode=INSIDE).reshape(table.shape)


def _joined(here: Here, mine: Array, shown: Array, times: int) -> Array:
    """The topic, numbered from 0, that each becomes when so often the two are joined whose union costs least."""

    def density(mine: Array, shown: Array) -> Array:
        """Its log, up to what is the same for every number of topics."""
        of_words = gammaln(shown + TOPIC).sum(-1) - gammaln(shown.sum(-1) + TOPIC * shown.shape[-1])
        return here.total(gammaln(mine + SHARE).sum(-1)) + of_words

    def gains(topic: Array, mine: Array, shown: Array, single: Array) -> Array:
        """Of its union with every other topic."""
        return density(mine + mine[topic], shown + shown[topic]) - single - single[topic]

    def join(_: int, state: tuple[Array, ...]) -> tuple[Array, ...]:
        place, there, mine, shown, single, gain = state
        pairs = there[:, None] & there & ~jnp.eye(len(there), dtype=bool)
        best = jnp.argmax(jnp.where(pairs, gain, -jnp.inf)).astype(jnp.int32)
        kept, gone = best // len(there), best % len(there)
        mine, shown = (one.at[kept].add(one[gone]) for one in (mine, shown))
        single = single.at[kept].set(density(mine[kept], shown[kept]))
        new = gains(kept, mine, shown, single)
        gain = gain.at[kept].set(new).at[:, kept].set(new)
        return jnp.where(place == gone, kept, place), there.at[gone].set(False), mine, shown, single, gain

    single, topics = density(mine, shown), jnp.arange(len(mine), dtype=jnp.int32)
    gain = lax.map(lambda topic: gains(topic, mine, shown, single), topics)
    state = topics, jnp.ones(len(mine), bool), mine, shown, single, gain
    place, there, *_ = lax.fori_loop(0, times, join, state)
    return (jnp.cumsum(there, dtype=jnp.int32) - 1)[place]
