"""Which discrete elements make the joint states of chains."""

from math import prod
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array


class ChainLayout:
    """Which discrete elements make the joint states of chains; equal where all of it is.

    elements: their numbers (chain, step, member), every one once. cards: how many values each member has.
    sites: for every site that elements are of, which member they are, and at which step they begin.
    """

    def __init__(self, elements: np.ndarray, cards: tuple[int, ...], sites: tuple[tuple[int, int], ...]) -> None:
        self.elements, self.cards, self.sites = np.asarray(elements, np.int32), cards, sites
        self._key = self.elements.shape, self.elements.tobytes(), cards, sites

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, ChainLayout) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def num_states(self) -> int:
        """Joint states of a step."""
        return prod(self.cards)

    @property
    def digits(self) -> np.ndarray:
        """The values of all members in every joint state (state, member)."""
        return np.stack(np.unravel_index(np.arange(self.num_states), self.cards), axis=-1).astype(np.int32)

    def path(self, indices: Array) -> Array:
        """Joint states (..., chain, step) from values of all elements (..., element)."""
        strides = np.array([prod(self.cards[place + 1 :]) for place in range(len(self.cards))], np.int32)
        return (indices[..., self.elements] * strides).sum(-1)

    def indices(self, path: Array) -> Array:
        """Values of all elements (..., element) from joint states (..., chain, step)."""
        values = jnp.asarray(self.digits)[path]
        return values.reshape(*path.shape[:-2], -1)[..., np.argsort(self.elements.ravel())]
