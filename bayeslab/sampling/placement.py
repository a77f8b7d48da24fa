"""Where the arrays of a fit lie: chains, and elements of plates, over the devices of a mesh.

Compiled code gets data whose arrays are split along axes that are as long as a plate; XLA splits the computation
accordingly (GSPMD) and adds up terms of the log joint across devices. Chains run apart from each other. Whatever else
goes in or comes out is the same on every device, so every process has all draws.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bayeslab.sampling.processes import Processes, processes_of

CHAIN_AXIS = "chain"
"""Name of the mesh axis that chains, or starts of an optimiser, are split over."""

Split = tuple[str | None, ...]
"""For every axis of an array, the axis of the mesh that it is split over."""


@dataclass(frozen=True)
class Placement:
    """Chains and elements of plates over the devices of a mesh, whose axes are of type Auto; one device without a mesh.

    plates: the axes of the mesh that are plates, with the length of each plate.
    vectorised: run all chains as one; by default on accelerators, and where chains are spread over devices.
    """

    mesh: Mesh | None = None
    plates: tuple[tuple[str, int], ...] = ()
    vectorised: bool | None = None

    @property
    def chain_devices(self) -> int:
        """The number of parts that chains, or starts, are split into."""
        return 1 if self.mesh is None else self.mesh.shape.get(CHAIN_AXIS, 1)

    @property
    def scope(self) -> AbstractContextManager:
        """The scope in which functions are traced, where axes of the mesh are known by name."""
        return nullcontext() if self.mesh is None else jax.set_mesh(self.mesh)

    @property
    def processes(self) -> Processes:
        """The processes that take part in a fit."""
        return processes_of(self.mesh)

    def layout(self, shapes: Any, partition: Any = None) -> "Layout":
        """How arrays of some shapes are split: each along its first axis that is as long as a plate.

        Such an axis may be another one of the same length, which costs time and changes no result.
        partition: a prefix of the pytree with partitions instead.
        """
        leaves = jax.tree.leaves(shapes)
        if self.mesh is None:
            return Layout(None, shapes, tuple(() for _ in leaves))
        if partition is None:
            return Layout(self.mesh, shapes, tuple(self._split(leaf.shape) for leaf in leaves))
        specs = jax.tree.leaves(jax.tree.broadcast(partition, shapes, is_leaf=_is_partition), is_leaf=_is_partition)
        return Layout(self.mesh, shapes, tuple(tuple(spec) for spec in specs))

    def lower(self, function: Callable, *arguments: Any, out_layout: "Layout | None" = None) -> Any:
        """A function traced and lowered for arguments that are shapes, those without a sharding the same on every
        device. out_layout: of what it returns, by default the same on every device."""
        if self.mesh is None:
            return jax.jit(function).lower(*arguments)
        everywhere = NamedSharding(self.mesh, PartitionSpec())

        def placed(leaf: Any) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=getattr(leaf, "sharding", None) or everywhere)

        out = everywhere if out_layout is None else jax.tree.map(lambda leaf: leaf.sharding, out_layout.stored)
        with self.scope:
            return jax.jit(function, out_shardings=out).lower(*jax.tree.map(placed, arguments))

    def over_chains(self, function: Callable, split: tuple[bool, ...], out_axes: Any) -> Callable:
        """A function that each device runs on chains of its own. split: which arguments begin with an axis of chains.
        out_axes: a prefix of what it returns, with the axes of chains there."""
        specs = tuple(PartitionSpec(CHAIN_AXIS) if is_split else PartitionSpec() for is_split in split)
        out = jax.tree.map(lambda axis: PartitionSpec(*[None] * axis, CHAIN_AXIS), out_axes)
        return jax.shard_map(
            function, mesh=self.mesh, in_specs=specs, out_specs=out, axis_names={CHAIN_AXIS}, check_vma=False
        )

    def _split(self, shape: tuple[int, ...]) -> Split:
        axes: list[str | None] = [None] * len(shape)
        for name, length in self.plates:
            free = [axis for axis, size in enumerate(shape) if size == length and axes[axis] is None]
            if free:
                axes[free[0]] = name
        return tuple(axes)


ONE_DEVICE = Placement()
"""Everything on the first device."""


@dataclass(frozen=True)
class Layout:
    """How the arrays of a pytree are split over devices. Axes that devices do not share evenly are padded where they
    are stored, and cut again in compiled code, so that padding takes part in nothing.

    shapes: of the arrays without padding.
    """

    mesh: Mesh | None
    shapes: Any
    splits: tuple[Split, ...]

    @property
    def stored(self) -> Any:
        """The padded shapes, with where they lie."""
        if self.mesh is None:
            return self.shapes
        leaves, tree = jax.tree.flatten(self.shapes)
        return jax.tree.unflatten(tree, [self._stored(*pair) for pair in zip(leaves, self.splits, strict=True)])

    def put(self, arrays: Any) -> Any:
        """Arrays on their devices. In every process they are whole, and none is copied but the part of a device."""
        if self.mesh is None:
            return arrays

        def put(leaf: np.ndarray, to: jax.ShapeDtypeStruct) -> Array:
            return jax.make_array_from_callback(to.shape, to.sharding, partial(_padded_part, leaf))

        return jax.tree.map(put, jax.tree.map(np.asarray, arrays), self.stored)

    def pad(self, arrays: Any) -> Any:
        """Arrays with padded axes, whose last element is repeated: no other value may be a number of the support."""
        if self.mesh is None:
            return arrays

        def padded(leaf: Any, to: jax.ShapeDtypeStruct) -> Any:
            if leaf.shape == to.shape:
                return leaf
            widths = [(0, new - old) for old, new in zip(leaf.shape, to.shape, strict=True)]
            return (np if isinstance(leaf, np.ndarray) else jnp).pad(leaf, widths, mode="edge")

        return jax.tree.map(padded, arrays, self.stored)

    def cut(self, arrays: Any) -> Any:
        """Arrays without their padding, inside of compiled code, where devices may have unequal shares."""
        if self.mesh is None:
            return arrays
        leaves, tree = jax.tree.flatten(arrays)
        return jax.tree.unflatten(tree, list(self._cut(leaves)))

    def whole(self, arrays: Any) -> Any:
        """Arrays without padding that lie whole on the first device of this process."""
        if self.mesh is None:
            return arrays
        everywhere = NamedSharding(self.mesh, PartitionSpec())
        with jax.set_mesh(self.mesh):
            gathered = jax.jit(self.cut, out_shardings=everywhere)(arrays)
        return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)), gathered)

    def _cut(self, leaves: list[Any]) -> Iterator[Any]:
        for leaf, shape, split in zip(leaves, jax.tree.leaves(self.shapes), self.splits, strict=True):
            if any(split):
                part = leaf[tuple(slice(size) for size in shape.shape)]
                yield jax.lax.with_sharding_constraint(part, PartitionSpec(*split))
            else:
                yield leaf

    def _stored(self, leaf: Any, split: Split) -> jax.ShapeDtypeStruct:
        assert self.mesh is not None
        shape = list(leaf.shape)
        for axis, name in enumerate(split):
            if name is not None:
                devices = self.mesh.shape[name]
                shape[axis] = ceil(shape[axis] / devices) * devices
        return jax.ShapeDtypeStruct(tuple(shape), leaf.dtype, sharding=NamedSharding(self.mesh, PartitionSpec(*split)))


def _padded_part(array: np.ndarray, part: tuple[slice, ...]) -> np.ndarray:
    """A part of an array, which may reach beyond the end of axes, where the last element is repeated."""
    for axis, (reach, size) in enumerate(zip(part, array.shape, strict=True)):
        if reach.stop is not None and reach.stop > size:
            array = np.take(array, np.arange(reach.start or 0, reach.stop).clip(max=size - 1), axis)
            part = (*part[:axis], slice(None), *part[axis + 1 :])
    return array[part]


def _is_partition(leaf: Any) -> bool:
    return isinstance(leaf, PartitionSpec)
