"""Guides of the user's: programs that draw the latent sites of a model, and what they have to be."""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import partial
from inspect import Parameter
from textwrap import shorten
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
from jax import Array
from numpyro.distributions import Delta
from numpyro.handlers import seed, substitute
from numpyro.infer import autoguide

from bayeslab.methods.minibatches.batches import SubsampledPlate, random_batch, subsampled_plates
from bayeslab.programs.arguments import signature
from bayeslab.programs.handlers.subsampling import PlateBatches
from bayeslab.programs.missing.imputation import chosen
from bayeslab.programs.program import Bound, Values, init_inside_support
from bayeslab.programs.wrapped_distributions import innermost_distribution

NUM_DRAWS_AT_THE_START = 50
"""Draws of a guide of the user's that are looked at before its parameters are learned."""
_REST = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
"""Kinds of arguments that take what others do not name."""


@dataclass(frozen=True)
class UserGuide:
    """A guide of the user's: a program that names some of the inputs and observed sites of the model.

    Arguments that are not named go to `**kwargs`; what the model does not have keeps its default. Observed numbers are
    NaN where they are missing.
    """

    program: Callable[..., Any]

    def __call__(self, bound: Bound, whole: Bound) -> Any:
        values = whole.inputs | {name: _with_gaps(whole, name) for name in whole.observed}
        parameters = signature(self.program).parameters.values()
        named = {parameter.name: values[parameter.name] for parameter in parameters if parameter.name in values}
        takes_rest = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters)
        is_annealed = isinstance(self.program, autoguide.AutoSemiDAIS)
        program = partial(_draw_of_batch, self.program, bound) if is_annealed else self.program
        return PlateBatches(program, bound.batches)(**((whole.inputs if takes_rest else {}) | named))


def _draw_of_batch(guide: autoguide.AutoSemiDAIS, bound: Bound, **arguments: Any) -> Any:
    """A draw of the guide for as many elements of its plate as a Bound has, with the parameters of all.

    The guide hides its programs of elements from the handlers around it.
    """
    if guide.prototype_trace is None:
        guide._setup_prototype(**arguments)
    of_batch, (plate, size, _) = copy(guide), guide._local_plate
    for name in ("local_model", "local_guide"):
        if (program := getattr(guide, name)) is not None:
            setattr(of_batch, name, PlateBatches(program, bound.batches))
    of_batch._local_plate = (plate, size, len(bound.batches.get(plate, range(size))))
    return of_batch(**arguments)


def _with_gaps(bound: Bound, name: str) -> Array:
    """The values of an observed site, NaN where they are missing and can be."""
    value = bound.observed[name]
    if name not in bound.present or not jnp.issubdtype(jnp.result_type(value), jnp.floating):
        return value
    return chosen(bound.present[name], value, jnp.nan, jnp.ndim(value))


def _advice_on_gaps(bound: Bound) -> str:
    """What a guide of the user's has to do with missing entries; nothing where there are none."""
    gaps = [name for name in bound.observed if jnp.isnan(_with_gaps(bound, name)).any()]
    if not gaps:
        return ""
    return (
        f"; it is given NaN where entries of '{gaps[0]}' are missing, and has to replace them, as with "
        f"jnp.where(jnp.isnan({gaps[0]}), 0.0, {gaps[0]})"
    )


