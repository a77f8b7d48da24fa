"""A process as a combination of sines in a box: stationary kernels through their spectral densities.

Every part of a kernel gives functions; a sum has those of all its terms, a product has all products of theirs.
See Solin and Särkkä (2020), Statistics and Computing 30, and Riutort-Mayol et al. (2023), Statistics and Computing 33.
"""

import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.tree_util import register_dataclass
from numpyro.contrib.hsgp.laplacian import eigenfunctions, sqrt_eigenvalues
from numpyro.contrib.hsgp.spectral_densities import (
    spectral_density_matern,
    spectral_density_squared_exponential,
)
from tinygp import kernels, transforms
from tinygp.kernels import quasisep
from tinygp.kernels.distance import L2Distance

from bayeslab.gaussian_processes.kernels import OfInputs
from bayeslab.gaussian_processes.low_rank import LowRank, as_floats, min_remainder
from bayeslab.gaussian_processes.periodic import sqrt_fourier_coefficients


@dataclass(frozen=True)
class HilbertSpace:
    """The approximate solver by the first r eigenfunctions of the Laplacian in a box around x, in time of n r^2.

    num_basis: of every input, or one number for all; a kernel of several inputs takes as many functions as the product.
    boundary: half of the width of the box, over the largest distance of x from the middle; above 1. The slower the
        process varies compared with x, the larger it has to be, and num_basis with it.
    What the functions leave out of the process is taken for nothing but `min_remainder`, so that it has a density.
    The box is that of the data: new inputs outside of it are an error or, inside compiled code, give NaN.
    """

    num_basis: int | tuple[int, ...]
    boundary: float = 1.5

    def __post_init__(self) -> None:
        counts = self.num_basis if isinstance(self.num_basis, tuple | list) else (self.num_basis,)
        if not counts or min(map(operator.index, counts)) < 1:
            raise ValueError(f"num_basis is {self.num_basis}; expected numbers of at least 1, such as 30")
        if not self.boundary > 1:
            raise ValueError(f"boundary is {self.boundary}; expected more than 1, such as 1.5, for room around x")
        if isinstance(self.num_basis, list):
            object.__setattr__(self, "num_basis", tuple(self.num_basis))

    def represent(self, kernel: Any, x: Array) -> LowRank:
        """The process at inputs x. kernel: of tinygp. x: (row,) or (row, input).

        Raises ValueError for a part of the kernel without a spectral density, for distances that are not Euclidean, and
        for an input that never varies.
        """
        rows = _rows(x)
        counts = self.num_basis if isinstance(self.num_basis, tuple) else (self.num_basis,) * rows.shape[1]
        if len(counts) != rows.shape[1]:
            raise ValueError(f"num_basis is {counts} and x has {rows.shape[1]} columns; give one number for each")
        low, high = rows.min(0), rows.max(0)
        if _concrete(rows) and (low == high).any():
            column = int(np.argmax(low == high))
            raise ValueError(f"column {column} of x never varies, so that no box is around it; leave the column out")
        box = Box((low + high) / 2, self.boundary * (high - low) / 2, jnp.ones_like(low), counts)
        functions = BoxFunctions(kernel, box)
        return LowRank(*functions.at(x), functions)


@partial(register_dataclass, data_fields=["centre", "half_width", "stretch"], meta_fields=["num_basis"])
@dataclass(frozen=True)
class Box:
    """The box that the functions live in, by input, and how many there are of each.

    stretch: what inputs are multiplied by before a kernel takes them.
    """

    centre: Array
    half_width: Array
    stretch: Array
    num_basis: tuple[int, ...]

    def stretched(self, scale: Any) -> "Box":
        return replace(self, stretch=self.stretch * scale)

    def side(self, columns: np.ndarray) -> "Box":
        """The box of some of the inputs."""
        counts = tuple(self.num_basis[column] for column in columns)
        stretch = jnp.broadcast_to(self.stretch, self.centre.shape)
        return Box(self.centre[columns], self.half_width[columns], stretch[columns], counts)


@partial(register_dataclass, data_fields=["kernel", "box"], meta_fields=[])
@dataclass(frozen=True)
class BoxFunctions:
    """The functions of a kernel in a box, times their prior standard deviations.

    Where the prior variance is less than its mean over the rows, the remainder is relative to the mean: it is 0 where
    straight lines pass the origin.
    """

    kernel: Any
    box: Box

    def at(self, x: Array) -> tuple[Array, Array]:
        rows = _rows(x)
        if rows.shape[1] != len(self.box.num_basis):
            raise ValueError(
                f"new inputs have {rows.shape[1]} columns; expected {len(self.box.num_basis)}, as at the fit"
            )
        basis, variance = _basis_functions(self.kernel, self.box, rows), self.kernel(as_floats(x)).astype(rows.dtype)
        return basis.astype(rows.dtype), min_remainder(jnp.maximum(variance, variance.mean()))


def _basis_functions(kernel: Any, box: Box, x: Array) -> Array:
    """The functions of a kernel at x, (row, r): sums of their products are the covariances of rows."""
    if type(kernel) not in BASIS_BY_KERNEL:
        names = sorted({kind.__name__ for kind in BASIS_BY_KERNEL})
        raise ValueError(
            f"{type(kernel).__name__} has no spectral density here; HilbertSpace takes {', '.join(names)}; use "
            "InducingPoints or Dense for other kernels"
        )
    return BASIS_BY_KERNEL[type(kernel)](kernel, box, x)


def _sum(kernel: Any, box: Box, x: Array) -> Array:
    return jnp.concatenate([_basis_functions(part, box, x) for part in (kernel.kernel1, kernel.kernel2)], axis=1)


