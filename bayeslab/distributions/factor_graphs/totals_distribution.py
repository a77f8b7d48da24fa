"""Independent discrete variables, weighed by functions of totals of them: sums, draws, the mode and marginals.

The weights of all totals of the first variables follow from those of one variable less, as the Poisson-binomial
distribution does; draws go back from a last total. That takes a number for each total and value, not a table.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import Distribution, constraints

from bayeslab.distributions.factor_graphs.factor_distribution import choice_at, log_sum
from bayeslab.distributions.factor_graphs.running_totals import RunningTotals


@dataclass(frozen=True)
class TotalsGraph:
    """Variables with a table each, totals of some of them, and a table for the last value of every total.

    cards: of the variables. tables: in order, the variable that a table is of, or the place of a total behind the
    number of variables. No variable is in two totals.
    """

    cards: tuple[int, ...]
    tables: tuple[int, ...]
    totals: RunningTotals

    @cached_property
    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """Where the numbers of every variable are (1 + variable, value), and those of the last value of every total
        (total, value), among all numbers, a zero and minus infinity. The variable after the last stands for none."""
        size, count = len(self.cards), len(self.totals.totals)
        last_cards = [total.cards[-1] for total in self.totals.totals]
        num_numbers = sum(self.cards[each] if each < size else last_cards[each - size] for each in self.tables)
        zero, nothing = num_numbers, num_numbers + 1
        own = np.full((size + 1, max(self.cards)), nothing, np.int32)
        for variable, card in enumerate((*self.cards, 1)):
            own[variable, :card] = zero
        last = np.full((count, max(last_cards)), nothing, np.int32)
        for total, card in enumerate(last_cards):
            last[total, :card] = zero
        start = 0
        for each in self.tables:
            row = own[each] if each < size else last[each - size]
            card = self.cards[each] if each < size else last_cards[each - size]
            row[:card] = start + np.arange(card)
            start += card
        return own, last

    @cached_property
    def steps(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """For every step and total: the variable that is added (step, total), and for every value after it the values
        before it, those of the variable, and whether there is such a way (step, total, after, way)."""
        totals = self.totals.totals
        length = max(len(total.variables) for total in totals)
        ways = [[_ways(move, card) for move, card in zip(t.moves, t.cards, strict=True)] for t in totals]
        widest = max(len(own) for each in ways for step in each for own in step)
        most = max(max(total.cards) for total in totals)
        variables = np.full((length, len(totals)), len(self.cards), np.int32)
        before, values = np.zeros((2, length, len(totals), most, widest), np.int32)
        exists = np.zeros(before.shape, bool)
        for place, total in enumerate(totals):
            variables[: len(total.variables), place] = total.variables
            before[len(total.variables) :, place, :, 0] = np.arange(most)  # nothing is added
            exists[len(total.variables) :, place, :, 0] = True
            for step, of_step in enumerate(ways[place]):
                for after, own in enumerate(of_step):
                    before[step, place, after, : len(own)], values[step, place, after, : len(own)] = own.T
                    exists[step, place, after, : len(own)] = True
        return variables, before, values, exists


def _ways(move: np.ndarray, card: int) -> list[np.ndarray]:
    """For every total after a variable the pairs (total before, value) that lead to it (pair, 2)."""
    return [np.argwhere(move == after) for after in range(card)]


class TotalsDistribution(Distribution):
    """Values 0, 1, ... of several variables, (variable,), with log probability the sum of tables, but for a constant.

    tables: all numbers of all tables, one after the other. weights: of every total after every step.
    """

    pytree_data_fields = ("tables", "weights")
    pytree_aux_fields = ("graph",)
    arg_constraints: dict[str, constraints.Constraint] = {}
    support = constraints.independent(constraints.nonnegative_integer, 1)

    def __init__(self, tables: Array, graph: TotalsGraph, weights: Array | None = None):
        self.tables, self.graph = tables, graph
        self.weights = _forward(graph, tables, log_sum) if weights is None else weights
        super().__init__((), (len(graph.cards),))

    @property
    def cards(self) -> tuple[int, ...]:
        """How many values every variable has (variable,)."""
        return self.graph.cards

    @property
    def log_partition(self) -> Array:
        """The log of the sum of all weights."""
        own, last = _own_and_last(self.graph, self.tables)
        return log_sum(self.weights[-1] + last, 1).sum() + log_sum(own[self._free], 1).sum()

    @property
    def _free(self) -> np.ndarray:
        """The variables that are in no total."""
        in_totals = {variable for total in self.graph.totals.totals for variable in total.variables}
        return np.array([each for each in range(len(self.cards)) if each not in in_totals], np.int32)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        keys = jax.random.split(key, sample_shape)
        flat = keys.reshape(-1, *keys.shape[len(sample_shape) :])

        def choose(log_weights: Array, key: Array) -> Array:
            return choice_at(log_weights, jax.random.uniform(key, log_weights.shape[:-1])).astype(jnp.int32)

        drawn = jax.vmap(lambda key: self._backwards(self.weights, choose, key))(flat)
        return drawn.reshape(*sample_shape, *self.event_shape)

    def mode(self) -> Array:
        """The most probable values of all variables together."""
        weights = _forward(self.graph, self.tables, lambda log_weights, axis: log_weights.max(axis))
        return self._backwards(
            weights, lambda log_weights, _: log_weights.argmax(-1).astype(jnp.int32), jax.random.PRNGKey(0)
        )

    def log_prob(self, value: Array) -> Array:
        flat = value.reshape(-1, value.shape[-1])
        return jax.vmap(self._log_weight)(flat).reshape(value.shape[:-1]) - self.log_partition

    def _log_weight(self, value: Array) -> Array:
        own, last = _own_and_last(self.graph, self.tables)
        ends = self.graph.totals.extended(value)[np.array(self.graph.totals.last)]
        return own[jnp.arange(len(self.cards)), value].sum() + last[jnp.arange(len(ends)), ends].sum()

    def table_probs(self) -> Array:
        """The probability of every number of every table: that its variable or total has this value."""
        return jax.grad(lambda tables: TotalsDistribution(tables, self.graph).log_partition)(self.tables)

    def _backwards(self, weights: Array, choose: Callable[[Array, Array], Array], key: Array) -> Array:
        """Values of all variables, from the last total back. choose: (log weights (row, value), key)."""
        own, last = _own_and_last(self.graph, self.tables)
        free_key, last_key, steps_key = jax.random.split(key, 3)
        totals = choose(weights[-1] + last, last_key)
        places = jnp.arange(len(last))

        def step(after: Array, arrays: Any) -> tuple[Array, Array]:
            (variables, before, values, exists), weights_before, key = arrays
            before, values, exists = (each[places, after] for each in (before, values, exists))
            log_weights = weights_before[places[:, None], before] + own[variables[:, None], values]
            way = choose(jnp.where(exists, log_weights, -jnp.inf), key)
            return before[places, way], values[places, way]

        steps = tuple(map(jnp.asarray, self.graph.steps))
        keys = jax.random.split(steps_key, len(steps[0]))
        _, chosen = jax.lax.scan(step, totals, (steps, weights[:-1], keys), reverse=True)
        free = choose(own[:-1], free_key)
        return jnp.append(free, jnp.int32(0)).at[steps[0]].set(chosen)[:-1]


def _own_and_last(graph: TotalsGraph, tables: Array) -> tuple[Array, Array]:
    """The log weights of every variable (1 + variable, value), and of the last value of every total (total, value)."""
    vector = jnp.concatenate([tables, jnp.array([0.0, -jnp.inf], tables.dtype)])
    own, last = graph.places
    return vector[own], vector[last]


def _forward(graph: TotalsGraph, tables: Array, reduce: Callable[[Array, int], Array]) -> Array:
    """The log weights of every value of every total before and after each step (1 + step, total, value)."""
    own, _ = _own_and_last(graph, tables)
    steps = tuple(map(jnp.asarray, graph.steps))
    count, most = steps[1].shape[1:3]
    start = jnp.full((count, most), -jnp.inf, tables.dtype).at[:, 0].set(0.0)
    places = jnp.arange(count)[:, None, None]

    def step(weights: Array, arrays: Sequence[Array]) -> tuple[Array, Array]:
        variables, before, values, exists = arrays
        log_weights = weights[places, before] + own[variables[:, None, None], values]
        after = reduce(jnp.where(exists, log_weights, -jnp.inf), -1)
        return after, after

    _, after = jax.lax.scan(step, start, steps)
    return jnp.concatenate([start[None], after])
