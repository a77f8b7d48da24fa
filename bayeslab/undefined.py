"""Which density is not a number, or has no derivative that is one, and at which element: 0 log 0, for example."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bayeslab.compilation import evaluated
from bayeslab.points import Point
from bayeslab.program import Bound, Values
from bayeslab.terms import Term


def undefined(of: Sequence[Term], sites: Sequence[str], point: Point) -> str | None:
    """In words, the first density that is not a number at a point, or whose derivative in a site is none; else None.

    sites: continuous ones. Where the density of a program is no number nothing can be read of it, and no gradient led
    anywhere.
    """
    for site in sites:
        for term in (term for term in of if site in term.depends):
            [(density, slope)] = evaluated([_both(term, site)], point)
            for what, values in ((f"'{term.name}'", density), (f"'{term.name}' by '{site}'", slope)):
                if np.isnan(values).any():
                    place = np.argwhere(np.isnan(values))[0].tolist()
                    where = f" at position {tuple(place)}" if place else ""
                    kind = "density of" if values is density else "derivative of the density of"
                    return f"the {kind} {what} is not a number{where}"
    return None


@lru_cache(maxsize=256)
def _both(term: Term, site: str) -> Callable[[Any], tuple[Array, Array]]:
    def both(point: tuple[Bound, Values]) -> tuple[Array, Array]:
        bound, values = point

        def density(x: Array) -> Array:
            return term.density(bound, values | {site: x})

        return jax.jvp(density, (values[site],), (jnp.ones_like(values[site]),))

    return both
