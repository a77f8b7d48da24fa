"""Functions of single draws, evaluated at all draws of a result in batches of bounded memory."""

from collections.abc import Callable
from typing import Any

import jax

DRAWS_PER_BATCH = 64
"""The number of draws at which a function is evaluated at once."""


def map_draws(function: Callable[[Any], Any], draws: Any) -> Any:
    """The values (draw, ...) of a function of one draw. draws: a pytree whose leaves have the axis of draws first."""
    return jax.lax.map(function, draws, batch_size=DRAWS_PER_BATCH)
