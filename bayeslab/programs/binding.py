"""bind(): a function meets its data. Every check of what users give happens here, before anything is compiled."""

import difflib
import inspect
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.handlers import seed, substitute, trace, uncondition
from numpyro.primitives import Messenger

from bayeslab.programs.data import (
    Entry,
    as_array,
    as_entry,
    as_structure,
    can_mark_missing,
    first_true,
    read_entries,
    refuse_conflicting_codes,
)
from bayeslab.programs.label_checks import refuse_conflicting_labels
from bayeslab.programs.observed_values import event_mask, observed_value
from bayeslab.programs.program import (
    Argument,
    Bound,
    Data,
    DerivedProgram,
    Program,
    Slot,
    StaticValue,
    init_inside_support,
    innermost_distribution,
    is_random,
)
from bayeslab.programs.pytrees import wrap_distributions
from bayeslab.programs.tracing.provenance import ObsRecorder, trace_data_flow
from bayeslab.programs.validation import SpecialSites, check_bound, quoted_names, short_name

_NEEDS_CONCRETE_VALUES = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerBoolConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)


def bind(program: Program, data: Data) -> Bound:
    """Fix every entry of `data`: arguments of `program` by name, its sample sites by conditioning.

    data: a dict, a pandas DataFrame or an xarray Dataset. NaN, and what pandas and NumPy mark as missing,
    is allowed in observed sites only.
    Raises ValueError or TypeError, with one sentence, for an entry that is neither argument nor site, a missing
    argument, a wrong shape, a value outside the support of its site, NaN elsewhere, an invalid hyperparameter, or
    entries whose categories or labels contradict each other.
    """
    function, entries = unwrap_partial(program, read_entries(data))
    if isinstance(function, DerivedProgram):
        return function.transformed(_bind_entries(function.model, entries))
    return _bind_entries(function, entries)


def _bind_entries(program: Program, entries: dict[str, Entry]) -> Bound:
    function, entries = unwrap_partial(program, entries)
    refuse_conflicting_codes(entries)
    named = parameters(function)
    arguments = {name: entries[name] for name in entries if name in named}
    bound = _Arguments(function, named, arguments).bound()
    probe = _probe(bound)
    sites = {name: entries[name] for name in entries if name not in named}
    _refuse_unknown(sites, named, probe, function)
    bound = _observe(bound, probe, sites)
    refuse_conflicting_labels(entries, {name: site["plates"] for name, site in probe.items()})
    latent = {name: site["value"] for name, site in probe.items() if name not in bound.observed}
    with _errors_explained(bound):
        data_flow = trace_data_flow(bound, latent)
    scanned = [name for name, site in probe.items() if site["scanned"]]
    scaled = [name for name, site in probe.items() if site["scaled"] and site["family"] == "MarkovChain"]
    return check_bound(bound, data_flow, sites, SpecialSites(scanned, [name for name in scaled if name in latent]))


def signature(program: Program) -> inspect.Signature:
    """The signature of a program inside its NumPyro handlers; raises TypeError for what is no function."""
    while isinstance(program, Messenger) and program.fn is not None:
        program = program.fn
    try:
        return inspect.signature(program)
    except (TypeError, ValueError):
        raise TypeError(f"a program is a function that calls numpyro.sample, not {type(program).__name__}") from None


def parameters(function: Program) -> Mapping[str, inspect.Parameter]:
    """The parameters of a program that have a name, without *args and **kwargs."""
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {name: p for name, p in signature(function).parameters.items() if p.kind not in variadic}


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


