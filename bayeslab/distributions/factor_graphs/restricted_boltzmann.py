"""The visible units of a restricted Boltzmann machine, with the hidden ones summed out."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.nn import logsumexp, softplus
from jax.typing import ArrayLike
from numpyro.distributions import Distribution, constraints

MAX_UNITS_ENUMERATED = 16
"""Units of the smaller layer, at most, of which all configurations are looked at for the partition function."""


class RestrictedBoltzmann(Distribution):
    """Visible units v (visible,) of a restricted Boltzmann machine, p(v, h) = exp(h'wv + alpha'v + beta'h) / Z.

    w: weights (*batch, hidden, visible). alpha, beta: fields on visible and hidden units (*batch, visible) and
    (*batch, hidden). The hidden units h, 0 or 1 like v, are summed out; given v they are independent, with log odds
    w v + beta. Z is a sum over all configurations of the smaller layer, of which there may be 16 units, so log p(v) is
    exact, its gradients too, and draws are independent.
    Raises ValueError for shapes that do not agree, and where Z is asked for of larger layers.
    """

    arg_constraints = {
        "w": constraints.independent(constraints.real, 2),
        "alpha": constraints.real_vector,
        "beta": constraints.real_vector,
    }
    pytree_data_fields = ("w", "alpha", "beta")
    support = constraints.independent(constraints.boolean, 1)

    def __init__(self, w: ArrayLike, alpha: ArrayLike, beta: ArrayLike, validate_args: bool | None = None):
        self.w, self.alpha, self.beta = jnp.asarray(w), jnp.asarray(alpha), jnp.asarray(beta)
        shapes = (*self.beta.shape[-1:], *self.alpha.shape[-1:])
        if self.w.shape[-2:] != shapes:
            raise ValueError(
                f"w has shape {self.w.shape}, but fields of the layers ask for (hidden, visible) = {shapes}"
            )
        batch = jnp.broadcast_shapes(self.w.shape[:-2], self.alpha.shape[:-1], self.beta.shape[:-1])
        super().__init__(batch, self.alpha.shape[-1:], validate_args=validate_args)

    def log_weight(self, value: Array) -> Array:
        """The log of the sum over hidden units of exp(h'wv + alpha'v + beta'h), log p(v) but for log Z."""
        value = jnp.asarray(value, self.w.dtype)
        return (self.alpha * value).sum(-1) + softplus(self.hidden_logits(value)).sum(-1)

    @property
    def log_partition(self) -> Array:
        """log Z, (*batch)."""
        return logsumexp(self._log_weights()[1], axis=-1)

    def log_prob(self, value: Array) -> Array:
        return self.log_weight(value) - self.log_partition

    def hidden_logits(self, value: Array) -> Array:
        """Log odds of the hidden units given the visible ones, (..., hidden)."""
        return _product(self.w, value) + self.beta

    def visible_logits(self, hidden: Array) -> Array:
        """Log odds of the visible units given the hidden ones, (..., visible)."""
        return _product(self.w.mT, hidden) + self.alpha

    def gibbs_step(self, key: Array, value: Array) -> Array:
        """Visible units (..., visible) after one sweep: all hidden units are drawn given them, then all visible units
        given these."""
        hidden_key, visible_key = jax.random.split(key)
        hidden = _bernoulli(hidden_key, self.hidden_logits(value))
        return _bernoulli(visible_key, self.visible_logits(hidden)).astype(value.dtype)

    def tempered(self, power: Array) -> "RestrictedBoltzmann":
        """The machine with all weights times a number; at zero all units are independent and fair."""
        return RestrictedBoltzmann(power * self.w, power * self.alpha, power * self.beta)

    @property
    def log_num_configurations(self) -> float:
        """The log of the number of configurations of both layers, log Z at power zero."""
        return float(np.log(2.0)) * sum(self.w.shape[-2:])

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        choice_key, unit_key = jax.random.split(key)
        units, log_weights = self._log_weights()
        shape = (*sample_shape, *self.batch_shape)
        layer = jnp.asarray(units)[jax.random.categorical(choice_key, log_weights, shape=shape)]
        if not self._hidden_is_smaller:
            return layer.astype(jnp.int32)
        return _bernoulli(unit_key, self.visible_logits(layer)).astype(jnp.int32)

    @property
    def _hidden_is_smaller(self) -> bool:
        return self.beta.shape[-1] <= self.alpha.shape[-1]

    def _log_weights(self) -> tuple[np.ndarray, Array]:
        """All configurations (configuration, unit) of the smaller layer, and the log of the sum of the weights of each
        over the other layer (*batch, configuration)."""
        hidden, visible = self.w.shape[-2:]
        if min(hidden, visible) > MAX_UNITS_ENUMERATED:
            raise ValueError(
                f"layers of {hidden} hidden and {visible} visible units are too large for an exact partition function, "
                f"which takes {MAX_UNITS_ENUMERATED} units in the smaller layer at most; "
                "bl.graphical_models.Exchange(num_sweeps=100), contrastive_divergence and annealed_log_partition do "
                "without"
            )
        w, own, other = self.w.mT, self.beta, self.alpha
        if not self._hidden_is_smaller:
            w, own, other = self.w, self.alpha, self.beta
        units = configurations(own.shape[-1])
        own, other = own[..., None, :], other[..., None, :]
        log_weights = (own * units).sum(-1) + softplus(_product(w[..., None, :, :], units) + other).sum(-1)
        return units, jnp.broadcast_to(log_weights, (*self.batch_shape, len(units)))


def configurations(number: int) -> np.ndarray:
    """All values of some binary units, (2^number, number)."""
    return (np.arange(2**number)[:, None] >> np.arange(number)) & 1


def _bernoulli(key: Array, logits: Array) -> Array:
    """Draws of units with some log odds."""
    return jax.random.uniform(key, logits.shape) < jax.nn.sigmoid(logits)


def _product(w: Array, units: Any) -> Array:
    """w units, for every matrix (..., row, column) and every vector (..., column)."""
    return (w @ jnp.asarray(units, w.dtype)[..., None])[..., 0]
