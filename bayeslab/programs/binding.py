"""bind(): a function meets its data. Every check of what users give happens here, before anything is compiled."""

import difflib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.handlers import substitute, trace

from bayeslab.programs.arguments import parameters, signature
from bayeslab.programs.data import (
    Entry,
    as_entry,
    as_numpy_array,
    read_entries,
    refuse_conflicting_codes,
    values_and_presence,
)
from bayeslab.programs.errors import errors_explained
from bayeslab.programs.handlers.listed_values import LISTED_SUPPORTS, listed_sizes
from bayeslab.programs.handlers.sites import name_in_results
from bayeslab.programs.label_checks import refuse_conflicting_labels
from bayeslab.programs.missing.imputation import with_split_sites
from bayeslab.programs.missing.masked_latents import unread_masked_sites
from bayeslab.programs.missing.names import given_part
from bayeslab.programs.missing.observed_values import event_mask, observed_value
from bayeslab.programs.missing.split_distributions import Split
from bayeslab.programs.probing import (
    captured_with_arguments,
    probe_sites,
    probe_splits,
    split_arguments,
    with_keywords,
)
from bayeslab.programs.program import Bound, Data, DerivedProgram, Program, init_inside_support
from bayeslab.programs.tracing.compilation_cache import keep_compilations
from bayeslab.programs.tracing.count_limits import with_count_limits
from bayeslab.programs.tracing.provenance import (
    DataFlow,
    trace_data_flow,
    trace_written_sites,
    written_values,
)
from bayeslab.programs.validation import (
    check_bound,
    missing_parents,
    short_name,
)


def bind(program: Program, data: Data) -> Bound:
    """Fix every entry of `data`: arguments of `program` by name, its sample sites by conditioning.

    data: a dict, a pandas DataFrame or an xarray Dataset. NaN, and what pandas and NumPy mark as missing,
    is allowed in observed sites only.
    Raises ValueError or TypeError, with one sentence, for an entry that is neither argument nor site, a missing
    argument, a wrong shape, a value outside the support of its site, NaN elsewhere, an invalid hyperparameter, or
    entries whose categories or labels contradict each other.
    """
    return _bind(program, data, needs_values=True)


def bind_changed(program: Program, data: Data, change: Callable[[Bound], Bound]) -> Bound:
    """As `bind`. change: what is done to the Bound of the function, before that of a derived program is made of it."""
    return _bind(program, data, needs_values=True, change=change)


def bind_new_rows(program: Program, data: Data) -> Bound:
    """As `bind`, for rows of which nothing need be known: sites may have missing entries alone."""
    return _bind(program, data, needs_values=False)


def _bind(
    program: Program, data: Data, needs_values: bool, change: Callable[[Bound], Bound] = lambda bound: bound
) -> Bound:
    keep_compilations()
    function, entries = unwrap_partial(program, read_entries(data))
    if isinstance(function, DerivedProgram):
        return function.transformed(change(_bind_entries(function.model, entries, needs_values)))
    return change(_bind_entries(function, entries, needs_values))


def _rectangular(value: Any, name: str) -> Any:
    """The value of a site, lists as arrays; raises ValueError for lists of unequal lengths."""
    return as_numpy_array(value, name) if isinstance(value, list) else value


def _bind_entries(program: Program, entries: dict[str, Entry], needs_values: bool) -> Bound:
    function, entries = unwrap_partial(program, entries)
    refuse_conflicting_codes(entries)
    function = with_keywords(function, entries)
    named = parameters(function)
    bound = split_arguments(function, {name: entries[name] for name in entries if name in named})
    sites = {name_in_results(name): entries[name] for name in entries if name not in named}
    shapes = {name: np.shape(_rectangular(item.value, name)) for name, item in sites.items()}
    probe = probe_sites(bound, shapes)
    _refuse_unknown(sites, named, probe, function)
    empty = {name: item for name, item in sites.items() if not _has_values(name, item)}
    bound = _observe(bound, probe, {name: item for name, item in sites.items() if name not in empty})
    refuse_conflicting_labels(entries, {name: site["plates"] for name, site in probe.items()})
    scanned = [name for name, site in probe.items() if site["scanned"]]
    bound, latent, data_flow = _with_data_flow(bound, probe, scanned)
    if unused := _unused_parameters(bound, data_flow):
        bound, latent, data_flow = _with_data_flow(replace(bound, unused=unused), probe, scanned)
    if listed := _listed_sites(bound, data_flow):
        bound = replace(bound, listed=listed)
        probe = probe_sites(bound, shapes)
        bound, latent, data_flow = _with_data_flow(bound, probe, scanned)
    if needs_values:
        _refuse_empty(bound, probe, empty, data_flow)
        _refuse_without_value(bound, probe)
    _refuse_unobserved(bound, [name for name in latent if not probe[name]["written"]], data_flow)
    _refuse_directions(bound)
    _refuse_text_for_numbers(bound, entries)
    scaled_chains = [name for name in latent if probe[name]["scaled"] and probe[name]["family"] == "MarkovChain"]
    # without what every run of the program changes, as a counter of its runs
    unchanged = {*captured_with_arguments(function, bound.settings)}
    bound = replace(bound, captured=tuple(each for each in bound.captured if each in unchanged))
    bound = check_bound(bound, data_flow, scaled_chains)
    return with_count_limits(replace(bound, unmasked=unread_masked_sites(bound)))


