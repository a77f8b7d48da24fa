"""Individuals spread over the devices of a mesh: passes over their data run on each, sums go across."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

AXIS = "individual"
ROWS = 5
"""Of individuals that are added up first. A device has whole groups of them: sums are the same on any number of it."""


class Here(NamedTuple):
    """One device. first: the number of its first individual. total: the sum over all devices, for any pytree."""

    first: Array | int
    total: Callable[[Any], Any]


Pass = Callable[..., tuple[Any, Any]]
"""(here, values of individuals, data, ...) -> what belongs to individuals, and what is the same on every device."""


@dataclass(frozen=True)
class Devices:
    """Those of a mesh with an axis named "individual", or the only one."""

    mesh: Mesh | None = None

    @property
    def number(self) -> int:
        return 1 if self.mesh is None else self.mesh.shape[AXIS]

    def share(self, individuals: int) -> int:
        """Individuals of each."""
        return individuals if self.mesh is None else ceil(individuals / self.number / ROWS) * ROWS

    def spread(self, data: Array) -> Array:
        """Data with an axis of devices, each part on its own."""
        return data if self.mesh is None else lax.with_sharding_constraint(data, NamedSharding(self.mesh, self._split))

    def run(self, one: Pass, individuals: Array, data: Array, *others: Any) -> tuple[Any, Any]:
        """A pass over the data (device, ...) of all; others are the same everywhere."""
        if self.mesh is None:
            return one(Here(0, lambda sums: sums), individuals, data[0], *others)
        number, everywhere = len(individuals), PartitionSpec()
        pad = ((0, self.share(number) * self.number - number), *((0, 0),) * (individuals.ndim - 1))
        specs = (self._split, self._split, *(everywhere for _ in others))
        run = jax.shard_map(
            partial(_on_one, one, self.share(number)),
            mesh=self.mesh,
            in_specs=specs,
            out_specs=(everywhere, everywhere),
            check_vma=False,
        )
        own, same = run(jnp.pad(individuals, pad, mode="edge"), data, *others)
        return jax.tree.map(lambda leaf: leaf[:number], own), same

    @property
    def _split(self) -> PartitionSpec:
        return PartitionSpec(AXIS)


def devices_of(mesh: Mesh) -> Devices:
    """Whatever the types of its axes are."""
    return Devices(Mesh(mesh.devices, mesh.axis_names, axis_types=(AxisType.Auto,) * len(mesh.axis_names)))


def _on_one(one: Pass, share: int, individuals: Array, data: Array, *others: Any) -> tuple[Any, Any]:
    here = Here(lax.axis_index(AXIS) * share, partial(lax.psum, axis_name=AXIS))
    own, same = one(here, individuals, data[0], *others)
    return jax.tree.map(partial(lax.all_gather, axis_name=AXIS, tiled=True), own), same
