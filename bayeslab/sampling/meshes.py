"""What users give as a mesh becomes a Placement, or is refused with a sentence."""

from typing import Any

import jax
from jax.sharding import AxisType, Mesh

from bayeslab.programs.program import Bound
from bayeslab.sampling.placement import CHAIN_AXIS, Placement
from bayeslab.sampling.protocols import Method, Sampler


def checked_mesh(mesh: Any) -> Mesh:
    """The mesh with axes of type Auto, so that XLA decides how arrays between those that are given are split.

    Raises TypeError for what is no mesh of devices, ValueError where this process has no device in it.
    """
    if not isinstance(mesh, Mesh):
        raise TypeError(f'mesh must be a jax.sharding.Mesh, such as jax.make_mesh((2,), ("row",)), not {mesh!r}')
    if mesh.size == 0:
        raise ValueError('mesh has no device; jax.make_mesh((len(jax.devices()),), ("row",)) has all there are')
    places, here = {device.process_index for device in mesh.devices.flat}, set(range(jax.process_count()))
    if places != here:
        raise ValueError(
            f"mesh has devices of processes {sorted(places)}, but those that run are {sorted(here)}; each needs one"
        )
    return Mesh(mesh.devices, mesh.axis_names, axis_types=(AxisType.Auto,) * len(mesh.axis_names))


def placement_on(mesh: Mesh | None, method: Method, sampler: Sampler, bound: Bound) -> Placement:
    """Where data and chains lie. Samplers with a mesh of their own spread data themselves.

    Raises ValueError for an axis that is neither "chain" nor a plate, and for chains that devices do not share evenly.
    """
    if sampler.mesh is not None:
        return Placement(sampler.mesh)
    if mesh is None:
        return Placement()
    lengths = {plate.name: plate.size for site in bound.plain.sites.values() for plate in site.plates}
    for name in mesh.axis_names:
        if name != CHAIN_AXIS and name not in lengths:
            raise ValueError(
                f"mesh has an axis {name!r}, but the plates of the program are {list(lengths)}; an axis is named "
                f"'{CHAIN_AXIS}' or as one of them"
            )
    _require_shared_chains(mesh, method, sampler)
    return Placement(mesh, tuple((name, lengths[name]) for name in mesh.axis_names if name != CHAIN_AXIS))


def _require_shared_chains(mesh: Mesh, method: Method, sampler: Sampler) -> None:
    """Raises ValueError where devices do not share the chains, or the starts, evenly."""
    devices, kind = mesh.shape.get(CHAIN_AXIS, 1), type(method).__name__
    what, number = ("chains", method.num_chains) if method.num_chains > 1 else ("starts", sampler.num_starts)
    if devices > 1 and number == 1:
        raise ValueError(f"{kind} has one chain, which {devices} devices of axis '{CHAIN_AXIS}' do not share")
    if number % devices:
        nearest = devices * max(1, round(number / devices))
        raise ValueError(
            f"{kind} has {number} {what}, which {devices} devices of axis '{CHAIN_AXIS}' do not share evenly; "
            f"take num_{what}={nearest}"
        )
