"""A path of a discrete Markov chain, conjugate to likelihoods of its states one by one.

With likelihoods exp(log_likelihood[t, j]) of state j at step t a chain stays a chain: the forward-backward recursions
of `bayeslab.distributions.markov.inference` give its initial probabilities, initial * r_1, and its matrices,
transition_t * r_{t+1}, normalised. All other methods follow from the same messages.
"""

import operator
from copy import copy
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from numpyro.distributions import Distribution, constraints
from numpyro.distributions.kl import kl_divergence
from numpyro.distributions.util import validate_sample

import bayeslab.distributions.markov.inference as inference
from bayeslab.distributions.markov.log_likelihoods import (
    MAX_FACTORED_COLUMNS,
    FactoredLogLikelihood,
    LogLikelihood,
    Rows,
    lay_out,
)
from bayeslab.distributions.markov.sequential import Active, log


class MarkovChain(Distribution):
    """A path of a discrete Markov chain: z_1 ~ Categorical(initial), z_{t+1} | z_t ~ Categorical(transition[z_t]).

    initial_probs: ``(*batch, K)``.
    transition_probs: ``(*batch, K, K)``, a row for every state to move from, shared by all steps; if `time_varying`,
        ``(*batch, num_steps - 1, K, K)``. The attribute always has the axis of steps, of size 1 if they share one.
    num_steps: length of the path; needed unless `time_varying`, where the matrices tell.
    time_varying: whether every step has a matrix of its own.
    lengths: ``(*batch,)`` integers, how many steps of the path there are, for sequences of different length that are
        padded to one: after its length a path stays where it is, with probability one. All steps without it.
    Probabilities may be 0, and log likelihoods of any size: what is less likely than the smallest float still counts
    where nothing else is possible. Raises ValueError if shapes do not fit.
    """

    arg_constraints = {
        "initial_probs": constraints.simplex,
        "transition_probs": constraints.independent(constraints.simplex, 2),
    }
    pytree_data_fields: tuple[str, ...] = ("initial_probs", "transition_probs", "lengths")

    def __init__(
        self,
        initial_probs: ArrayLike,
        transition_probs: ArrayLike,
        num_steps: int | None = None,
        *,
        time_varying: bool = False,
        lengths: ArrayLike | None = None,
        validate_args: bool | None = None,
    ):
        initial, transition = jnp.asarray(initial_probs), jnp.asarray(transition_probs)
        dtype = jnp.result_type(initial, transition, float)
        steps = _num_steps(initial.shape, transition.shape, num_steps, time_varying)
        self.initial_probs = initial.astype(dtype)
        self.transition_probs = (transition if time_varying else transition[..., None, :, :]).astype(dtype)
        batch = _broadcast(initial.shape[:-1], self.transition_probs.shape[:-3], "initial_probs and transition_probs")
        self.lengths = None if lengths is None else require_lengths(lengths, steps)
        if self.lengths is not None:
            batch = _broadcast(batch, self.lengths.shape, "the chain and lengths")
            limits = constraints.integer_interval(1, steps)
            self.arg_constraints = type(self).arg_constraints | {"lengths": limits}  # for whoever checks values later
        super().__init__(batch, (steps,), validate_args=validate_args)

    @property
    def num_steps(self) -> int:
        return self.event_shape[0]

    @property
    def num_states(self) -> int:
        return self.initial_probs.shape[-1]

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Any:
        return constraints.independent(constraints.integer_interval(0, self.num_states - 1), 1)

    @property
    def active(self) -> Active:
        """Whether the chain moves after each step but the last, (*batch, num_steps - 1); None if it always does."""
        return goes_on(self.lengths, self.num_steps)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        shape = (self.num_steps, *sample_shape, *self.batch_shape)
        uniform = jax.random.uniform(key, shape, self.initial_probs.dtype)
        return inference.draw(self.initial_probs, self.transition_probs, self.active, uniform)

    @validate_sample
    def log_prob(self, value: ArrayLike) -> Array:
        path = jnp.asarray(value, jnp.int32)
        if path.shape[-1:] != self.event_shape:
            raise ValueError(f"a path of shape {path.shape} does not fit; expected (..., {self.num_steps})")
        steps = path[..., :-1], path[..., 1:]
        if self.transition_probs.shape[-3] == 1:
            table = jax.lax.optimization_barrier(log(self.transition_probs))  # or its logs are taken at every step
            log_probs = entries(table, *steps)
        else:
            log_probs = log(entries(self.transition_probs, *steps))
        if self.active is not None:
            log_probs = jnp.where(self.active, log_probs, jnp.where(path[..., :-1] == path[..., 1:], 0.0, -jnp.inf))
        return log(entries(self.initial_probs, path[..., 0])) + log_probs.sum(-1)

    def marginals(self) -> Array:
        """The probability of every state at every step, ``(*batch, num_steps, K)``."""
        return self.predicted(self._no_observations)

    def mode(self) -> Array:
        """The most probable path, ``(*batch, num_steps)``."""
        return self.most_probable_path(self._no_observations)

    def entropy(self) -> Array:
        """The entropy in nats, ``(*batch,)``."""
        return -self.expected_log_prob(self)

    def expected_log_prob(self, other: "MarkovChain") -> Array:
        """The mean of `log_prob` over the paths of another chain, ``(*batch,)``, which has the same `lengths`."""
        first, transitions = other._expected(self.transition_probs.shape[-3] == 1)
        transition_terms = inference.weighted_log(transitions, self.transition_probs).sum((-3, -2, -1))
        return inference.weighted_log(first, self.initial_probs).sum(-1) + transition_terms

    def _expected(self, shared: bool) -> tuple[Array, Array]:
        """p(z_1), and expected transitions (*batch, num_steps - 1, K, K), or their sum over steps (*batch, 1, K, K)."""
        states = self.marginals()
        transitions = inference.expected_transitions(states, self.transition_probs, self.active)
        return states[..., 0, :], transitions.sum(-3, keepdims=True) if shared else transitions

    def condition(self, log_likelihood: ArrayLike | FactoredLogLikelihood) -> "MarkovChain":
        """The chain given observations, p(z) exp(sum_t log_likelihood[t, z_t]) normalised: a chain that varies in time.

        log_likelihood: ``(*batch, num_steps, K)``, -inf where a state is impossible; its batch may extend the chain's.
            Factored ones (`FactoredLogLikelihood`) are never written out.
        What the observations leave without any mass, a row or the whole chain, stays as it was.
        """
        return ConditionedMarkovChain(self, log_likelihood)

    def log_marginal(self, log_likelihood: ArrayLike | FactoredLogLikelihood) -> Array:
        """The log of the sum over paths of p(z) exp(sum_t log_likelihood[t, z_t]), ``(*batch,)``.

        It is the log evidence, -inf if the observations are impossible.

        log_likelihood: as for `condition`.
        """
        return inference.log_marginal(*self._arguments(log_likelihood))

    def predicted(self, log_likelihood: ArrayLike | FactoredLogLikelihood) -> Array:
        """p(z_t | observations before step t), ``(*batch, num_steps, K)``. log_likelihood: as for `condition`."""
        return inference.predicted(*self._arguments(log_likelihood))

    def filtered(self, log_likelihood: ArrayLike | FactoredLogLikelihood) -> Array:
        """p(z_t | observations up to step t), ``(*batch, num_steps, K)``. log_likelihood: as for `condition`."""
        return inference.filtered(*self._arguments(log_likelihood))

    def smoothed(self, log_likelihood: ArrayLike | FactoredLogLikelihood) -> Array:
        """p(z_t | all observations), ``(*batch, num_steps, K)``. log_likelihood: as for `condition`."""
        return inference.smoothed(*self._arguments(log_likelihood))

    def most_probable_path(self, log_likelihood: ArrayLike | FactoredLogLikelihood) -> Array:
        """The mode of `condition`, ``(*batch, num_steps)`` (Viterbi 1967, doi:10.1109/TIT.1967.1054010)."""
        return inference.viterbi_path(*self._arguments(log_likelihood))

    def laid(self, rows: Array) -> Rows | None:
        """Rows (*batch, num_steps, column) laid out for a `FactoredLogLikelihood`, or None where an array is faster."""
        fast = inference.in_lanes(self.transition_probs, (*rows.shape[:-1], self.num_states))
        return lay_out(rows) if fast and rows.shape[-1] <= MAX_FACTORED_COLUMNS else None

    def with_cached_expectations(self) -> "MarkovChain":
        """The chain, which remembers what several expectations over it have in common, computed at once."""
        return self

    def expected_rows(self) -> Array | None:
        """The sums over steps of p(z_t = k) rows[t], ``(*batch, K, column)``, of factored log likelihoods, or None."""
        return None

    @property
    def _no_observations(self) -> Array:
        """The log likelihoods of no observation at all, zeros."""
        return jnp.zeros((*self.batch_shape, self.num_steps, self.num_states), self.initial_probs.dtype)

    def _arguments(
        self, log_likelihood: ArrayLike | FactoredLogLikelihood
    ) -> tuple[Array, Array, LogLikelihood, Active]:
        """The arguments of the recursions in one type; raises ValueError if shapes do not fit."""
        likelihood = (
            log_likelihood if isinstance(log_likelihood, FactoredLogLikelihood) else jnp.asarray(log_likelihood)
        )
        event = (self.num_steps, self.num_states)
        if likelihood.shape[-2:] != event:
            expected = ", ".join(map(str, (*self.batch_shape, *event)))
            raise ValueError(f"log_likelihood has shape {likelihood.shape}; expected ({expected})")
        batch = _broadcast(self.batch_shape, likelihood.shape[:-2], "the chain and log_likelihood")
        dtype = jnp.result_type(self.initial_probs, likelihood.dtype)
        if isinstance(likelihood, FactoredLogLikelihood):
            likelihood = likelihood.spread(batch, dtype)
        else:
            likelihood = jnp.broadcast_to(likelihood, (*batch, *event)).astype(dtype)
        return self.initial_probs.astype(dtype), self.transition_probs.astype(dtype), likelihood, self.active


