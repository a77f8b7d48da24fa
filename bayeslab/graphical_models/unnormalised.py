"""Programs whose fields have weights in place of probabilities: what the exchange algorithm works on."""

import copy
import inspect
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from numpyro.distributions import Distribution
from numpyro.primitives import Messenger

from bayeslab.distributions import MarkovRandomField, RestrictedBoltzmann
from bayeslab.programs.program import Program
from bayeslab.programs.validation import short_name
from bayeslab.programs.wrapped_distributions import innermost_distribution


class UnnormalisedField(Distribution):
    """A field with the log of its weight as its log density.

    field: a MarkovRandomField or a RestrictedBoltzmann. num_sweeps: of Gibbs from fair units, that a draw takes; None
    for exact draws, for which the partition function must be within reach.
    """

    pytree_data_fields = ("field",)
    pytree_aux_fields = ("num_sweeps",)
    arg_constraints: dict[str, Any] = {}

    def __init__(self, field: MarkovRandomField | RestrictedBoltzmann, num_sweeps: int | None):
        self.field, self.num_sweeps = field, num_sweeps
        super().__init__(field.batch_shape, field.event_shape)

    @property
    def support(self) -> Any:
        return self.field.support

    def log_prob(self, value: Array) -> Array:
        return self.field.log_weight(value)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        if self.num_sweeps is None:
            try:
                return self.field.sample(key, sample_shape)
            except ValueError as reason:
                raise ValueError(f"{reason}; Exchange(num_sweeps=100) draws fields by sweeps of Gibbs") from None
        start = jnp.zeros((*sample_shape, *self.batch_shape, *self.event_shape), jnp.int32)
        fair = self.field.tempered(jnp.zeros(())).gibbs_step(key, start)
        return self.swept(jax.random.fold_in(key, 1), fair, self.num_sweeps)

    def swept(self, key: Array, value: Array, num_sweeps: int) -> Array:
        """Values (*batch, unit) after some sweeps of Gibbs."""
        keys = jax.random.split(key, num_sweeps)
        return jax.lax.scan(lambda value, key: (self.field.gibbs_step(key, value), None), value, keys)[0]


@dataclass(frozen=True)
class UnnormalisedFields:
    """A program with UnnormalisedField for every field, and the signature and the name of the program it is made of."""

    function: Program
    num_sweeps: int | None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _Unnormalise(self.function, self.num_sweeps)(*args, **kwargs)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self.function)

    @property
    def __name__(self) -> str:
        return short_name(self.function)


class _Unnormalise(Messenger):
    """A handler that takes the partition functions from fields."""

    def __init__(self, fn: Program, num_sweeps: int | None):
        self.num_sweeps = num_sweeps
        super().__init__(fn)

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] != "sample" or not isinstance(msg["fn"], Distribution):
            return
        field = innermost_distribution(msg["fn"])
        if isinstance(field, MarkovRandomField | RestrictedBoltzmann):
            msg["fn"] = _with_innermost(msg["fn"], UnnormalisedField(field, self.num_sweeps))


def field_of(distribution: Distribution) -> UnnormalisedField:
    """The field inside what plates and masks made of it."""
    field = innermost_distribution(distribution)
    assert isinstance(field, UnnormalisedField)
    return field


def _with_innermost(distribution: Distribution, new: Distribution) -> Distribution:
    """A distribution with another one inside of what plates and masks made of it."""
    if distribution is innermost_distribution(distribution):
        return new
    outer: Any = copy.copy(distribution)
    outer.base_dist = _with_innermost(outer.base_dist, new)
    return outer