def _product(kernel: Any, box: Box, x: Array) -> Array:
    first, second = (_basis_functions(part, box, x) for part in (kernel.kernel1, kernel.kernel2))
    return (first[:, :, None] * second[:, None, :]).reshape(len(x), -1)


def _constant(kernel: kernels.Constant, box: Box, x: Array) -> Array:
    return jnp.full((len(x), 1), jnp.sqrt(kernel.value), x.dtype)


def _linear(kernel: kernels.DotProduct, box: Box, x: Array) -> Array:
    """The function of a linear kernel: it is exact, and so are polynomials, which are products of it."""
    return x * box.stretch


def _scaled(kernel: quasisep.Scale, box: Box, x: Array) -> Array:
    return jnp.sqrt(kernel.scale) * _basis_functions(kernel.kernel, box, x)


def _stretched(kernel: transforms.Linear, box: Box, x: Array) -> Array:
    if jnp.ndim(kernel.scale) > 1:
        raise ValueError("the scale of transforms.Linear is a matrix; HilbertSpace takes one number for every input")
    return _basis_functions(kernel.kernel, box.stretched(kernel.scale), x)


def _subspace(kernel: transforms.Subspace | OfInputs, box: Box, x: Array) -> Array:
    columns = np.atleast_1d(kernel.axis)
    return _basis_functions(kernel.kernel, box.side(columns), x[:, columns])


def _periodic(kernel: kernels.ExpSineSquared, box: Box, x: Array) -> Array:
    """The sines and cosines of a periodic kernel: they are exact, inside of the box and outside."""
    if x.shape[1] > 1:
        raise ValueError(
            f"ExpSineSquared has {x.shape[1]} inputs; HilbertSpace takes one: transforms.Subspace(0, ...) picks it"
        )
    (count,) = box.num_basis
    angle = 2 * jnp.pi * (x - box.centre) * box.stretch / kernel.scale * jnp.arange(count)
    roots = sqrt_fourier_coefficients(jnp.asarray(kernel.gamma, x.dtype), count)
    return jnp.concatenate([roots * jnp.cos(angle), roots[1:] * jnp.sin(angle[:, 1:])], axis=1)


def _spectral(density: Callable[..., Array], kernel: Any, box: Box, x: Array) -> Array:
    """The sines in the box, times the roots of the spectral density at their frequencies."""
    inputs, counts = x.shape[1], list(box.num_basis)
    if inputs > 1 and not isinstance(getattr(kernel, "distance", None), L2Distance):
        raise ValueError(
            f"{type(kernel).__name__} of {inputs} inputs has no Euclidean distance; "
            "give it distance=tinygp.kernels.distance.L2Distance()"
        )
    _check_inside(box, x)
    length = jnp.abs(kernel.scale / box.stretch)
    frequency = sqrt_eigenvalues(box.half_width[:, None], counts, inputs).T
    strength = density(dim=inputs, w=frequency, alpha=getattr(kernel, "sigma", 1.0) ** 2, length=length)
    is_nonzero = strength != 0
    roots = jnp.where(is_nonzero, jnp.sqrt(jnp.where(is_nonzero, strength, 1.0)), 0.0)
    offset = x - box.centre
    inside = (jnp.abs(offset) <= box.half_width).all(1, keepdims=True)
    return jnp.where(inside, roots * eigenfunctions(offset, box.half_width[:, None], counts), jnp.nan)


def _check_inside(box: Box, x: Array) -> None:
    """Raise ValueError for the first input outside of the box, where the inputs are known."""
    if not _concrete(x, box.centre, box.half_width):
        return
    outside = np.abs(x - box.centre) > box.half_width
    if outside.any():
        row, column = np.argwhere(outside)[0]
        low, high = (box.centre - box.half_width)[column], (box.centre + box.half_width)[column]
        raise ValueError(
            f"the new input {x[row, column]:.6g} is outside of the box of HilbertSpace, from {low:.6g} to {high:.6g}; "
            "fit with a larger boundary"
        )


def _rows(x: Array) -> Array:
    """The inputs as floats (row, input)."""
    numbers = as_floats(x)
    return numbers[:, None] if numbers.ndim == 1 else numbers


def _concrete(*arrays: Array) -> bool:
    """Whether the numbers are known, as they are outside of compiled code."""
    return not any(isinstance(array, jax.core.Tracer) for array in arrays)


BASIS_BY_KERNEL: dict[type, Callable[[Any, Box, Array], Array]] = {
    kernels.Sum: _sum,
    kernels.Product: _product,
    kernels.Constant: _constant,
    kernels.DotProduct: _linear,
    transforms.Linear: _stretched,
    transforms.Subspace: _subspace,
    OfInputs: _subspace,
    kernels.ExpSquared: partial(_spectral, spectral_density_squared_exponential),
    kernels.Exp: partial(_spectral, partial(spectral_density_matern, nu=0.5)),
    kernels.Matern32: partial(_spectral, partial(spectral_density_matern, nu=1.5)),
    kernels.Matern52: partial(_spectral, partial(spectral_density_matern, nu=2.5)),
    kernels.ExpSineSquared: _periodic,
    quasisep.Sum: _sum,
    quasisep.Product: _product,
    quasisep.Scale: _scaled,
    quasisep.Exp: partial(_spectral, partial(spectral_density_matern, nu=0.5)),
    quasisep.Matern32: partial(_spectral, partial(spectral_density_matern, nu=1.5)),
    quasisep.Matern52: partial(_spectral, partial(spectral_density_matern, nu=2.5)),
}
"""How a kernel gives its functions, by its class; HilbertSpace takes no others."""
