"""The algorithm of Metropolis and Hastings with a random walk, an independent proposal, or any other.

A proposal z' of q(z' | z) is taken with probability min(1, p(z') q(z | z') / (p(z) q(z' | z))); where it is not, the
chain stays, and z is recorded once more.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from blackjax.mcmc.random_walk import RWState, build_irmh, build_rmh
from jax import Array
from jax.flatten_util import ravel_pytree
from numpyro.handlers import block, seed, substitute, trace

from bayeslab.elimination.sweep import deterministic_values
from bayeslab.methods.moves.initial_positions import likely_position
from bayeslab.methods.setting_checks import require_count, require_names, require_positive
from bayeslab.methods.wrappers.collapsed import collapsed_sampler, without_discrete_sites
from bayeslab.monte_carlo.proposals import ProposalWrapper, TakesProposal, proposal_sampler
from bayeslab.monte_carlo.random_walk import Walk, adapted_walk, first_walk, walk_step
from bayeslab.programs.program import Bound, Values, init_inside_support
from bayeslab.programs.tracing.derivatives import has_derivatives
from bayeslab.programs.unconstrained import (
    constrain_flat,
    flat_log_posterior,
    log_posterior,
    random_position,
    unconstrained_shapes,
)
from bayeslab.sampling.protocols import Draws, Method, Sampler, State
from bayeslab.transforms.analysis import Analysis

INDEPENDENT_BURN_IN = 200
"""Proposals of an independent kind before the first draw; they begin where anything is taken."""


@dataclass(frozen=True)
class RandomWalk:
    """Normal steps in the unconstrained space.

    scale: their standard deviation in every coordinate; by default warm-up adapts their covariance to that of the
    posterior, and their size to the acceptance rate at which a walk is fastest (0.44 in one dimension, 0.234 in many).
    """

    scale: float | None = None

    def __post_init__(self) -> None:
        if self.scale is not None and not 0 < self.scale < float("inf"):
            raise ValueError(f"scale of RandomWalk must be a positive number, but is {self.scale}")


@dataclass(frozen=True)
class Independence(TakesProposal):
    """Proposals that do not depend on where the chain is.

    proposal: as of `ImportanceSampling`, the prior by default.
    """


@dataclass(frozen=True)
class Proposal:
    """A proposal of your own, over the values of all latent sites by name, as they are written, discrete ones too.

    draw: (key, values) -> proposed values of some sites, or of all.
    log_density: (new, old) -> log q(new | old); leave it out only where q(new | old) = q(old | new).
    Both are functions or classes, not lambdas, so that a second fit finds the compiled program again.
    """

    draw: Callable[[Array, Values], Values]
    log_density: Callable[[Values, Values], Array] | None = None


@dataclass(frozen=True)
class MetropolisHastings(Method):
    """Markov chains by the algorithm of Metropolis and Hastings (1970, Biometrika 57).

    proposal: `RandomWalk()`, `Independence(...)` or `Proposal(...)`.
    num_warmup: steps before the first draw, in which a random walk is adapted; with an independent proposal that is a
    method, the steps of its fit.
    thinning: keep one draw in so many.
    collapse: continuous sites that a random walk leaves out, to be integrated out, as discrete ones always are. A
    `Proposal` draws all sites.
    """

    proposal: Any = field(default_factory=RandomWalk)
    num_warmup: int = 1000
    num_samples: int = 1000
    num_chains: int = 4
    thinning: int = 1
    collapse: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require_positive(self, "num_samples", "num_chains", "thinning")
        require_count(self, "num_warmup")
        require_names(self, "collapse")
        if not isinstance(self.proposal, RandomWalk | Independence | Proposal):
            raise TypeError(f"proposal must be RandomWalk(), Independence() or Proposal(draw), not {self.proposal!r}")
        if isinstance(self.proposal, Independence):
            object.__setattr__(self, "num_warmup", self.proposal.num_fit_steps)
        if self.collapse and not isinstance(self.proposal, RandomWalk):
            raise ValueError("collapse is for a RandomWalk; an independent proposal collapses what its method does")

    @property
    def moves_coordinates(self) -> bool:
        if isinstance(self.proposal, Independence):
            return self.proposal.moves_coordinates
        return isinstance(self.proposal, RandomWalk)

    def plan(self, analysis: Analysis) -> Sampler:
        if isinstance(self.proposal, Proposal):
            if not analysis.bound.latent:
                raise ValueError("every site of the program is observed: there is nothing to infer")
            return ProposalSampler(self.proposal)
        if isinstance(self.proposal, Independence):
            return IndependenceSampler(proposal_sampler(analysis, self.proposal))
        left = without_discrete_sites(analysis, self)
        return collapsed_sampler(RandomWalkSampler(self.num_warmup, self.proposal.scale), left, analysis.bound)


class WalkState(NamedTuple):
    """The state of a random walk. current: flat unconstrained coordinates and the log posterior there."""

    current: RWState
    walk: Walk
    key: Array


@dataclass(frozen=True)
class RandomWalkSampler(Sampler):
    """A random walk in the unconstrained space. num_warmup: the steps in which it adapts."""

    num_warmup: int
    scale: float | None

    warmup_draws = True

    def start(self, key: Array, bound: Bound) -> WalkState:
        key, position_key = jax.random.split(key)
        flat = chain_start(position_key, bound)
        return WalkState(RWState(flat, flat_log_posterior(bound, flat)), first_walk(flat), key)

    def advance(self, state: WalkState, bound: Bound) -> tuple[WalkState, Draws]:
        key, step_key = jax.random.split(state.key)
        size = state.current.position.size
        factor = state.walk.factor if self.scale is None else self.scale * jnp.eye(size)
        current, info = walk_step(step_key, state.current, partial(flat_log_posterior, bound), factor)
        walk = state.walk
        if self.scale is None:
            adapting = walk.num_steps < self.num_warmup
            walk = adapted_walk(walk, current.position, info.acceptance_rate, adapting)
        stats = {"lp": current.logdensity, "acceptance_rate": info.acceptance_rate}
        return WalkState(current, walk, key), Draws(constrain_flat(bound, current.position), stats)


class ProposalState(NamedTuple):
    """The state of a chain with a proposal of the user's. current: values of all latent sites and the log joint."""

    current: RWState
    key: Array


