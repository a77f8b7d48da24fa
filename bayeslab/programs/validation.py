"""Checks of what a program makes of its data, which come before compilation: compiled code would not notice."""

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.handlers import condition, seed, substitute, trace

from bayeslab.programs.arguments import argument_arrays
from bayeslab.programs.data import first_true
from bayeslab.programs.missing.names import OBSERVED, UNOBSERVED, whole_site
from bayeslab.programs.program import Bound, Values, init_inside_support, is_random
from bayeslab.programs.tracing.provenance import DataFlow, Fact, written_values

NUM_TRIAL_POINTS = 5
"""Number of points, or of other values in gaps, at which a density is looked at."""
NUM_REPLAY_POINTS = 20
"""Number of points at which densities are compared for other values in the gaps of data."""


def check_bound(bound: Bound, flow: DataFlow, scaled_chains: Collection[str]) -> Bound:
    """The Bound, in which sites whose support depends on latent sites are guarded.

    scaled_chains: latent chains that `handlers.scale` may scale.
    Raises ValueError for what compiled code would not notice.
    """
    _refuse_hidden_randomness(bound, flow)
    _refuse_drawn_steps(bound)
    _refuse_nan(bound, flow)
    _refuse_scaled_chains(bound, scaled_chains)
    _refuse_infinite(bound)
    _refuse_index_outside(bound, flow)
    values = dict(zip(flow.known, jax.device_get(flow.known_values(bound)), strict=True))
    for fact, value in values.items():
        if fact.kind == "valid" and not np.all(value):
            _refuse_parameter(fact, value, values)
        if fact.kind == "support":
            _refuse_outside_support(fact, value, values, bound)
    guarded = tuple(f.site for f in flow.of("support") if f.reached_by("latent") and f.expected != "real")
    return replace(bound, guarded=guarded)


def _refuse_nan(bound: Bound, flow: DataFlow) -> None:
    """Raise for NaN in an argument, unless densities and their slopes are numbers all the same.

    They are where its use is obs=, for which NaN is a missing entry, or where the program puts something in its place.
    """
    used = {name for fact in flow.of("density") for name in fact.reached_by("argument")}
    for name, value in argument_arrays(bound.settings, bound.arrays):
        if value.dtype.kind != "f" or not np.isnan(value).any():
            continue
        unknown = name in used or name not in bound.arrays
        if not _has_defined_slopes(bound) if unknown else not _is_written(name, bound, flow):
            raise ValueError(
                f"argument '{name}' has a missing entry (NaN) at position {first_true(np.isnan(value))}; "
                f"only observed sites may have missing entries; numpyro.sample('{name}', ..., obs={name}) imputes them"
            )


def _has_defined_slopes(bound: Bound) -> bool:
    """Whether the log joint and its derivatives in the continuous sites are numbers, at several points."""
    keys = jax.random.split(jax.random.PRNGKey(0), NUM_TRIAL_POINTS)
    return all(_has_slopes_at(key, bound) for key in keys)


def _has_slopes_at(key: jax.Array, bound: Bound) -> bool:
    """Whether the log joint and its derivatives in the continuous sites are numbers at one point."""
    return all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(_trial_slopes(key, bound)))


@jax.jit
def _trial_slopes(key: jax.Array, bound: Bound) -> tuple[jax.Array, dict[str, jax.Array]]:
    """The log joint and its derivatives in the continuous sites at a point in their supports."""
    latent = {name: site["value"] for name, site in _run_sites(bound, key, substitute_fn=init_inside_support).items()}
    free = {name: value for name, value in latent.items() if name in bound.latent}
    real = {name: value for name, value in free.items() if jnp.issubdtype(value.dtype, jnp.floating)}
    return jax.value_and_grad(lambda values: bound.log_joint(free | values))(real)


