"""Optimisers of stochastic variational inference."""

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpyro import optim


@lru_cache
def adam_optimizer(learning_rate: float, max_norm: float) -> optax.GradientTransformation:
    """Adam, the same object for the same settings, since optimisers are equal only to themselves."""
    adam = optax.adam(learning_rate)
    return adam if np.isinf(max_norm) else optax.chain(optax.clip_by_global_norm(max_norm), adam)


def as_optax(optimizer: Any) -> optax.GradientTransformation:
    """An optimiser of optax as it is, one of `numpyro.optim` as the steps that it would make.

    Raises TypeError for what is neither.
    """
    if isinstance(optimizer, optax.GradientTransformation):
        return optimizer
    if isinstance(optimizer, optim._NumPyroOptim) and not (
        isinstance(optimizer, optim.Minimize) or optimizer.update_with_value
    ):
        return _steps_of_numpyro(optimizer)
    raise TypeError(
        "optimizer of SVI must be one of optax, such as optax.adam(0.01), or one of numpyro.optim that takes steps by "
        f"gradients alone, not {optimizer!r}"
    )


@lru_cache(maxsize=64)
def _steps_of_numpyro(optimizer: optim._NumPyroOptim) -> optax.GradientTransformation:
    """The changes of an optimiser that keeps parameters in its state, the same object for the same optimiser."""

    def update(gradient: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        moved = optimizer.update(gradient, state)
        before, after = optimizer.get_params(state), optimizer.get_params(moved)
        return jax.tree.map(jnp.subtract, after, before), moved

    return optax.GradientTransformation(optimizer.init, update)