def _refuse_directions(bound: Bound) -> None:
    """Raises ValueError for latent sites on a sphere, which have no unconstrained coordinates."""
    for name in bound.latent:
        if bound.sites[name].support == "sphere":
            raise ValueError(
                f"latent site '{name}' is a direction, for which there are no coordinates; NumPyro's "
                f"handlers.reparam(config={{'{name}': ProjectedNormalReparam()}}) draws a vector and normalises it"
            )


def _with_data_flow(
    bound: Bound, probe: dict[str, dict[str, Any]], scanned: Collection[str]
) -> tuple[Bound, dict[str, Any], DataFlow]:
    """The Bound, in which sites that are missing in part and that others depend on are split; its latent sites; its
    data flow."""

    def traced(bound: Bound) -> tuple[dict[str, Any], DataFlow]:
        known = {*bound.observed, *bound.computed, *bound.unused}
        latent = {name: site["value"] for name, site in probe.items() if name not in known}
        with errors_explained(bound):
            return latent, trace_data_flow(bound, latent)

    latent, data_flow = traced(bound)
    if names := missing_parents(bound, data_flow, scanned):
        for name, split in probe_splits(bound, names).items():
            _refuse_unsplittable(name, split, data_flow)
        bound = with_split_sites(bound, names)
        latent, data_flow = traced(bound)
    return bound, latent, data_flow


def _unused_parameters(bound: Bound, flow: DataFlow) -> tuple[str, ...]:
    """The numpyro.params on which no other site depends: a module whose weights have priors has such ones."""
    facts = flow.of("density", "parameter", "bound")
    used = {name for fact in facts for name in fact.reached_by("latent") if fact.site != name}
    return tuple(name for name in bound.learned if name not in used)


def _listed_sites(bound: Bound, flow: DataFlow) -> tuple[tuple[str, int], ...]:
    """The latent sites on which others depend and whose values are listed, and how many these are."""
    used = {name for fact in flow.of("density") for name in fact.reached_by("latent") if fact.site != name}
    moving = {fact.site for fact in flow.of("bound") if fact.reached_by("latent")}
    sites = [bound.sites[name] for name in bound.latent if name in used - moving and name not in bound.imputed]
    names = [site.name for site in sites if site.support in LISTED_SUPPORTS and not site.scanned]
    return tuple(listed_sizes(bound, names, init_inside_support).items()) if names else ()


def _has_values(name: str, item: Entry) -> bool:
    """Whether some element of an entry is present."""
    return bool(np.size(item.value) == 0 or values_and_presence(item, name)[1].any())


def _refuse_empty(bound: Bound, probe: dict[str, Any], empty: dict[str, Entry], flow: DataFlow) -> None:
    """Raise ValueError for a site without any value, unless others depend on it: then it is latent."""
    for name, item in empty.items():
        used = any(name in fact.reached_by("latent") and fact.site != name for fact in flow.of("density"))
        if not used or bound.sites[name].shape != np.shape(item.value):
            observed_value(name, item, probe[name]["value"])


def _refuse_without_value(bound: Bound, probe: dict[str, Any]) -> None:
    """Raise ValueError for a site that the program gives missing values alone, and on which no other depends; a number
    may be missing beside others that are not, as a step of a series in a loop."""
    has_some = any(np.any(bound.present.get(name, True)) for name in bound.observed)
    for name, value in bound.observed.items():
        if name in map(given_part, bound.imputed) or np.any(bound.present.get(name, True)):
            continue
        if np.ndim(value) > 0 or not has_some:
            observed_value(name, Entry(np.full(np.shape(value), np.nan)), probe[name]["value"])


def _refuse_unobserved(bound: Bound, names: Collection[str], flow: DataFlow) -> None:
    """Raise ValueError for an argument whose values are never used, with the name and shape of one of these sites."""
    used = {name for fact in flow.facts for name in fact.reached_by("argument")}
    for name in names:
        if name in bound.arrays and name not in used and np.shape(bound.arrays[name]) == bound.sites[name].shape:
            raise ValueError(
                f"'{name}' is an argument whose values '{short_name(bound.function)}' does not use, and a site that it "
                "does not observe, so its values would teach nothing; write "
                f"numpyro.sample('{name}', ..., obs={name}), or leave it out of the data"
            )


