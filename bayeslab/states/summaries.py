"""What a result says of hidden states: filtered, smoothed, decoded and forecast, averaged over its draws.

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

from bayeslab.distributions import LinearGaussianChain, MarkovChain
from bayeslab.elimination.conditional import Rule, conditional, evidence
from bayeslab.elimination.terms import terms
from bayeslab.programs.binding import bind
from bayeslab.programs.data import read
from bayeslab.programs.program import Bound, Data, Program, Values, precision, unwrapped
from bayeslab.results.datatree import coordinates, dimensions, posterior_of, same_data
from bayeslab.transforms.collapse import eliminated, marginal

if TYPE_CHECKING:
    from xarray import Dataset, DataTree

BATCH = 64
"""Draws that are averaged at once."""
CANDIDATES = 100
"""Draws whose most probable paths are compared."""


def filtered_states(model: Program, data: Data, tree: "DataTree", site: str | None = None) -> "Dataset":
    """p(z_t | x_1, ..., x_t) of every step, averaged over the draws of a result.

    model, data: those of the fit. tree: what any method returns; draws of the chain are not needed.
    site: the chain, where the program has several.
    Returns a Dataset with probability (..., step, state) of a MarkovChain, or mean and sd (..., step, component) of a
    LinearGaussianChain, the sd with what the draws disagree about; NaN after the end of a shorter sequence.
    Parameters are those of the result, whose draws have seen all data. Raises ValueError for a program with another
    latent site that changes from step to step, as a second chain does: its draws have seen the future of each step.
    Raises ValueError for a program without chain, or with several and no `site`, and for a result of other data.
    """
    with precision():
        met = meet_chain(model, data, tree, site)
        _refuse_seen_future(met)
        return _averaged_states(met, "filtered")


def smoothed_states(model: Program, data: Data, tree: "DataTree", site: str | None = None) -> "Dataset":
    """p(z_t | all x) of every step, averaged over the draws of a result. See `filtered_states`.

    Other latent sites may change from step to step.
    """
    with precision():
        return _averaged_states(meet_chain(model, data, tree, site), "smoothed")


def most_probable_path(model: Program, data: Data, tree: "DataTree", site: str | None = None) -> "Dataset":
    """One path of hidden states: of a single draw, a point estimate, the most probable one (Viterbi 1967).

    With many draws, 100 of them at most, evenly spaced: the most probable path of each is a candidate, and the one with
    the highest posterior probability, averaged over these draws, is the result, for each sequence on its own. Align
    draws first where states may be exchanged.
    Returns a Dataset with path (..., step), for a MarkovChain integers, -1 after the end of a shorter sequence, and
    log_probability (...), for a LinearGaussianChain the log of a density. Arguments and errors
    are those of `smoothed_states`.
    """
    with precision():
        met = meet_chain(model, data, tree, site)
        number = next(iter(met.draws.values())).shape[0] if met.draws else 1
        kept = np.linspace(0, number - 1, min(number, CANDIDATES)).round().astype(int)
        path, log_probability = jax.device_get(
            _best_paths(met.left, {name: value[kept] for name, value in met.draws.items()}, len(kept))
        )
        if (inside := _within(met)) is not None:
            path = np.where(inside, path, -1)
        return as_dataset(met, {"path": path, "log_probability": log_probability})


class Met(NamedTuple):
    """A chain and the draws of everything else.

    left: the program with the chain integrated out. draws: (draw, *site). chain: as the program draws it, at the first.
    """

    site: str
    left: Bound
    draws: Values
    chain: Any
    dims: list[str]
    coords: Any


def meet_chain(model: Program, data: Data, tree: "DataTree", site: str | None) -> Met:
    """Raises ValueError for a program without such a site, and for a result of other data or without other sites."""
    posterior = posterior_of(tree, "a summary of states")
    bound = bind(model, data).plain
    if not same_data(tree, bound):
        raise ValueError("the result is of other data: give the data of its fit")
    site = chain_site(bound, site)
    names = [name for name in bound.latent if name != site]
    if lost := [name for name in names if name not in posterior]:
        raise ValueError(
            f"the result has no draws of {lost}, on which the states depend; if they were integrated out, recover() "
            "draws them"
        )
    draws = {name: jnp.asarray(posterior[name].values) for name in names}
    draws = {name: value.reshape(-1, *value.shape[2:]) for name, value in draws.items()}
    left, entries = marginal(bound, (site,)), read(data)
    dims, coords = dimensions(bound, entries)[site], coordinates(bound, entries)
    return Met(site, left, draws, chain_distribution(left, draws), dims, coords)


def chain_site(bound: Bound, site: str | None = None) -> str:
    """The latent site that is a chain; raises ValueError where there is none, or several and no name."""
    kinds = (MarkovChain, LinearGaussianChain)
    chains = [name for name, prior in terms(bound).priors.items() if prior.kind in kinds]
    if site is not None and site not in chains:
        raise ValueError(f"site '{site}' is no latent MarkovChain or LinearGaussianChain; these are {chains}")
    if not chains:
        raise ValueError(f"the program has no latent MarkovChain or LinearGaussianChain, only {list(bound.latent)}")
    if site is None and len(chains) > 1:
        raise ValueError(f"the program has several chains, {chains}; name one, site='{chains[0]}'")
    return chains[0] if site is None else site


def chain_distribution(left: Bound, draws: Values) -> Any:
    """The chain as the program draws it, at the first draw."""
    [rule] = eliminated(left)
    prior = terms(left.plain).priors[rule.site]
    values = {name: value[0] for name, value in draws.items()}
    return unwrapped(jax.jit(prior.distribution)(left.plain, values))


def _averaged_states(met: Met, service: str) -> "Dataset":
    number = next(iter(met.draws.values())).shape[0] if met.draws else 1
    found = jax.device_get(_states(met.left, met.draws, service, number))
    if (inside := _within(met)) is not None:
        found = {name: np.where(inside[..., None], value, np.nan) for name, value in found.items()}
    return as_dataset(met, found)


@partial(jax.jit, static_argnames=("service", "number"))
def _states(left: Bound, draws: Values, service: str, number: int) -> Values:
    [rule] = eliminated(left)
    plain = left.plain

    def one(values: Values) -> Any:
        chain, said = evidence(rule, terms(plain).terms, plain, values)
        return getattr(unwrapped(chain), service)(*(said if isinstance(said, tuple) else (said,)))

    found, spread = averages(one, draws, number)
    if isinstance(found, Array):
        return {"probability": found}
    return {"mean": found.mean, "sd": jnp.sqrt(jnp.diagonal(found.covariance, axis1=-2, axis2=-1) + spread.mean)}


def averages(function: Callable[[Values], Any], draws: Values, number: int) -> tuple[Any, Any]:
    """Mean and variance of a function over draws (draw, ...), none of whose values is kept."""
    size = min(BATCH, number)
    places = np.arange(number + -number % size)
    weights = jnp.asarray(places < number, jnp.result_type(float)).reshape(-1, size)
    batches = jax.tree.map(lambda x: x[places % number].reshape(-1, size, *x.shape[1:]), draws)

    def step(carry: Any, batch: Any) -> Any:
        seen, mean, square = carry
        weight, values = batch
        found = jax.vmap(function, axis_size=size)(values) if values else _repeated(function({}), size)
        own = weight.sum()
        share = own / (seen + own)
        each = jax.tree.map(lambda x: jnp.tensordot(weight / own, x, 1), found)
        inner = jax.tree.map(lambda x, m: jnp.tensordot(weight, (x - m) ** 2, 1), found, each)
        apart = jax.tree.map(jnp.subtract, each, mean)
        square = jax.tree.map(lambda s, i, a: s + i + a**2 * seen * share, square, inner, apart)
        return (seen + own, jax.tree.map(lambda m, a: m + a * share, mean, apart), square), None

    shapes = jax.eval_shape(function, jax.tree.map(lambda x: x[0], draws))
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    (_, mean, square), _ = jax.lax.scan(step, (jnp.zeros(()), nothing, nothing), (weights, batches))
    return mean, jax.tree.map(lambda s: s / number, square)


def _repeated(found: Any, size: int) -> Any:
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (size, *x.shape)), found)


@partial(jax.jit, static_argnames="number")
def _best_paths(left: Bound, draws: Values, number: int) -> tuple[Array, Array]:
    """Of each sequence, the candidate whose probability averaged over draws is largest, and its log."""
    [rule] = eliminated(left)
    plain = left.plain

    def given(values: Values) -> Any:
        return conditional(rule, terms(plain).terms, plain, values).distribution

    def best(at: tuple[Array, Values]) -> Array:
        return _mode(rule, plain, given(at[1]))

    count = jnp.arange(number)
    candidates = jax.lax.map(best, (count, draws))
    logs = jax.lax.map(lambda at: given(at[1]).log_prob(candidates), (count, draws))
    mean = jax.nn.logsumexp(logs, axis=0) - jnp.log(number)
    chosen = jnp.argmax(mean, axis=0)[None]
    events = candidates.ndim - mean.ndim
    place = chosen.reshape(*chosen.shape, *(1,) * events)
    return jnp.take_along_axis(candidates, place, 0)[0], jnp.take_along_axis(mean, chosen, 0)[0]


def _mode(rule: Rule, bound: Bound, q: Any) -> Array:
    assert rule.family.mode is not None
    return rule.family.mode(q).reshape(bound.sites[rule.site].shape)


def _within(met: Met) -> np.ndarray | None:
    """Which steps each sequence has, (*batch, step); None where all have all."""
    lengths = getattr(met.chain, "lengths", None)
    if lengths is None:
        return None
    shape = met.left.plain.sites[met.site].shape
    return np.broadcast_to(np.arange(met.chain.num_steps) < np.asarray(lengths)[..., None], shape)


def as_dataset(met: Met, found: dict[str, np.ndarray]) -> "Dataset":
    """Named after plates and events, with the labels that the data carry, numbers where they carry none."""
    from xarray import Dataset

    batch = len(met.chain.event_shape)
    axes = [*met.dims, "state"]
    dims = {
        "probability": axes,
        "mean": met.dims,
        "sd": met.dims,
        "path": met.dims,
        "log_probability": met.dims[: len(met.dims) - batch],
    }
    sizes = {dim: size for name, value in found.items() for dim, size in zip(dims[name], value.shape, strict=True)}
    coords = {dim: met.coords.get(dim, np.arange(size)) for dim, size in sizes.items()}
    return Dataset({name: (dims[name], value) for name, value in found.items()}, coords)


def _refuse_seen_future(met: Met) -> None:
    """Raises ValueError for a latent site whose values say something of some steps of the chain and not of others.

    Halves of its values are changed. What belongs to a whole sequence changes all steps that the site reaches, or none;
    also probabilities of symbols do where all steps have the same symbol, so all data are made equal.
    """
    left = replace(met.left, observed={name: jnp.full_like(y, y.ravel()[0]) for name, y in met.left.observed.items()})
    values = {name: value[0] for name, value in met.draws.items()}
    for name, value in values.items():
        if value.size < max(met.chain.num_steps - 1, 2):
            continue
        place = np.arange(value.size).reshape(value.shape)
        everywhere, *halves = (
            _reached(left, values, values | {name: jnp.where(some, _another(value), value)})
            for some in (place >= 0, place < value.size // 2, place >= value.size // 2, place % 2 == 0, place % 2 == 1)
        )
        for half in halves:
            for reached, whole in zip(half, everywhere, strict=True):
                if np.any(reached.any(-1) & (reached != whole).any(-1)):
                    raise ValueError(
                        f"filtered_states cannot leave the future out of site '{name}', which changes from step to "
                        "step and was drawn given all data; use smoothed_states"
                    )


def _another(value: Array) -> Array:
    """A value close by, or another label."""
    if jnp.issubdtype(value.dtype, jnp.floating):
        return value + 0.001 * jnp.maximum(jnp.abs(value), 0.001)
    return 1 - jnp.minimum(value, 1)


def _reached(left: Bound, one: Values, other: Values) -> list[np.ndarray]:
    """Where the evidence and the transitions of a chain differ between values of the other sites, each (..., step)."""
    pairs = zip(*(jax.device_get(_steps(left, values)) for values in (one, other)), strict=True)
    return [~np.isclose(x, y, rtol=1e-9, atol=0.0, equal_nan=True).all(-1) for x, y in pairs]


@jax.jit
def _steps(left: Bound, values: Values) -> list[Array]:
    """All numbers of a chain and of the evidence about it, each (..., step, number)."""
    [rule] = eliminated(left)
    found, said = evidence(rule, terms(left.plain).terms, left.plain, values)
    chain: Any = unwrapped(found)
    if isinstance(chain, MarkovChain):
        return [said, _flat(chain.transition_probs)]
    return [_flat(said[0]), said[1], _flat(chain.transition_matrix), _flat(chain.transition_covariance), chain.offset]


def _flat(matrices: Array) -> Array:
    return matrices.reshape(*matrices.shape[:-2], -1)
