"""Programs and guides over batches of subsampled plates, for stochastic variational inference.

A batch stands for all rows: the log densities of its own sites, in the program and in the guide, count as often as the
plate is larger than the batch, as NumPyro has it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpyro
from numpyro.distributions import Normal, constraints
from numpyro.primitives import Messenger

from bayeslab.methods.minibatches.batches import SubsampledPlate, multiplicity, subsampled_plates
from bayeslab.programs.program import Bound, evaluate
from bayeslab.programs.unconstrained import drawn_shapes

INITIAL_SCALE = 0.1
"""The standard deviation that factors of sites of rows start with, in unconstrained coordinates, as NumPyro's do."""


class BatchScale(Messenger):
    """A handler that counts the sites of a batch as often as their plates are larger than the batch."""

    def __init__(self, fn: Callable[..., Any], plates: tuple[SubsampledPlate, ...]):
        self.plates = plates
        super().__init__(fn)

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "sample":
            times = multiplicity(self.plates, (frame.name for frame in msg["cond_indep_stack"]))
            if times != 1:
                msg["scale"] = times if msg.get("scale") is None else msg["scale"] * times


def evaluate_scaled(plates: tuple[SubsampledPlate, ...], bound: Bound) -> Any:
    """Run a program; the sites of its batch, where it has one, stand for all rows."""
    return BatchScale(evaluate, tuple(plate for plate in plates if plate.plate in bound.batches))(bound)


@dataclass(frozen=True)
class LocalSite:
    """An unconstrained site inside of subsampled plates. axes: which of its axes are which of these plates."""

    name: str
    shape: tuple[int, ...]
    axes: tuple[tuple[str, int], ...]


def split_by_plates(
    bound: Bound, plates: tuple[SubsampledPlate, ...]
) -> tuple[tuple[tuple[str, tuple[int, ...]], ...], tuple[LocalSite, ...]]:
    """The unconstrained sites that all rows share, with their shapes, and those inside of subsampled plates."""
    names = {plate.plate for plate in plates}
    shared, local = [], []
    for name, shape in drawn_shapes(bound):
        batch_axes = len(bound.sites[name].batch_shape)
        inside = [plate for plate in bound.sites[name].plates if plate.name in names]
        if inside:
            local.append(LocalSite(name, shape, tuple((plate.name, batch_axes + plate.dim) for plate in inside)))
        else:
            shared.append((name, shape))
    return tuple(shared), tuple(local)


@dataclass(frozen=True)
class BatchGuide:
    """A guide over unconstrained sites: one for those that all rows share, independent Normals for those of each row.

    shared: the guide of the former, a function of the Bound; None where there are none.
    """

    shared: Callable[[Bound], Any] | None
    local: tuple[LocalSite, ...]
    plates: tuple[SubsampledPlate, ...]

    def __call__(self, bound: Bound, whole: Bound) -> None:
        if self.shared is not None:
            self.shared(bound)
        for site in self.local:
            zeros = jnp.zeros(site.shape)
            loc = numpyro.param(f"{site.name}_batch_loc", zeros)
            scale = numpyro.param(f"{site.name}_batch_scale", zeros + INITIAL_SCALE, constraint=constraints.positive)
            for plate, axis in site.axes:
                if plate in bound.batches:
                    loc, scale = (jnp.take(value, bound.batches[plate], axis) for value in (loc, scale))
            in_batch = [plate for plate, _ in site.axes if plate in bound.batches]
            with numpyro.handlers.scale(scale=multiplicity(self.plates, in_batch)):
                numpyro.sample(site.name, Normal(loc, scale).to_event(len(site.shape)))


def batched_plates(bound: Bound) -> tuple[SubsampledPlate, ...]:
    """The plates of which steps take batches: those that the program subsamples, unless a site is integrated out of it
    or missing in part, or is learned for each row."""
    plates = subsampled_plates(bound)
    names = {plate.plate for plate in plates}
    learned_inside = any(plate.name in names for name in bound.learned for plate in bound.sites[name].plates)
    return () if bound.transform is not None or bound.imputed or learned_inside else plates
