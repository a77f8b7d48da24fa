"""bind(): a function meets its data. Every check of what users give happens here, before anything is compiled."""

import difflib
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.handlers import seed, substitute, trace, uncondition
from numpyro.primitives import Messenger

from bayeslab.entries import Entry, entry, read
from bayeslab.flow import Fact, Flow, Written, flow
from bayeslab.program import Argument, Bound, Data, Derived, Frozen, Program, Slot, feasible, is_random, unwrapped

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
    return _checked(bound, flow(bound, latent))


def signature(program: Program) -> inspect.Signature:
    """The arguments of a program, seen through NumPyro's handlers."""
    while isinstance(program, Messenger) and program.fn is not None:
        program = program.fn
    return inspect.signature(program)


def parameters(function: Program) -> Mapping[str, inspect.Parameter]:
    """The named arguments of a program."""
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {name: p for name, p in signature(function).parameters.items() if p.kind not in variadic}


def nearest(word: str, words: Iterable[str]) -> str:
    """A question that suggests the nearest word, or nothing."""
    close = difflib.get_close_matches(word, list(words), 1)
    return f" Did you mean '{close[0]}'?" if close else ""


def _unwrap_partial(program: Program, entries: dict[str, Entry]) -> tuple[Program, dict[str, Entry]]:
    """The function inside partials, whose arguments join the data: partials are equal only to themselves."""
    if not callable(program):
        raise TypeError(f"a program is a function that calls numpyro.sample, not {type(program).__name__}")
    while isinstance(program, partial):
        names = list(parameters(program.func))
        fixed = dict(zip(names, program.args, strict=False)) | program.keywords
        entries = {name: entry(value) for name, value in fixed.items()} | entries
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
                    f"argument '{name}' has a missing entry at position {_first(~item.present)}; "
                    "only observed sites may have missing entries"
                )

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
            paths, tree = jax.tree_util.tree_flatten_with_path(value)
            leaves = []
            for path, leaf in paths:
                place = name + "".join(f".{getattr(k, 'key', getattr(k, 'idx', k))}" for k in path)
                array = _as_array(leaf, real and not path)
                if array is None:
                    leaves.append(_hashable(leaf))
                elif place in concrete:
                    leaves.append(Frozen(np.asarray(leaf)))
                else:
                    arrays[place] = array
                    leaves.append(Slot(place))
            settings.append(Argument(name, tree, tuple(leaves)))
        return Bound(self._function, tuple(settings), arrays, {}, {})


def _as_array(leaf: Any, real: bool) -> Any:
    """An array for what is data, None for what is structure: sizes, flags, names, functions."""
    if isinstance(leaf, bool | np.bool_):
        return None
    if isinstance(leaf, float | np.floating) or (real and isinstance(leaf, int | np.integer)):
        return jnp.asarray(float(leaf), dtype=jnp.result_type(float))
    if isinstance(leaf, np.ndarray | jax.Array) and getattr(leaf.dtype, "kind", "") in "fiub":
        if leaf.dtype.kind == "f" or real:
            return jnp.asarray(leaf, dtype=jnp.result_type(float))
        return None if leaf.ndim == 0 else jnp.asarray(leaf)
    return None


def _hashable(leaf: Any) -> Any:
    if isinstance(leaf, np.integer | np.bool_) or (isinstance(leaf, np.ndarray | jax.Array) and leaf.ndim == 0):
        leaf = leaf.item()
    try:
        hash(leaf)
    except TypeError:
        return Frozen(leaf)
    return leaf


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
        return {name: site["value"] for name, site in sites.items()}

    try:
        shapes = jax.eval_shape(run, bound)
    except AssertionError as error:
        if "size of plate" in str(error):
            raise ValueError(f"data are empty: a plate of '{_name(bound.function)}' has no element") from None
        raise
    except ValueError as error:
        if "Incompatible shapes for broadcasting" not in str(error):
            raise
        arrays = ", ".join(f"{name} {array.shape}" for name, array in bound.arrays.items())
        raise ValueError(
            f"shapes of arguments of '{_name(bound.function)}' do not fit together ({error}); the arrays are {arrays}"
        ) from error
    return {name: notes[name] | {"value": shape} for name, shape in shapes.items()}


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
    gives = any(site["written"] for site in probe.values())
    written = {name: Entry(np.asarray(value)) for name, value in _written(bound).items()} if gives else {}
    observed, present = {}, {}
    for name, item in (written | given).items():
        site = probe[name]
        value, mask = _value(name, item, site["value"])
        if mask is not None:
            present[name] = jnp.asarray(_event_mask(name, mask, site))
            value = np.where(mask, value, value[mask][0])
        observed[name] = jnp.asarray(value, dtype=site["value"].dtype)
    return replace(bound, observed=observed, present=present)


