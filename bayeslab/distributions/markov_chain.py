"""A path of a discrete Markov chain, closed under evidence about its states one by one.

With f_t(j) = exp(log_likelihood[t, j]), the evidence for state j at step t, all of it follows from two recursions,

    forward     a_1 = initial,    a_{t+1}(j) = sum_i a_t(i) w_t(i) transition_t[i, j]
    backward    r_T = w_T,        r_t(i) = w_t(i) sum_j transition_t[i, j] r_{t+1}(j)

where w_t = f_t / s_t and s_t = sum_j a_t(j) f_t(j) keeps probabilities in range (Rabiner 1989, section V.A). Then
a_t is p(z_t | evidence before t), the product of all s_t is the evidence, and r_t is p(z_t | all evidence) / a_t.
Given the evidence, z is again a Markov chain: initial * r_1 and transition_t * r_{t+1}, normalised.
"""

import math
import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike
from numpyro.distributions import Distribution, constraints
from numpyro.distributions.util import validate_sample


class MarkovChain(Distribution):
    """A path of a discrete Markov chain: z_1 ~ Categorical(initial), z_{t+1} | z_t ~ Categorical(transition[z_t]).

    initial_probs: ``(*batch, K)``.
    transition_probs: ``(*batch, K, K)``, a row for every state to move from, shared by all steps; if `time_varying`,
        ``(*batch, num_steps - 1, K, K)``. The attribute always has the axis of steps, of size 1 if they share one.
    num_steps: length of the path; needed unless `time_varying`, where the matrices tell.
    time_varying: whether every step has a matrix of its own.
    Probabilities may be 0. A state that the evidence up to its step makes less likely than the smallest float counts as
    impossible. Raises ValueError if shapes do not fit.
    """

    arg_constraints = {
        "initial_probs": constraints.simplex,
        "transition_probs": constraints.independent(constraints.simplex, 2),
    }
    pytree_data_fields = ("initial_probs", "transition_probs")

    def __init__(
        self,
        initial_probs: ArrayLike,
        transition_probs: ArrayLike,
        num_steps: int | None = None,
        *,
        time_varying: bool = False,
        validate_args: bool | None = None,
    ):
        initial, transition = jnp.asarray(initial_probs), jnp.asarray(transition_probs)
        dtype = jnp.result_type(initial, transition, float)
        steps = _num_steps(initial.shape, transition.shape, num_steps, time_varying)
        self.initial_probs = initial.astype(dtype)
        self.transition_probs = (transition if time_varying else transition[..., None, :, :]).astype(dtype)
        batch = _broadcast(initial.shape[:-1], self.transition_probs.shape[:-3], "initial_probs and transition_probs")
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

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        shape = (self.num_steps, *sample_shape, *self.batch_shape)
        return _draw(
            self.initial_probs, self.transition_probs, jax.random.uniform(key, shape, self.initial_probs.dtype)
        )

    @validate_sample
    def log_prob(self, value: ArrayLike) -> Array:
        path = jnp.asarray(value, jnp.int32)
        if path.shape[-1:] != self.event_shape:
            raise ValueError(f"a path of shape {path.shape} does not fit; expected (..., {self.num_steps})")
        first = _entries(self.initial_probs, path[..., 0])
        moves = _entries(self.transition_probs, path[..., :-1], path[..., 1:])
        return _log(first) + _log(moves).sum(-1)

    def marginals(self) -> Array:
        """The probability of every state at every step, ``(*batch, num_steps, K)``."""
        nothing = jnp.zeros((*self.batch_shape, self.num_steps, self.num_states), self.initial_probs.dtype)
        return _forward(self.initial_probs, self.transition_probs, nothing)[0]

    def mode(self) -> Array:
        """The most probable path, ``(*batch, num_steps)`` (Viterbi 1967, doi:10.1109/TIT.1967.1054010)."""
        return _viterbi(self.initial_probs, self.transition_probs, self.num_steps)

    def expected_log_prob(self, other: "MarkovChain") -> Array:
        """The mean of `log_prob` over the paths of another chain, ``(*batch,)``."""
        states, moves = other.marginals(), other.transition_probs
        joint = states[..., :-1, :, None] * moves
        first = jnp.where(states[..., 0, :] > 0, states[..., 0, :] * _log(self.initial_probs), 0.0).sum(-1)
        return first + jnp.where(joint > 0, joint * _log(self.transition_probs), 0.0).sum((-3, -2, -1))

    def condition(self, log_likelihood: ArrayLike) -> "MarkovChain":
        """The chain given evidence, p(z) exp(sum_t log_likelihood[t, z_t]) normalised: a chain that varies in time.

        log_likelihood: ``(*batch, num_steps, K)``, -inf where a state is impossible; its batch may extend the chain's.
        What the evidence leaves without any mass, a row or the whole chain, stays as it was.
        """
        initial, transition = _condition(*self._arguments(log_likelihood))
        return MarkovChain(initial, transition, time_varying=True, validate_args=self._validate_args)

    def log_marginal(self, log_likelihood: ArrayLike) -> Array:
        """The log of the sum over paths of p(z) exp(sum_t log_likelihood[t, z_t]), ``(*batch,)``; -inf if impossible.

        log_likelihood: as for `condition`.
        """
        return _log_marginal(*self._arguments(log_likelihood))

    def _arguments(self, log_likelihood: ArrayLike) -> tuple[Array, Array, Array]:
        evidence = jnp.asarray(log_likelihood)
        event = (self.num_steps, self.num_states)
        if evidence.shape[-2:] != event:
            expected = ", ".join(map(str, (*self.batch_shape, *event)))
            raise ValueError(f"log_likelihood has shape {evidence.shape}; expected ({expected})")
        batch = _broadcast(self.batch_shape, evidence.shape[:-2], "the chain and log_likelihood")
        dtype = jnp.result_type(self.initial_probs, evidence)
        evidence = jnp.broadcast_to(evidence, (*batch, *event))
        return self.initial_probs.astype(dtype), self.transition_probs.astype(dtype), evidence.astype(dtype)


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
        found = transition[-3] + 1
        if num_steps not in (None, found):
            raise ValueError(f"transition_probs has shape {transition}, matrices for {found} steps, not {num_steps}")
        return found
    if num_steps is None:
        raise ValueError("num_steps is missing; give it, or time_varying=True if every step has a matrix of its own")
    if operator.index(num_steps) < 1:
        raise ValueError(f"num_steps is {num_steps}; expected at least 1")
    return operator.index(num_steps)