@dataclass(frozen=True)
class ProposalSampler(Sampler):
    """A chain with a proposal of the user's."""

    proposal: Proposal

    warmup_draws = True

    def start(self, key: Array, bound: Bound) -> ProposalState:
        key, start_key = jax.random.split(key)
        with block():
            sites = trace(substitute(seed(bound.program, start_key), substitute_fn=init_inside_support)).get_trace()
        values = {name: jnp.asarray(sites[name]["value"]) for name in bound.latent}
        return ProposalState(RWState(values, bound.log_joint(values)), key)

    def advance(self, state: ProposalState, bound: Bound) -> tuple[ProposalState, Draws]:
        key, step_key = jax.random.split(state.key)

        def propose(key: Array, values: Values) -> Values:
            proposed = self.proposal.draw(key, dict(values))
            if unknown := sorted(set(proposed) - set(values)):
                raise ValueError(f"the proposal draws {unknown}, but the latent sites are {sorted(values)}")
            return {
                name: jnp.broadcast_to(jnp.asarray(proposed.get(name, old), old.dtype), old.shape)
                for name, old in values.items()
            }

        log_ratio = None if self.proposal.log_density is None else self._log_density
        current, info = build_rmh()(step_key, state.current, bound.log_joint, propose, log_ratio)
        stats = {"lp": current.logdensity, "acceptance_rate": info.acceptance_rate}
        samples = current.position | deterministic_values(bound, current.position)
        return ProposalState(current, key), Draws(samples, stats)

    def _log_density(self, old: RWState, new: RWState) -> Array:
        """log q(new | old), in the order of arguments that BlackJAX has."""
        assert self.proposal.log_density is not None
        return self.proposal.log_density(new.position, old.position)


class IndependenceState(NamedTuple):
    """The state of a chain with independent proposals.

    current: the draw, with its two log densities. inner: of the proposal. burnt_in: whether there are draws.
    """

    current: RWState
    inner: State
    key: Array
    burnt_in: Array


@dataclass(frozen=True)
class IndependenceSampler(ProposalWrapper):
    """A chain with proposals that do not depend on where it is."""

    warmup_draws = False

    def start(self, key: Array, data: Any) -> IndependenceState:
        key, inner_key = jax.random.split(key)
        inner = self.inner.start(inner_key, data)
        draws = jax.eval_shape(self.inner.advance, inner, data)[1]
        draws = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), draws)
        lowest = jnp.full_like(draws.stats["lp"], -jnp.inf)  # so that whatever comes first is taken
        draws = draws._replace(stats=draws.stats | {"lp": lowest})
        return IndependenceState(RWState(draws, lowest), inner, key, jnp.array(False))

    def adapt(self, state: IndependenceState, data: Any) -> tuple[IndependenceState, Draws]:
        inner, draws = self.inner.adapt(state.inner, data)
        return state._replace(inner=inner), draws

    def advance(self, state: IndependenceState, data: Any) -> tuple[IndependenceState, Draws]:
        def step(_: Any, state: IndependenceState) -> IndependenceState:
            return self._step(state, data)[0]

        def burn_in(state: IndependenceState) -> IndependenceState:
            return jax.lax.fori_loop(0, INDEPENDENT_BURN_IN, step, state)._replace(burnt_in=jnp.array(True))

        state = jax.lax.cond(state.burnt_in, lambda state: state, burn_in, state)
        state, acceptance_rate = self._step(state, data)
        draws = state.current.position
        stats = {"lp": draws.stats["lp"], "acceptance_rate": acceptance_rate}
        return state, Draws(draws.samples, stats)

    def _step(self, state: IndependenceState, data: Any) -> tuple[IndependenceState, Array]:
        key, step_key = jax.random.split(state.key)
        inner, draws = self.inner.advance(state.inner, data)
        current, info = build_irmh()(
            step_key,
            state.current,
            lambda draws: draws.stats["lp"],
            lambda _: draws,
            lambda _, new: new.position.stats["log_q"],
        )
        return state._replace(current=current, inner=inner, key=key), info.acceptance_rate


def chain_start(key: Array, bound: Bound) -> Array:
    """Flat unconstrained coordinates near the posterior, from which a chain can start.

    Random ones where no gradient leads there.
    """
    if bound.moving or not has_derivatives(bound):
        return ravel_pytree(random_position(key, bound))[0]
    return ravel_pytree(likely_position(key, dict(unconstrained_shapes(bound)), partial(log_posterior, bound)))[0]
