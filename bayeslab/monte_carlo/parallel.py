"""Parallel tempering: replicas at temperatures from the prior to the posterior that trade places."""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.mcmc.random_walk import RWState
from jax import Array

from bayeslab.methods.setting_checks import require_count, require_names, require_positive
from bayeslab.methods.wrappers.collapsed import collapsed_sampler
from bayeslab.monte_carlo.random_walk import Walk, adapted_walk, first_walk, walk_step
from bayeslab.monte_carlo.targets import flat_prior_draw, log_likelihoods, tempered_target
from bayeslab.monte_carlo.tempering import tempered_log_density
from bayeslab.programs.program import Bound
from bayeslab.programs.unconstrained import constrain_flat, flat_log_posterior, number_or_zero_mass
from bayeslab.sampling.protocols import Draws, Method, Sampler
from bayeslab.transforms.analysis import Analysis

FIRST_POWER = 4.0
"""Temperatures begin as this power of equal steps: near the prior they have to be close."""
SCHEDULE_UPDATES = 0.2, 0.4, 0.7
"""Shares of warm-up after which temperatures are spread anew."""


@dataclass(frozen=True)
class ParallelTempering(Method):
    """Chains at temperatures between prior and posterior that propose to trade places (Geyer 1991), in turns of even
    and odd pairs (Syed et al. 2022, arXiv:1905.02939): what is found near the prior comes to the posterior, so that
    chains visit several modes.

    num_temperatures: replicas of each chain; the first is drawn from the prior anew every time. Warm-up spreads them so
    that neighbours trade equally often.
    num_moves: steps of a random walk, adapted at each temperature, between two trades.
    thinning: keep one draw in so many. collapse: continuous sites to integrate out, as discrete ones always are.
    `attrs` have `log_evidence` from ratios of neighbouring temperatures (stepping stones, Xie et al. 2011) and, of
    several chains, `log_evidence_se` from their differences; and `swap_rate`, the smallest of all pairs.
    """

    num_temperatures: int = 10
    num_moves: int = 5
    num_warmup: int = 500
    num_samples: int = 1000
    num_chains: int = 4
    thinning: int = 1
    collapse: tuple[str, ...] = ()

    moves_coordinates = True

    def __post_init__(self) -> None:
        require_positive(self, "num_temperatures", "num_moves", "num_samples", "num_chains", "thinning")
        require_count(self, "num_warmup")
        require_names(self, "collapse")
        if self.num_temperatures < 2:
            raise ValueError("num_temperatures of ParallelTempering must be 2 or more: the prior and the posterior")

    def plan(self, analysis: Analysis) -> Sampler:
        left = tempered_target(analysis, self)
        sampler = TemperingSampler(self.num_temperatures, self.num_moves, self.num_warmup)
        return collapsed_sampler(sampler, left, analysis.bound)


class TemperingState(NamedTuple):
    """The state of parallel tempering, leaves (temperature, ...).

    positions: flat and unconstrained. log_likelihood: there. walks: of every replica. rejections: running sums of the
    probability that a pair does not trade, and trials, how often it was asked. log_ratio_sums: logs of sums of the
    likelihood to the power of the step of temperature, of num_counted draws after warm-up.
    """

    positions: Array
    log_likelihood: Array
    temperatures: Array
    walks: Walk
    rejections: Array
    trials: Array
    log_ratio_sums: Array
    num_counted: Array
    num_steps: Array
    key: Array


