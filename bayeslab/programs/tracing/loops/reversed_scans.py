"""Scans that run backwards, with the values of their sites in the order of the elements that are scanned.

NumPyro returns the sites of such a scan in the order of its elements, but takes their values in the order of its
steps: `obs=` with an element of the scan means another value than `condition` with the same array.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from numpyro.contrib.control_flow.scan import scan_wrapper


def is_scan(msg: dict[str, Any]) -> bool:
    """Whether a message of NumPyro is that of a scan, in either direction."""
    return msg["type"] == "control_flow" and msg["fn"] in (scan_wrapper, run_backwards)


def run_backwards(
    body: Any,
    start: Any,
    elements: Any,
    length: int | None,
    reverse: bool,
    *,
    substitute_stack: list[tuple[str, Any]],
    **settings: Any,
) -> Any:
    """What NumPyro calls for a scan, with given values of sites in the order of the elements."""
    size = jnp.shape(jax.tree.leaves(elements)[0])[0] if length is None else length
    stack = [(kind, _replayed(v, size) if kind == "replay" else _by_element(v, size)) for kind, v in substitute_stack]
    return scan_wrapper(body, start, elements, length, reverse, substitute_stack=stack, **settings)


def _by_element(given: Any, length: int) -> Callable[[dict[str, Any]], Any]:
    """A function from a site of one step to its value. given: values by name, or such a function of steps."""

    def value_of(site: dict[str, Any]) -> Any:
        place = length - 1 - site["infer"]["_scan_current_index"]
        if isinstance(given, Mapping):
            value = given.get(site["name"])
        else:
            value = given(site | {"infer": site["infer"] | {"_scan_current_index": place}})
        if value is None:
            return None
        of_one_step = len(site["kwargs"]["sample_shape"] + site["fn"].shape())
        return value[place] if jnp.ndim(value) > of_one_step else value

    return value_of


def _replayed(sites: Mapping[str, Any], length: int) -> dict[str, Any]:
    """A trace with the values of all steps from the last to the first."""
    return {
        name: site | {"value": site["value"][::-1]} if jnp.shape(site["value"])[:1] == (length,) else site
        for name, site in sites.items()
    }