def _broadcast(one: tuple[int, ...], other: tuple[int, ...], names: str) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(one, other)
    except ValueError:
        raise ValueError(f"{names} have batch shapes {one} and {other}; expected shapes that broadcast") from None


def _entries(table: Array, *index: Array) -> Array:
    """table[..., *index]: the leading axes of the table are aligned with the last ones of the index."""
    leading = table.shape[: table.ndim - len(index)]
    return table[(*np.ix_(*map(np.arange, leading)), *index)]


def _log(x: Array) -> Array:
    """log x, with derivative 0 at 0: what is impossible pulls at nothing."""
    return jnp.where(x == 0, -jnp.inf, jnp.log(jnp.where(x == 0, 1, x)))


def _scan(step: Callable, start: Array, transition: Array, inputs: Array, reverse: bool = False) -> Any:
    """The carries and outputs of step(carry, matrix, input), the steps on the first axis of inputs and outputs."""
    if transition.shape[-3] == 1:
        matrix = transition[..., 0, :, :]
        return lax.scan(lambda carry, one: step(carry, matrix, one), start, inputs, reverse=reverse)[1]
    matrices = jnp.moveaxis(transition, -3, 0)
    return lax.scan(lambda carry, one: step(carry, *one), start, (matrices, inputs), reverse=reverse)[1]


@jax.jit
def _forward(initial: Array, transition: Array, evidence: Array) -> tuple[Array, Array, Array]:
    """a and w of the module's formulas (*batch, num_steps, K), and log s (*batch, num_steps)."""

    def weigh(predicted: Array, evidence: Array) -> tuple[Array, Array, Array]:
        # Only states that can be reached set the scale: others may be likelier than those by any factor.
        peak = jnp.where(predicted > 0, evidence, -jnp.inf).max(-1, keepdims=True)
        peak = lax.stop_gradient(jnp.where(jnp.isneginf(peak), 0, peak))
        factor = jnp.exp(jnp.minimum(evidence - peak, math.log(_largest(evidence)) / 2))
        scale = (predicted * factor).sum(-1, keepdims=True)
        weight = jnp.minimum(factor / jnp.where(scale == 0, 1, scale), _largest(evidence))
        return predicted * weight, weight, (peak + _log(scale))[..., 0]

    def step(filtered: Array, matrix: Array, evidence: Array) -> tuple[Array, Any]:
        predicted = (filtered[..., :, None] * matrix).sum(-2)
        filtered, weight, log_scale = weigh(predicted, evidence)
        return filtered, (predicted, weight, log_scale)

    steps = jnp.moveaxis(evidence, -2, 0)
    predicted = jnp.broadcast_to(initial, steps.shape[1:])
    filtered, weight, log_scale = weigh(predicted, steps[0])
    rest = _scan(step, filtered, transition, steps[1:])
    a, w, log_s = (jnp.concatenate([x[None], y]) for x, y in zip((predicted, weight, log_scale), rest, strict=True))
    return jnp.moveaxis(a, 0, -2), jnp.moveaxis(w, 0, -2), jnp.moveaxis(log_s, 0, -1)