@dataclass(frozen=True)
class TemperingSampler(Sampler):
    """Replicas at all temperatures. A step moves each, and lets neighbours trade places."""

    num_temperatures: int
    num_moves: int
    num_warmup: int

    warmup_draws = True

    def start(self, key: Array, bound: Bound) -> TemperingState:
        key, prior_key = jax.random.split(key)
        keys = jax.random.split(prior_key, self.num_temperatures)
        positions = jax.vmap(lambda key: flat_prior_draw(key, bound))(keys)
        temperatures = jnp.linspace(0.0, 1.0, self.num_temperatures) ** FIRST_POWER
        pairs = jnp.zeros(self.num_temperatures - 1)
        none = jnp.zeros((), int)
        likelihoods = log_likelihoods(bound, positions)
        sums = jnp.full_like(pairs, -jnp.inf)
        walks = jax.vmap(first_walk)(positions)
        return TemperingState(positions, likelihoods, temperatures, walks, pairs, pairs, sums, none, none, key)

    def advance(self, state: TemperingState, bound: Bound) -> tuple[TemperingState, Draws]:
        key, move_key, swap_key = jax.random.split(state.key, 3)
        state, rate = self._moved(move_key, state, bound)
        state = self._counted(state)
        state, swap_rate = self._swapped(swap_key, state)
        state = state._replace(num_steps=state.num_steps + 1, key=key)
        state = self._respaced(state)
        flat = state.positions[-1]
        stats = {"lp": flat_log_posterior(bound, flat), "acceptance_rate": rate, "swap_rate": swap_rate}
        return state, Draws(constrain_flat(bound, flat), stats)

    def run_summary(self, state: TemperingState, data: Any) -> dict[str, float]:
        counted = np.asarray(state.num_counted)[:, None]
        log_evidence = np.sum(np.asarray(state.log_ratio_sums) - np.log(counted), axis=1)
        shares = np.exp(log_evidence - log_evidence.max())
        number = len(shares)
        error = {"log_evidence_se": float(shares.std(ddof=1) / shares.mean() / np.sqrt(number))} if number > 1 else {}
        rejected = np.asarray(state.rejections).sum(0) / np.maximum(np.asarray(state.trials).sum(0), 1)
        evidence = {"log_evidence": float(log_evidence.max() + np.log(shares.mean()))} | error
        return evidence | {"swap_rate": float(1 - rejected.max())}

    def _moved(self, key: Array, state: TemperingState, bound: Bound) -> tuple[TemperingState, Array]:
        """Every replica after random walks at its temperature, the first drawn anew; the acceptance rate of the
        last."""
        adapting = state.num_steps < self.num_warmup
        prior_key, walk_key = jax.random.split(key)

        def walk_replica(key: Array, position: Array, temperature: Array, walk: Walk) -> tuple[Array, Walk, Array]:
            log_density = partial(tempered_log_density, bound, temperature)

            def step(carry: tuple[RWState, Walk], key: Array) -> tuple[tuple[RWState, Walk], Array]:
                current, walk = carry
                current, info = walk_step(key, current, log_density, walk.factor)
                walk = adapted_walk(walk, current.position, info.acceptance_rate, adapting)
                return (current, walk), info.acceptance_rate

            first = (RWState(position, log_density(position)), walk)
            (current, walk), rates = jax.lax.scan(step, first, jax.random.split(key, self.num_moves))
            return current.position, walk, rates.mean()

        keys = jax.random.split(walk_key, self.num_temperatures)
        positions, walks, rates = jax.vmap(walk_replica)(keys, state.positions, state.temperatures, state.walks)
        positions = positions.at[0].set(flat_prior_draw(prior_key, bound))
        likelihoods = log_likelihoods(bound, positions)
        return state._replace(positions=positions, log_likelihood=likelihoods, walks=walks), rates[-1]

    def _counted(self, state: TemperingState) -> TemperingState:
        """With the ratios of neighbouring temperatures counted, after warm-up."""
        after = state.num_steps >= self.num_warmup
        log_ratios = jnp.diff(state.temperatures) * state.log_likelihood[:-1]
        sums = jnp.where(after, jnp.logaddexp(state.log_ratio_sums, log_ratios), state.log_ratio_sums)
        return state._replace(log_ratio_sums=sums, num_counted=state.num_counted + after)

    def _swapped(self, key: Array, state: TemperingState) -> tuple[TemperingState, Array]:
        """With even or odd pairs in each other's place, where that is accepted; the mean acceptance of those."""
        pairs = jnp.arange(self.num_temperatures - 1)
        asked = pairs % 2 == state.num_steps % 2
        log_ratio = jnp.diff(state.temperatures) * -jnp.diff(state.log_likelihood)
        accept_prob = jnp.exp(jnp.minimum(number_or_zero_mass(log_ratio), 0.0))
        trades = asked & (jax.random.uniform(key, pairs.shape) < accept_prob)
        places = jnp.arange(self.num_temperatures)
        places = places + jnp.pad(trades.astype(int), (0, 1)) - jnp.pad(trades.astype(int), (1, 0))
        state = state._replace(
            positions=state.positions[places],
            log_likelihood=state.log_likelihood[places],
            rejections=state.rejections + jnp.where(asked, 1 - accept_prob, 0.0),
            trials=state.trials + asked,
        )
        return state, jnp.sum(jnp.where(asked, accept_prob, 0.0)) / jnp.maximum(asked.sum(), 1)

    def _respaced(self, state: TemperingState) -> TemperingState:
        """With temperatures at which neighbours trade equally often, a few times in warm-up; counts begin anew
        there."""
        moments = jnp.array([int(share * self.num_warmup) for share in SCHEDULE_UPDATES])
        due = jnp.any(state.num_steps == moments) & (state.num_steps > 1)
        rates = jnp.maximum(state.rejections / jnp.maximum(state.trials, 1), 1e-3)
        barrier = jnp.concatenate([jnp.zeros(1), jnp.cumsum(rates)])
        even = jnp.linspace(0.0, barrier[-1], self.num_temperatures)
        spread = jnp.interp(even, barrier, state.temperatures).at[0].set(0.0).at[-1].set(1.0)
        fresh = due | (state.num_steps == self.num_warmup)
        return state._replace(
            temperatures=jnp.where(due, spread, state.temperatures),
            rejections=jnp.where(fresh, 0.0, state.rejections),
            trials=jnp.where(fresh, 0.0, state.trials),
        )
