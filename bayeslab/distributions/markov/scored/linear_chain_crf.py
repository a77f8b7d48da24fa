"""The linear-chain conditional random field: labels whose log probability is a sum of scores (Lafferty, McCallum and
Pereira 2001), normalised over whole sequences.

Given the scores its labels are a Markov chain that varies in time, by the backward recursion.
"""

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from numpyro.distributions import constraints
from numpyro.distributions.util import validate_sample

import bayeslab.distributions.markov.scored.inference as scored
from bayeslab.distributions.markov.chain import MarkovChain, entries, goes_on, require_lengths

BELOW_INFINITY = constraints.less_than(np.inf)


class LinearChainCRF(MarkovChain):
    """Labels y with p(y) = exp(sum_t state_scores[t, y_t] + sum_t move_scores[t, y_t, y_t+1]) / Z.

    state_scores: ``(*batch, num_steps, K)``, of every label at every step.
    move_scores: ``(*batch, K, K)``, of a label, rows, and the next one, shared by all steps; if `time_varying`,
        ``(*batch, num_steps - 1, K, K)``. The attribute always has the axis of steps, of size 1 if they share one.
    lengths: ``(*batch,)`` integers, how many steps of a sequence there are, where sequences of different length are
        padded to one. Later scores do not count, and labels stay what they are, as those of a `MarkovChain` do.
    Scores may be of any size, and -inf for what is impossible.
    It is a `MarkovChain`: `marginals`, `mode`, `sample`, and `condition` on further log likelihoods of labels.
    Raises ValueError if shapes do not fit.
    """

    arg_constraints: dict[str, constraints.Constraint] = {
        "state_scores": constraints.independent(BELOW_INFINITY, 2),
        "move_scores": constraints.independent(BELOW_INFINITY, 3),
    }
    pytree_data_fields = ("state_scores", "move_scores", "log_partition")

    def __init__(
        self,
        state_scores: ArrayLike,
        move_scores: ArrayLike,
        *,
        time_varying: bool = False,
        lengths: ArrayLike | None = None,
        validate_args: bool | None = None,
    ):
        states, moves = jnp.asarray(state_scores), jnp.asarray(move_scores)
        dtype = jnp.result_type(states, moves, float)
        moves = (moves if time_varying else moves[..., None, :, :]).astype(dtype)
        batch = _batch_shape(states.shape, moves.shape, time_varying)
        self.state_scores = jnp.broadcast_to(states, (*batch, *states.shape[-2:])).astype(dtype)
        self.move_scores = moves
        num_steps = states.shape[-2]
        given = None if lengths is None else require_lengths(lengths, num_steps)
        active = goes_on(given, num_steps)
        scores = self._counted(given), moves, active
        self.log_partition = scored.log_partition(*scores)
        initial, transition = scored.conditional_probs(*scores)
        super().__init__(initial, transition, time_varying=True, lengths=given, validate_args=validate_args)

    @validate_sample
    def log_prob(self, value: ArrayLike) -> Array:
        labels = jnp.asarray(value, jnp.int32)
        if labels.shape[-1:] != self.event_shape:
            raise ValueError(f"labels of shape {labels.shape} do not fit; expected (..., {self.num_steps})")
        before, after = labels[..., :-1], labels[..., 1:]
        moves = entries(self.move_scores, before, after)
        if self.active is not None:
            moves = jnp.where(self.active, moves, jnp.where(before == after, 0.0, -jnp.inf))
        return entries(self._counted(self.lengths), labels).sum(-1) + moves.sum(-1) - self.log_partition

    def scores(self) -> tuple[Array, Array, Array | None]:
        """What the log probability is linear in but for a constant, and lengths: see `from_scores`."""
        return self.state_scores, self.move_scores, self.lengths

    @classmethod
    def from_scores(cls, scores: tuple[Array, Array, Array | None]) -> "LinearChainCRF":
        """The field with these `scores`."""
        states, moves, lengths = scores
        time_varying = moves.shape[-3] != 1
        return cls(states, moves if time_varying else moves[..., 0, :, :], time_varying=time_varying, lengths=lengths)

    def _counted(self, lengths: Array | None) -> Array:
        """The scores of labels, zero after the end of a sequence."""
        if lengths is None:
            return self.state_scores
        is_step = jnp.arange(self.state_scores.shape[-2]) < lengths[..., None]
        return jnp.where(is_step[..., None], self.state_scores, 0.0)


def _batch_shape(states: tuple[int, ...], moves: tuple[int, ...], time_varying: bool) -> tuple[int, ...]:
    """The batch shape of both scores, the latter with an axis of steps; raises ValueError if shapes do not fit."""
    if len(states) < 2 or not states[-1] or not states[-2]:
        raise ValueError(f"state_scores has shape {states}; expected (*batch, num_steps, K), of at least one label")
    steps, labels = states[-2:]
    expected = (steps - 1 if time_varying else 1, labels, labels)
    if moves[-3:] != expected:
        given, shown = (moves, expected) if time_varying else (moves[:-3] + moves[-2:], expected[1:])
        raise ValueError(
            f"move_scores has shape {given}; expected (*batch, {', '.join(map(str, shown))}), since state_scores has "
            f"{labels} labels at {steps} steps"
        )
    try:
        return np.broadcast_shapes(states[:-2], moves[:-3])
    except ValueError:
        raise ValueError(
            f"state_scores and move_scores have batch shapes {states[:-2]} and {moves[:-3]}; expected shapes that "
            "broadcast"
        ) from None