@jax.jit
def _written(bound: Bound) -> dict[str, Any]:
    """The values that the program itself gives with obs=."""
    written = Written(bound.source)
    trace(substitute(seed(written, jax.random.PRNGKey(0)), substitute_fn=feasible)).get_trace(**bound.inputs)
    return written.values


def _value(name: str, item: Entry, shape: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """The value of an observed site in its own type, and which elements are there unless all are."""
    value = np.asarray(item.value)
    if value.dtype.kind not in "fiub":
        raise ValueError(f"entry '{name}' must hold numbers, but holds {value.dtype}")
    if value.shape != shape.shape:
        raise ValueError(
            f"entry '{name}' has shape {value.shape}, but site '{name}' of the program has shape {shape.shape}"
            + (
                "; draw it inside a numpyro.plate if its elements are repetitions"
                if value.ndim > len(shape.shape)
                else ""
            )
        )
    if value.size == 0:
        raise ValueError(f"entry '{name}' is empty: its shape is {value.shape}")
    mask = np.ones(value.shape, bool) if item.present is None else np.array(item.present)
    if value.dtype.kind == "f":
        mask &= ~np.isnan(value)
    if not mask.any():
        raise ValueError(f"entry '{name}' has no value: all {value.size} are missing")
    if value.dtype.kind == "f" and shape.dtype.kind in "iub":
        whole = np.where(mask, value, 0.0)
        if (changed := whole != np.round(whole)).any():
            raise ValueError(
                f"entry '{name}' at position {_first(changed)} is {value[changed][0]}, but site '{name}' takes integers"
            )
        value = whole.astype(shape.dtype)
    return value, None if mask.all() else mask


def _event_mask(name: str, mask: np.ndarray, site: dict[str, Any]) -> np.ndarray:
    """Which events are there, or which parts of them where some are there in part."""
    for ndim in (site["batch_ndim"], site["parts_ndim"]):
        parts = mask.reshape(*mask.shape[:ndim], -1)
        if (parts.all(-1) == parts.any(-1)).all():
            return parts.all(-1)
    if site["family"] == "MultivariateNormal":
        return mask
    if site["family"] == "MarkovChain":
        later = np.flip(np.maximum.accumulate(np.flip(mask, -1), -1), -1)
        if (later == mask).all():
            return mask
        raise ValueError(
            f"entry '{name}' is missing at position {_first(later & ~mask)}, before the end of its path; states of a "
            "MarkovChain depend on each other, so only the last may be missing: complete it, or leave all of it latent"
        )
    partly = parts.any(-1) & ~parts.all(-1)
    raise ValueError(
        f"entry '{name}' has a partly missing event at position {_first(partly)}, which can be integrated out for a "
        f"MultivariateNormal only, not for a {site['family']}; mark the whole event as missing"
    )


def _checked(bound: Bound, found: Flow) -> Bound:
    """Raise for what compiled code would not notice. Sites whose support moves with latent sites become guarded."""
    _refuse_nan(bound, found)
    _refuse_missing_parents(bound, found)
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
                f"argument '{name}' is NaN at position {_first(np.isnan(value))}; "
                "only observed sites may have missing entries"
            )


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
            first = index[_first(wrong)]
            given = first if first >= 0 else first - size  # numbers below 0 count from the end
            for name in lookup.arguments:
                there = np.asarray(bound.arrays[name]) == given
                if there.any():
                    raise ValueError(
                        f"argument '{name}' at position {_first(there)} is {given}, but it is an index into {size} "
                        "elements, which count from 0"
                    )
            raise ValueError(
                f"{_listed(list(lookup.arguments), 'argument')} of '{_name(bound.function)}' lead to the index {first} "
                f"of {size} elements, which count from 0"
            )


def _refuse_parameter(fact: Fact, valid: np.ndarray, values: dict[Fact, Any]) -> None:
    wrong = ~np.asarray(valid)
    value = next(v for f, v in values.items() if (f.site, f.kind, f.name) == (fact.site, "parameter", fact.name))
    value = np.asarray(value)
    where = _first(wrong)
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
    value = np.asarray(bound.observed[fact.site])[_first(wrong)]
    raise ValueError(
        f"entry '{fact.site}' at position {_first(wrong)} is {value}, "
        f"which is outside the support of its site ({fact.family}: {support})"
    )


def _first(wrong: np.ndarray) -> tuple[int, ...]:
    """Position of the first true element."""
    return tuple(int(i) for i in np.argwhere(wrong)[0]) if np.ndim(wrong) else ()


def _listed(names: list[str], noun: str) -> str:
    return noun + ("s " if len(names) > 1 else " ") + ", ".join(f"'{name}'" for name in names)


def _name(function: Any) -> str:
    return getattr(function, "__name__", type(function).__name__)
