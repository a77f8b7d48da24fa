"""Values of observed sites, in the type of the site, and which of their entries are present."""

from typing import Any

import numpy as np

from bayeslab.programs.data import Entry, as_numpy_array, cast_exactly, first_true, zero_filled
from bayeslab.programs.program import Bound, Values


def observed_value(name: str, item: Entry, shape: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """The value of an observed site in the type of the site, and which elements are present (None for all).

    shape: shape and type of the site, as a ShapeDtypeStruct.
    """
    value = as_numpy_array(item.value, name)
    if value.dtype.kind not in "fiub":
        raise ValueError(f"entry '{name}' must hold numbers, but holds {value.dtype}")
    if value.shape != shape.shape:
        raise ValueError(
            f"entry '{name}' has shape {value.shape}, but site '{name}' of the program has shape {shape.shape}"
            + (
                "; axes along which its values are repetitions come before those of the site"
                if value.ndim > len(shape.shape)
                else ""
            )
        )
    if value.size == 0:
        raise ValueError(f"entry '{name}' is empty: its shape is {value.shape}")
    mask = np.ones(value.shape, bool) if item.present is None else np.array(item.present)
    if value.dtype.kind == "f":
        mask &= ~np.isnan(value)
    if not mask.any():
        raise ValueError(f"entry '{name}' has no value: all {value.size} are missing")
    if value.dtype.kind == "f":
        value = zero_filled(value, mask)
    if value.dtype.kind == "f" and shape.dtype.kind in "iub" and (fractional := value != np.round(value)).any():
        position = first_true(fractional)
        raise ValueError(
            f"entry '{name}' at position {position} is {value[position]}, but site '{name}' takes integers"
        )
    return cast_exactly(f"entry '{name}'", value, shape.dtype), None if mask.all() else mask


def event_mask(name: str, mask: np.ndarray, site: dict[str, Any]) -> np.ndarray:
    """Which events are present, or which parts of events where some are present in part.

    mask: which elements are present. site: what `binding._probe` says of the site.
    """
    for ndim in (site["batch_ndim"], site["parts_ndim"]):
        parts = mask.reshape(*mask.shape[:ndim], -1)
        if (parts.all(-1) == parts.any(-1)).all():
            return parts.all(-1)
    if site["family"] in ("MultivariateNormal", "MarkovChain", "LinearChainCRF"):
        return mask
    partly = parts.any(-1) & ~parts.all(-1)
    raise ValueError(
        f"entry '{name}' has a partly missing event at position {first_true(partly)}, which can be integrated out for "
        f"a MultivariateNormal or a chain of discrete states, not for a {site['family']}; mark the whole event as "
        "missing"
    )


def known_values(bound: Bound) -> Values:
    """The values of observed sites, but for those that the program computes: what a run of it is given, so that others
    are drawn given them."""
    return {name: value for name, value in bound.observed.items() if name not in bound.computed}
