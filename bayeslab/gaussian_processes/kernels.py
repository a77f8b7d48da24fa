"""Covariance functions of Gaussian processes, under the names and conventions of the field.

They are kernels of tinygp: they add and multiply with each other and with numbers, and every other kernel of tinygp
serves as well. Distances are Euclidean, whatever the number of inputs; a `lengthscale` is a number, or one for each
input. Formulas: Rasmussen and Williams (2006), chapter 4.
"""

import operator
from collections.abc import Sequence
from functools import reduce
from typing import Any

import equinox
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from tinygp import kernels, transforms
from tinygp.kernels import Constant, Kernel
from tinygp.kernels.distance import L2Distance

__all__ = [
    "White",
    "constant",
    "linear",
    "matern12",
    "matern32",
    "matern52",
    "of_inputs",
    "periodic",
    "polynomial",
    "rational_quadratic",
    "squared_exponential",
    "terms_of",
    "white",
]


class Euclidean(L2Distance):
    """The distance of tinygp without its branches at 0.

    XLA may fuse them into code that takes one for the value and another one for the square root (jaxlib 0.12, AVX):
    sums of kernels then had a wrong diagonal, a distance of 1 in place of 0.
    """

    def distance(self, X1: Array, X2: Array) -> Array:
        square = 1.0 * self.squared_distance(X1, X2)
        return jnp.sqrt(jnp.maximum(square, jnp.finfo(square.dtype).eps ** 2))


def squared_exponential(lengthscale: ArrayLike = 1.0) -> Kernel:
    """exp(-r^2 / 2), r the distance over the lengthscale; also known as RBF."""
    return _stretched(kernels.ExpSquared(1.0, Euclidean()), lengthscale)


def matern12(lengthscale: ArrayLike = 1.0) -> Kernel:
    """exp(-r): the Ornstein-Uhlenbeck process."""
    return _stretched(kernels.Exp(1.0, Euclidean()), lengthscale)


def matern32(lengthscale: ArrayLike = 1.0) -> Kernel:
    """(1 + a) exp(-a), a = sqrt(3) r: paths with one derivative."""
    return _stretched(kernels.Matern32(1.0, Euclidean()), lengthscale)


def matern52(lengthscale: ArrayLike = 1.0) -> Kernel:
    """(1 + a + a^2 / 3) exp(-a), a = sqrt(5) r: paths with two derivatives."""
    return _stretched(kernels.Matern52(1.0, Euclidean()), lengthscale)


def rational_quadratic(lengthscale: ArrayLike = 1.0, mixture: ArrayLike = 1.0) -> Kernel:
    """(1 + r^2 / (2 mixture))^-mixture: squared exponentials of many lengthscales."""
    return _stretched(kernels.RationalQuadratic(1.0, Euclidean(), _positive(mixture, "mixture")), lengthscale)


def periodic(period: ArrayLike = 1.0, lengthscale: ArrayLike = 1.0) -> Kernel:
    """exp(-2 sin^2(pi r / period) / lengthscale^2), of one input."""
    return kernels.ExpSineSquared(
        _positive(period, "period"), Euclidean(), 2 / _positive(lengthscale, "lengthscale") ** 2
    )


def linear(scale: ArrayLike = 1.0) -> Kernel:
    """x . z / scale^2: straight lines through the origin whose slopes have a standard deviation of 1 / scale."""
    return _stretched(kernels.DotProduct(), scale, "scale")


def polynomial(order: int, scale: ArrayLike = 1.0, offset: ArrayLike = 1.0) -> Kernel:
    """(x . z / scale^2 + offset^2)^order."""
    if order < 1:
        raise ValueError(f"order is {order}; expected an integer of at least 1")
    base = linear(scale) + constant(_real(offset) ** 2)
    return reduce(operator.mul, [base] * order)


def constant(variance: ArrayLike = 1.0) -> Kernel:
    """The kernel of an unknown constant, with its prior variance."""
    return Constant(_real(variance))


class White(Kernel):
    """The kernel of independent values: every input has one of its own, which repeated inputs share."""

    variance: Array

    def evaluate(self, X1: Array, X2: Array) -> Array:
        return jnp.where(jnp.all(X1 == X2), self.variance, 0.0)


def white(variance: ArrayLike = 1.0) -> White:
    """White noise of a given variance that belongs to the function, not to its measurement."""
    return White(_real(variance))


class OfInputs(Kernel):
    """A kernel of some columns of the inputs, several where tinygp's Subspace takes one."""

    axis: tuple[int, ...] = equinox.field(static=True)
    kernel: Kernel

    def evaluate(self, X1: Array, X2: Array) -> Array:
        columns = jnp.asarray(self.axis)
        return self.kernel.evaluate(X1[columns], X2[columns])


def of_inputs(inputs: int | Sequence[int], kernel: Kernel) -> Kernel:
    """A kernel of some columns of the inputs only."""
    return OfInputs((inputs,) if isinstance(inputs, int) else tuple(inputs), kernel)


def terms_of(kernel: Kernel) -> list[Kernel]:
    """The terms of a sum of kernels, in their order; a kernel that is no sum is its only term."""
    if not isinstance(kernel, kernels.Sum | kernels.quasisep.Sum):
        return [kernel]
    return [*terms_of(kernel.kernel1), *terms_of(kernel.kernel2)]


def _stretched(kernel: Kernel, lengthscale: ArrayLike, name: str = "lengthscale") -> Kernel:
    """The kernel of the inputs divided by a lengthscale."""
    return transforms.Linear(1 / _positive(lengthscale, name), kernel)


def _positive(value: ArrayLike, name: str) -> Any:
    """The value; raises ValueError where it is known and not positive."""
    numbers = _real(value)
    if isinstance(numbers, np.ndarray) and not (np.isfinite(numbers) & (numbers > 0)).all():
        raise ValueError(f"{name} is {numbers}; expected positive numbers")
    return numbers


def _real(value: ArrayLike) -> Any:
    """The value in double precision where it is known, whatever the precision of JAX is where a kernel is made."""
    return value if isinstance(value, Array) else np.asarray(value, float)
