"""Restricted Boltzmann machines: exact gradients of the likelihood, and contrastive divergence in their place.

The gradient of the mean log likelihood is the mean of the derivatives of log weights under the data, less that under
the machine (Whiteboard notes, "Partition function"). Contrastive divergence starts a chain at every row of the data,
runs k rounds of block Gibbs and takes the ends for draws of the machine (Hinton 2002, Neural Computation 14:1771). That
is biased; persistent chains, which go on from one update to the next, are less so (Tieleman 2008, ICML 25:1064).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.typing import ArrayLike

from bayeslab.distributions import RestrictedBoltzmann
from bayeslab.programs.program import precision_scope, raw_key


class Weights(NamedTuple):
    """The parameters of a machine: w (hidden, visible), alpha (visible,), beta (hidden,)."""

    w: Array
    alpha: Array
    beta: Array


class Learned(NamedTuple):
    """What contrastive divergence ends with.

    weights: at the end. history: the length of the estimated gradient at every update (update,).
    chains: the visible units (row, visible) that the last update took for draws of the machine.
    """

    weights: Weights
    history: np.ndarray
    chains: Array


def sample_layers(key: Array | int, weights: Weights, v: ArrayLike, num_rounds: int = 1) -> tuple[Array, Array]:
    """Visible and hidden units (row, visible) and (row, hidden) after rounds of block Gibbs from v (row, visible).

    Given one layer the units of the other are independent, so each round draws all hidden units, then all visible ones;
    the hidden units of the result are drawn given its visible ones.
    """
    with precision_scope():
        machine, value = RestrictedBoltzmann(*_checked(weights, v)), jnp.asarray(v)
        keys = jax.random.split(raw_key(key), num_rounds + 1)
        value = _rounds(keys[:-1], machine, value)
        hidden = jax.random.bernoulli(keys[-1], jax.nn.sigmoid(machine.hidden_logits(value)))
        return value, hidden.astype(value.dtype)


def log_likelihood_gradient(weights: Weights, v: ArrayLike) -> Weights:
    """The exact gradient of the mean of log p(v) over rows v (row, visible).

    Raises ValueError where both layers have more than 16 units.
    """
    with precision_scope():
        weights = _checked(weights, v)
        return jax.grad(lambda weights: RestrictedBoltzmann(*weights).log_prob(jnp.asarray(v)).mean())(weights)


def contrastive_gradient(
    key: Array | int, weights: Weights, v: ArrayLike, num_rounds: int = 1, chains: ArrayLike | None = None
) -> tuple[Weights, Array]:
    """The gradient that contrastive divergence puts in place of the exact one, and the ends of its chains.

    v: rows (row, visible). chains: where the chains begin (chain, visible); None is at the data, as CD-k has it, with
    k = num_rounds. Given the ends of the last call it is persistent contrastive divergence.
    """
    with precision_scope():
        weights, rows = _checked(weights, v), jnp.asarray(v)
        if num_rounds < 1:
            raise ValueError(f"num_rounds is {num_rounds}, but at the data themselves the gradient would be zero")
        return _contrastive(raw_key(key), weights, rows, rows if chains is None else jnp.asarray(chains), num_rounds)


def contrastive_divergence(
    key: Array | int,
    v: ArrayLike,
    num_hidden: int,
    num_rounds: int = 1,
    persistent: bool = False,
    num_updates: int = 500,
) -> Learned:
    """Weights learned from rows v (row, visible) of 0 and 1, with all rows in every update, by Adam.

    num_rounds: of block Gibbs at every update. persistent: whether chains go on from update to update, or begin at the
    data every time. The fixed point is that of maximum likelihood only for many rounds or persistent chains and small
    steps; no prior takes part. For a posterior of small machines fit `bayeslab.models.rbm`.
    """
    with precision_scope():
        rows = jnp.asarray(v)
        if rows.ndim != 2 or rows.size == 0 or not np.isin(np.asarray(v), (0, 1)).all():
            raise ValueError(f"v has shape {rows.shape}, but needs rows (row, visible) of 0 and 1")
        if min(num_hidden, num_rounds, num_updates) < 1:
            raise ValueError("num_hidden, num_rounds and num_updates must be at least one")
        start_key, key = jax.random.split(raw_key(key))
        share = (rows.mean(0) * len(rows) + 1) / (len(rows) + 2)
        w = 0.1 * jax.random.normal(start_key, (num_hidden, rows.shape[1]))
        weights = Weights(w, jnp.log(share / (1 - share)), jnp.zeros(num_hidden))
        return _learn(key, weights, rows, num_rounds, persistent, num_updates)


def _learn(key: Array, weights: Weights, rows: Array, num_rounds: int, persistent: bool, num_updates: int) -> Learned:
    optimizer = optax.adam(optax.linear_schedule(0.05, 0.002, num_updates))

    def update(state: tuple, key: Array) -> tuple[tuple, Array]:
        weights, optimizer_state, chains = state
        gradient, ends = _contrastive(key, weights, rows, chains if persistent else rows, num_rounds)
        updates, optimizer_state = optimizer.update(jax.tree.map(jnp.negative, gradient), optimizer_state)
        return (optax.apply_updates(weights, updates), optimizer_state, ends), optax.tree_utils.tree_norm(gradient)

    start = weights, optimizer.init(weights), rows
    run = jax.jit(lambda start, keys: jax.lax.scan(update, start, keys))
    (weights, _, chains), history = run(start, jax.random.split(key, num_updates))
    return Learned(weights, np.asarray(history), chains)


def _contrastive(key: Array, weights: Weights, rows: Array, chains: Array, num_rounds: int) -> tuple[Weights, Array]:
    ends = _rounds(jax.random.split(key, num_rounds), RestrictedBoltzmann(*weights), chains)

    def difference(weights: Weights) -> Array:
        machine = RestrictedBoltzmann(*weights)
        return machine.log_weight(rows).mean() - machine.log_weight(ends).mean()

    return jax.grad(difference)(weights), ends


def _rounds(keys: Array, machine: RestrictedBoltzmann, value: Array) -> Array:
    """Visible units after as many rounds of block Gibbs as there are keys."""
    return jax.lax.scan(lambda value, key: (machine.gibbs_step(key, value), None), value, keys)[0]


def _checked(weights: Weights, v: ArrayLike) -> Weights:
    """The weights as arrays. Raises ValueError where rows do not fit them."""
    weights = Weights(*(jnp.asarray(part, float) for part in weights))
    if np.ndim(v) != 2 or np.shape(v)[1] != weights.w.shape[1]:
        raise ValueError(f"v has shape {np.shape(v)}, but needs rows (row, visible) of {weights.w.shape[1]} units")
    return weights