class ConditionedMarkovChain(MarkovChain):
    """A chain that knows its prior and log likelihoods: a path is drawn sooner from these than from its matrices."""

    pytree_data_fields: tuple[str, ...] = ("_given", "_found")

    def __init__(
        self,
        prior: MarkovChain,
        log_likelihood: ArrayLike | FactoredLogLikelihood,
        validate_args: bool | None = None,
    ):
        initial, transition, likelihood, active = prior._arguments(log_likelihood)
        batch = likelihood.shape[:-2]
        initial = jnp.broadcast_to(initial, (*batch, *initial.shape[-1:]))
        transition = jnp.broadcast_to(transition, (*batch, *transition.shape[-3:]))
        self._given = initial, transition, likelihood
        self._found: inference.Expected | None = None
        initial, transition = inference.conditioned(initial, transition, likelihood, active)
        validate_args = prior._validate_args if validate_args is None else validate_args
        super().__init__(initial, transition, time_varying=True, lengths=prior.lengths, validate_args=validate_args)

    def possible_steps(self) -> Array:
        """The number of steps up to which some path is possible, ``(*batch,)``.

        It is `num_steps` unless the observations are impossible.
        """
        return (inference.filtered(*self._given, self.active).sum(-1) > 0).sum(-1)

    def marginals(self) -> Array:
        if isinstance(self._given[2], FactoredLogLikelihood):
            return inference.smoothed(*self._given, self.active)
        return self._expectations().visits

    def expected_rows(self) -> Array | None:
        return self._expectations().visits if isinstance(self._given[2], FactoredLogLikelihood) else None

    def entropy(self) -> Array:
        return self._expectations().entropy

    def expected_log_prob(self, other: MarkovChain) -> Array:
        return -self.entropy() if other is self else super().expected_log_prob(other)

    def _expected(self, shared: bool) -> tuple[Array, Array]:
        if not shared:
            return super()._expected(shared)
        averages = self._expectations()
        return averages.first, averages.moves.sum(-3, keepdims=True)

    def with_cached_expectations(self) -> "ConditionedMarkovChain":
        new = copy(self)
        new._found = self._expectations()
        return new

    def _expectations(self) -> inference.Expected:
        """The expectations given all observations, computed now unless they are remembered."""
        return inference.expected(*self._given, self.active) if self._found is None else self._found

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        _, transition, likelihood = self._given
        if sample_shape or not inference.in_lanes(transition, likelihood.shape):
            return super().sample(key, sample_shape)
        uniform = jax.random.uniform(key, (*self.batch_shape, self.num_steps), self.initial_probs.dtype)
        return inference.conditioned_draw(*self._given, self.active, uniform)