def _refuse_text_for_numbers(bound: Bound, entries: dict[str, Entry]) -> None:
    """Raise ValueError for categories, which have become codes, as values of a continuous site."""
    for name, item in entries.items():
        if item.categories and name in bound.observed and not bound.sites[name].is_discrete:
            shown = ", ".join(repr(str(label)) for label in item.categories[:3])
            more = ", ..." if len(item.categories) > 3 else ""
            raise ValueError(
                f"entry '{name}' holds categories ({shown}{more}), but its site is a {bound.sites[name].family}, whose "
                "values are numbers; give numbers, or a program with a discrete site"
            )


def _refuse_unsplittable(name: str, split: Split, flow: DataFlow) -> None:
    """Raise ValueError for a site whose missing elements cannot be drawn beside those that are given."""
    advice = f"leave '{name}' out of the data to make all of it latent, or complete it"
    if not split.possible:
        raise ValueError(
            f"entry '{name}' has missing values that others depend on, and those of a {split.family} cannot be "
            f"imputed; {advice}"
        )
    for fact in flow.of("parameter", "bound"):
        makes_support = fact.kind == "bound" or fact.name in split.shared
        if fact.site == name and makes_support and fact.reached_by("latent"):
            raise ValueError(
                f"entry '{name}' has missing values that others depend on, and the support of its site depends on "
                f"site '{fact.reached_by('latent')[0]}', so they cannot be imputed; {advice}"
            )


def suggestion(word: str, words: Iterable[str]) -> str:
    """A question that suggests the word that is spelled most like `word`; an empty text where none is close."""
    plain = {each.lower(): each for each in words}
    close = difflib.get_close_matches(word.lower(), list(plain), 1)
    return f" Did you mean '{plain[close[0]]}'?" if close else ""


def unwrap_partial(program: Program, entries: dict[str, Entry]) -> tuple[Program, dict[str, Entry]]:
    """The function inside partials, and the entries with the arguments of the partials, which data override.

    Partials are taken apart because they are equal only to themselves, so code would be compiled again for each.
    """
    signature(program)
    while isinstance(program, partial):
        names = list(parameters(program.func))
        fixed = dict(zip(names, program.args, strict=False)) | program.keywords
        entries = {name: as_entry(value, name) for name, value in fixed.items()} | entries
        program = program.func
    return program, entries


def _refuse_unknown(sites: dict[str, Entry], parameters: Mapping, probe: dict, function: Program) -> None:
    for name in sites:
        if name not in probe:
            raise ValueError(
                f"data entry '{name}' is neither an argument {list(parameters)} nor a sample site {list(probe)} "
                f"of '{short_name(function)}'.{suggestion(name, [*parameters, *probe])}"
            )


def _observe(bound: Bound, probe: dict[str, dict[str, Any]], site_entries: dict[str, Entry]) -> Bound:
    """Give every observed site its value, in the type of the site, with a mask where entries are missing.

    Values that the program computes from latent sites stay with the program.
    """
    written, computed = {}, frozenset[str]()
    if any(site["written"] for name, site in probe.items() if name not in site_entries):
        latent = {name: site["value"] for name, site in probe.items() if name not in site_entries}
        with errors_explained(bound):
            computed = trace_written_sites(bound, latent) - set(site_entries)
            values = written_values(bound)
        written = {name: Entry(np.asarray(value)) for name, value in values.items() if name not in computed}
    observed, present = {}, {}
    for name, item in (written | site_entries).items():
        site = probe[name]
        _refuse_axis_order(name, item, site["plates"])
        if name in written and not _has_values(name, item) and np.shape(item.value) == site["value"].shape:
            observed[name] = _value_in_the_gaps(bound, name)
            present[name] = jnp.asarray(event_mask(name, np.zeros(np.shape(item.value), bool), site))
            continue
        value, mask = observed_value(name, item, site["value"])
        if mask is not None:
            present[name] = jnp.asarray(event_mask(name, mask, site))
            value = np.where(mask, value, value[mask][0])
        observed[name] = jnp.asarray(value, dtype=site["value"].dtype)
    return replace(bound, observed=observed, present=present, computed=tuple(n for n in probe if n in computed))


def _value_in_the_gaps(bound: Bound, name: str) -> Array:
    """A value of a site that stands where all of its entries are missing: of its prior, or one that it may have."""
    key = jax.random.PRNGKey(0)
    try:
        return jnp.asarray(bound.prior_draw(key)[name]["value"])
    except NotImplementedError:  # improper priors draw nothing
        model = substitute(bound.unconditioned(key), substitute_fn=init_inside_support)
        return jnp.asarray(trace(model).get_trace(**bound.inputs)[name]["value"])


def _refuse_axis_order(name: str, item: Entry, plates: dict[str, int]) -> None:
    """Raise ValueError where an axis of an entry is named like a plate that is another axis of its site."""
    for axis, dim in enumerate(item.dims):
        if dim is not None and plates.get(dim, axis) != axis:
            raise ValueError(
                f"entry '{name}' has '{dim}' as axis {axis}, but site '{name}' has the plate of this name as axis "
                f"{plates[dim]}; transpose it"
            )
