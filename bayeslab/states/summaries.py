"""What a result says of hidden states: filtering, smoothing and decoding, averaged over its draws.

The program has one site that is a chain, and the result has draws of all others. For each draw the chain given the data
is again a chain; nothing here needs draws of the states themselves.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bayeslab.distributions import MarkovChain
from bayeslab.distributions.markov.log_likelihoods import dense
from bayeslab.elimination.conditional import Rule, conditional, likelihood_message
from bayeslab.elimination.terms import terms
from bayeslab.programs.program import Bound, Data, Program, Values, precision_scope
from bayeslab.programs.wrapped_distributions import innermost_distribution
from bayeslab.results.draw_batches import DRAWS_PER_BATCH
from bayeslab.states.chain_in_result import ChainInResult, read_chain
from bayeslab.transforms.collapse import elimination_rules

if TYPE_CHECKING:
    from xarray import Dataset, DataTree

MAX_CANDIDATE_PATHS = 100
"""The largest number of draws whose most probable paths are compared."""


def filtered_states(model: Program, data: Data, tree: "DataTree", site: str | None = None) -> "Dataset":
    """The filtering distributions p(z_t | x_1, ..., x_t) of all steps, averaged over the draws of a result.

    model, data: those of the fit, or data of new sequences of which nothing is observed but covariates.
    tree: what any method returns; draws of the chain are not needed.
    site: the chain, where the program has several.
    Returns a Dataset with probability (..., step, state) of a MarkovChain, or mean and sd (..., step, component) of a
    LinearGaussianChain, the sd with what the draws disagree about; NaN after the end of a shorter sequence.
    Parameters are those of the result, whose draws have seen all data. Raises ValueError for a program with another
    latent site that changes from step to step, as a second chain does: its draws have seen the future of each step.
    Raises ValueError for a program without chain, or with several and no `site`, and for a result of other data.
    """
    with precision_scope():
        chain_fit = read_chain(model, data, tree, site)
        _refuse_seen_future(chain_fit)
        return _averaged_states(chain_fit, "filtered")


def smoothed_states(model: Program, data: Data, tree: "DataTree", site: str | None = None) -> "Dataset":
    """The smoothing distributions p(z_t | all x) of all steps, averaged over the draws of a result.

    They are those of the forward-backward algorithm (Rauch-Tung-Striebel for a LinearGaussianChain). Arguments and
    results are those of `filtered_states`; other latent sites may change from step to step.
    """
    with precision_scope():
        return _averaged_states(read_chain(model, data, tree, site), "smoothed")


def most_probable_path(model: Program, data: Data, tree: "DataTree", site: str | None = None) -> "Dataset":
    """One path of hidden states: of a single draw, a point estimate, the most probable one (Viterbi 1967).

    With many draws, 100 of them at most, evenly spaced: the most probable path of each is a candidate, and the one with
    the highest posterior probability, averaged over these draws, is the result, for each sequence on its own. Align
    draws first where states may be exchanged.
    Returns a Dataset with path (..., step), for a MarkovChain integers, -1 after the end of a shorter sequence, and
    log_probability (...), for a LinearGaussianChain the log of a density. Arguments and errors
    are those of `smoothed_states`.
    """
    with precision_scope():
        chain_fit = read_chain(model, data, tree, site)
        num_draws = next(iter(chain_fit.draws.values())).shape[0] if chain_fit.draws else 1
        positions = np.linspace(0, num_draws - 1, min(num_draws, MAX_CANDIDATE_PATHS)).round().astype(int)
        path, log_probability = jax.device_get(
            _best_paths(
                chain_fit.left,
                {name: value[positions] for name, value in chain_fit.draws.items()},
                len(positions),
                chain_fit.of_given,
            )
        )
        if (is_step := _is_step(chain_fit)) is not None:
            path = np.where(is_step, path, -1)
        return as_dataset(chain_fit, {"path": path, "log_probability": log_probability})


def _averaged_states(chain_in_result: ChainInResult, service: str) -> "Dataset":
    """The Dataset of filtered or smoothed states. service: the method of the chain that computes them."""
    num_draws = next(iter(chain_in_result.draws.values())).shape[0] if chain_in_result.draws else 1
    found = _state_moments(chain_in_result.left, chain_in_result.draws, service, num_draws, chain_in_result.of_given)
    moments = jax.device_get(found)
    if (is_step := _is_step(chain_in_result)) is not None:
        moments = {name: np.where(is_step[..., None], value, np.nan) for name, value in moments.items()}
    return as_dataset(chain_in_result, moments)


@partial(jax.jit, static_argnames=("service", "number"))
def _state_moments(left: Bound, draws: Values, service: str, number: int, of_given: Array | None) -> Values:
    """Probabilities of states, or their means and standard deviations, averaged over draws."""
    [rule] = elimination_rules(left)
    plain = left.plain

    def moments_of_draw(values: Values) -> Any:
        chain, likelihood = _chain_and_likelihood(rule, plain, values, of_given)
        return getattr(innermost_distribution(chain), service)(
            *(likelihood if isinstance(likelihood, tuple) else (likelihood,))
        )

    moments, spread = mean_and_variance(moments_of_draw, draws, number)
    if isinstance(moments, Array):
        return {"probability": moments}
    return {"mean": moments.mean, "sd": jnp.sqrt(jnp.diagonal(moments.covariance, axis1=-2, axis2=-1) + spread.mean)}


def _chain_and_likelihood(rule: Rule, bound: Bound, values: Values, of_given: Array | None) -> tuple[Any, Any]:
    """The prior of a chain, and what data and given states say of its steps."""
    chain, likelihood = likelihood_message(rule, terms(bound).terms, bound, values)
    return chain, likelihood if of_given is None else dense(likelihood) + of_given


def mean_and_variance(function: Callable[[Values], Any], draws: Values, number: int) -> tuple[Any, Any]:
    """The mean and the variance of a function over draws (draw, ...), none of whose values is kept.

    Batches are merged by the algorithm of Chan, Golub and LeVeque (1979).
    """
    size = min(DRAWS_PER_BATCH, number)
    positions = np.arange(number + -number % size)
    weights = jnp.asarray(positions < number, jnp.result_type(float)).reshape(-1, size)
    batches = jax.tree.map(lambda x: x[positions % number].reshape(-1, size, *x.shape[1:]), draws)

    def step(carry: Any, batch: Any) -> Any:
        total_weight, mean, sum_squares = carry
        weight, values = batch
        values_of_batch = jax.vmap(function, axis_size=size)(values) if values else _broadcast_draws(function({}), size)
        batch_weight = weight.sum()
        share = batch_weight / (total_weight + batch_weight)
        batch_mean = jax.tree.map(lambda x: jnp.tensordot(weight / batch_weight, x, 1), values_of_batch)
        batch_square = jax.tree.map(lambda x, m: jnp.tensordot(weight, (x - m) ** 2, 1), values_of_batch, batch_mean)
        shift = jax.tree.map(jnp.subtract, batch_mean, mean)
        sum_squares = jax.tree.map(
            lambda s, i, a: s + i + a**2 * total_weight * share, sum_squares, batch_square, shift
        )
        return (total_weight + batch_weight, jax.tree.map(lambda m, a: m + a * share, mean, shift), sum_squares), None

    shapes = jax.eval_shape(function, jax.tree.map(lambda x: x[0], draws))
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    (_, mean, sum_squares), _ = jax.lax.scan(step, (jnp.zeros(()), zeros, zeros), (weights, batches))
    return mean, jax.tree.map(lambda s: s / number, sum_squares)


def _broadcast_draws(states: Any, size: int) -> Any:
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (size, *x.shape)), states)


@partial(jax.jit, static_argnames="number")
def _best_paths(left: Bound, draws: Values, number: int, of_given: Array | None) -> tuple[Array, Array]:
    """The candidate of each sequence whose probability, averaged over draws, is largest, and its log."""
    [rule] = elimination_rules(left)
    plain = left.plain

    def conditional_chain(values: Values) -> Any:
        if of_given is not None:
            chain, likelihood = _chain_and_likelihood(rule, plain, values, of_given)
            return innermost_distribution(chain).condition(likelihood)
        return conditional(rule, terms(plain).terms, plain, values).distribution

    def best(at: tuple[Array, Values]) -> Array:
        return _most_probable_states(rule, plain, conditional_chain(at[1]))

    count = jnp.arange(number)
    candidates = jax.lax.map(best, (count, draws))
    logs = jax.lax.map(lambda at: conditional_chain(at[1]).log_prob(candidates), (count, draws))
    mean = jax.nn.logsumexp(logs, axis=0) - jnp.log(number)
    chosen = jnp.argmax(mean, axis=0)[None]
    events = candidates.ndim - mean.ndim
    indices = chosen.reshape(*chosen.shape, *(1,) * events)
    return jnp.take_along_axis(candidates, indices, 0)[0], jnp.take_along_axis(mean, chosen, 0)[0]


def _most_probable_states(rule: Rule, bound: Bound, q: Any) -> Array:
    """The most probable path under the conditional of a chain: by the Viterbi algorithm, or the smoothed means."""
    assert rule.family.mode is not None
    return rule.family.mode(q).reshape(bound.sites[rule.site].shape)


def _is_step(chain_in_result: ChainInResult) -> np.ndarray | None:
    """Which steps each sequence has (*batch, step); None where all sequences have all steps."""
    lengths = getattr(chain_in_result.chain, "lengths", None)
    if lengths is None:
        return None
    shape = chain_in_result.left.plain.sites[chain_in_result.site].shape
    return np.broadcast_to(np.arange(chain_in_result.chain.num_steps) < np.asarray(lengths)[..., None], shape)


def as_dataset(chain_in_result: ChainInResult, states: dict[str, np.ndarray]) -> "Dataset":
    """Results as a Dataset, its dimensions named after plates and events, with the labels that the data carry, numbers
    where they carry none."""
    from xarray import Dataset

    batch = len(chain_in_result.chain.event_shape)
    axes = [*chain_in_result.dims, "state"]
    dims = {
        "probability": axes,
        "mean": chain_in_result.dims,
        "sd": chain_in_result.dims,
        "path": chain_in_result.dims,
        "log_probability": chain_in_result.dims[: len(chain_in_result.dims) - batch],
    }
    sizes = {dim: size for name, value in states.items() for dim, size in zip(dims[name], value.shape, strict=True)}
    coords = {dim: chain_in_result.coords.get(dim, np.arange(size)) for dim, size in sizes.items()}
    return Dataset({name: (dims[name], value) for name, value in states.items()}, coords)


def _refuse_seen_future(chain_in_result: ChainInResult) -> None:
    """Raises ValueError for a latent site whose values say something of some steps of the chain and not of others.

    Halves of its values are changed. A site that belongs to a whole sequence changes all steps that it reaches, or
    none. So do probabilities of symbols, but only where all steps have the same symbol, so all data are made equal.
    """
    left = replace(
        chain_in_result.left,
        observed={name: jnp.full_like(y, y.ravel()[0]) for name, y in chain_in_result.left.observed.items()},
    )
    values = {name: value[0] for name, value in chain_in_result.draws.items()}
    for name, value in values.items():
        if value.size < max(chain_in_result.chain.num_steps - 1, 2):
            continue
        position = np.arange(value.size).reshape(value.shape)
        everywhere, *halves = (
            _changed_steps(left, values, values | {name: jnp.where(half_mask, _perturbed(value), value)})
            for half_mask in (
                position >= 0,
                position < value.size // 2,
                position >= value.size // 2,
                position % 2 == 0,
                position % 2 == 1,
            )
        )
        for half in halves:
            for reached, everywhere_steps in zip(half, everywhere, strict=True):
                if np.any(reached.any(-1) & (reached != everywhere_steps).any(-1)):
                    raise ValueError(
                        f"filtered_states cannot leave the future out of site '{name}', which changes from step to "
                        "step and was drawn given all data; use smoothed_states"
                    )


def _perturbed(value: Array) -> Array:
    """Values close to the given ones, or other labels."""
    if jnp.issubdtype(value.dtype, jnp.floating):
        return value + 0.001 * jnp.maximum(jnp.abs(value), 0.001)
    return 1 - jnp.minimum(value, 1)


def _changed_steps(left: Bound, one: Values, other: Values) -> list[np.ndarray]:
    """Where log likelihoods and transitions of a chain differ between values of the other sites, each (..., step)."""
    pairs = zip(*(jax.device_get(_step_numbers(left, values)) for values in (one, other)), strict=True)
    return [~np.isclose(x, y, rtol=1e-9, atol=0.0, equal_nan=True).all(-1) for x, y in pairs]


@jax.jit
def _step_numbers(left: Bound, values: Values) -> list[Array]:
    """All numbers of a chain and of what its children say about it, each (..., step, number)."""
    [rule] = elimination_rules(left)
    prior, likelihood = likelihood_message(rule, terms(left.plain).terms, left.plain, values)
    chain: Any = innermost_distribution(prior)
    if isinstance(chain, MarkovChain):
        return [likelihood, _flat_matrices(chain.transition_probs)]
    return [
        _flat_matrices(likelihood[0]),
        likelihood[1],
        _flat_matrices(chain.transition_matrix),
        _flat_matrices(chain.transition_covariance),
        chain.offset,
    ]


def _flat_matrices(matrices: Array) -> Array:
    return matrices.reshape(*matrices.shape[:-2], -1)
