"""Rows of numbers, one a step, as lanes: blocks of time beside each other, so that vector units read them in order.

Log likelihoods of the states of a chain are often products of such rows and a few numbers of every state, as log
densities of an exponential family are: of statistics of the data, and of natural parameters. Rows then are laid out
once, and no array of log likelihoods is ever written.
"""

from dataclasses import dataclass, replace
from functools import partial
from math import log2, prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

STEPS_PER_CHUNK = 4
"""Number of steps in a chunk: the range of numbers is looked at once a chunk."""
MAX_LANES_PER_TILE = 64
"""The largest number of lanes that advance together: what they need stays in the nearest cache."""
LANES_PER_VECTOR = 8
"""Number of lanes in a vector: a tile has a multiple of it."""
MIN_SEQUENCES_UNCUT = 16
"""Number of sequences from which on these are enough lanes, so that to cut them into blocks would only add work."""
CHUNKS_PER_CACHE_CONFLICT = 8
"""The chunks of a lane are no multiple of this number: lanes a power of two apart share a few lines of the cache."""
MAX_FACTORED_COLUMNS = 12
"""The largest number of columns with which log likelihoods are sooner multiplied at every step than written out."""


@partial(jax.tree_util.register_dataclass, data_fields=["laid"], meta_fields=["shape", "blocks"])
@dataclass(frozen=True)
class Rows:
    """A batch of sequences as lanes, sequence by sequence and block by block, padded with zeros.

    laid: the numbers, (*mapped, tile, chunk, step, column, lane).
    shape: (*batch, T). blocks: their number in a sequence.
    """

    laid: Array
    shape: tuple[int, ...]
    blocks: int

    @property
    def columns(self) -> int:
        """The number of columns."""
        return self.laid.shape[-2]

    @property
    def size(self) -> int:
        """The number of steps of a lane, with padding."""
        return self.laid.shape[-4] * STEPS_PER_CHUNK

    @property
    def batch(self) -> tuple[int, ...]:
        """The shape of the batch, with axes that were mapped before the others."""
        return (*self.laid.shape[:-5], *self.shape[:-1])

    def array(self) -> Array:
        """The rows as an array, (*batch, T, column)."""
        lanes = jnp.moveaxis(self.laid, -1, -4)
        return unpad(lanes.reshape(-1, lanes.shape[-3] * STEPS_PER_CHUNK, self.columns), (*self.batch, self.shape[-1]))

    def broadcast_to(self, batch: tuple[int, ...]) -> "Rows":
        """The rows for a batch with other axes; leading axes along which they are the same are not written out."""
        own_batch = self.batch
        while own_batch and own_batch[0] == 1:
            own_batch = own_batch[1:]
        if own_batch == batch[len(batch) - len(own_batch) :]:
            return self
        return lay_out(jnp.broadcast_to(self.array(), (*batch, self.shape[-1], self.columns)))


def unpad(values: Array, shape: tuple[int, ...]) -> Array:
    """Values (lane, step, ...) without padding, as (*batch, T, ...). shape: (*batch, T)."""
    inner = values.shape[2:]
    return values.reshape(prod(shape[:-1]), -1, *inner)[:, : shape[-1]].reshape(*shape, *inner)


