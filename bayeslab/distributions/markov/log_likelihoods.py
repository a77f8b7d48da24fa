"""Rows of numbers, one a step, as lanes: blocks of time beside each other, so that vector units read them in order.

Evidence about the states of a chain is often a product of such rows and a few numbers of every state, as log densities
of an exponential family are: of statistics of the data, and of natural parameters. Rows then are laid out once, and no
array of evidence is ever written.
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

UNROLLED = 4
"""Steps between two looks at the range."""
TILE = 64
"""Lanes that advance together, at most: what they need stays in the nearest cache."""
VECTOR = 8  # of which their number is a multiple
ENOUGH = 16
"""Sequences that are enough lanes, so that blocks would only add work."""
ALIKE = 8
"""Of which the chunks of a lane are no multiple: lanes that are a power of two apart share a few lines of the cache."""
COLUMNS = 12
"""The most columns for which evidence is sooner multiplied at every step than written out."""


@partial(jax.tree_util.register_dataclass, data_fields=["laid"], meta_fields=["shape", "blocks"])
@dataclass(frozen=True)
class Rows:
    """A batch of sequences as lanes, sequence by sequence and block by block, padded with zeros.

    laid: (*mapped, tile, chunk, step, column, lane). shape: (*batch, T). blocks: of a sequence.
    """

    laid: Array
    shape: tuple[int, ...]
    blocks: int

    @property
    def columns(self) -> int:
        return self.laid.shape[-2]

    @property
    def size(self) -> int:
        """Steps of a lane."""
        return self.laid.shape[-4] * UNROLLED

    @property
    def batch(self) -> tuple[int, ...]:
        """With axes that were mapped, which are the first."""
        return (*self.laid.shape[:-5], *self.shape[:-1])

    def array(self) -> Array:
        """The rows again, (*batch, T, column)."""
        lanes = jnp.moveaxis(self.laid, -1, -4)
        return unpadded(lanes.reshape(-1, lanes.shape[-3] * UNROLLED, self.columns), (*self.batch, self.shape[-1]))

    def repeated(self, batch: tuple[int, ...]) -> "Rows":
        """The same for a batch with other axes; first ones along which rows are the same stay out of memory."""
        alone = self.batch
        while alone and alone[0] == 1:
            alone = alone[1:]
        if alone == batch[len(batch) - len(alone) :]:
            return self
        return lay_out(jnp.broadcast_to(self.array(), (*batch, self.shape[-1], self.columns)))


def unpadded(values: Array, shape: tuple[int, ...]) -> Array:
    """(*batch, T, ...) of values (lane, step, ...). shape: (*batch, T)."""
    inner = values.shape[2:]
    return values.reshape(prod(shape[:-1]), -1, *inner)[:, : shape[-1]].reshape(*shape, *inner)


def cut(number: int, steps: int) -> tuple[int, int]:
    """Into how many blocks a sequence is cut, one of so many, and the steps of each."""
    blocks = 1 if number >= ENOUGH else 1 << round(log2(steps) / 2)
    chunks = -(-steps // (blocks * UNROLLED))
    chunks += chunks % ALIKE == 0
    return blocks, chunks * UNROLLED


def in_blocks(rows: Array, blocks: int, size: int) -> Array:
    """rows (*batch, T, column) padded with zeros to full blocks, (lane, step, column)."""
    steps, columns = rows.shape[-2:]
    rows = jnp.pad(rows.reshape(-1, steps, columns), ((0, 0), (0, blocks * size - steps), (0, 0)))
    return rows.reshape(-1, size, columns)


def width_of(lanes: int) -> int:
    """How many lanes advance together."""
    return max((some for some in range(VECTOR, TILE + 1, VECTOR) if lanes % some == 0), default=lanes)


def lay_out(rows: Array) -> Rows:
    """rows: (*batch, T, column)."""
    *batch, steps, columns = rows.shape
    blocks, size = cut(prod(batch), steps)
    lanes = in_blocks(rows, blocks, size)
    width = width_of(len(lanes))
    laid = lanes.reshape(-1, width, size // UNROLLED, UNROLLED, columns).transpose(0, 2, 3, 4, 1)
    return Rows(laid, (*batch, steps), blocks)


@partial(jax.tree_util.register_dataclass, data_fields=["rows", "parameters"], meta_fields=[])
@dataclass(frozen=True)
class ProductEvidence:
    """Evidence rows[t] . parameters[k] for state k at step t, in less time and memory than an array of it.

    rows: (*batch, T, column), laid out by `of`. parameters: (*batch, K, column), finite.
    The derivatives of the log of the evidence with respect to parameters are expected statistics, the sums over steps
    of p(z_t = k | all evidence) rows[t].
    """

    rows: Rows
    parameters: Array

    @classmethod
    def of(cls, rows: ArrayLike, parameters: ArrayLike) -> "ProductEvidence":
        """rows: (*batch, T, column), few columns. To lay them out takes as long as the recursion: do it once, and give
        what is found other parameters by `with_parameters`."""
        return cls(lay_out(jnp.asarray(rows)), jnp.asarray(parameters))

    def with_parameters(self, parameters: ArrayLike) -> "ProductEvidence":
        return replace(self, parameters=jnp.asarray(parameters))

    @property
    def batch(self) -> tuple[int, ...]:
        return np.broadcast_shapes(self.rows.batch, self.parameters.shape[:-2])

    @property
    def shape(self) -> tuple[int, ...]:
        """(*batch, T, K), as an array of it has."""
        return (*self.batch, self.rows.shape[-1], self.parameters.shape[-2])

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def dtype(self) -> Any:
        return jnp.result_type(self.rows.laid, self.parameters)

    def spread(self, batch: tuple[int, ...], dtype: Any) -> "ProductEvidence":
        """The same for a batch that it broadcasts to: as many axes, and of 1 where rows alone have the size."""
        lead = (1,) * (len(batch) + 2 - self.parameters.ndim) + self.parameters.shape[:-2]
        if np.broadcast_shapes(lead, self.rows.batch) != batch:
            lead = batch
        parameters = jnp.broadcast_to(self.parameters, (*lead, *self.parameters.shape[-2:]))
        return ProductEvidence(replace(self.rows, laid=self.rows.laid.astype(dtype)), parameters.astype(dtype))

    def array(self) -> Array:
        """(*batch, T, K)."""
        return jnp.einsum("...tc,...kc->...tk", self.rows.array(), self.parameters, precision="highest")


Evidence = Array | ProductEvidence
"""About the state at every step, (*batch, T, K)."""


def array_of(evidence: Evidence) -> Array:
    return evidence.array() if isinstance(evidence, ProductEvidence) else evidence