@kl_divergence.register(MarkovChain, MarkovChain)
def _kl_divergence(p: MarkovChain, q: MarkovChain) -> Array:
    return p.expected_log_prob(p) - q.expected_log_prob(p)


def _num_steps(initial: tuple[int, ...], transition: tuple[int, ...], num_steps: int | None, time_varying: bool) -> int:
    """The length of the path, from the shapes of the arguments; raises ValueError if they do not fit."""
    if not initial or not initial[-1]:
        raise ValueError(f"initial_probs has shape {initial}; expected (*batch, K) for K >= 1 states")
    states = initial[-1]
    steps = "num_steps - 1, " if time_varying else ""
    if len(transition) < 2 + time_varying or transition[-2:] != (states, states):
        raise ValueError(
            f"transition_probs has shape {transition}; expected (*batch, {steps}{states}, {states}), "
            f"since initial_probs has {states} states"
        )
    if time_varying:
        length = transition[-3] + 1
        if num_steps not in (None, length):
            raise ValueError(f"transition_probs has shape {transition}, matrices for {length} steps, not {num_steps}")
        return length
    if num_steps is None:
        raise ValueError("num_steps is missing; give it, or time_varying=True if every step has a matrix of its own")
    if operator.index(num_steps) < 1:
        raise ValueError(f"num_steps is {num_steps}; expected at least 1")
    return operator.index(num_steps)


