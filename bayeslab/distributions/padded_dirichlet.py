"""Dirichlet distributions of different size in one array: what is beyond the size of each is zero."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import gammaln, xlogy
from jax.typing import ArrayLike
from numpyro.distributions import biject_to, constraints
from numpyro.distributions.transforms import Transform
from numpyro.distributions.util import validate_sample

from bayeslab.distributions.gamma import Dirichlet, log_gamma_variates


class PaddedSimplex(constraints.Constraint):
    """Probabilities whose entries from `sizes` on are zero. sizes: ``(*batch,)``."""

    event_dim = 1

    def __init__(self, sizes: ArrayLike):
        self.sizes = sizes

    def __call__(self, x: Any) -> Any:
        real = _is_entry(self.sizes, x.shape[-1])
        simplex = (jnp.abs(x.sum(-1) - 1) < 1e-6) & (x >= 0).all(-1)
        return simplex & jnp.where(real, True, x == 0).all(-1)

    def feasible_like(self, prototype: Any) -> Any:
        real = _is_entry(self.sizes, prototype.shape[-1])
        return jnp.broadcast_to(real / real.sum(-1, keepdims=True), prototype.shape)

    def tree_flatten(self) -> Any:
        return (self.sizes,), (("sizes",), {})


class Positive(constraints.Constraint):
    """Positive numbers, where `real` is true."""

    def __init__(self, real: Array):
        self.real = real

    def __call__(self, x: Any) -> Any:
        return (x > 0) | ~self.real


class PaddedStickBreaking(Transform):
    """Stick breaking, from real numbers to a `PaddedSimplex`: a stick for each real entry but the last, as in NumPyro.

    Numbers beyond the sticks have no meaning. So that densities stay proper they are standard Normal, which is part of
    the Jacobian.
    """

    domain = constraints.real_vector

    def __init__(self, sizes: ArrayLike):
        self.sizes = sizes

    @property
    def codomain(self) -> constraints.Constraint:
        return PaddedSimplex(self.sizes)

    def __call__(self, x: Any) -> Any:
        log_broken, log_rest = self._parts(x)
        log_left = jnp.cumsum(jnp.pad(log_rest, [(0, 0)] * (x.ndim - 1) + [(1, 0)])[..., :-1], -1)
        broken = jnp.exp(jnp.where(self._sticks(x), log_broken + log_left, -jnp.inf))
        is_last = jnp.arange(x.shape[-1] + 1) == jnp.asarray(self.sizes)[..., None] - 1
        padded = jnp.pad(broken, [(0, 0)] * (broken.ndim - 1) + [(0, 1)])
        return jnp.where(is_last, jnp.exp(log_rest.sum(-1, keepdims=True)), padded)

    def _inverse(self, y: Any) -> Any:
        sticks = self._sticks(y[..., :-1])
        after = jnp.cumsum(y[..., ::-1], -1)[..., ::-1][..., 1:]
        tiny = jnp.finfo(y.dtype).tiny
        ratio = jnp.maximum(y[..., :-1], tiny) / jnp.maximum(after, tiny)
        return jnp.where(sticks, jnp.log(jnp.where(sticks, ratio, 1.0)) + self._balance(y[..., :-1]), 0.0)

    def log_abs_det_jacobian(self, x: Any, y: Any, intermediates: Any = None) -> Any:
        log_broken, log_rest = self._parts(x)
        log_left = jnp.cumsum(log_rest, -1)
        return jnp.where(self._sticks(x), log_broken + log_left, -0.5 * x**2 - 0.5 * np.log(2 * np.pi)).sum(-1)

    def forward_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (*shape[:-1], shape[-1] + 1)

    def inverse_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (*shape[:-1], shape[-1] - 1)

    def tree_flatten(self) -> Any:
        return (self.sizes,), (("sizes",), {})

    def _sticks(self, x: Any) -> Array:
        """Whether a number breaks a stick, (*batch, K - 1)."""
        return jnp.arange(x.shape[-1]) < jnp.asarray(self.sizes)[..., None] - 1

    def _balance(self, x: Any) -> Array:
        """The shift of the numbers that makes all entries equal at the origin."""
        left = jnp.asarray(self.sizes)[..., None] - 1 - jnp.arange(x.shape[-1])
        return jnp.log(jnp.maximum(left, 1))

    def _parts(self, x: Any) -> tuple[Array, Array]:
        """Logs of the part of the stick that is broken off and of the part that is left; 0 beyond the sticks."""
        sticks, x = self._sticks(x), x - self._balance(x)
        log_broken, log_rest = jax.nn.log_sigmoid(x), jax.nn.log_sigmoid(-x)
        return jnp.where(sticks, log_broken, 0.0), jnp.where(sticks, log_rest, 0.0)


@biject_to.register(PaddedSimplex)
def _to_padded_simplex(constraint: PaddedSimplex) -> PaddedStickBreaking:
    return PaddedStickBreaking(constraint.sizes)


class PaddedDirichlet(Dirichlet):
    """Dirichlet over the first `sizes` of K entries; the entries beyond are zero, and so is their concentration.

    concentration: ``(*batch, K)``, positive; what it says beyond the sizes is not looked at.
    sizes: ``(*batch,)`` integers from 1 to K.
    For categories whose number differs between rows, as alleles between loci. Raises ValueError for other sizes, where
    their values are known.
    """

    arg_constraints = {"concentration": constraints.independent(constraints.nonnegative, 1)}
    pytree_data_fields = ("sizes",)

    def __init__(self, concentration: ArrayLike, sizes: ArrayLike, *, validate_args: bool | None = None):
        concentration, sizes = jnp.asarray(concentration), jnp.asarray(sizes)
        width = concentration.shape[-1]
        if not isinstance(sizes, jax.core.Tracer):
            known_sizes = np.asarray(sizes)
            wrong = np.argwhere((known_sizes < 1) | (known_sizes > width) | (known_sizes != np.floor(known_sizes)))
            if len(wrong):
                index = wrong[0].tolist()
                raise ValueError(
                    f"sizes has {known_sizes[tuple(index)]} at {index}; expected an integer from 1 to {width}"
                )
        shape = np.broadcast_shapes(concentration.shape, (*sizes.shape, width))
        self.sizes = jnp.broadcast_to(sizes, shape[:-1]).astype(int)  # 64 bits, or 32 where these are all there are
        padded = jnp.where(_is_entry(self.sizes, width), jnp.broadcast_to(concentration, shape), 0.0)
        super().__init__(padded, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=1)
    def support(self) -> Any:
        return PaddedSimplex(self.sizes)

    @property
    def real(self) -> Array:
        """True for the entries of a distribution, False for padding, ``(*batch, K)``."""
        return _is_entry(self.sizes, self.event_shape[0])

    @property
    def positive_entries(self) -> constraints.Constraint:
        """The constraint on the concentration: positive, but for padding."""
        return Positive(self.real)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        real, shape = self.real, (*sample_shape, *self.batch_shape, *self.event_shape)
        logs = log_gamma_variates(key, jnp.where(real, self.concentration, 1.0), shape)
        value = jax.nn.softmax(jnp.where(real, logs, -jnp.inf), axis=-1)
        return jnp.where(real, jnp.maximum(value, jnp.finfo(value.dtype).tiny), 0.0)

    @validate_sample
    def log_prob(self, value: ArrayLike) -> Array:
        real, alpha = self.real, self.concentration
        powers = jnp.where(real, xlogy(alpha - 1, jnp.where(real, value, 1.0)), 0.0)
        normaliser = jnp.where(real, gammaln(jnp.where(real, alpha, 1.0)), 0.0).sum(-1) - gammaln(alpha.sum(-1))
        return powers.sum(-1) - normaliser


def _is_entry(sizes: ArrayLike, width: int) -> Array:
    """True for the first `sizes` of `width` entries, False for padding, (*batch, K)."""
    return jnp.arange(width) < jnp.asarray(sizes)[..., None]


class PaddedCategorical(dist.CategoricalProbs):
    """Categorical with the probabilities of a `PaddedDirichlet`: a value beyond the size is outside of its support.

    probs: ``(*batch, K)``. sizes: ``(*batch,)`` integers from 1 to K. Values are bytes where K is below 128: there may
    be as many of them as a genome has.
    """

    pytree_data_fields = ("sizes",)

    def __init__(self, probs: ArrayLike, sizes: ArrayLike, *, validate_args: bool | None = None):
        self.sizes = jnp.asarray(sizes).astype(int)
        super().__init__(probs, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        return constraints.integer_interval(0, self.sizes - 1)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        value = super().sample(key, sample_shape)
        return value.astype(jnp.int8) if self.probs.shape[-1] <= jnp.iinfo(jnp.int8).max else value