def _backward(transition: Array, weight: Array) -> Array:
    """r of the module's formulas (*batch, num_steps, K); bounded where a state cannot be reached, hence never NaN."""

    def step(ratio: Array, matrix: Array, weight: Array) -> tuple[Array, Array]:
        ratio = jnp.minimum(weight * (matrix * ratio[..., None, :]).sum(-1), _largest(weight))
        return ratio, ratio

    steps = jnp.moveaxis(weight, -2, 0)
    rest = _scan(step, steps[-1], transition, steps[:-1], reverse=True)
    return jnp.moveaxis(jnp.concatenate([rest, steps[-1:]]), 0, -2)


def _largest(x: Array) -> float:
    """A bound below the largest float of x, so that a million of it can be added."""
    return float(jnp.finfo(x.dtype).max) / 2**20


@jax.jit
def _condition(initial: Array, transition: Array, evidence: Array) -> tuple[Array, Array]:
    ratio = _backward(transition, _forward(initial, transition, evidence)[1])
    return _tilt(initial, ratio[..., 0, :]), _tilt(transition, ratio[..., 1:, None, :])


def _tilt(probs: Array, ratio: Array) -> Array:
    """probs * ratio, normalised; probs where nothing is left."""
    weight = probs * ratio
    total = weight.sum(-1, keepdims=True)
    return jnp.where(total == 0, probs, weight / jnp.where(total == 0, 1, total))


@partial(jax.jit, static_argnames="num_steps")
def _viterbi(initial: Array, transition: Array, num_steps: int) -> Array:
    """Backwards the log probability of the best rest of the path, forwards the path itself."""

    def back(rest: Array, matrix: Array, _: Array) -> tuple[Array, tuple[Array, Array]]:
        ways = _log(matrix) + rest[..., None, :]
        return ways.max(-1), (ways.max(-1), ways.argmax(-1))

    def forth(state: Array, best: Array) -> tuple[Array, Array]:
        state = jnp.take_along_axis(best, state[..., None], -1)[..., 0]
        return state, state

    batch = jnp.broadcast_shapes(initial.shape[:-1], transition.shape[:-3])
    initial = jnp.broadcast_to(initial, (*batch, initial.shape[-1]))
    rest, best = _scan(back, jnp.zeros_like(initial), transition, jnp.zeros(num_steps - 1), reverse=True)
    after = rest[0] if num_steps > 1 else jnp.zeros_like(initial)
    first = jnp.argmax(_log(initial) + after, -1)
    path = jnp.concatenate([first[None], lax.scan(forth, first, best)[1]])
    return jnp.moveaxis(path, 0, -1)


@jax.custom_jvp
@jax.jit
def _log_marginal(initial: Array, transition: Array, evidence: Array) -> Array:
    return _forward(initial, transition, evidence)[2].sum(-1)


@_log_marginal.defjvp
@jax.jit
def _log_marginal_jvp(primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> tuple[Array, Array]:
    """Fisher's identity: derivatives are expected counts, cheaper than through the recursion and finite at zeros."""
    _, transition, _ = primals
    predicted, weight, log_scale = _forward(*primals)
    ratio = _backward(transition, weight)
    before, after = (predicted * weight)[..., :-1, :], ratio[..., 1:, :]
    if transition.shape[-3] == 1:
        moves = jnp.einsum("...ti,...tj->...ij", before, after, precision="highest")[..., None, :, :]
    else:
        moves = before[..., :, None] * after[..., None, :]
    from_initial = (ratio[..., 0, :] * tangents[0]).sum(-1)
    from_transition = (moves * tangents[1]).sum((-3, -2, -1))
    from_evidence = (predicted * ratio * tangents[2]).sum((-2, -1))
    return log_scale.sum(-1), from_initial + from_transition + from_evidence


@jax.jit
def _draw(initial: Array, transition: Array, uniform: Array) -> Array:
    """Paths (*sample, *batch, num_steps): inverse cumulative distributions at uniform (num_steps, *sample, *batch)."""

    def invert(below: Array, uniform: Array) -> Array:
        return (below <= uniform[..., None]).sum(-1, dtype=jnp.int32)

    def step(state: Array, below: Array, uniform: Array) -> tuple[Array, Array]:
        rows = below[(*np.ix_(*map(np.arange, below.shape[:-2])), state)]
        state = invert(rows, uniform)
        return state, state

    first = invert(_cumulative(initial), uniform[0])
    rest = _scan(step, first, _cumulative(transition), uniform[1:])
    return jnp.moveaxis(jnp.concatenate([first[None], rest]), 0, -1)


def _cumulative(probs: Array) -> Array:
    """The cumulative distribution, without the rounding that would give mass to a state of probability 0."""
    below = lax.cummax(jnp.where(probs > 0, jnp.cumsum(probs, -1), 0), axis=probs.ndim - 1)
    return below / below[..., -1:]