def _refuse_infinite(bound: Bound) -> None:
    """Raise for an infinite argument that leaves a site without a finite density, or the log joint without slopes,
    wherever one looks."""
    infinite = [name for name, array in bound.arrays.items() if np.isinf(np.asarray(array)).any()]
    if not infinite:
        return
    tried = [
        jax.device_get(_trial_log_densities(jax.random.PRNGKey(number), bound, values))
        for number in range(NUM_TRIAL_POINTS)
        for values in ({}, bound.observed)  # bounds of an interval are finite only as they are given, in their order
    ]
    guilty = [name for name in tried[0] if not any(np.isfinite(density[name]) for density in tried)]
    if guilty or not any(_has_slopes_at(jax.random.PRNGKey(number), bound) for number in range(NUM_TRIAL_POINTS)):
        position = first_true(np.isinf(np.asarray(bound.arrays[infinite[0]])))
        lost = f"{quoted_names(guilty, 'site')} without a finite density" if guilty else "the log joint without slopes"
        raise ValueError(f"argument '{infinite[0]}' is infinite at position {position}, which leaves {lost}")


def _refuse_hidden_randomness(bound: Bound, flow: DataFlow) -> None:
    """Raise for random numbers that no site holds: they would be the same ones in every draw.

    A scan hides what depends on what, so densities are looked at for two keys.
    """
    if not any(fact.reached_by("random") for fact in flow.of("density")):
        return
    for name, changes in jax.device_get(_density_changes_with_key(bound)).items():
        if changes:
            raise ValueError(
                f"site '{name}' depends on random numbers that no site of '{short_name(bound.function)}' holds, since "
                "they are drawn with a key of their own, or hidden by a handler; draw them with numpyro.sample"
            )


def _refuse_drawn_steps(bound: Bound) -> None:
    """Raise for values of some steps of a scan, where NumPyro draws those of the others anew at every evaluation."""
    latent = {n: jnp.zeros(shape.shape, shape.dtype) for n, shape in bound.latent_shapes.items()}
    try:
        if bound.computed:
            jax.eval_shape(Bound.log_joint, bound, latent)
    except AssertionError:
        raise ValueError(
            f"{listed_sites(bound.computed)} has values for a part of the steps of a scan, and NumPyro would draw the "
            "others; scan over the steps that have values, and to forecast give predict NaN for the steps to come"
        ) from None


@jax.jit
def _density_changes_with_key(bound: Bound) -> dict[str, jax.Array]:
    """For every site and factor, whether its log density changes with the key of the program."""
    keys = jax.random.split(jax.random.PRNGKey(0))
    sites = _run_sites(bound, keys[0], substitute_fn=init_inside_support)
    latent = {name: site["value"] for name, site in sites.items() if is_random(site) and name not in bound.observed}

    def densities(key: jax.Array) -> dict[str, jax.Array]:
        model = substitute(condition(seed(bound.source, key), data=bound.observed), data=latent)
        return _log_densities(_sample_sites(trace(model).get_trace(**bound.inputs)))

    by_key = jax.lax.map(densities, keys)
    return {name: (pair[0] != pair[1]) & ~jnp.isnan(pair).all() for name, pair in by_key.items()}


@jax.jit
def _trial_log_densities(key: jax.Array, bound: Bound, values: Values) -> dict[str, jax.Array]:
    """The log density of every site at a point in its support. values: of sites that are at theirs."""

    def value(site: dict[str, Any] | None = None) -> Any:
        return values[site["name"]] if site is not None and site["name"] in values else init_inside_support(site)

    sites = _run_sites(bound, key, substitute_fn=value)
    return _log_densities({name: site for name, site in sites.items() if is_random(site)})


def _run_sites(bound: Bound, key: jax.Array, **given: Any) -> dict[str, Any]:
    """The sample sites and factors of a run of the program. given: what `substitute` takes: values of sites."""
    sites = trace(substitute(bound.unconditioned(key), **given)).get_trace(**bound.inputs)
    return _sample_sites(sites)


def _sample_sites(sites: dict[str, Any]) -> dict[str, Any]:
    """The sample sites and factors among the sites of a trace."""
    return {name: site for name, site in sites.items() if site["type"] == "sample"}


def _log_densities(sites: dict[str, Any]) -> dict[str, jax.Array]:
    """The log density of every site at its value."""
    return {name: site["fn"].log_prob(site["value"]).sum() for name, site in sites.items()}


def _is_written(name: str, bound: Bound, flow: DataFlow) -> bool:
    """Whether an argument reaches a value that the program gives with obs=, in the body of a scan perhaps."""
    if any(name in fact.reached_by("argument") for fact in flow.of("written")):
        return True
    if not any(bound.sites[site].scanned for site in bound.observed):
        return False
    other = replace(bound, arrays=bound.arrays | {name: jnp.nan_to_num(bound.arrays[name])})
    before, after = written_values(bound), written_values(other)
    return any(not np.array_equal(before[site], after[site], equal_nan=True) for site in before)


