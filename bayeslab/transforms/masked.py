"""Programs of whose observed sites some elements are hidden."""

import inspect
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bayeslab.elimination.terms import terms
from bayeslab.programs.arguments import signature
from bayeslab.programs.program import Bound, DerivedProgram, Program, Values


@dataclass(frozen=True)
class Masked:
    """A program whose observed sites all have a mask of their entries, also where none is missing.

    So a program whose data have different gaps is compiled once.
    """

    program: Program

    @property
    def model(self) -> Program:
        return self.program.model if isinstance(self.program, DerivedProgram) else self.program

    @property
    def __signature__(self) -> inspect.Signature:
        return signature(self.program)

    def transformed(self, bound: Bound) -> Bound:
        masked = replace(bound, present=finest_masks(bound))
        return self.program.transformed(masked) if isinstance(self.program, DerivedProgram) else masked

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.program(*args, **kwargs)


def finest_masks(bound: Bound) -> Values:
    """A mask for every observed site, with all axes on which its elements are independent, or those that it has."""
    latent: dict[str, Any] = {name: np.zeros(bound.sites[name].shape, bound.sites[name].dtype) for name in bound.latent}
    observed_terms = [term for term in terms(bound).terms if term.name in bound.observed]
    shapes = jax.eval_shape(lambda: {term.name: term.density(bound, latent) for term in observed_terms})
    masks = {}
    for name, value in bound.observed.items():
        mask = np.asarray(bound.present.get(name, True))
        axes = max(shapes[name].ndim, mask.ndim)
        mask = mask.reshape(mask.shape + (1,) * (axes - mask.ndim))
        masks[name] = jnp.asarray(np.broadcast_to(mask, value.shape[:axes]))
    return masks