class _Arguments:
    """Takes the arguments of a program apart into arrays and structure."""

    def __init__(self, function: Program, parameters: Mapping[str, inspect.Parameter], given: dict[str, Entry]):
        self._function, self._parameters, self._given = function, parameters, given
        missing = [n for n, p in parameters.items() if n not in given and p.default is p.empty]
        if missing:
            raise ValueError(
                f"data lack {quoted_names(missing, 'argument')} of '{short_name(function)}'; they have {list(given)}"
            )
        for name, item in given.items():
            _refuse_missing(name, item)
            for dim in {"chain", "draw"} & set(item.dims):
                raise ValueError(f"argument '{name}' has a dimension '{dim}', the name of one of the result; rename it")

    def bound(self) -> Bound:
        """The Bound without observed sites; only arrays that the program needs as concrete values become structure."""
        everything = self._split(frozenset())
        if _is_traceable(everything):
            return everything
        concrete = frozenset(everything.arrays)
        if not _is_traceable(self._split(concrete)):
            raise ValueError(
                f"program '{short_name(self._function)}' decides in Python on the value of a random variable; "
                "use jnp.where or jax.lax.cond instead"
            )
        for entry_name in everything.arrays:
            fewer = concrete - {entry_name}
            concrete = fewer if _is_traceable(self._split(fewer)) else concrete
        return self._split(concrete)

    def _split(self, concrete: frozenset[str]) -> Bound:
        arrays: dict[str, Any] = {}
        settings = []
        for name, parameter in self._parameters.items():
            value = self._given[name].value if name in self._given else parameter.default
            is_real = parameter.annotation in (float, "float") or isinstance(parameter.default, float)
            try:
                paths, tree = jax.tree_util.tree_flatten_with_path(wrap_distributions(value))
            except (ValueError, RecursionError):
                raise ValueError(f"argument '{name}' has keys of several kinds, or contains itself") from None
            leaves = []
            for path, leaf in paths:
                entry_name = name + "".join(f".{jax.tree_util.keystr((key,), simple=True)}" for key in path)
                if path and can_mark_missing(leaf):
                    with suppress(TypeError):  # what is not made of numbers is structure
                        item = as_entry(leaf, entry_name)
                        _refuse_missing(entry_name, item)
                        leaf = item.value
                array = as_array(entry_name, leaf, is_real and not path)
                if array is None:
                    leaves.append(as_structure(leaf))
                elif entry_name in concrete:
                    leaves.append(StaticValue(np.asarray(leaf)))
                else:
                    arrays[entry_name] = array
                    leaves.append(Slot(entry_name))
            settings.append(Argument(name, tree, tuple(leaves)))
        return Bound(self._function, tuple(settings), arrays, {}, {})


def _refuse_missing(name: str, item: Entry) -> None:
    if item.present is not None:
        raise ValueError(
            f"argument '{name}' has a missing entry at position {first_true(~item.present)}; "
            "only observed sites may have missing entries"
        )


def _probe(bound: Bound) -> dict[str, dict[str, Any]]:
    """What a run on shapes, with nothing conditioned, says of every random site, by name.

    value: the shape and type of the site. batch_ndim: number of batch axes. parts_ndim: number of axes before those of
    dependent elements. family: class of its distribution. written: whether obs= gives its value. scanned: whether it is
    in a scan. scaled: whether handlers.scale multiplies its density. plates: name -> axis.
    """
    notes: dict[str, dict[str, Any]] = {}
    learned: list[str] = []

    def run(bound: Bound) -> dict[str, Any]:
        model = substitute(uncondition(seed(bound.source, jax.random.PRNGKey(0))), substitute_fn=init_inside_support)
        trace_sites = trace(model).get_trace(**bound.inputs)
        sites = {name: site for name, site in trace_sites.items() if is_random(site)}
        learned.extend(name for name, site in trace_sites.items() if site["type"] == "param")
        for name, site in sites.items():
            fn, inner = site["fn"], innermost_distribution(site["fn"])
            parts = len(fn.shape()) - inner.event_dim
            notes[name] = {"batch_ndim": len(fn.batch_shape), "parts_ndim": parts, "family": type(inner).__name__}
            notes[name]["written"] = "obs" in site["infer"]
            notes[name]["scanned"] = "_scan_current_index" in site["infer"]
            notes[name]["scaled"] = site["scale"] is not None
            notes[name]["plates"] = {f.name: len(fn.batch_shape) + f.dim for f in site["cond_indep_stack"]}
        return {name: site["value"] for name, site in sites.items()}

    with _errors_explained(bound):
        shapes = jax.eval_shape(run, bound)
    _refuse_site_names(shapes, learned)
    return {name: notes[name] | {"value": shape} for name, shape in shapes.items()}