def missing_parents(bound: Bound, flow: DataFlow, scanned: Collection[str]) -> list[str]:
    """The observed sites with missing values that others depend on.

    A scan hides what depends on what, so it is replayed with other numbers in the gaps.
    """
    dependent = {name for fact in flow.of("density") for name in fact.reached_by("observed") if name != fact.site}
    names = [
        name
        for name in bound.present
        if (_sites_changed_by_gaps(bound, name) if name in scanned else name in dependent)
    ]
    drawn = {fact.site for fact in flow.facts}
    for name in [name for name in names if name.removesuffix(OBSERVED) + UNOBSERVED in drawn]:
        if sites := _sites_changed_by_gaps(bound, name):
            raise ValueError(
                f"the values of site '{name.removesuffix(OBSERVED)}' are NaN where its obs_mask says that they are "
                f"observed, and site '{sites[0]}' depends on them"
            )
        names.remove(name)
    return names


def _sites_changed_by_gaps(bound: Bound, name: str) -> list[str]:
    """The sites whose density changes with what stands in the gaps of an observed site."""
    value = np.asarray(bound.observed[name])
    present = np.asarray(bound.present[name])
    present = np.broadcast_to(present.reshape(present.shape + (1,) * (value.ndim - present.ndim)), value.shape)
    before = jax.device_get(_replayed_log_densities(bound))
    moved = set()
    for number in [np.nan] if value.dtype.kind == "f" else range(NUM_TRIAL_POINTS):
        other = jnp.asarray(np.where(present, value, number).astype(value.dtype))
        after = jax.device_get(_replayed_log_densities(replace(bound, observed=bound.observed | {name: other})))
        moved |= {site for site in before if not np.array_equal(before[site], after[site], equal_nan=True)}
    return [site for site in before if site in moved]


@jax.jit
def _replayed_log_densities(bound: Bound) -> dict[str, jax.Array]:
    """The log density of every site given the data, at several points (point,)."""

    def densities(key: jax.Array) -> dict[str, jax.Array]:
        sites = trace(substitute(seed(bound.program, key), substitute_fn=init_inside_support)).get_trace()
        return {name: s["fn"].log_prob(s["value"]).sum() for name, s in sites.items() if s["type"] == "sample"}

    return jax.vmap(densities)(jax.random.split(jax.random.PRNGKey(0), NUM_REPLAY_POINTS))


def _refuse_scaled_chains(bound: Bound, scaled: Collection[str]) -> None:
    """Raise for a latent chain whose density is scaled.

    It is no chain any more, or, with equal probabilities, a chain whose evidence is another.
    """
    scales = jax.device_get(_site_scales(bound)) if scaled else {}
    for name in scaled:
        if np.any(scales[name] != 1):
            raise ValueError(
                f"handlers.scale multiplies the density of the latent chain '{name}', which is then no chain; scale "
                "observed sites alone"
            )


@jax.jit
def _site_scales(bound: Bound) -> dict[str, jax.Array]:
    """What handlers.scale multiplies the density of every scaled site with."""
    model = substitute(bound.unconditioned(jax.random.PRNGKey(0)), substitute_fn=init_inside_support)
    sites = trace(model).get_trace(**bound.inputs)
    return {name: jnp.asarray(s["scale"]) for name, s in sites.items() if is_random(s) and s["scale"] is not None}


def _refuse_index_outside(bound: Bound, flow: DataFlow) -> None:
    """Raise for an index outside of its array: compiled code takes the nearest element for it."""
    if not flow.lookups:
        return
    for lookup, indices in zip(flow.lookups, jax.device_get(flow.places(bound)), strict=True):
        for size, index in zip(lookup.sizes, np.moveaxis(np.asarray(indices), -1, 0), strict=True):
            _refuse_negative_index(bound, lookup.arguments, size, index)
            wrong = (index < 0) | (index >= size)
            if not wrong.any():
                continue
            wrong_index = index[first_true(wrong)]
            given = wrong_index if wrong_index >= 0 else wrong_index - size  # negative ones count from the end
            for name in lookup.arguments:
                matches = np.asarray(bound.arrays[name]) == given
                if matches.any():
                    raise ValueError(_index_message(name, first_true(matches), given, size))
            raise ValueError(
                f"{quoted_names(list(lookup.arguments), 'argument')} of '{short_name(bound.function)}' lead to the "
                f"index {wrong_index} of {size} elements, which count from 0"
            )


