"""Individuals spread over the devices of a mesh: passes over data run on each device, and sums go over all of them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

INDIVIDUAL_AXIS = "individual"
"""Name of the mesh axis that individuals are spread over."""
ROWS_PER_PARTIAL_SUM = 5
"""Rows of individuals that are added up first. A device has whole groups of them, so that sums are the same on any
number of devices."""


class DeviceContext(NamedTuple):
    """What a pass knows of the device that it runs on.

    first: number of the first individual of the device. total: returns the sum of a pytree over all devices.
    """

    first: Array | int
    total: Callable[[Any], Any]


DevicePass = Callable[..., tuple[Any, Any]]
"""A function (device, values of individuals, data, ...) -> what belongs to individuals, and what is the same on every
device."""


@dataclass(frozen=True)
class Devices:
    """The devices of a mesh with an axis named "individual", or the only device where there is no mesh."""

    mesh: Mesh | None = None

    @property
    def number(self) -> int:
        """Number of devices."""
        return 1 if self.mesh is None else self.mesh.shape[INDIVIDUAL_AXIS]

    def share(self, individuals: int) -> int:
        """Individuals of one device, the last of which may only pad."""
        return (
            individuals
            if self.mesh is None
            else ceil(individuals / self.number / ROWS_PER_PARTIAL_SUM) * ROWS_PER_PARTIAL_SUM
        )

    def spread(self, data: Array) -> Array:
        """Data (device, ...) sharded so that each device holds its own part."""
        return data if self.mesh is None else lax.with_sharding_constraint(data, NamedSharding(self.mesh, self._split))

    def run(self, one: DevicePass, individuals: Array, data: Array, *others: Any) -> tuple[Any, Any]:
        """The results of a pass on every device: values of all individuals, and what is the same on every device.

        one: the pass. individuals: values (individual, ...). data: (device, ...). others: the same on every device.
        """
        if self.mesh is None:
            return one(DeviceContext(0, lambda sums: sums), individuals, data[0], *others)
        number, everywhere = len(individuals), PartitionSpec()
        pad = ((0, self.share(number) * self.number - number), *((0, 0),) * (individuals.ndim - 1))
        specs = (self._split, self._split, *(everywhere for _ in others))
        run = jax.shard_map(
            partial(_run_on_device, one, self.share(number)),
            mesh=self.mesh,
            in_specs=specs,
            out_specs=(everywhere, everywhere),
            check_vma=False,
        )
        own, same = run(jnp.pad(individuals, pad, mode="edge"), data, *others)
        return jax.tree.map(lambda leaf: leaf[:number], own), same

    @property
    def _split(self) -> PartitionSpec:
        """The partition of arrays whose first axis is spread over devices."""
        return PartitionSpec(INDIVIDUAL_AXIS)


def devices_from_mesh(mesh: Mesh) -> Devices:
    """The devices of a mesh with one axis, which may have any name and type."""
    return Devices(Mesh(mesh.devices, (INDIVIDUAL_AXIS,), axis_types=(AxisType.Auto,)))


def _run_on_device(run_pass: DevicePass, share: int, individuals: Array, data: Array, *others: Any) -> tuple[Any, Any]:
    """The results of a pass on this device, with the values of individuals gathered from all devices."""
    device = DeviceContext(lax.axis_index(INDIVIDUAL_AXIS) * share, partial(lax.psum, axis_name=INDIVIDUAL_AXIS))
    own, same = run_pass(device, individuals, data[0], *others)
    return jax.tree.map(partial(lax.all_gather, axis_name=INDIVIDUAL_AXIS, tiled=True), own), same
