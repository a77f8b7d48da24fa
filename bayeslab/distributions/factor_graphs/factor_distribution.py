"""A joint distribution of discrete variables by a factor graph: its sum, its draws, its mode and its marginals.

Variables are summed over one round after the other; draws go back in the opposite order, each variable given those that
it met.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import Distribution, constraints

from bayeslab.distributions.factor_graphs.factor_graph import ZERO, Batch, EliminationPlan
from bayeslab.distributions.factor_graphs.running_totals import RunningTotals

Reduce = Callable[[Array, int], Array]
"""What is left of log weights along an axis: their sum or their maximum."""
MAX_PLACES_WRITTEN = 2**16
"""Places of one operation, at most, that are written into compiled code."""


class FactorDistribution(Distribution):
    """Values 0, 1, ... of several variables, (variable,), with log probability the sum of tables, but for a constant.

    tables: all numbers of all tables, one after the other. vector: these and all messages. totals: the last variables
    of the plan, where these are totals of the others, of which values have no place.
    """

    pytree_data_fields = ("tables", "vector")
    pytree_aux_fields = ("plan", "totals")
    arg_constraints: dict[str, constraints.Constraint] = {}
    support = constraints.independent(constraints.nonnegative_integer, 1)

    def __init__(
        self,
        tables: Array,
        plan: EliminationPlan,
        vector: Array | None = None,
        totals: RunningTotals | None = None,
    ):
        self.tables, self.plan, self.totals = tables, plan, totals
        self.vector = messages(plan, tables, log_sum) if vector is None else vector
        super().__init__((), (len(self.cards),))

    @property
    def cards(self) -> tuple[int, ...]:
        """How many values every variable has (variable,)."""
        return self.plan.cards if self.totals is None else self.plan.cards[: self.totals.num_variables]

    @property
    def log_partition(self) -> Array:
        """The log of the sum of all weights."""
        return log_partition(self.plan, self.tables)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        uniform = jax.random.uniform(key, (*sample_shape, len(self.plan.cards)))
        flat = uniform.reshape(-1, uniform.shape[-1])
        return jax.vmap(self._from_uniform)(flat).reshape(*sample_shape, *self.event_shape)

    def _from_uniform(self, uniform: Array) -> Array:
        """Values at standard uniform numbers (variable,)."""
        padded = jnp.append(uniform, 0.5)

        def choose(log_weights: Array, variables: Array) -> Array:
            return choice_at(log_weights, padded[variables])

        return _backwards(self.plan, self.vector, choose)[: len(self.cards)]

    def mode(self) -> Array:
        """The most probable values of all variables together."""
        vector = messages(self.plan, self.tables, jnp.max)
        values = _backwards(self.plan, vector, lambda log_weights, _: jnp.argmax(log_weights, axis=-1))
        return values[: len(self.cards)]

    def log_prob(self, value: Array) -> Array:
        flat = value.reshape(-1, value.shape[-1])
        return jax.vmap(self._log_weight)(flat).reshape(value.shape[:-1]) - self.vector[self.plan.roots].sum()

    def _log_weight(self, value: Array) -> Array:
        values = value if self.totals is None else self.totals.extended(value)
        return self.tables[table_places(self.plan, values)].sum()

    def table_probs(self) -> Array:
        """The probability of every number of every table: that the variables of the table have these values."""
        return table_probs(self.plan, self.tables)


def table_places(plan: EliminationPlan, value: Array) -> Array:
    """For every table the place of its number at a value (variable,)."""
    width = max(map(len, plan.scopes), default=0)
    scopes, strides = [], []
    for scope in plan.scopes:
        sizes, step = [plan.cards[variable] for variable in scope], 1
        own = []
        for size in sizes[::-1]:
            own.append(step)
            step *= size
        padding = [0] * (width - len(scope))
        scopes.append([*scope, *padding])
        strides.append([*own[::-1], *padding])
    starts = jnp.asarray(plan.table_starts[:-1] - ZERO - 1)
    return starts + (value[jnp.asarray(scopes, jnp.int32)] * jnp.asarray(strides, jnp.int32)).sum(-1)


def choice_at(log_weights: Array, uniform: Array) -> Array:
    """The value (row,) of a row of log weights (row, value) at a standard uniform number (row,)."""
    weights = jnp.exp(log_weights - log_weights.max(-1, keepdims=True))
    cumulative = jnp.cumsum(weights, axis=-1)
    passed = uniform[:, None] * cumulative[:, -1:] >= cumulative
    return jnp.minimum(passed.sum(-1), weights.shape[-1] - 1)


def log_sum(log_weights: Array, axis: int) -> Array:
    """The log of a sum of weights, minus infinity where all of them are zero, with slopes of zero there."""
    largest = jax.lax.stop_gradient(log_weights.max(axis, keepdims=True))
    shift = jnp.where(jnp.isfinite(largest), largest, 0.0)
    total = jnp.exp(log_weights - shift).sum(axis)
    is_positive = total > 0
    return jnp.where(is_positive, jnp.log(jnp.where(is_positive, total, 1.0)) + shift.squeeze(axis), -jnp.inf)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def log_partition(plan: EliminationPlan, tables: Array) -> Array:
    """The log of the sum over all values of exp of the sum of the tables."""
    return messages(plan, tables, log_sum)[plan.roots].sum()


@log_partition.defjvp
def _log_partition_jvp(plan: EliminationPlan, primals: Any, tangents: Any) -> tuple[Array, Array]:
    [tables], [change] = primals, tangents
    probs = table_probs(plan, tables)
    return log_partition(plan, tables), jnp.sum(jnp.where(probs == 0, 0.0, probs * change))


def messages(plan: EliminationPlan, tables: Array, reduce: Reduce) -> Array:
    """The vector of all tables and messages."""
    vector = jnp.zeros(plan.length, tables.dtype).at[ZERO + 1 : ZERO + 1 + plan.num_numbers].set(tables)

    def eliminate(batch: Batch, vector: Array) -> Array:
        joint = _joint(batch, vector)
        left = reduce(joint.reshape(len(joint), batch.num_choices, -1), 1).ravel()
        return jax.lax.dynamic_update_slice(vector, left, (batch.message,))

    for batch in plan.batches:
        vector = eliminate(batch, vector)
    if plan.loop is not None:
        digits = plan.loop.digits

        def step(vector: Array, arrays: Any) -> tuple[Array, None]:
            return eliminate(_with_digits(arrays, digits), vector), None

        vector, _ = jax.lax.scan(step, vector, _moving(plan.loop))
    return vector


def table_probs(plan: EliminationPlan, tables: Array) -> Array:
    """The probability of every number of every table: messages go back from those that were sent last."""
    vector = messages(plan, tables, log_sum)
    weights = jnp.zeros_like(vector).at[plan.roots].add(1.0)

    def distribute(batch: Batch, weights: Array) -> Array:
        joint = _joint(batch, vector).reshape(len(batch.variables), batch.num_choices, -1)
        largest = joint.max(1, keepdims=True)
        shares = jnp.exp(joint - jnp.where(jnp.isfinite(largest), largest, 0.0))
        total = shares.sum(1, keepdims=True)
        shares = shares / jnp.where(total > 0, total, 1.0)
        size = len(batch.variables) * shares.shape[-1]
        received = jax.lax.dynamic_slice(weights, (batch.message,), (size,))
        probs = (shares * received.reshape(len(shares), 1, -1)).reshape(len(shares), 1, -1)
        places = _places(batch)
        return weights.at[places].add(jnp.where(places == ZERO, 0.0, jnp.broadcast_to(probs, places.shape)))

    if plan.loop is not None:
        digits = plan.loop.digits

        def step(weights: Array, arrays: Any) -> tuple[Array, None]:
            return distribute(_with_digits(arrays, digits), weights), None

        weights, _ = jax.lax.scan(step, weights, _moving(plan.loop), reverse=True)
    for batch in plan.batches[::-1]:
        weights = distribute(batch, weights)
    return weights[ZERO + 1 : ZERO + 1 + plan.num_numbers]


def _backwards(plan: EliminationPlan, vector: Array, choose: Callable[[Array, Array], Array]) -> Array:
    """Values of all variables, each chosen given those that it met. choose: (log weights (row, value), variables)."""
    values = jnp.zeros(len(plan.cards) + 1, jnp.int32)

    def pick(batch: Batch, values: Array) -> Array:
        known = _at(values, batch.others)  # (row, other)
        fixed = batch.starts + (batch.strides[:, :, 1:] * known[:, None, :]).sum(-1)
        choices = jnp.arange(batch.num_choices, dtype=jnp.int32)
        places = fixed[:, :, None] + batch.strides[:, :, :1] * choices
        possible = choices < batch.cards[:, :1]
        log_weights = jnp.where(possible, _at(vector, jnp.where(possible[:, None], places, ZERO)).sum(1), -jnp.inf)
        return values.at[batch.variables].set(choose(log_weights, jnp.asarray(batch.variables)).astype(jnp.int32))

    if plan.loop is not None:
        digits = plan.loop.digits

        def step(values: Array, arrays: Any) -> tuple[Array, None]:
            return pick(_with_digits(arrays, digits), values), None

        values, _ = jax.lax.scan(step, values, _moving(plan.loop), reverse=True)
    for batch in plan.batches[::-1]:
        values = pick(batch, values)
    return values[:-1]


def _joint(batch: Batch, vector: Array) -> Array:
    """What all tables of a batch say of all values (row, value)."""
    total = _at(vector, _places(batch)).sum(1)
    return total if batch.exact else jnp.where(_is_possible(batch), total, -jnp.inf)


def _places(batch: Batch) -> Any:
    """Where the tables of a batch have their numbers, (row, table, value); impossible values are nowhere.

    Those of a batch that is known are constants: code that works them out would take longer to compile.
    """
    known = isinstance(batch.starts, np.ndarray) and batch.starts.size * len(batch.digits) <= MAX_PLACES_WRITTEN
    array: Any = np if known else jnp
    starts, strides = array.asarray(batch.starts), array.asarray(batch.strides)
    places = starts[:, :, None] + (strides[:, :, None, :] * batch.digits).sum(-1, dtype=np.int32)
    return places if batch.exact else array.where(_is_possible(batch)[:, None], places, ZERO)


def _is_possible(batch: Batch) -> Any:
    """Whether the digits of every value are values of the variables, (row, value)."""
    return (batch.digits < batch.cards[:, None, :]).all(-1)


def _at(vector: Array, places: Any) -> Array:
    """Numbers of a vector at places that it has."""
    return vector.at[places].get(mode="promise_in_bounds", wrap_negative_indices=False)


def _moving(loop: Batch) -> tuple[Array, ...]:
    """What differs between the steps of a loop."""
    return tuple(
        jnp.asarray(each) for name, each in zip(loop._fields, loop, strict=True) if name not in ("digits", "exact")
    )


def _with_digits(arrays: Any, digits: Any) -> Batch:
    variables, others, cards, starts, strides, message = arrays
    return Batch(variables, others, cards, digits, starts, strides, message, False)
