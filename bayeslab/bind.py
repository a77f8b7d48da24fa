"""bind(): a function meets its data. Every check of what users give happens here, before anything is compiled."""

import difflib
import inspect
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.handlers import seed, substitute, trace, uncondition
from numpyro.primitives import Messenger

from bayeslab.distributions.ordered import ordered
from bayeslab.entries import Entry, as_array, as_structure, entry, event_mask, first, observed_value, read
from bayeslab.flow import Fact, Flow, Written, flow
from bayeslab.program import Argument, Bound, Data, Derived, Frozen, Program, Slot, feasible, is_random, unwrapped

TRIES = 5
"""Points at which a program with infinite arguments is looked at."""

_NEEDS_VALUES = (
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
    argument, a wrong shape, a value outside the support of its site, NaN elsewhere, or an invalid hyperparameter.
    """
    function, entries = _unwrap_partial(program, read(data))
    if isinstance(function, Derived):
        return function.transformed(_bound(function.model, entries))
    return _bound(function, entries)


def _bound(program: Program, entries: dict[str, Entry]) -> Bound:
    function, entries = _unwrap_partial(program, entries)
    named = parameters(function)
    arguments = {name: entries[name] for name in entries if name in named}
    bound = _Arguments(function, named, arguments).bound()
    probe = _probe(bound)
    sites = {name: entries[name] for name in entries if name not in named}
    _refuse_unknown(sites, named, probe, function)
    bound = _observe(bound, probe, sites)
    latent = {name: site["value"] for name, site in probe.items() if name not in bound.observed}
    with _told(bound):
        found = flow(bound, latent)
    return _checked(bound, found)


def signature(program: Program) -> inspect.Signature:
    """The arguments of a program, seen through NumPyro's handlers; raises TypeError for what is no function."""
    while isinstance(program, Messenger) and program.fn is not None:
        program = program.fn
    try:
        return inspect.signature(program)
    except (TypeError, ValueError):
        raise TypeError(f"a program is a function that calls numpyro.sample, not {type(program).__name__}") from None


def parameters(function: Program) -> Mapping[str, inspect.Parameter]:
    """The named arguments of a program."""
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {name: p for name, p in signature(function).parameters.items() if p.kind not in variadic}


def nearest(word: str, words: Iterable[str]) -> str:
    """A question that suggests the nearest word, or nothing."""
    plain = {each.lower(): each for each in words}
    close = difflib.get_close_matches(word.lower(), list(plain), 1)
    return f" Did you mean '{plain[close[0]]}'?" if close else ""


def _unwrap_partial(program: Program, entries: dict[str, Entry]) -> tuple[Program, dict[str, Entry]]:
    """The function inside partials, whose arguments join the data: partials are equal only to themselves."""
    signature(program)
    while isinstance(program, partial):
        names = list(parameters(program.func))
        fixed = dict(zip(names, program.args, strict=False)) | program.keywords
        entries = {name: entry(value, name) for name, value in fixed.items()} | entries
        program = program.func
    return program, entries


class _Arguments:
    """The arguments of a program, taken apart into arrays and structure."""

    def __init__(self, function: Program, parameters: Mapping[str, inspect.Parameter], given: dict[str, Entry]):
        self._function, self._parameters, self._given = function, parameters, given
        missing = [n for n, p in parameters.items() if n not in given and p.default is p.empty]
        if missing:
            raise ValueError(
                f"data lack {_listed(missing, 'argument')} of '{_name(function)}'; they have {list(given)}"
            )
        for name, item in given.items():
            if item.present is not None:
                raise ValueError(
                    f"argument '{name}' has a missing entry at position {first(~item.present)}; "
                    "only observed sites may have missing entries"
                )
            for dim in {"chain", "draw"} & set(item.dims):
                raise ValueError(f"argument '{name}' has a dimension '{dim}', the name of one of the result; rename it")

    def bound(self) -> Bound:
        """Arrays that the program needs as concrete values become structure, and no more than those."""
        everything = self._split(frozenset())
        if _runs(everything):
            return everything
        concrete = frozenset(everything.arrays)
        if not _runs(self._split(concrete)):
            raise ValueError(
                f"program '{_name(self._function)}' decides in Python on the value of a random variable; "
                "use jnp.where or jax.lax.cond instead"
            )
        for entry_name in everything.arrays:
            fewer = concrete - {entry_name}
            concrete = fewer if _runs(self._split(fewer)) else concrete
        return self._split(concrete)

    def _split(self, concrete: frozenset[str]) -> Bound:
        arrays: dict[str, Any] = {}
        settings = []
        for name, parameter in self._parameters.items():
            value = self._given[name].value if name in self._given else parameter.default
            real = parameter.annotation in (float, "float") or isinstance(parameter.default, float)
            try:
                paths, tree = jax.tree_util.tree_flatten_with_path(ordered(value))
            except (ValueError, RecursionError):
                raise ValueError(f"argument '{name}' has keys of several kinds, or contains itself") from None
            leaves = []
            for path, leaf in paths:
                place = name + "".join(f".{jax.tree_util.keystr((key,), simple=True)}" for key in path)
                array = as_array(place, leaf, real and not path)
                if array is None:
                    leaves.append(as_structure(leaf))
                elif place in concrete:
                    leaves.append(Frozen(np.asarray(leaf)))
                else:
                    arrays[place] = array
                    leaves.append(Slot(place))
            settings.append(Argument(name, tree, tuple(leaves)))
        return Bound(self._function, tuple(settings), arrays, {}, {})


def _probe(bound: Bound) -> dict[str, dict[str, Any]]:
    """Shapes of all random sites, nothing conditioned: name -> value, batch_ndim, parts_ndim (axes before
    those of dependent elements), family."""
    notes: dict[str, dict[str, Any]] = {}

    def run(bound: Bound) -> dict[str, Any]:
        model = substitute(uncondition(seed(bound.source, jax.random.PRNGKey(0))), substitute_fn=feasible)
        sites = {n: s for n, s in trace(model).get_trace(**bound.inputs).items() if is_random(s)}
        for name, site in sites.items():
            fn, inner = site["fn"], unwrapped(site["fn"])
            parts = len(fn.shape()) - inner.event_dim
            notes[name] = {"batch_ndim": len(fn.batch_shape), "parts_ndim": parts, "family": type(inner).__name__}
            notes[name]["written"] = "obs" in site["infer"]
            notes[name]["plates"] = {f.name: len(fn.batch_shape) + f.dim for f in site["cond_indep_stack"]}
        return {name: site["value"] for name, site in sites.items()}

    with _told(bound):
        shapes = jax.eval_shape(run, bound)
    return {name: notes[name] | {"value": shape} for name, shape in shapes.items()}


@contextmanager
def _told(bound: Bound) -> Iterator[None]:
    """One sentence in place of what a program raises on its arguments, which stays the cause."""
    function = f"'{_name(bound.function)}'"
    try:
        yield
    except _NEEDS_VALUES:
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
        given = textwrap.shorten(", ".join(_shown(bound)), 150)
        reason = textwrap.shorten(f"{type(error).__name__}: {reason}", 200)
        raise kind(f"program {function} does not run with {given} ({reason})") from error


def _shown(bound: Bound) -> Iterator[str]:
    """What the arguments are."""
    for argument in bound.settings:
        leaves = [bound.arrays[leaf.entry] if isinstance(leaf, Slot) else leaf for leaf in argument.leaves]
        values = [leaf.value if isinstance(leaf, Frozen) else leaf for leaf in leaves]
        kinds = [
            f"{v.dtype} {v.shape}" if isinstance(v, np.ndarray | jax.Array) else textwrap.shorten(repr(v), 30)
            for v in values
        ]
        yield f"{argument.name}: {', '.join(kinds) or None}"


def _runs(bound: Bound) -> bool:
    try:
        _probe(bound)
    except _NEEDS_VALUES:
        return False
    return True


def _refuse_unknown(sites: dict[str, Entry], parameters: Mapping, probe: dict, function: Program) -> None:
    for name in sites:
        if name not in probe:
            raise ValueError(
                f"data entry '{name}' is neither an argument {list(parameters)} nor a sample site {list(probe)} "
                f"of '{_name(function)}'.{nearest(name, [*parameters, *probe])}"
            )


def _observe(bound: Bound, probe: dict[str, dict[str, Any]], given: dict[str, Entry]) -> Bound:
    """Give every observed site its value, in the type of the site, with a mask where entries are missing."""
    written = {}
    if any(site["written"] for site in probe.values()):
        with _told(bound):
            written = {name: Entry(np.asarray(value)) for name, value in _written(bound).items()}
    observed, present = {}, {}
    for name, item in (written | given).items():
        site = probe[name]
        _refuse_turned(name, item, site["plates"])
        value, mask = observed_value(name, item, site["value"])
        if mask is not None:
            present[name] = jnp.asarray(event_mask(name, mask, site))
            value = np.where(mask, value, value[mask][0])
        observed[name] = jnp.asarray(value, dtype=site["value"].dtype)
    return replace(bound, observed=observed, present=present)


def _refuse_turned(name: str, item: Entry, plates: dict[str, int]) -> None:
    """Axes named like plates are in their order."""
    for axis, dim in enumerate(item.dims):
        if dim is not None and plates.get(dim, axis) != axis:
            raise ValueError(
                f"entry '{name}' has '{dim}' as axis {axis}, but site '{name}' has the plate of this name as axis "
                f"{plates[dim]}; transpose it"
            )


@jax.jit
def _written(bound: Bound) -> dict[str, Any]:
    """The values that the program itself gives with obs=."""
    written = Written(bound.source)
    trace(substitute(seed(written, jax.random.PRNGKey(0)), substitute_fn=feasible)).get_trace(**bound.inputs)
    return written.values


def _checked(bound: Bound, found: Flow) -> Bound:
    """Raise for what compiled code would not notice. Sites whose support moves with latent sites become guarded."""
    _refuse_nan(bound, found)
    _refuse_missing_parents(bound, found)
    _refuse_infinite(bound)
    values = dict(zip(found.known, jax.device_get(found.compute(bound)), strict=True))
    for fact, value in values.items():
        if fact.kind == "valid" and not np.all(value):
            _refuse_parameter(fact, value, values)
        if fact.kind == "support":
            _refuse_outside(fact, value, values, bound)
    _refuse_index(bound, found)
    guarded = tuple(f.site for f in found.of("support") if f.reached_by("latent"))
    return replace(bound, guarded=guarded)


def _refuse_nan(bound: Bound, found: Flow) -> None:
    """NaN in an argument is allowed only where its sole use is obs=, hence a missing entry of that site."""
    used = {name for fact in found.of("density") for name in fact.reached_by("argument")}
    for name, array in bound.arrays.items():
        value = np.asarray(array)
        if value.dtype.kind == "f" and np.isnan(value).any() and (name in used or not _is_written(name, found)):
            raise ValueError(
                f"argument '{name}' is NaN at position {first(np.isnan(value))}; "
                "only observed sites may have missing entries"
            )


def _refuse_infinite(bound: Bound) -> None:
    """An infinite argument may be a limit, but not what leaves a site without density wherever one looks."""
    infinite = [name for name, array in bound.arrays.items() if np.isinf(np.asarray(array)).any()]
    if not infinite:
        return
    found = [jax.device_get(_densities(jax.random.PRNGKey(number), bound)) for number in range(TRIES)]
    if guilty := [name for name in found[0] if not any(np.isfinite(each[name]) for each in found)]:
        where = first(np.isinf(np.asarray(bound.arrays[infinite[0]])))
        raise ValueError(
            f"argument '{infinite[0]}' is infinite at position {where}, which leaves {_listed(guilty, 'site')} without "
            "a finite density"
        )


@jax.jit
def _densities(key: jax.Array, bound: Bound) -> dict[str, jax.Array]:
    """The log density of every site at a point in its support."""
    model = substitute(uncondition(seed(bound.source, key)), substitute_fn=feasible)
    sites = trace(model).get_trace(**bound.inputs)
    return {name: s["fn"].log_prob(s["value"]).sum() for name, s in sites.items() if is_random(s)}


def _is_written(name: str, found: Flow) -> bool:
    return any(name in fact.reached_by("argument") for fact in found.of("written"))


def _refuse_missing_parents(bound: Bound, found: Flow) -> None:
    for fact in found.of("density"):
        for name in fact.reached_by("observed"):
            if name in bound.present and name != fact.site:
                raise ValueError(
                    f"entry '{name}' has missing values, but site '{fact.site}' depends on them; "
                    f"leave '{name}' out of the data to make all of it latent, or complete it"
                )


def _refuse_index(bound: Bound, found: Flow) -> None:
    """Compiled code takes the nearest element for an index that is outside of its array."""
    if not found.lookups:
        return
    for lookup, places in zip(found.lookups, jax.device_get(found.places(bound)), strict=True):
        for size, index in zip(lookup.sizes, np.moveaxis(np.asarray(places), -1, 0), strict=True):
            wrong = (index < 0) | (index >= size)
            if not wrong.any():
                continue
            place = index[first(wrong)]
            given = place if place >= 0 else place - size  # numbers below 0 count from the end
            for name in lookup.arguments:
                there = np.asarray(bound.arrays[name]) == given
                if there.any():
                    raise ValueError(
                        f"argument '{name}' at position {first(there)} is {given}, but it is an index into {size} "
                        "elements, which count from 0"
                    )
            raise ValueError(
                f"{_listed(list(lookup.arguments), 'argument')} of '{_name(bound.function)}' lead to the index {place} "
                f"of {size} elements, which count from 0"
            )


def _refuse_parameter(fact: Fact, valid: np.ndarray, values: dict[Fact, Any]) -> None:
    wrong = ~np.asarray(valid)
    value = next(v for f, v in values.items() if (f.site, f.kind, f.name) == (fact.site, "parameter", fact.name))
    value = np.asarray(value)
    where = first(wrong)
    shown = f"{value[where]} at position {where}" if value.ndim == wrong.ndim > 0 else f"{value.tolist()}"
    given = fact.reached_by("argument")
    source = f", which comes from {_listed(given, 'argument')}" if given else ""
    raise ValueError(
        f"'{fact.name}' of the {fact.family} at site '{fact.site}' must be {fact.expected}, but is {shown}{source}"
    )


def _refuse_outside(fact: Fact, inside: np.ndarray, values: dict[Fact, Any], bound: Bound) -> None:
    present = np.asarray(bound.present.get(fact.site, True))
    inside = np.asarray(inside)
    if present.ndim > inside.ndim:
        present = present.all(tuple(range(inside.ndim, present.ndim)))
    wrong = ~inside & present.reshape(present.shape + (1,) * (inside.ndim - present.ndim))
    if not wrong.any():
        return
    limits = [v for f, v in values.items() if (f.site, f.kind) == (fact.site, "bound")]
    limits = [str(np.asarray(v).flat[0]) for v in limits if np.unique(v).size == 1]
    named = fact.expected.endswith(("interval", "than", "eq"))
    support = f"{fact.expected} {' to '.join(limits)}" if named else fact.expected
    value = np.asarray(bound.observed[fact.site])[first(wrong)]
    raise ValueError(
        f"entry '{fact.site}' at position {first(wrong)} is {value}, "
        f"which is outside the support of its site ({fact.family}: {support})"
    )


def _listed(names: list[str], noun: str) -> str:
    return noun + ("s " if len(names) > 1 else " ") + ", ".join(f"'{name}'" for name in names)


def _name(function: Any) -> str:
    return getattr(function, "__name__", type(function).__name__)
