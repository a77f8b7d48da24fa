"""A Normal over an array of which some axes are joint."""

import jax
import jax.numpy as jnp
from jax import Array
from numpyro.distributions import Distribution, constraints


class JointNormal(Distribution):
    """A Normal over an array of which some axes are joint, by the Cholesky factor of its precision.

    loc: the mean, (*independent, size). factor: L where the precision is multiplier L L', (*independent, size, size),
        or (size, size) where it is the same for all independent elements.
    coupled: the axes of a value that are joint. whole: the shape of a value.
    multiplier: a number, apart from the factor so that draws with many of them share one factor.
    inverse: the inverse of the factor, where one serves many draws: a triangular solve for each costs ten times a
        product.
    """

    pytree_data_fields = ("loc", "factor", "multiplier", "inverse")
    pytree_aux_fields = ("coupled", "whole")
    arg_constraints: dict[str, constraints.Constraint] = {}

    def __init__(
        self,
        loc: Array,
        factor: Array,
        coupled: tuple[int, ...],
        whole: tuple[int, ...],
        multiplier: Array | float = 1.0,
        inverse: Array | None = None,
    ):
        self.inverse = inverse
        self.loc, self.factor, self.coupled, self.whole = loc, factor, coupled, whole
        self.multiplier = jnp.asarray(multiplier)
        super().__init__((), whole)

    @property
    def support(self) -> constraints.Constraint:
        return constraints.independent(constraints.real, len(self.whole))

    @property
    def _axis_order(self) -> tuple[int, ...]:
        """The axes of a value, those that are independent before those that are joint."""
        independent = [axis for axis in range(len(self.whole)) if axis not in self.coupled]
        return (*independent, *self.coupled)

    def _flatten(self, value: Array) -> Array:
        """Values (*sample, *whole) with their joint axes as one, (*sample, *independent, size)."""
        extra = value.ndim - len(self.whole)
        order = (*range(extra), *(extra + axis for axis in self._axis_order))
        return jnp.transpose(value, order).reshape(*value.shape[:extra], *self.loc.shape)

    def _unflatten(self, flat: Array) -> Array:
        """Values (*sample, *whole) from their flat form (*sample, *independent, size)."""
        extra = flat.ndim - self.loc.ndim
        shape = tuple(self.whole[axis] for axis in self._axis_order)
        inverse = [self._axis_order.index(axis) for axis in range(len(self.whole))]
        return jnp.transpose(flat.reshape(*flat.shape[:extra], *shape), (*range(extra), *(extra + i for i in inverse)))

    @property
    def mean(self) -> Array:
        return self._unflatten(self.loc)

    @property
    def conditional_scale(self) -> Array:
        """The standard deviation of every element given the others."""
        scale = 1 / jnp.sqrt(self.multiplier * (self.factor**2).sum(-1))
        return self._unflatten(jnp.broadcast_to(scale, self.loc.shape))

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        return self.from_noise(jax.random.normal(key, (*sample_shape, *self.loc.shape)))

    def from_noise(self, noise: Array) -> Array:
        """Values for standard noise (*sample, *independent, size)."""
        if self.inverse is None:
            factor = jnp.broadcast_to(self.factor, (*noise.shape, noise.shape[-1]))
            step = jax.scipy.linalg.solve_triangular(factor, noise[..., None], trans=1, lower=True)[..., 0]
        else:
            step = jnp.einsum("...ji,...j->...i", self.inverse, noise)
        return self._unflatten(self.loc + step / jnp.sqrt(self.multiplier))

    def log_prob(self, value: Array) -> Array:
        log_densities = self._flat_log_prob(value)
        return log_densities.sum(tuple(range(log_densities.ndim - self.loc.ndim, log_densities.ndim)))

    def log_prob_of_elements(self, value: Array) -> Array:
        """What every element of a value (*whole) adds to its log density, given the joint elements after it."""
        return self._unflatten(self._flat_log_prob(value))

    def _flat_log_prob(self, value: Array) -> Array:
        """What every element adds to the log density, (*sample, *independent, size)."""
        scaled = jnp.einsum("...ji,...j->...i", self.factor, self._flatten(value) - self.loc)
        log_scales = jnp.log(jnp.diagonal(self.factor, axis1=-2, axis2=-1))
        return log_scales - 0.5 * self.multiplier * scaled**2 + 0.5 * jnp.log(self.multiplier / (2 * jnp.pi))
