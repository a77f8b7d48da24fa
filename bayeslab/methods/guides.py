"""Guides of stochastic variational inference: those that NumPyro makes, and programs of the user's; its optimisers."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import optax
from numpyro import optim
from numpyro.distributions import Delta
from numpyro.handlers import seed
from numpyro.infer import autoguide

from bayeslab.methods.minibatches.batches import SubsampledPlate, random_batch
from bayeslab.programs.arguments import signature
from bayeslab.programs.program import Bound, innermost_distribution
from bayeslab.programs.subsampling import PlateBatches


@dataclass(frozen=True)
class Automatic:
    """A guide that NumPyro makes from the sites of a program, over their unconstrained values.

    build: a subclass of AutoGuide.
    settings: its arguments, as (name, value).
    learning_rate: the step with which Adam begins, unless SVI is given an optimizer.
    """

    build: type[autoguide.AutoGuide]
    settings: tuple[tuple[str, Any], ...] = ()
    learning_rate: float = 0.05


def mean_field_normal() -> Automatic:
    """Independent Normals: spreads are too small where sites are correlated in the posterior."""
    return Automatic(autoguide.AutoNormal)


def full_rank_normal() -> Automatic:
    """One multivariate Normal over all sites."""
    return Automatic(autoguide.AutoMultivariateNormal)


def low_rank_normal(rank: int | None = None) -> Automatic:
    """A multivariate Normal whose covariance is diagonal plus rank `rank`, by default the root of the dimension."""
    return Automatic(autoguide.AutoLowRankMultivariateNormal, (("rank", rank),))


def normalising_flow(num_flows: int = 3, hidden: tuple[int, ...] = (32, 32)) -> Automatic:
    """Inverse autoregressive flows of a Normal (Kingma et al. 2016, arXiv:1606.04934); needs two dimensions or more."""
    return Automatic(autoguide.AutoIAFNormal, (("num_flows", num_flows), ("hidden_dims", hidden)), 0.005)


@dataclass(frozen=True)
class UserGuide:
    """A guide of the user's: a program that names some of the inputs and observed sites of the model."""

    program: Callable[..., Any]

    def __call__(self, bound: Bound, whole: Bound) -> Any:
        values = whole.inputs | whole.observed
        program = PlateBatches(self.program, bound.batches)
        return program(**{name: values[name] for name in signature(self.program).parameters})


def guide_record(guide: Any) -> Any:
    """A guide of NumPyro as a record, which is equal for equal settings; another guide as it is.

    Raises TypeError for what is no guide, and for a guide that was built before or that is a point.
    """
    if isinstance(guide, Hashable) and guide in _FUNCTIONS_THAT_NAME_GUIDES:
        raise TypeError(f"call {guide.__name__} to get a guide, SVI({guide.__name__}())")
    if not callable(guide) and not isinstance(guide, Automatic):
        raise TypeError(
            "guide of SVI must be one such as full_rank_normal(), a class of numpyro.infer.autoguide, or a program "
            f"with the latent sites, not {guide!r}"
        )
    if isinstance(guide, autoguide.AutoGuide):
        name = type(guide).__name__
        raise TypeError(f"pass the class, SVI({name}), not a guide that was built on a model before")
    build, settings = (guide.func, guide.keywords) if isinstance(guide, partial) else (guide, {})
    for points, method in _METHOD_OF_POINT_GUIDE.items():
        if isinstance(build, type) and issubclass(build, points):
            raise TypeError(f"{build.__name__} is a point, of which there is no bound; use {method}")
    if isinstance(build, type) and issubclass(build, autoguide.AutoGuide):
        return Automatic(build, tuple(sorted(settings.items())))
    return guide


def refuse_other_sites(guide: Callable[..., Any], bound: Bound) -> None:
    """Raises ValueError for a guide whose arguments or sites are not those of the program, or that is a point."""
    values = bound.inputs | bound.observed
    if unknown := [name for name in signature(guide).parameters if name not in values]:
        raise ValueError(f"the guide asks for {unknown}, which the model does not have; it has {list(values)}")
    sites, others = (
        numpyro.handlers.trace(seed(UserGuide(guide), jax.random.PRNGKey(number))).get_trace(bound, bound)
        for number in range(2)
    )
    drawn = {n for n, s in sites.items() if s["type"] == "sample" and not s["infer"].get("is_auxiliary")}
    latent = sorted(set(bound.latent) - set(bound.learned))
    if drawn != set(latent):
        raise ValueError(f"the guide draws {sorted(drawn)}, but the latent sites are {latent}")
    for name in latent:
        if isinstance(innermost_distribution(sites[name]["fn"]), Delta) and jnp.array_equal(
            sites[name]["value"], others[name]["value"]
        ):
            raise ValueError(f"the guide has all its mass of site '{name}' on a point, so that there is no bound")


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
def adam_optimizer(learning_rate: float) -> optax.GradientTransformation:
    """Adam, the same object for the same rate, since optimisers are equal only to themselves."""
    return optax.adam(learning_rate)


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


_METHOD_OF_POINT_GUIDE: dict[type, str] = {
    autoguide.AutoLaplaceApproximation: "Laplace()",
    autoguide.AutoDelta: "MAP()",
}
"""Guides that are points, and the methods to use in place of them."""
_FUNCTIONS_THAT_NAME_GUIDES = (mean_field_normal, full_rank_normal, low_rank_normal, normalising_flow)
"""Functions that give a record of a guide."""