@contextmanager
def _errors_explained(bound: Bound) -> Iterator[None]:
    """The scope that raises one sentence in place of what a program raises on its arguments, which stays the cause."""
    function = f"'{short_name(bound.function)}'"
    try:
        yield
    except _NEEDS_CONCRETE_VALUES:
        raise
    except Exception as error:
        reason = (str(error).splitlines() or [""])[0]
        if "size of plate" in reason:
            raise ValueError(f"data are empty: a plate of {function} has no element") from None
        if "Incompatible shapes for broadcasting" in reason:
            arrays = ", ".join(f"{name} {array.shape}" for name, array in bound.arrays.items())
            raise ValueError(
                f"shapes of arguments of {function} do not fit together ({reason}); the arrays are {arrays}"
            ) from error
        kind = TypeError if isinstance(error, TypeError) else ValueError
        arguments = textwrap.shorten(", ".join(_argument_texts(bound)), 150)
        reason = textwrap.shorten(f"{type(error).__name__}: {reason}", 200)
        raise kind(f"program {function} does not run with {arguments} ({reason})") from error


def _argument_texts(bound: Bound) -> Iterator[str]:
    """For every argument a text with its name, and the types and shapes or the values of its leaves."""
    for argument in bound.settings:
        leaves = [bound.arrays[leaf.entry] if isinstance(leaf, Slot) else leaf for leaf in argument.leaves]
        values = [leaf.value if isinstance(leaf, StaticValue) else leaf for leaf in leaves]
        kinds = [
            f"{v.dtype} {v.shape}" if isinstance(v, np.ndarray | jax.Array) else textwrap.shorten(repr(v), 30)
            for v in values
        ]
        yield f"{argument.name}: {', '.join(kinds) or None}"


def _is_traceable(bound: Bound) -> bool:
    try:
        _probe(bound)
    except _NEEDS_CONCRETE_VALUES:
        return False
    return True


def _refuse_site_names(sites: Iterable[str], learned: list[str]) -> None:
    if learned:
        raise ValueError(f"no method learns numpyro.param '{learned[0]}'; make it a site, or an argument")
    if wrong := [name for name in sites if "/" in name]:
        raise ValueError(f"a result cannot hold site '{wrong[0]}' with a '/' in its name; scope takes a divider='.'")


def _refuse_unknown(sites: dict[str, Entry], parameters: Mapping, probe: dict, function: Program) -> None:
    for name in sites:
        if name not in probe:
            raise ValueError(
                f"data entry '{name}' is neither an argument {list(parameters)} nor a sample site {list(probe)} "
                f"of '{short_name(function)}'.{suggestion(name, [*parameters, *probe])}"
            )


def _observe(bound: Bound, probe: dict[str, dict[str, Any]], site_entries: dict[str, Entry]) -> Bound:
    """Give every observed site its value, in the type of the site, with a mask where entries are missing."""
    written = {}
    if any(site["written"] for site in probe.values()):
        with _errors_explained(bound):
            written = {name: Entry(np.asarray(value)) for name, value in _obs_values(bound).items()}
    observed, present = {}, {}
    for name, item in (written | site_entries).items():
        site = probe[name]
        _refuse_axis_order(name, item, site["plates"])
        value, mask = observed_value(name, item, site["value"])
        if mask is not None:
            present[name] = jnp.asarray(event_mask(name, mask, site))
            value = np.where(mask, value, value[mask][0])
        observed[name] = jnp.asarray(value, dtype=site["value"].dtype)
    return replace(bound, observed=observed, present=present)


def _refuse_axis_order(name: str, item: Entry, plates: dict[str, int]) -> None:
    """Raise ValueError where an axis of an entry is named like a plate that is another axis of its site."""
    for axis, dim in enumerate(item.dims):
        if dim is not None and plates.get(dim, axis) != axis:
            raise ValueError(
                f"entry '{name}' has '{dim}' as axis {axis}, but site '{name}' has the plate of this name as axis "
                f"{plates[dim]}; transpose it"
            )


@jax.jit
def _obs_values(bound: Bound) -> dict[str, Any]:
    """The values that the program itself gives its sites with obs=."""
    recorder = ObsRecorder(bound.source)
    trace(substitute(seed(recorder, jax.random.PRNGKey(0)), substitute_fn=init_inside_support)).get_trace(
        **bound.inputs
    )
    return recorder.values