def block_layout(number: int, steps: int) -> tuple[int, int]:
    """The number of blocks that each of `number` sequences is cut into, and the number of steps of a block."""
    blocks = 1 if number >= MIN_SEQUENCES_UNCUT else 1 << round(log2(steps) / 2)
    chunks = -(-steps // (blocks * STEPS_PER_CHUNK))
    chunks += chunks % CHUNKS_PER_CACHE_CONFLICT == 0
    return blocks, chunks * STEPS_PER_CHUNK


def pad_to_blocks(rows: Array, blocks: int, size: int) -> Array:
    """Rows (*batch, T, column) padded with zeros to full blocks, (lane, step, column)."""
    steps, columns = rows.shape[-2:]
    rows = jnp.pad(rows.reshape(-1, steps, columns), ((0, 0), (0, blocks * size - steps), (0, 0)))
    return rows.reshape(-1, size, columns)


def lanes_per_tile(lanes: int) -> int:
    """The number of lanes that advance together, of so many lanes."""
    return max(
        (width for width in range(LANES_PER_VECTOR, MAX_LANES_PER_TILE + 1, LANES_PER_VECTOR) if lanes % width == 0),
        default=lanes,
    )


def lay_out(rows: Array) -> Rows:
    """Rows (*batch, T, column) laid out as lanes, in tiles."""
    *batch, steps, columns = rows.shape
    blocks, size = block_layout(prod(batch), steps)
    lanes = pad_to_blocks(rows, blocks, size)
    width = lanes_per_tile(len(lanes))
    laid = lanes.reshape(-1, width, size // STEPS_PER_CHUNK, STEPS_PER_CHUNK, columns).transpose(0, 2, 3, 4, 1)
    return Rows(laid, (*batch, steps), blocks)


@partial(jax.tree_util.register_dataclass, data_fields=["rows", "parameters"], meta_fields=[])
@dataclass(frozen=True)
class FactoredLogLikelihood:
    """Log likelihoods rows[t] . parameters[k] of state k at step t, in less time and memory than an array of them.

    rows: (*batch, T, column), laid out by `of`. parameters: (*batch, K, column), finite.
    The derivatives of the log evidence with respect to parameters are expected statistics, the sums over steps of
    p(z_t = k | all observations) rows[t].
    """

    rows: Rows
    parameters: Array

    @classmethod
    def of(cls, rows: ArrayLike, parameters: ArrayLike) -> "FactoredLogLikelihood":
        """The log likelihoods rows[t] . parameters[k], with rows laid out.

        rows: (*batch, T, column), few columns. To lay them out takes as long as the recursion: do it once, and give the
            result other parameters by `with_parameters`.
        parameters: (*batch, K, column).
        """
        return cls(lay_out(jnp.asarray(rows)), jnp.asarray(parameters))

    def with_parameters(self, parameters: ArrayLike) -> "FactoredLogLikelihood":
        """The log likelihoods with the same rows and other parameters (*batch, K, column)."""
        return replace(self, parameters=jnp.asarray(parameters))

    @property
    def batch(self) -> tuple[int, ...]:
        """The shape of the batch, which rows and parameters broadcast to."""
        return np.broadcast_shapes(self.rows.batch, self.parameters.shape[:-2])

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape (*batch, T, K) of the log likelihoods."""
        return (*self.batch, self.rows.shape[-1], self.parameters.shape[-2])

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def dtype(self) -> Any:
        return jnp.result_type(self.rows.laid, self.parameters)

    def spread(self, batch: tuple[int, ...], dtype: Any) -> "FactoredLogLikelihood":
        """Log likelihoods for a batch that these broadcast to: as many axes, of 1 where rows alone have the size."""
        lead = (1,) * (len(batch) + 2 - self.parameters.ndim) + self.parameters.shape[:-2]
        if np.broadcast_shapes(lead, self.rows.batch) != batch:
            lead = batch
        parameters = jnp.broadcast_to(self.parameters, (*lead, *self.parameters.shape[-2:]))
        return FactoredLogLikelihood(replace(self.rows, laid=self.rows.laid.astype(dtype)), parameters.astype(dtype))

    def array(self) -> Array:
        """The log likelihoods written out, (*batch, T, K)."""
        return jnp.einsum("...tc,...kc->...tk", self.rows.array(), self.parameters, precision="highest")


LogLikelihood = Array | FactoredLogLikelihood
"""Log likelihoods of the states at every step, (*batch, T, K), written out or factored."""


def dense(log_likelihood: LogLikelihood) -> Array:
    """The log likelihoods as an array, (*batch, T, K)."""
    return log_likelihood.array() if isinstance(log_likelihood, FactoredLogLikelihood) else log_likelihood
