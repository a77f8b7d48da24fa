"""Handlers for plates, of which those that a program subsamples are drawn whole and any may be drawn as a batch, and
for the weights of sites."""

from collections.abc import Callable, Mapping
from math import isclose, prod
from typing import Any

import jax.numpy as jnp
from jax import Array
from numpyro.primitives import Messenger

from bayeslab.programs.handlers.sites import SiteHandler

PREFIX, SUFFIX = "_", "_log_det"
"""Around the name of a site in that of the factor by which NumPyro counts the Jacobian of its transform."""


class PlateBatches(Messenger):
    """A handler that draws subsampled plates whole, or the elements of a batch, each of which NumPyro counts as often
    as the plate is larger.

    indices: plate -> the elements of the batch, for plates that have one.
    batch_sizes: plate -> its size and the size of its batch, for every plate that has one or is drawn whole for it.
    Raises ValueError, from within the program, for a batch that is no number of elements.
    """

    def __init__(self, fn: Callable[..., Any], indices: Mapping[str, Array]):
        self.indices = indices
        self.batch_sizes: dict[str, tuple[int, int]] = {}
        super().__init__(fn)

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "plate":
            size, batch = msg["args"]
            if batch is not None and batch < 1:
                raise ValueError(f"plate '{msg['name']}' has a batch of {batch} elements, but one or more are needed")
            if batch is not None and batch != int(batch):
                raise ValueError(f"plate '{msg['name']}' has a batch of {batch} elements, which is not a whole number")
            if self.is_replaced(msg["name"], size, batch):
                self.batch_sizes[msg["name"]] = (size, size if batch is None else batch)
                elements = jnp.arange(size) if msg["name"] not in self.indices else self.indices[msg["name"]]
                msg["value"], msg["args"] = elements, (size, None)

    def is_replaced(self, plate: str, size: int, batch: int | None) -> bool:
        """Whether the elements of a plate are given here: of those that the program subsamples."""
        return batch is not None and batch != size


class SubsamplingHandler(PlateBatches):
    """A handler that draws subsampled plates whole, or the elements of a batch, each of which counts once.

    NumPyro counts every element of a batch as often as the plate is larger. That is right for the sites that all
    elements share, and for sums over the plate, but not for what is inferred of an element itself.

    site_handler: the one inside of `fn`, which says what it refuses.
    """

    def __init__(self, fn: Callable[..., Any], site_handler: SiteHandler, indices: Mapping[str, Array]):
        self.site_handler = site_handler
        super().__init__(fn, indices)

    def process_message(self, msg: dict[str, Any]) -> None:
        super().process_message(msg)
        if msg["type"] != "plate" and self.indices and msg.get("scale") is not None:
            plate_scale = prod(self.times(frame.name) for frame in msg["cond_indep_stack"])
            if plate_scale != 1:
                has_no_other = isinstance(msg["scale"], float | int) and isclose(msg["scale"], plate_scale)
                msg["scale"] = None if has_no_other else msg["scale"] / plate_scale

    def is_replaced(self, plate: str, size: int, batch: int | None) -> bool:
        """Any plate may have a batch, be it subsampled by the program or not."""
        return plate in self.indices or super().is_replaced(plate, size, batch)

    def times(self, plate: str) -> float:
        """The number of elements of a plate for which an element of its batch stands: size by size of the batch."""
        return self.batch_sizes[plate][0] / len(self.indices[plate]) if plate in self.indices else 1.0


class UnscaledJacobians(Messenger):
    """A handler around a program that counts the Jacobian of a transformed site once, whatever weights its density.

    NumPyro adds the Jacobian as a factor beside the site, where `handlers.scale` multiplies it too. The draws of NUTS
    would have another density than the weighted one as it is written, which conditionals, MAP and evidence have. What a
    plate with a subsample multiplies stays multiplied: rows that are not in the batch have Jacobians as well.
    """

    def process_message(self, msg: dict[str, Any]) -> None:
        name = str(msg.get("name"))
        if msg["type"] == "sample" and name.startswith(PREFIX) and name.endswith(SUFFIX):
            weight = msg.get("plate_to_scale", {}).get(None)  # by handlers.scale alone: plates have names
            if weight is not None:
                msg["scale"] = msg["scale"] / weight


class Unweighted(Messenger):
    """A handler around a program that counts every site once, whatever `handlers.scale` says."""

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "sample":
            msg["scale"] = None
