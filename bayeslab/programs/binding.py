"""bind(): a function meets its data. Every check of what users give happens here, before anything is compiled."""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np

from bayeslab.programs.arguments import parameters, signature
from bayeslab.programs.data import Entry, as_entry, read_entries, refuse_conflicting_codes
from bayeslab.programs.label_checks import refuse_conflicting_labels
from bayeslab.programs.observed_values import event_mask, observed_value
from bayeslab.programs.probing import errors_explained, probe_sites, split_arguments
from bayeslab.programs.program import Bound, Data, DerivedProgram, Program
from bayeslab.programs.tracing.compilation_cache import keep_compilations
from bayeslab.programs.tracing.count_limits import with_count_limits
from bayeslab.programs.tracing.provenance import trace_data_flow, trace_written_sites, written_values
from bayeslab.programs.validation import SpecialSites, check_bound, short_name


def bind(program: Program, data: Data) -> Bound:
    """Fix every entry of `data`: arguments of `program` by name, its sample sites by conditioning.

    data: a dict, a pandas DataFrame or an xarray Dataset. NaN, and what pandas and NumPy mark as missing,
    is allowed in observed sites only.
    Raises ValueError or TypeError, with one sentence, for an entry that is neither argument nor site, a missing
    argument, a wrong shape, a value outside the support of its site, NaN elsewhere, an invalid hyperparameter, or
    entries whose categories or labels contradict each other.
    """
    keep_compilations()
    function, entries = unwrap_partial(program, read_entries(data))
    if isinstance(function, DerivedProgram):
        return function.transformed(_bind_entries(function.model, entries))
    return _bind_entries(function, entries)


def _bind_entries(program: Program, entries: dict[str, Entry]) -> Bound:
    function, entries = unwrap_partial(program, entries)
    refuse_conflicting_codes(entries)
    named = parameters(function)
    bound = split_arguments(function, {name: entries[name] for name in entries if name in named})
    sites = {name: entries[name] for name in entries if name not in named}
    probe = probe_sites(bound, {name: np.shape(item.value) for name, item in sites.items()})
    _refuse_unknown(sites, named, probe, function)
    bound = _observe(bound, probe, sites)
    refuse_conflicting_labels(entries, {name: site["plates"] for name, site in probe.items()})
    known = {*bound.observed, *bound.computed}
    latent = {name: site["value"] for name, site in probe.items() if name not in known}
    with errors_explained(bound):
        data_flow = trace_data_flow(bound, latent)
    scanned = [name for name, site in probe.items() if site["scanned"]]
    scaled = [name for name, site in probe.items() if site["scaled"] and site["family"] == "MarkovChain"]
    special = SpecialSites(scanned, [name for name in scaled if name in latent])
    return with_count_limits(check_bound(bound, data_flow, special))


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
        value, mask = observed_value(name, item, site["value"])
        if mask is not None:
            present[name] = jnp.asarray(event_mask(name, mask, site))
            value = np.where(mask, value, value[mask][0])
        observed[name] = jnp.asarray(value, dtype=site["value"].dtype)
    return replace(bound, observed=observed, present=present, computed=tuple(n for n in probe if n in computed))


def _refuse_axis_order(name: str, item: Entry, plates: dict[str, int]) -> None:
    """Raise ValueError where an axis of an entry is named like a plate that is another axis of its site."""
    for axis, dim in enumerate(item.dims):
        if dim is not None and plates.get(dim, axis) != axis:
            raise ValueError(
                f"entry '{name}' has '{dim}' as axis {axis}, but site '{name}' has the plate of this name as axis "
                f"{plates[dim]}; transpose it"
            )
