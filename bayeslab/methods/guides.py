"""Guides of stochastic variational inference: those that NumPyro makes, and programs of the user's; its optimisers."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from inspect import Parameter
from textwrap import shorten
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import optax
from jax import Array
from numpyro import optim
from numpyro.distributions import Delta
from numpyro.handlers import seed, substitute
from numpyro.infer import autoguide
from numpyro.infer.autoguide import AutoBatchedMixin
from numpyro.primitives import Messenger

from bayeslab.methods.minibatches.batches import SubsampledPlate, random_batch, subsampled_plates
from bayeslab.programs import unconstrained
from bayeslab.programs.arguments import signature
from bayeslab.programs.handlers.subsampling import PlateBatches
from bayeslab.programs.missing.imputation import chosen
from bayeslab.programs.program import Bound, Values, init_inside_support
from bayeslab.programs.wrapped_distributions import innermost_distribution

LEAST_HIDDEN_UNITS = 32
"""Units in a hidden layer of a flow, unless the posterior has more dimensions."""
LEARNING_RATE_OF_FLOWS = 0.005
"""The step of Adam for flows, whose bound can explode with that of other guides."""
FLOW_GUIDES = (autoguide.AutoIAFNormal, autoguide.AutoBNAFNormal)
"""Guides that transform a Normal by neural networks; they need a posterior of two dimensions or more."""


@dataclass(frozen=True)
class Automatic:
    """A guide that NumPyro makes from the sites of a program, over their unconstrained values.

    build: a subclass of AutoGuide.
    settings: its arguments, as (name, value).
    learning_rate: the step with which Adam begins, unless SVI is given an optimizer.
    max_norm: of the gradients that Adam is told, which are scaled down where they are larger.
    """

    build: type[autoguide.AutoGuide]
    settings: tuple[tuple[str, Any], ...] = ()
    learning_rate: float = 0.05
    max_norm: float = np.inf

    @property
    def batch_ndim(self) -> int:
        """The number of axes along which the guide has independent parts."""
        return int(dict(self.settings).get("batch_ndim", 1)) if issubclass(self.build, AutoBatchedMixin) else 0


def mean_field_normal() -> Automatic:
    """Independent Normals: spreads are too small where sites are correlated in the posterior."""
    return Automatic(autoguide.AutoDiagonalNormal)  # compiles in half the time of AutoNormal, which is the same


def full_rank_normal() -> Automatic:
    """One multivariate Normal over all sites."""
    return Automatic(autoguide.AutoMultivariateNormal)


def low_rank_normal(rank: int | None = None) -> Automatic:
    """A multivariate Normal whose covariance is diagonal plus rank `rank`, by default the root of the dimension."""
    return Automatic(autoguide.AutoLowRankMultivariateNormal, (("rank", rank),))


def normalising_flow(num_flows: int = 3, hidden: tuple[int, ...] | None = None) -> Automatic:
    """Inverse autoregressive flows of a Normal (Kingma et al. 2016, arXiv:1606.04934); needs two dimensions or more.

    hidden: units in every hidden layer of the networks, at least as many as the posterior has dimensions; by default
    two layers of 32 units, or of as many as there are dimensions.
    """
    return Automatic(
        autoguide.AutoIAFNormal, (("num_flows", num_flows), ("hidden_dims", hidden)), LEARNING_RATE_OF_FLOWS
    )


def suited_to_size(guide: Automatic, size: int) -> Automatic:
    """The guide for a posterior of so many dimensions, its networks wide enough.

    Raises ValueError where it cannot be built for so few dimensions, or so many.
    """
    settings = dict(guide.settings)
    if guide.build in FLOW_GUIDES and size < 2:
        raise ValueError(
            f"{guide.build.__name__} needs a posterior of two dimensions or more, but this one has {size}; "
            "use full_rank_normal()"
        )
    if guide.build is not autoguide.AutoIAFNormal:
        return guide
    hidden = settings.get("hidden_dims") or (max(size, LEAST_HIDDEN_UNITS),) * 2
    if min(hidden) < size:
        raise ValueError(
            f"{guide.build.__name__} needs as many units in every hidden layer as the posterior has dimensions, "
            f"{size}, but hidden layers of {min(hidden)} were asked for"
        )
    return replace(guide, settings=tuple(sorted((settings | {"hidden_dims": tuple(hidden)}).items())))


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
        return PlateBatches(self.program, bound.batches)(**((whole.inputs if takes_rest else {}) | named))


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


class DrawnOnce(Messenger):
    """A handler within that of the seed, with which every draw is computed once and kept.

    The compiler would fuse the inverse of the error function, 240 operations in double precision, into all that reads a
    draw of a Normal, and compile and run it again in each place.
    """

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "sample" and msg["value"] is None and msg["kwargs"]["rng_key"] is None:
            msg["kwargs"]["rng_key"] = numpyro.prng_key()
            drawn = msg["fn"](*msg["args"], sample_intermediates=True, **msg["kwargs"])
            msg["value"], msg["intermediates"] = jax.lax.optimization_barrier(drawn)


@dataclass(frozen=True)
class AnnealedGuide:
    """A guide whose draws take steps along the gradient of the log joint (differentiable annealed importance sampling).

    guide: set up on the sites alone; it is told the log joint of the data that it meets at every draw.
    """

    guide: autoguide.AutoDAIS

    def __call__(self, bound: Bound) -> Any:
        learned = unconstrained.learned_parameters(bound)

        def potential_energy(position: Values) -> Array:
            return -unconstrained.log_posterior_of_drawn(bound, position | learned)

        if not isinstance(self.guide, autoguide.AutoSurrogateLikelihoodDAIS):
            self.guide._potential_fn = potential_energy
        drawn = self.guide()
        self.guide._potential_fn = None
        return drawn


def guide_record(guide: Any) -> Any:
    """A guide of NumPyro as a record, which is equal for equal settings; another guide as it is.

    Raises TypeError for what is no guide, and for one that was built before, is a point, or needs more than a program.
    """
    if isinstance(guide, Hashable) and guide in _FUNCTIONS_THAT_NAME_GUIDES:
        raise TypeError(f"call {guide.__name__} to get a guide, SVI({guide.__name__}())")
    if not callable(guide) and not isinstance(guide, Automatic):
        raise TypeError(
            "guide of SVI must be one such as full_rank_normal(), a class of numpyro.infer.autoguide, or a program "
            f"with the latent sites, not {guide!r}"
        )
    if isinstance(guide, _GUIDES_OF_OTHERS):
        return guide
    if isinstance(guide, autoguide.AutoGuide):
        name = type(guide).__name__
        raise TypeError(f"pass the class, SVI({name}), not a guide that was built on a model before")
    build, settings = (guide.func, guide.keywords) if isinstance(guide, partial) else (guide, {})
    for points, method in _METHOD_OF_POINT_GUIDE.items():
        if isinstance(build, type) and issubclass(build, points):
            raise TypeError(f"{build.__name__} is a point, of which there is no bound; use {method}")
    if isinstance(build, type) and issubclass(build, _GUIDES_OF_OTHERS):
        raise TypeError(
            f"{build.__name__} is made of more than a program, so SVI cannot build it; give it one that you have built"
        )
    if not isinstance(build, type) or not issubclass(build, autoguide.AutoGuide):
        return guide
    if issubclass(build, autoguide.AutoSurrogateLikelihoodDAIS) and "surrogate_model" not in settings:
        raise TypeError(f"{build.__name__} needs a program; use partial({build.__name__}, surrogate_model=...)")
    steps: tuple[float, ...] = (0.01, MAX_NORM_OF_ANNEALED) if issubclass(build, autoguide.AutoDAIS) else ()
    if issubclass(build, FLOW_GUIDES):
        steps = (LEARNING_RATE_OF_FLOWS,)
    return Automatic(build, tuple(sorted(settings.items())), *steps)


def refuse_other_sites(guide: Callable[..., Any], bound: Bound) -> None:
    """Raises ValueError for a guide whose arguments or sites are not those of the program, that does not run, or that
    is a point."""
    values, parameters = bound.inputs | bound.observed, signature(guide).parameters.values()
    needed = [p.name for p in parameters if p.default is Parameter.empty and p.kind not in _REST]
    if unknown := [name for name in needed if name not in values]:
        raise ValueError(f"the guide asks for {unknown}, which the model does not have; it has {list(values)}")
    if isinstance(guide, autoguide.AutoSemiDAIS) and (plates := subsampled_plates(bound)):
        raise ValueError(
            f"AutoSemiDAIS draws batches of plate '{plates[0].plate}' and never all of it, as the draws at the end "
            "are; leave subsample_size out, or write a guide of your own"
        )
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


@lru_cache
def adam_optimizer(learning_rate: float, max_norm: float) -> optax.GradientTransformation:
    """Adam, the same object for the same settings, since optimisers are equal only to themselves."""
    adam = optax.adam(learning_rate)
    return adam if np.isinf(max_norm) else optax.chain(optax.clip_by_global_norm(max_norm), adam)


def as_optax(optimizer: Any) -> optax.GradientTransformation:
    """An optimiser of optax as it is, one of `numpyro.optim` as the steps that it would make.

    Raises TypeError for what is neither.
    """
    if isinstance(optimizer, optax.GradientTransformation):
        return optimizer
    if isinstance(optimizer, optim._NumPyroOptim) and not (
        isinstance(optimizer, optim.Minimize) or optimizer.update_with_value
    ):
        return _steps_of_numpyro(optimizer)
    raise TypeError(
        "optimizer of SVI must be one of optax, such as optax.adam(0.01), or one of numpyro.optim that takes steps by "
        f"gradients alone, not {optimizer!r}"
    )


@lru_cache(maxsize=64)
def _steps_of_numpyro(optimizer: optim._NumPyroOptim) -> optax.GradientTransformation:
    """The changes of an optimiser that keeps parameters in its state, the same object for the same optimiser."""

    def update(gradient: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        moved = optimizer.update(gradient, state)
        before, after = optimizer.get_params(state), optimizer.get_params(moved)
        return jax.tree.map(jnp.subtract, after, before), moved

    return optax.GradientTransformation(optimizer.init, update)


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


MAX_NORM_OF_ANNEALED = 10.0
"""The norm of gradients at most where draws take steps of their own: where these have gone too far there is a bound of
-1e24, after which Adam would hardly move. It is that of NumPyro's ClippedAdam."""
NUM_DRAWS_AT_THE_START = 50
"""Draws of a guide of the user's that are looked at before its parameters are learned."""
_REST = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
"""Kinds of arguments that take what others do not name."""
_GUIDES_OF_OTHERS = (autoguide.AutoGuideList, autoguide.AutoSemiDAIS)
"""Guides that are made of other guides; those that were built are programs with the latent sites, as guides of the
user's are."""
_METHOD_OF_POINT_GUIDE: dict[type, str] = {
    autoguide.AutoLaplaceApproximation: "Laplace()",
    autoguide.AutoDelta: "MAP()",
}
"""Guides that are points, and the methods to use in place of them."""
_FUNCTIONS_THAT_NAME_GUIDES = (mean_field_normal, full_rank_normal, low_rank_normal, normalising_flow)
"""Functions that give a record of a guide."""
