"""Guides of stochastic variational inference that NumPyro makes."""

from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import numpy as np
import numpyro
from jax import Array
from numpyro.infer import autoguide
from numpyro.infer.autoguide import AutoBatchedMixin
from numpyro.primitives import Messenger

from bayeslab.programs import unconstrained
from bayeslab.programs.program import Bound, Values

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


MAX_NORM_OF_ANNEALED = 10.0
"""The norm of gradients at most where draws take steps of their own: where these have gone too far there is a bound of
-1e24, after which Adam would hardly move. It is that of NumPyro's ClippedAdam."""
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