def refuse_other_sites(guide: Callable[..., Any], bound: Bound) -> None:
    """Raises ValueError for a guide whose arguments or sites are not those of the program, that does not run, or that
    is a point."""
    values, parameters = bound.inputs | bound.observed, signature(guide).parameters.values()
    needed = [p.name for p in parameters if p.default is Parameter.empty and p.kind not in _REST]
    if unknown := [name for name in needed if name not in values]:
        raise ValueError(f"the guide asks for {unknown}, which the model does not have; it has {list(values)}")
    if isinstance(guide, autoguide.AutoSemiDAIS):
        guide.prototype_trace = None  # that of an earlier fit, to other data
    try:
        sites, others = (
            numpyro.handlers.trace(seed(UserGuide(guide), jax.random.PRNGKey(number))).get_trace(bound, bound)
            for number in range(2)
        )
    except Exception as error:
        reason = shorten(f"{type(error).__name__}: {error}", 200)
        by_position = any(parameter.kind is Parameter.VAR_POSITIONAL for parameter in parameters)
        starred = "; data go to arguments by name, so *args has none" if by_position else ""
        raise ValueError(f"the guide does not run ({reason}){starred}{_advice_on_gaps(bound)}") from error
    drawn = {n for n, s in sites.items() if s["type"] == "sample" and not s["infer"].get("is_auxiliary")}
    latent = sorted(set(bound.latent) - set(bound.learned))
    if drawn != set(latent):
        raise ValueError(f"the guide draws {sorted(drawn)}, but the latent sites are {latent}")
    for name in latent:
        own, first, second = bound.sites[name], sites[name]["value"], others[name]["value"]
        if own.is_discrete != sites[name]["fn"].is_discrete:
            raise ValueError(f"of site '{name}' and what the guide draws for it, one is discrete, the other continuous")
        if jnp.shape(first) != own.shape and not subsampled_plates(bound):
            raise ValueError(f"the guide draws site '{name}' of shape {jnp.shape(first)}; expected {own.shape}")
        if isinstance(innermost_distribution(sites[name]["fn"]), Delta) and jnp.array_equal(first, second):
            raise ValueError(f"the guide has all its mass of site '{name}' on a point, so that there is no bound")
    keys = jax.random.split(jax.random.PRNGKey(0), NUM_DRAWS_AT_THE_START)
    if reason := outside_reason(bound, jax.vmap(partial(_values_at_the_start, guide, bound, latent))(keys)):
        raise ValueError(reason)


def _values_at_the_start(guide: Callable[..., Any], bound: Bound, names: list[str], key: Array) -> Values:
    """Values of sites of a guide of the user's whose parameters are not learned yet."""
    sites = numpyro.handlers.trace(seed(UserGuide(guide), key)).get_trace(bound, bound)
    return {name: jnp.asarray(sites[name]["value"]) for name in names}


def draws_batches(guide: Callable[..., Any], bound: Bound, plates: tuple[SubsampledPlate, ...]) -> bool:
    """Whether a guide of the user's subsamples the plates that the program does, where these have sites to draw."""
    if not plates:
        return False
    batch = random_batch(jax.random.PRNGKey(0), bound, plates)
    sites = numpyro.handlers.trace(seed(UserGuide(guide), jax.random.PRNGKey(0))).get_trace(batch, bound)
    return all(
        jnp.shape(sites[name]["value"]) == shape.shape for name, shape in batch.latent_shapes.items() if name in sites
    )


def outside_reason(bound: Bound, draws: Values) -> str:
    """What is wrong with a guide that draws values of a site (draw, *site) outside of its support, or nothing."""
    for name, is_outside in _are_outside_of_supports(bound, draws).items():
        if is_outside:
            if jnp.isnan(draws[name]).any() and (advice := _advice_on_gaps(bound)):
                return f"the guide draws NaN of site '{name}'{advice}"
            return (
                f"the guide draws values of site '{name}' outside of its support ({bound.sites[name].support}), where "
                "its bound is minus infinity; give the site a distribution with that support in the guide"
            )
    return ""


@jax.jit
def _are_outside_of_supports(bound: Bound, draws: Values) -> Values:
    """Whether any draw of a site is outside of its support given the others, by site."""

    def outside(values: Values) -> Values:
        model = substitute(seed(bound.program, jax.random.PRNGKey(0)), substitute_fn=init_inside_support)
        sites = numpyro.handlers.trace(substitute(model, data=values)).get_trace()
        return {name: ~jnp.all(sites[name]["fn"].support(value)) for name, value in values.items()}

    return {name: flags.any() for name, flags in jax.vmap(outside)(draws).items()}
