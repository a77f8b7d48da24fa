"""What a result says of hidden states: filtering, smoothing and decoding, averaged over its draws.

The program has one site that is a chain, and the result has draws of all others. For each draw the chain given the data
is again a chain; nothing here needs draws of the states themselves.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bayeslab.distributions import LinearChainCRF, LinearGaussianChain, MarkovChain
from bayeslab.elimination.conditional import Rule, conditional, likelihood_message
from bayeslab.elimination.terms import terms
from bayeslab.programs.binding import bind
from bayeslab.programs.data import read_entries
from bayeslab.programs.program import Bound, Data, Program, Values, precision_scope
from bayeslab.programs.wrapped_distributions import innermost_distribution
from bayeslab.results.datatree import coordinates, dimensions, has_same_data, posterior_draws
from bayeslab.results.draw_batches import DRAWS_PER_BATCH
from bayeslab.transforms.collapse import elimination_rules, marginal

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
                chain_fit.left, {name: value[positions] for name, value in chain_fit.draws.items()}, len(positions)
            )
        )
        if (is_step := _is_step(chain_fit)) is not None:
            path = np.where(is_step, path, -1)
        return as_dataset(chain_fit, {"path": path, "log_probability": log_probability})


class ChainInResult(NamedTuple):
    """A chain and the draws of everything else.

    left: the program with the chain integrated out. draws: (draw, *site). chain: its prior at the first draw.
    dims: of the site. coords: labels by dimension.
    """

    site: str
    left: Bound
    draws: Values
    chain: Any
    dims: list[str]
    coords: Any


def read_chain(model: Program, data: Data, tree: "DataTree", site: str | None) -> ChainInResult:
    """The chain of a program and the draws of everything else that a result has.

    Raises ValueError for a program without a chain, for a chain of which some states are given, for a result without
    draws of other sites, and for one of other data, unless nothing is observed in these: then nothing in them is news
    of the other sites.
    """
    posterior = posterior_draws(tree, "a summary of states")
    bound = bind(model, data).plain
    site = chain_site(bound, site)
    if site in bound.imputed:
        raise ValueError(
            f"some states of '{site}' are given, and summaries of states are of chains of which none is; the posterior "
            "has draws of its other states"
        )
    if not (has_same_data(tree, bound) or _adds_nothing(bound, site, tree)):
        raise ValueError(
            "the result is of other data: give the data of its fit, or new sequences of which nothing is observed"
        )
    names = [name for name in bound.latent if name != site]
    if missing := [name for name in names if name not in posterior]:
        raise ValueError(
            f"the result has no draws of {missing}, on which the states depend; if they were integrated out, recover() "
            "draws them"
        )
    draws = {name: jnp.asarray(posterior[name].values) for name in names}
    for name, value in draws.items():
        if value.shape[2:] != bound.sites[name].shape:
            raise ValueError(
                f"site '{name}' has shape {value.shape[2:]} in the result, but {bound.sites[name].shape} for these data"
            )
    draws = {name: value.reshape(-1, *value.shape[2:]) for name, value in draws.items()}
    collapsed, entries = marginal(bound, (site,)), read_entries(data)
    dims, coords = dimensions(bound, entries)[site], coordinates(bound, entries)
    return ChainInResult(site, collapsed, draws, chain_distribution(collapsed, draws), dims, coords)


def _adds_nothing(bound: Bound, site: str, tree: "DataTree") -> bool:
    """Whether nothing depends on the chain, and what is observed beside it is as it was at the fit."""
    fitted = tree["observed_data"].data_vars if "observed_data" in tree.children else {}
    return not any(site in term.depends for term in terms(bound).terms if term.name != site) and all(
        name in fitted and np.array_equal(fitted[name].values, value) for name, value in bound.observed.items()
    )


def chain_site(bound: Bound, site: str | None = None) -> str:
    """The latent site that is a chain; raises ValueError where there is none, or several and no name."""
    kinds = (MarkovChain, LinearChainCRF, LinearGaussianChain)
    chains = [name for name, prior in terms(bound).priors.items() if prior.kind in kinds]
    if site is not None and site not in chains:
        raise ValueError(f"site '{site}' is no latent MarkovChain or LinearGaussianChain; these are {chains}")
    if not chains:
        raise ValueError(f"the program has no latent MarkovChain or LinearGaussianChain, only {list(bound.latent)}")
    if site is None and len(chains) > 1:
        raise ValueError(f"the program has several chains, {chains}; name one, site='{chains[0]}'")
    return chains[0] if site is None else site


def chain_distribution(left: Bound, draws: Values) -> Any:
    """The prior of the chain at the first draw of the other sites."""
    [rule] = elimination_rules(left)
    prior = terms(left.plain).priors[rule.site]
    values = {name: value[0] for name, value in draws.items()}
    return innermost_distribution(jax.jit(prior.distribution)(left.plain, values))


def _averaged_states(chain_in_result: ChainInResult, service: str) -> "Dataset":
    """The Dataset of filtered or smoothed states. service: the method of the chain that computes them."""
    num_draws = next(iter(chain_in_result.draws.values())).shape[0] if chain_in_result.draws else 1
    moments = jax.device_get(_state_moments(chain_in_result.left, chain_in_result.draws, service, num_draws))
    if (is_step := _is_step(chain_in_result)) is not None:
        moments = {name: np.where(is_step[..., None], value, np.nan) for name, value in moments.items()}
    return as_dataset(chain_in_result, moments)


@partial(jax.jit, static_argnames=("service", "number"))
def _state_moments(left: Bound, draws: Values, service: str, number: int) -> Values:
    """Probabilities of states, or their means and standard deviations, averaged over draws."""
    [rule] = elimination_rules(left)
    plain = left.plain

    def moments_of_draw(values: Values) -> Any:
        chain, likelihood = likelihood_message(rule, terms(plain).terms, plain, values)
        return getattr(innermost_distribution(chain), service)(
            *(likelihood if isinstance(likelihood, tuple) else (likelihood,))
        )

    moments, spread = mean_and_variance(moments_of_draw, draws, number)
    if isinstance(moments, Array):
        return {"probability": moments}
    return {"mean": moments.mean, "sd": jnp.sqrt(jnp.diagonal(moments.covariance, axis1=-2, axis2=-1) + spread.mean)}


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
def _best_paths(left: Bound, draws: Values, number: int) -> tuple[Array, Array]:
    """The candidate of each sequence whose probability, averaged over draws, is largest, and its log."""
    [rule] = elimination_rules(left)
    plain = left.plain

    def conditional_chain(values: Values) -> Any:
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
