"""Runs of a program on the shapes of its arguments: what its sites are, and which arguments it must know by value."""

import inspect
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from types import FunctionType
from typing import Any

import jax
import numpy as np
from jax import Array
from numpyro import validation_enabled
from numpyro.handlers import substitute, trace

from bayeslab.programs.arguments import (
    Argument,
    Slot,
    StaticValue,
    as_structure,
    parameters,
    signature,
)
from bayeslab.programs.data import Entry, as_array, as_entry, can_mark_missing, first_true, with_nan
from bayeslab.programs.errors import NEEDS_CONCRETE_VALUES, errors_explained
from bayeslab.programs.handlers.sites import Shape
from bayeslab.programs.missing.split_distributions import Split, split_of
from bayeslab.programs.program import Bound, Program, init_inside_support, is_random
from bayeslab.programs.pytrees import wrap_distributions
from bayeslab.programs.tracing.captured_values import captured_values
from bayeslab.programs.validation import quoted_names, short_name
from bayeslab.programs.wrapped_distributions import innermost_distribution


@dataclass(frozen=True)
class EagerProgram:
    """A program that computes with the values of its concrete arguments while it is traced, as jnp.max(group).

    NumPyro would check parameters that are known then, and raise without their place, which the checks of a Bound tell.
    """

    function: Program

    @property
    def __signature__(self) -> inspect.Signature:
        return signature(self.function)

    @property
    def __name__(self) -> str:
        return short_name(self.function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with jax.ensure_compile_time_eval(), validation_enabled(False):
            return self.function(*args, **kwargs)


@dataclass(frozen=True)
class KeywordProgram:
    """A program that takes **kwargs, with those that are given as arguments of their own."""

    function: Program
    names: tuple[str, ...]

    @property
    def __signature__(self) -> inspect.Signature:
        own = signature(self.function)
        named = [each for each in own.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
        given = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in self.names]
        return own.replace(parameters=named + given)

    @property
    def __name__(self) -> str:
        return short_name(self.function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def with_keywords(function: Program, entries: Mapping[str, Entry]) -> Program:
    """The program with the entries that it takes by **kwargs as arguments, where it does not run without them.

    What is not observed by the program itself, though there is a site of its name, remains the value of that site.
    """
    kinds = {each.kind for each in signature(function).parameters.values()}
    others = tuple(name for name in entries if name not in parameters(function))
    if inspect.Parameter.VAR_KEYWORD not in kinds or not others:
        return function
    with suppress(TypeError, ValueError):
        split_arguments(function, {name: item for name, item in entries.items() if name not in others})
        return function
    program = KeywordProgram(function, others)
    probe = probe_sites(split_arguments(program, entries))
    return KeywordProgram(function, tuple(name for name in others if name not in probe or probe[name]["written"]))


def split_arguments(function: Program, given: Mapping[str, Entry]) -> Bound:
    """The Bound of a program without observed sites, its arguments taken apart into arrays and structure.

    Only arrays whose values the program looks at in Python become structure.
    Raises ValueError for arguments that are missing or have missing entries, and for a program that does not run.
    """
    named = parameters(function)
    missing = [name for name, parameter in named.items() if name not in given and parameter.default is parameter.empty]
    if missing:
        raise ValueError(
            f"data lack {quoted_names(missing, 'argument')} of '{short_name(function)}'; they have {list(given)}"
        )
    for name, item in given.items():
        for dim in {"chain", "draw"} & set(item.dims):
            raise ValueError(f"argument '{name}' has a dimension '{dim}', the name of one of the result; rename it")
    bound = _that_runs(function, given)
    return replace(bound, captured=captured_with_arguments(function, bound.settings))


def _that_runs(function: Program, given: Mapping[str, Entry]) -> Bound:
    """The Bound of a program whose arguments are arrays, with NaN where entries are marked as missing, or, where it
    does not run with these, tables of pandas as they were given."""
    arrays = {name: item._replace(value=with_nan(item)) for name, item in given.items()}
    tables = {name: item._replace(value=item.table) for name, item in given.items() if item.table is not None}
    try:
        return _of_arguments(function, arrays)
    except (TypeError, ValueError) as error:
        if tables:
            try:
                return _of_arguments(function, arrays | tables)
            except (TypeError, ValueError) as other:
                if isinstance(other.__cause__, KeyError):
                    raise
        for name, item in given.items():
            if not hasattr(item.table, "columns"):
                refuse_missing(name, item)
        raise error from error.__cause__


def _of_arguments(function: Program, given: Mapping[str, Entry]) -> Bound:
    """The Bound of a program with these arguments, of which it knows by value those that it looks at in Python."""
    bound = _split(function, given, frozenset())
    return bound if _runs(bound) else _with_concrete_arguments(function, given, tuple(bound.arrays))


def _with_concrete_arguments(function: Program, given: Mapping[str, Entry], names: Sequence[str]) -> Bound:
    """The Bound of a program that must know some of these arrays by value, as few of them as do."""
    concrete = frozenset(names)
    runnable = function if _runs(_split(function, given, concrete)) else EagerProgram(function)
    if not _runs(_split(runnable, given, concrete)):
        _refuse_program(_split(runnable, given, concrete))
    for entry_name in names:
        fewer = concrete - {entry_name}
        concrete = fewer if _runs(_split(runnable, given, fewer)) else concrete
    return _split(runnable, given, concrete)


def captured_with_arguments(function: Program, settings: Iterable[Argument]) -> tuple[tuple[str, StaticValue], ...]:
    """The values that a program, and functions among its arguments, read from outside, with their names."""
    functions: Iterable[Program] = (
        leaf for argument in settings for leaf in argument.leaves if isinstance(leaf, FunctionType)
    )
    function = function.function if isinstance(function, KeywordProgram) else function
    return tuple(pair for each in (function, *functions) for pair in captured_values(each))


def refuse_missing(name: str, item: Entry) -> None:
    """Raise ValueError for an argument with missing entries."""
    if item.present is not None:
        raise ValueError(
            f"argument '{name}' has a missing entry at position {first_true(~item.present)}; "
            f"only observed sites may have missing entries; numpyro.sample('{name}', ..., obs={name}) imputes them"
        )


def probe_sites(bound: Bound, shapes: Mapping[str, Shape] = {}) -> dict[str, dict[str, Any]]:
    """What a run on shapes, with nothing conditioned, says of every random site, by name.

    shapes: those of values of observed sites that are given.
    value: the shape and type of the site. batch_ndim: number of batch axes. parts_ndim: number of axes before those of
    dependent elements. family: class of its distribution. written: whether obs= or condition may give its value.
    scanned: whether it is in a scan. scaled: whether handlers.scale multiplies its density. plates: name -> axis.
    """
    with errors_explained(bound):
        notes, refused = _run_on_shapes(bound, shapes)
    _refuse_sites(refused)
    return notes


def probe_splits(bound: Bound, names: Collection[str]) -> dict[str, Split]:
    """What splitting observed sites into a given and a latent part comes to."""
    splits: dict[str, Split] = {}

    def run(bound: Bound, key: Array) -> None:
        sites = trace(substitute(bound.unconditioned(key), substitute_fn=init_inside_support)).get_trace(**bound.inputs)
        splits.update({name: split_of(sites[name]["fn"], bound.present[name].ndim) for name in names})

    jax.eval_shape(run, bound, jax.random.PRNGKey(0))
    return splits


def _split(function: Program, given: Mapping[str, Entry], concrete: frozenset[str]) -> Bound:
    """The Bound of a program whose arrays are data, but for those that are `concrete`."""
    arrays: dict[str, Any] = {}
    settings = []
    for name, parameter in parameters(function).items():
        value = given[name].value if name in given else parameter.default
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
                    leaf = with_nan(as_entry(leaf, entry_name))
            array = as_array(entry_name, leaf, is_real and not path)
            if array is None:
                leaves.append(as_structure(leaf))
            elif entry_name in concrete:
                leaves.append(StaticValue(np.asarray(array)))
            else:
                arrays[entry_name] = array
                leaves.append(Slot(entry_name))
        settings.append(Argument(name, tree, tuple(leaves)))
    return Bound(function, tuple(settings), arrays, {}, {})


def _runs(bound: Bound) -> bool:
    """Whether a program runs on shapes of its arrays."""
    try:
        _run_on_shapes(bound, {})
    except Exception:  # whatever a program raises on arrays without values; it is raised again where it stays
        return False
    return True


def _refuse_program(bound: Bound) -> None:
    """Raise ValueError or TypeError for a program that does not run, though it knows the values of its arguments."""
    try:
        probe_sites(bound)
    except NEEDS_CONCRETE_VALUES:
        raise ValueError(
            f"program '{short_name(bound.function)}' decides in Python on the value of a random variable; "
            "use jnp.where or jax.lax.cond instead"
        ) from None


def _run_on_shapes(bound: Bound, given: Mapping[str, Shape]) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """What `probe_sites` returns, and the names of sites that have no place here, with the reason."""
    notes: dict[str, dict[str, Any]] = {}
    refused: dict[str, str] = {}

    def run(bound: Bound, key: Array) -> dict[str, Any]:
        source = bound.source_with(given)
        handler = bound.unconditioned(key, source)
        trace_sites = trace(substitute(handler, substitute_fn=init_inside_support)).get_trace(**bound.inputs)
        sites = {name: site for name, site in trace_sites.items() if is_random(site)}
        refused.update(source.site_handler.refused)
        for name, site in sites.items():
            fn, inner = site["fn"], innermost_distribution(site["fn"])
            parts = len(fn.shape()) - inner.event_dim
            notes[name] = {"batch_ndim": len(fn.batch_shape), "parts_ndim": parts, "family": type(inner).__name__}
            notes[name]["scanned"] = "_scan_current_index" in site["infer"]
            notes[name]["written"] = "was_observed" in site["infer"] or (
                notes[name]["scanned"] and handler.freed_conditions
            )
            notes[name]["scaled"] = site["scale"] is not None
            notes[name]["plates"] = {f.name: len(fn.batch_shape) + f.dim for f in site["cond_indep_stack"]}
        return {name: site["value"] for name, site in sites.items()}

    shapes = jax.eval_shape(run, bound, jax.random.PRNGKey(0))
    return {name: notes[name] | {"value": shape} for name, shape in shapes.items()}, refused


def _refuse_sites(refused: Mapping[str, str]) -> None:
    """Raise ValueError for a site that has no place here."""
    for name, reason in refused.items():
        raise ValueError(f"site '{name}' {reason}")
