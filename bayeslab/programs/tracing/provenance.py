"""Data flow of a program: which arguments, latent sites and observed values reach which parameter and density.

The program is traced on shapes, and NumPyro's provenance rules follow the arrays through it.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import jaxpr_as_fun
from jax.interpreters.partial_eval import dce_jaxpr
from numpyro.distributions import CategoricalLogits, Distribution, WishartCholesky
from numpyro.distributions.constraints import Constraint, greater_than, is_dependent
from numpyro.handlers import condition, seed, substitute, trace
from numpyro.ops.provenance import track_deps_jaxpr
from numpyro.primitives import Messenger

from bayeslab.distributions import PaddedDirichlet
from bayeslab.programs.handlers.sites import wrap_bodies
from bayeslab.programs.missing.missing_data import element_mask
from bayeslab.programs.program import (
    Bound,
    Values,
    abstract_bound,
    compilation_signature,
    init_inside_support,
    is_random,
)
from bayeslab.programs.tracing.loops.loop_distribution import distribute_loops
from bayeslab.programs.wrapped_distributions import describe_constraint, elementwise_constraint, innermost_distribution


class Fact(NamedTuple):
    """Something that a program computes for one site.

    kind: "parameter" of a distribution and whether it is "valid", whether an observed value lies in the "support",
    a "bound" of the support (of discrete and of observed sites), the value that obs= has "written", or the "density".
    expected: the constraint on it, in words.
    sources: ("latent" | "argument" | "observed" | "random", name) of everything that reaches it, random numbers that
    no site holds without a name.
    """

    site: str
    kind: str
    name: str
    expected: str
    family: str
    sources: frozenset[tuple[str, str]] = frozenset()

    def reached_by(self, kind: str) -> list[str]:
        """Names of the sources of this kind."""
        return sorted(name for source, name in self.sources if source == kind)


class Lookup(NamedTuple):
    """A lookup of elements of an array. arguments: names of the arguments that the indices (..., axis) come from.

    sizes: for every axis the number of indices that lie inside of the array.
    """

    arguments: tuple[str, ...]
    sizes: tuple[int, ...]


class DataFlow(NamedTuple):
    """The data flow of a program.

    facts: those of every site, in program order.
    known: the facts about data and arguments alone, which are checked; `known_values` returns their values.
    lookups: lookups of elements at indices that come from arguments alone; `places` returns the indices.
    """

    facts: tuple[Fact, ...]
    known: tuple[Fact, ...]
    known_values: Callable[[Bound], list[Array]]
    lookups: tuple[Lookup, ...]
    places: Callable[[Bound], list[Array]]

    def of(self, *kinds: str) -> list[Fact]:
        """The facts of these kinds."""
        return [fact for fact in self.facts if fact.kind in kinds]


def trace_data_flow(bound: Bound, latent: Mapping[str, Array | jax.ShapeDtypeStruct]) -> DataFlow:
    """The data flow of a program, found once for all Bounds of one structure. latent: site -> its value or shape."""
    shapes = tuple(sorted((name, tuple(value.shape), value.dtype) for name, value in latent.items()))
    return _trace_data_flow(compilation_signature(bound), shapes)


def trace_written_sites(bound: Bound, values: Mapping[str, Array | jax.ShapeDtypeStruct]) -> frozenset[str]:
    """The sites to which a program gives values, by obs= or `condition`, that it computes from other, latent sites.

    values: those of all sites, or their shapes.
    """
    shapes = tuple(sorted((name, tuple(value.shape), value.dtype) for name, value in values.items()))
    return _trace_written_sites(compilation_signature(bound), shapes)


@lru_cache(maxsize=64)
def _trace_written_sites(shapes: tuple, value_shapes: tuple) -> frozenset[str]:
    bound = abstract_bound(shapes)
    values = {name: jax.ShapeDtypeStruct(shape, dtype) for name, shape, dtype in value_shapes}
    names: list[str] = []

    def run(values: Values, bound: Bound) -> list[Any]:
        recorder = ObsRecorder(bound.source)
        model = substitute(recorder, substitute_fn=lambda s: None if s.get("is_observed") else values.get(s["name"]))
        trace(seed(model, jax.random.PRNGKey(0))).get_trace(**bound.inputs)
        names[:] = recorder.values
        return [jnp.asarray(value) for value in recorder.values.values()]

    jaxpr = jax.make_jaxpr(run)(values, bound).jaxpr
    latent = [name not in names for name in sorted(values)]
    computed = []
    for index, name in enumerate(names):
        used = dce_jaxpr(jaxpr, [other == index for other in range(len(names))])[1]
        if any(needed and free for needed, free in zip(used, latent, strict=False)):
            computed.append(name)
    return frozenset(computed)


@jax.jit
def written_values(bound: Bound) -> Values:
    """The values that a program gives its sites by obs= or `condition`."""
    recorder = ObsRecorder(bound.source)
    model = substitute(seed(recorder, jax.random.PRNGKey(0)), substitute_fn=init_inside_support)
    trace(model).get_trace(**bound.inputs)
    return recorder.values


@lru_cache(maxsize=64)
def _trace_data_flow(shapes: tuple, latent_shapes: tuple) -> DataFlow:
    bound = abstract_bound(shapes)
    latent = {name: jax.ShapeDtypeStruct(shape, dtype) for name, shape, dtype in latent_shapes}
    facts: list[Fact] = []

    def run(bound: Bound, latent: Values, key: Array) -> list[Any]:
        pairs = list(_facts(bound, latent, key))
        facts[:] = [fact for fact, _ in pairs]
        return [value for _, value in pairs]

    key = jax.random.PRNGKey(0)
    jaxpr = distribute_loops(jax.make_jaxpr(run)(bound, latent, key))  # else all that a scan returns has one source
    groups = {
        "argument": bound.arrays,
        "observed": bound.observed,
        "present": bound.present,
        "latent": latent,
    }
    sources = [frozenset({(kind, name)}) for kind, group in groups.items() for name in sorted(group)]
    reached = track_deps_jaxpr(jaxpr.jaxpr, [*sources, frozenset({("random", "")})])
    traced = tuple(fact._replace(sources=origin) for fact, origin in zip(facts, reached, strict=True))
    known = {i: f for i, f in enumerate(traced) if f.kind in _CHECKED_KINDS and not f.reached_by("latent")}

    def evaluated(traced: Any, bound: Bound) -> list[Array]:
        zeros = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), latent)
        return jaxpr_as_fun(traced)(*jax.tree.leaves((bound, zeros, key)))

    def compute(bound: Bound) -> list[Array]:
        outputs = evaluated(jaxpr, bound)
        return [outputs[index] for index in known]

    lookups, index_jaxpr = _lookups(jaxpr, [*sources, frozenset()])
    return DataFlow(traced, tuple(known.values()), jax.jit(compute), lookups, jax.jit(partial(evaluated, index_jaxpr)))


def _lookups(jaxpr: Any, sources: list[frozenset[tuple[str, str]]]) -> tuple[tuple[Lookup, ...], Any]:
    """The lookups at indices that come from arguments alone, and a jaxpr whose outputs are these indices."""
    gathers = [equation for equation in jaxpr.jaxpr.eqns if equation.primitive.name == "gather"]
    gathers = [equation for equation in gathers if not hasattr(equation.invars[1], "val")]  # indices are no literals
    indices = [equation.invars[1] for equation in gathers]
    reached = track_deps_jaxpr(_with_outputs(jaxpr, indices).jaxpr, sources)
    lookups: dict[Any, Lookup] = {}
    for equation, index, origin in zip(gathers, indices, reached, strict=True):
        if origin and all(kind == "argument" for kind, _ in origin):
            shape, sizes = equation.invars[0].aval.shape, equation.params["slice_sizes"]
            axes = equation.params["dimension_numbers"].start_index_map
            limits = tuple(shape[axis] - sizes[axis] + 1 for axis in axes)
            lookups[index] = Lookup(tuple(sorted(name for _, name in origin)), limits)
    return tuple(lookups.values()), _with_outputs(jaxpr, list(lookups))


def _with_outputs(jaxpr: Any, variables: list[Any]) -> Any:
    """A jaxpr with the same computation and other outputs."""
    inner = jaxpr.jaxpr
    return jaxpr.replace(jaxpr=inner.replace(outvars=variables, debug_info=inner.debug_info.with_unknown_names()))


_CHECKED_KINDS = ("parameter", "valid", "support", "bound")


def _facts(bound: Bound, latent: Values, key: Array) -> Iterator[tuple[Fact, Any]]:
    """Every fact of a program, with its value. The sources of the facts are still empty."""
    recorder = ObsRecorder(bound.source)
    model = substitute(condition(recorder, data=bound.observed), data=latent)
    run = trace(seed(model, key)).get_trace(**bound.inputs)
    for name, site in run.items():
        if site["type"] != "sample":
            continue
        fn = site["fn"]
        family = type(innermost_distribution(fn)).__name__
        yield Fact(name, "density", "", "", family), jnp.sum(fn.log_prob(site["value"]))
        if is_random(site) and name in recorder.values:
            yield Fact(name, "written", "", "", family), jnp.asarray(recorder.values[name])
        for part in _component_distributions(fn):
            for parameter, constraint in _parameter_constraints(part).items():
                if parameter in vars(part) and not is_dependent(constraint):
                    value, expected = jnp.asarray(vars(part)[parameter]), _constraint_text(constraint)
                    yield Fact(name, "parameter", parameter, expected, family), value
                    yield Fact(name, "valid", parameter, expected, family), jnp.asarray(constraint(value))
        if is_random(site) and site["is_observed"]:
            inside = jnp.asarray(elementwise_constraint(fn.support)(site["value"]))
            if (mask := element_mask(fn)) is not True:  # nobody reads what a mask leaves out
                inside = inside | ~mask.any(tuple(range(inside.ndim, mask.ndim)))
            yield Fact(name, "support", "", describe_constraint(fn.support), family), inside
        if is_random(site) and (site["is_observed"] or fn.support.is_discrete):
            for limit, value in _support_bounds(fn.support):
                yield Fact(name, "bound", limit, "", family), jnp.asarray(value)


class NumberOrMinusInfinity(Constraint):
    """Logarithms of weights, of which some may be zero: a mask over categories."""

    def __call__(self, x: Any) -> Any:
        return x < jnp.inf


def _parameter_constraints(part: Distribution) -> dict[str, Any]:
    """The constraints on the parameters of a distribution, with those that depend on sizes, which NumPyro leaves open.

    A factor may be anything.
    """
    if isinstance(part, PaddedDirichlet):
        return {"concentration": part.positive_entries}
    if isinstance(part, CategoricalLogits):
        return {"logits": NumberOrMinusInfinity()}
    if isinstance(part, WishartCholesky):
        return part.arg_constraints | {"concentration": greater_than(part.event_shape[-1] - 1)}
    return {name: each for name, each in part.arg_constraints.items() if name != "log_factor"}


def _constraint_text(constraint: Any) -> str:
    """A constraint in words, with the bounds of a range of integers, or one that numbers must exceed."""
    low, high = (getattr(constraint, name, None) for name in ("lower_bound", "upper_bound"))
    if isinstance(constraint, type(greater_than(0))) and isinstance(low, int) and low:
        return f"greater than {low}"
    is_range = isinstance(low, int) and isinstance(high, int)
    return f"an integer from {low} to {high}" if is_range else describe_constraint(constraint)


class ObsRecorder(Messenger):
    """A handler that records the values that a program gives its sites with obs=.

    Labels that come as floats, since some of them are NaN, are integers to what follows, as they are in all other runs.
    """

    def __init__(self, fn: Any):
        self.values: dict[str, Any] = {}
        super().__init__(fn)

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "control_flow":
            wrap_bodies(msg, lambda body, _: _IntegerLabels(body))
        if msg["type"] == "sample" and msg["is_observed"] and is_random(msg):
            self.values[msg["name"]] = msg["value"]
            _make_labels_integers(msg)


class _IntegerLabels(Messenger):
    """A handler by which the body of a scan sees labels as integers, after the scan has recorded them as they came."""

    def postprocess_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "sample" and msg["is_observed"]:
            _make_labels_integers(msg)


def _make_labels_integers(msg: dict[str, Any]) -> None:
    """Make the value of a discrete site an integer."""
    if msg["fn"].support.is_discrete and jnp.issubdtype(jnp.result_type(msg["value"]), jnp.floating):
        msg["value"] = jnp.asarray(msg["value"]).astype(int)


def _component_distributions(fn: Distribution) -> Iterator[Distribution]:
    """A distribution and all distributions that it is made of."""
    yield fn
    for value in vars(fn).values():
        for part in value if isinstance(value, list | tuple) else [value]:
            if isinstance(part, Distribution):
                yield from _component_distributions(part)


def _support_bounds(support: Any) -> Iterator[tuple[str, Any]]:
    """The names and values of the bounds of a support."""
    support = elementwise_constraint(support)
    for name in ("lower_bound", "upper_bound"):
        if name in vars(support):
            yield name, vars(support)[name]
