"""Proposals: independent draws with the log density that they were drawn from, and that of the posterior, beside them.

The prior, any method that says its own density (SVI with any guide, Laplace, MeanField), or the draws of any result.
"""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import Array

from bayeslab.elimination.sweep import deterministic_values
from bayeslab.methods.svi import SVI
from bayeslab.methods.wrappers.collapsed import collapsed_sampler, without_discrete_sites
from bayeslab.monte_carlo.fitted_draws import FittedDraws, KernelMixture
from bayeslab.monte_carlo.targets import (
    densities,
    depends_on_eliminated,
    prior_values,
    require_drawn_prior,
    require_prior_of_its_own,
)
from bayeslab.programs.program import Bound
from bayeslab.programs.unconstrained import constrain_flat, flat_log_posterior
from bayeslab.sampling.protocols import Draws, Sampler, SamplerWrapper
from bayeslab.transforms.analysis import Analysis


@dataclass(frozen=True)
class TakesProposal:
    """Settings of what takes a proposal: a method that says its own density, the result of a fit, None for the prior.

    Raises TypeError for what is none of these.
    """

    proposal: Any = None

    def __post_init__(self) -> None:
        from xarray import DataTree

        value = self.proposal
        if isinstance(value, DataTree):
            object.__setattr__(self, "proposal", FittedDraws.of(value))
        elif not (
            value is None or isinstance(value, FittedDraws) or (hasattr(value, "plan") and not isinstance(value, type))
        ):
            raise TypeError(
                f"proposal of {type(self).__name__} must be a method with a density such as Laplace() or SVI(), "
                f"a result of fit, or None for the prior, not {value!r}"
            )

    @property
    def collapse(self) -> tuple[str, ...]:
        """The continuous sites that the proposal integrates out."""
        return getattr(self.proposal, "collapse", ())

    @property
    def moves_coordinates(self) -> bool:
        """Whether the proposal is of missing elements alone: all are but guides of the user's own."""
        return not isinstance(self.proposal, SVI) or self.proposal.moves_coordinates

    @property
    def num_fit_steps(self) -> int:
        """The number of steps that a proposal which is a method is fitted in."""
        return getattr(self.proposal, "num_warmup", 0)


def proposal_sampler(analysis: Analysis, settings: TakesProposal) -> Sampler:
    """The sampler of the proposal of a method. Its draws have `lp` and `log_q`, densities in one and the same space.

    Raises ValueError for a proposal without a density, and for a prior that cannot be drawn from.
    """
    proposal, name = settings.proposal, type(settings).__name__
    if proposal is None or isinstance(proposal, FittedDraws):
        left, base = density_proposal(analysis, settings)
        return collapsed_sampler(base, left, analysis.bound)
    sampler = proposal.plan(analysis)
    if not says_its_density(sampler, analysis.bound):
        raise ValueError(
            f"{name} needs a proposal whose density is known, as that of SVI(), Laplace() or MeanField(); of "
            f"{type(proposal).__name__} give it the result of fit, whose draws it smooths into one"
        )
    return sampler


def density_proposal(
    analysis: Analysis, settings: TakesProposal
) -> "tuple[Bound, PriorSampler | KernelMixtureSampler]":
    """The proposals whose density is known everywhere, the prior and smoothed draws: the program whose latent sites
    they draw, and their sampler."""
    if settings.proposal is None:
        return _prior_target(analysis, settings), PriorSampler()
    left = without_discrete_sites(analysis, settings)
    return left, KernelMixtureSampler(settings.proposal.mixture(left))


def says_its_density(sampler: Sampler, bound: Bound) -> bool:
    """Whether draws are independent given the state before the first, with the density that they come from."""
    if sampler.independent:
        return False
    data = jax.eval_shape(sampler.prepare, bound)
    state = jax.eval_shape(sampler.start, jax.ShapeDtypeStruct((2,), np.uint32), data)
    return {"lp", "log_q"} <= jax.eval_shape(sampler.advance, state, data)[1].stats.keys()


def _prior_target(analysis: Analysis, settings: TakesProposal) -> Bound:
    """The program whose latent sites are drawn from the prior: without discrete sites, where these can be summed over
    and the others are drawn without them."""
    bound = analysis.bound
    if not bound.latent:
        raise ValueError("every site of the program is observed: there is nothing to infer")
    if any(bound.sites[name].is_discrete for name in bound.latent):
        try:
            left = without_discrete_sites(analysis, settings)
        except ValueError:
            left = bound
        bound = bound if depends_on_eliminated(left) else left
    require_prior_of_its_own(bound, type(settings).__name__)
    require_drawn_prior(bound, type(settings).__name__)
    return bound


@dataclass(frozen=True)
class ProposalWrapper(SamplerWrapper):
    """A sampler around that of a proposal, whose state holds that of the proposal as `inner`: what the proposal says of
    its own moments and its own maximum is not said of the posterior."""

    def moments(self, state: Any, bound: Bound) -> dict[str, tuple[Any, Any]]:
        return {}

    def convergence_verdict(self, state: Any, data: Any, samples: dict[str, Any]) -> None:
        return None


@dataclass(frozen=True)
class PriorSampler(Sampler):
    """Draws from the prior; the state is a key."""

    warmup_draws = True

    def start(self, key: Array, bound: Bound) -> Array:
        return key

    def advance(self, key: Array, bound: Bound) -> tuple[Array, Draws]:
        key, draw_key = jax.random.split(key)
        latent = prior_values(draw_key, bound)
        log_prior, log_likelihood = densities(bound, latent)
        samples = latent | deterministic_values(bound, latent)
        return key, Draws(samples, {"lp": log_prior + log_likelihood, "log_q": log_prior})


@dataclass(frozen=True)
class KernelMixtureSampler(Sampler):
    """Draws from a mixture of kernels in the unconstrained space; the state is a key."""

    mixture: KernelMixture

    warmup_draws = True

    def start(self, key: Array, bound: Bound) -> Array:
        return key

    def advance(self, key: Array, bound: Bound) -> tuple[Array, Draws]:
        key, draw_key = jax.random.split(key)
        flat = self.mixture.draw(draw_key)
        samples = constrain_flat(bound, flat)
        return key, Draws(samples, {"lp": flat_log_posterior(bound, flat), "log_q": self.mixture.log_density(flat)})