def require_lengths(lengths: ArrayLike, steps: int) -> Array:
    """The lengths as integers from 1 to the number of steps; raises ValueError for others, where values are known."""
    array = jnp.asarray(lengths)
    if not jnp.issubdtype(array.dtype, jnp.integer):
        raise ValueError(f"lengths are integers, not {array.dtype}")
    if not isinstance(array, jax.core.Tracer):
        for index, length in np.ndenumerate(np.asarray(array)):
            if not 1 <= length <= steps:
                raise ValueError(f"lengths has {length} at {list(index)}; expected 1 to {steps} steps")
    return array


def goes_on(lengths: Array | None, num_steps: int) -> Active:
    """Whether sequences go on after each step but the last, (*batch, num_steps - 1); None if all do."""
    return None if lengths is None else jnp.arange(1, num_steps) < lengths[..., None]


def _broadcast(one: tuple[int, ...], other: tuple[int, ...], names: str) -> tuple[int, ...]:
    """The batch shape that two broadcast to; raises ValueError, with their names, if there is none."""
    try:
        return np.broadcast_shapes(one, other)
    except ValueError:
        raise ValueError(f"{names} have batch shapes {one} and {other}; expected shapes that broadcast") from None


def entries(table: Array, *index: Array) -> Array:
    """The entries table[..., *index], with the leading axes of the table aligned with the last ones of the index."""
    leading = table.shape[: table.ndim - len(index)]
    return table[(*np.ix_(*map(np.arange, leading)), *index)]