def _refuse_negative_index(bound: Bound, arguments: Collection[str], size: int, index: np.ndarray) -> None:
    """Raise for a negative number in an argument that is itself the index: it does not count from the end."""
    for name in arguments:
        given = np.asarray(bound.arrays[name])
        negative = given < 0
        if negative.any() and np.array_equal(np.where(negative, given + size, given), index):
            raise ValueError(_index_message(name, first_true(negative), given[first_true(negative)], size))


def _index_message(name: str, where: tuple[int, ...], given: Any, size: int) -> str:
    """The sentence that says which number of an argument is no index."""
    return (
        f"argument '{name}' at position {where} is {given}, but it is an index into {size} elements, which count from 0"
    )


def _refuse_parameter(fact: Fact, valid: np.ndarray, values: dict[Fact, Any]) -> None:
    """Raise for a parameter of a distribution that is not valid. fact: whether it is, with the values in `valid`."""
    wrong = ~np.asarray(valid)
    value = next(np.asarray(v) for f, v in values.items() if f[:3] == (fact.site, "parameter", fact.name))
    position = first_true(wrong)
    shown = f"{value[position]} at position {position}" if value.ndim == wrong.ndim > 0 else f"{value.tolist()}"
    given = fact.reached_by("argument")
    source = f", which comes from {quoted_names(given, 'argument')}" if given else ""
    is_matrix = fact.expected == "positive definite" and value.ndim >= 2
    expected = "symmetric and " * (is_matrix and not np.allclose(value, value.swapaxes(-1, -2))) + fact.expected
    raise ValueError(
        f"'{fact.name}' of the {fact.family} at site '{fact.site}' must be {expected}, but is {shown}{source}"
    )


def _refuse_outside_support(fact: Fact, inside: np.ndarray, values: dict[Fact, Any], bound: Bound) -> None:
    """Raise for an observed value outside the support of its site. fact: whether it is, with the values in `inside`."""
    present = np.asarray(bound.present.get(fact.site, True))
    inside = np.asarray(inside)
    if present.ndim > inside.ndim:
        present = present.all(tuple(range(inside.ndim, present.ndim)))
    wrong = ~inside & present.reshape(present.shape + (1,) * (inside.ndim - present.ndim))
    if not wrong.any():
        return
    limits = [v for f, v in values.items() if (f.site, f.kind) == (fact.site, "bound")]
    limits = [shown for limit in limits if (shown := _limit_at(limit, first_true(wrong), wrong.shape))]
    named = fact.expected.endswith(("interval", "than", "eq"))
    support = f"{fact.expected} {' to '.join(limits)}" if named else fact.expected
    value = np.asarray(bound.observed[fact.site])[first_true(wrong)]
    raise ValueError(
        f"entry '{whole_site(fact.site)}' at position {first_true(wrong)} is {value}, "
        f"which is outside the support of its site ({fact.family}: {support})"
    )


def _limit_at(limit: Any, position: tuple[int, ...], shape: tuple[int, ...]) -> str:
    """The limit of the support at a position of the values; nothing where it is not known which one that is."""
    with suppress(ValueError):  # the limits have axes that the positions do not have
        return str(np.broadcast_to(limit, shape)[position])
    return str(np.asarray(limit).flat[0]) if np.unique(limit).size == 1 else ""


def quoted_names(names: list[str], noun: str) -> str:
    """The noun, in the plural for several names, and the names in quotes."""
    return noun + ("s " if len(names) > 1 else " ") + ", ".join(f"'{name}'" for name in names)


def listed_names(names: Sequence[str]) -> str:
    """The names in quotes, as a sentence lists them."""
    quoted = [f"'{name}'" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"


def listed_sites(names: Sequence[str]) -> str:
    """The noun, site or sites, and the names in quotes, as a sentence lists them."""
    return f"{'sites' if len(names) > 1 else 'site'} {listed_names(names)}"


def short_name(function: Any) -> str:
    """The name of a function, or of the class of what is no function."""
    return getattr(function, "__name__", type(function).__name__)
