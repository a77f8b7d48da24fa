"""The tinygp kernels in one dimension whose process is a linear function of a Markov chain of a few numbers.

tinygp calls them quasiseparable: `tinygp.kernels.quasisep`.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import Array
from tinygp import transforms
from tinygp.kernels import base, quasisep, stationary
from tinygp.kernels.distance import L1Distance, L2Distance
from tinygp.kernels.quasisep import Quasisep

from bayeslab.gaussian_processes.kernels import Euclidean


class Stretched(Quasisep):
    """A kernel of the inputs multiplied by a factor, which is at least 0."""

    kernel: Quasisep
    factor: Any

    def design_matrix(self) -> Array:
        return self.factor * self.kernel.design_matrix()

    def stationary_covariance(self) -> Array:
        return self.kernel.stationary_covariance()

    def observation_model(self, X: Array) -> Array:
        return self.kernel.observation_model(self.factor * X)

    def transition_matrix(self, X1: Array, X2: Array) -> Array:
        return self.kernel.transition_matrix(self.factor * X1, self.factor * X2)


def state_space_kernel(kernel: Any) -> Quasisep | None:
    """The equivalent kernel of `tinygp.kernels.quasisep`, or None where the kernel has no state space."""
    try:
        return require_state_space(kernel)
    except ValueError:
        return None


def require_state_space(kernel: Any) -> Quasisep:
    """The equivalent kernel of `tinygp.kernels.quasisep`; raises ValueError where the kernel has no state space."""
    if type(kernel) in _EQUIVALENTS:
        return _EQUIVALENTS[type(kernel)](kernel)
    if isinstance(kernel, Quasisep):
        return kernel
    raise _no_state_space(type(kernel).__name__)


def _no_state_space(part: str) -> ValueError:
    """The error for a part of a kernel without a state space."""
    return ValueError(
        f"{part}, a part of the kernel, has no state space; use another solver such as Dense(), or kernels of one "
        "input such as Exp, Matern32 and Matern52"
    )


def _scalar(value: Any, part: str) -> Array:
    if jnp.size(value) != 1:
        raise _no_state_space(f"{part} with {jnp.size(value)} scales")
    return jnp.reshape(value, ())


def _stationary(constructor: Callable[[Array], Quasisep]) -> Callable[[stationary.Stationary], Quasisep]:
    def equivalent(kernel: stationary.Stationary) -> Quasisep:
        name = type(kernel).__name__
        if type(kernel.distance) not in (L1Distance, L2Distance, Euclidean):
            raise _no_state_space(f"{name} with {type(kernel.distance).__name__}")
        return constructor(_scalar(kernel.scale, name))

    return equivalent


def _constant(kernel: base.Constant) -> Quasisep:
    """The kernel of an unknown constant, as a process whose state never changes."""
    still = Stretched(quasisep.Exp(scale=jnp.ones(())), jnp.zeros(()))
    return quasisep.Scale(kernel=still, scale=_scalar(kernel.value, "Constant"))


def _sum(kernel: base.Sum) -> Quasisep:
    return quasisep.Sum(require_state_space(kernel.kernel1), require_state_space(kernel.kernel2))


def _product(kernel: base.Product) -> Quasisep:
    for factor, other in ((kernel.kernel1, kernel.kernel2), (kernel.kernel2, kernel.kernel1)):
        if type(factor) is base.Constant:
            return quasisep.Scale(kernel=require_state_space(other), scale=_scalar(factor.value, "Constant"))
    return quasisep.Product(require_state_space(kernel.kernel1), require_state_space(kernel.kernel2))


def _linear(kernel: transforms.Linear) -> Quasisep:
    return Stretched(require_state_space(kernel.kernel), jnp.abs(_scalar(kernel.scale, "Linear")))


def _cholesky(kernel: transforms.Cholesky) -> Quasisep:
    return Stretched(require_state_space(kernel.kernel), 1 / jnp.abs(_scalar(kernel.factor, "Cholesky")))


_EQUIVALENTS: dict[type, Callable[[Any], Quasisep]] = {
    stationary.Exp: _stationary(quasisep.Exp),
    stationary.Matern32: _stationary(quasisep.Matern32),
    stationary.Matern52: _stationary(quasisep.Matern52),
    stationary.Cosine: _stationary(quasisep.Cosine),
    base.Constant: _constant,
    base.Sum: _sum,
    base.Product: _product,
    transforms.Linear: _linear,
    transforms.Cholesky: _cholesky,
}
"""How a kernel of tinygp becomes an equivalent one with a state space, by its class."""
