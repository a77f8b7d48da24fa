"""Programs whose log joint has no derivative, since JAX knows none of a function that they call."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import jax
from jax import Array

from bayeslab.programs.program import Bound, Values, abstract_bound, compilation_signature
from bayeslab.programs.validation import listed_names

JAX_REFUSALS = (NotImplementedError, TypeError, ValueError)
"""What JAX raises where it cannot differentiate."""


def has_derivatives(bound: Bound) -> bool:
    """Whether the log joint has a derivative in every continuous latent site, as far as tracing tells."""
    return not _sites_without_derivative(compilation_signature(bound.plain))


@contextmanager
def missing_derivatives_explained(bound: Bound) -> Iterator[None]:
    """Says in words that a method failed inside since JAX cannot differentiate the program.

    Raises ValueError with the sites, what JAX says, and methods that need no derivative, in place of JAX's error.
    """
    try:
        yield
    except JAX_REFUSALS as error:
        refusals = _sites_without_derivative(compilation_signature(bound.plain))
        names = [name for name, said in refusals if said == _first_line(error)]
        if not names:
            raise
        said = _first_line(error).rstrip(".")
        raise ValueError(
            f"the log joint has no derivative in {listed_names(names)}, for JAX says: {said}; "
            "monte_carlo.Slice() and monte_carlo.MetropolisHastings() sample without derivatives"
        ) from error


@lru_cache(maxsize=64)
def _sites_without_derivative(shapes: tuple) -> tuple[tuple[str, str], ...]:
    """The continuous latent sites in which the log joint has no derivative, and what JAX says of each."""
    bound = abstract_bound(shapes)
    continuous = [name for name in bound.latent if not bound.sites[name].is_discrete]
    if not continuous or _refusal(bound, continuous) is None:
        return ()
    refusals = ((name, _refusal(bound, [name])) for name in continuous)
    return tuple((name, said) for name, said in refusals if said is not None)


def _refusal(bound: Bound, names: list[str]) -> str | None:
    """What JAX says where it cannot differentiate the log joint in some sites, None where it can."""
    latent = bound.latent_shapes
    own = {name: latent.pop(name) for name in names}

    def log_joint(own: Values, others: Values, bound: Bound) -> Array:
        return bound.log_joint({**others, **own})

    try:
        jax.eval_shape(jax.grad(log_joint), own, latent, bound)
    except JAX_REFUSALS as error:
        return _first_line(error)
    return None


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
