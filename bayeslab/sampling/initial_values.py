"""Checks initial values that the user gives a sampler."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from bayeslab.programs.program import Bound
from bayeslab.sampling.protocols import Method, Sampler


def checked_start(
    method: Method, sampler: Sampler, bound: Bound, values: Mapping[str, ArrayLike]
) -> dict[str, np.ndarray]:
    """The initial values in the types of their sites.

    Raises ValueError where the sampler takes none, for those of other sites, and for what is no probability.
    """
    needed = sampler.start_sites
    if not needed:
        name = type(method).__name__
        if (number := method.num_starts) > 1:
            raise ValueError(f"{name} has {number} starts of its own; beside start give num_starts=1")
        raise ValueError(f"{name} finds its own start for this program; leave start out")
    if more := [name for name in values if name not in bound.latent]:
        raise ValueError(f"start names {more}, which are no latent sites; these are {list(bound.latent)}")
    if missing := [name for name in needed if name not in values]:
        raise ValueError(f"start lacks values of {missing}; expected those of {list(needed)}")
    if more := [name for name in values if name not in needed]:
        raise ValueError(f"start has values of {more}; expected those of {list(needed)}")
    return {name: _checked_value(name, value, bound) for name, value in values.items()}


def _checked_value(name: str, value: ArrayLike, bound: Bound) -> np.ndarray:
    """An initial value in the type of its site, whose rows are probabilities."""
    site, probs = bound.sites[name], np.asarray(value, bound.sites[name].dtype)
    if probs.shape != site.shape:
        raise ValueError(f"start of site '{name}' has shape {probs.shape}; expected {site.shape}")
    if not (np.isfinite(probs).all() and (probs >= 0).all() and np.allclose(probs.sum(-1), 1, atol=1e-3)):
        raise ValueError(f"start of site '{name}' has rows that are no probabilities, which sum to 1")
    return probs
