"""Plates that a program subsamples: drawn whole, or the elements of a batch."""

from collections.abc import Callable, Mapping
from math import isclose, prod
from typing import Any

import jax.numpy as jnp
from jax import Array
from numpyro.primitives import Messenger


class Plates(Messenger):
    """Draws subsampled plates whole, or the elements of a batch, each of which counts once.

    NumPyro counts every element of a batch as often as the plate is larger. That is right for the sites that all
    elements share, and for sums over the plate, but not for what is inferred of an element itself.
    indices: of the plates of which there is a batch. asked: size and batch of every plate that the program subsamples.
    """

    def __init__(self, fn: Callable[..., Any], indices: Mapping[str, Array]):
        self.indices = indices
        self.asked: dict[str, tuple[int, int]] = {}
        super().__init__(fn)

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "plate":
            size, batch = msg["args"]
            if batch is not None and batch != size:
                self.asked[msg["name"]] = (size, batch)
                whole = jnp.arange(size) if msg["name"] not in self.indices else self.indices[msg["name"]]
                msg["value"], msg["args"] = whole, (size, None)
        elif self.indices and msg.get("scale") is not None:
            counted = prod(self.times(frame.name) for frame in msg["cond_indep_stack"])
            if counted != 1:
                alone = isinstance(msg["scale"], float | int) and isclose(msg["scale"], counted)
                msg["scale"] = None if alone else msg["scale"] / counted

    def times(self, plate: str) -> float:
        """How often an element of a batch stands for one of the plate."""
        return self.asked[plate][0] / len(self.indices[plate]) if plate in self.indices else 1.0
