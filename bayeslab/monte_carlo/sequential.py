"""Sequential Monte Carlo from the prior to the posterior (Del Moral, Doucet and Jasra 2006, JRSS B 68)."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.smc import ess as effective_size
from blackjax.smc import resampling
from jax import Array
from jax.scipy.special import logsumexp

from bayeslab.methods.setting_checks import require_names, require_positive, require_share
from bayeslab.methods.wrappers.collapsed import collapsed_sampler
from bayeslab.monte_carlo.targets import tempered_target
from bayeslab.monte_carlo.tempering import (
    Population,
    incremental_log_weight,
    moved,
    next_temperature,
    prior_population,
    rescaled,
    verdict_of_temperature,
    walk_factor,
)
from bayeslab.programs.program import Bound
from bayeslab.programs.unconstrained import constrain_flat, flat_log_posterior
from bayeslab.sampling.protocols import Draws, Method, Sampler
from bayeslab.transforms.analysis import Analysis


@dataclass(frozen=True)
class SMC(Method):
    """A population that is taken from the prior to the posterior in steps of a temperature, weighted, resampled and
    moved at each: for posteriors with several modes, and with an estimate of the evidence.

    num_samples: particles, which are the draws. num_chains: populations that know nothing of each other, so that R-hat
    tells whether each has found all modes with their shares.
    ess_share: the next temperature is where the effective sample size of the weights is this share of the particles.
    num_moves: steps of a random walk at every temperature, with the covariance of the population.
    num_temperatures: the most temperatures that are taken; `attrs["converged"]` says whether they were enough.
    collapse: continuous sites to integrate out, as discrete ones always are.
    `attrs` have `log_evidence` and `log_evidence_se`, from the ancestries of the particles (Lee and Whiteley 2018,
    Biometrika 105), for which resampling is multinomial. Temperatures and covariances are those of the population, so
    the evidence is consistent in the number of particles, and not free of bias. Group `history` has the temperatures.
    """

    num_samples: int = 1000
    num_chains: int = 4
    ess_share: float = 0.5
    num_moves: int = 10
    num_temperatures: int = 200
    collapse: tuple[str, ...] = ()

    thinning = 1
    moves_coordinates = True

    def __post_init__(self) -> None:
        require_positive(self, "num_samples", "num_chains", "num_moves", "num_temperatures")
        require_names(self, "collapse")
        require_share(self, "ess_share")

    @property
    def num_warmup(self) -> int:
        return self.num_temperatures

    def plan(self, analysis: Analysis) -> Sampler:
        left = tempered_target(analysis, self)
        return collapsed_sampler(SMCSampler(self.num_samples, self.ess_share, self.num_moves), left, analysis.bound)


class SMCState(NamedTuple):
    """The state of sequential Monte Carlo.

    log_evidence: of the temperature that was reached. num_steps: that led there. made: particles that were handed out.
    """

    population: Population
    log_evidence: Array
    num_steps: Array
    key: Array
    made: Array


@dataclass(frozen=True)
class SMCSampler(Sampler):
    """Steps of temperature, then the particles one after the other: in the order of their ancestors, so that relatives
    stand side by side, and autocorrelation tells of them."""

    num_particles: int
    ess_share: float
    num_moves: int

    continues = False

    def start(self, key: Array, bound: Bound) -> SMCState:
        key, prior_key = jax.random.split(key)
        population, none = prior_population(prior_key, bound, self.num_particles), jnp.zeros((), int)
        return SMCState(population, jnp.zeros_like(population.temperature), none, key, none)

    def adapt(self, state: SMCState, bound: Bound) -> tuple[SMCState, Draws]:
        nothing = jnp.full(3, jnp.nan)
        arrived = state.population.temperature >= 1
        state, told = jax.lax.cond(arrived, lambda s: (s, nothing), lambda s: self._step(s, bound), state)
        history = {"temperature": state.population.temperature, "log_evidence": state.log_evidence}
        history |= {"ess": told[0], "acceptance_rate": told[1], "log_scale": told[2]}
        return state, Draws({}, {}, history | {"converged": state.population.temperature >= 1})

    def advance(self, state: SMCState, bound: Bound) -> tuple[SMCState, Draws]:
        flat = state.population.positions[state.made % self.num_particles]
        draws = Draws(constrain_flat(bound, flat), {"lp": flat_log_posterior(bound, flat)})
        return state._replace(made=state.made + 1), draws

    def run_summary(self, state: SMCState, data: Any) -> dict[str, float]:
        log_evidence, eves = np.asarray(state.log_evidence), np.asarray(state.population.eves)
        num_steps = np.asarray(state.num_steps)
        variances = [relative_variance(*each) for each in zip(eves, num_steps, strict=True)]
        shares = np.exp(log_evidence - log_evidence.max())
        error = np.sqrt(np.sum(shares**2 * np.array(variances))) / shares.sum()
        arrived = (np.asarray(state.population.temperature) >= 1).all()
        return {
            "log_evidence": float(log_evidence.max() + np.log(shares.mean())) if arrived else np.nan,
            "log_evidence_se": float(error) if arrived else np.nan,
            "num_temperatures": float(num_steps.max()),
        }

    def convergence_verdict(self, state: SMCState, data: Any, samples: dict[str, Any]) -> tuple[None, str] | None:
        return verdict_of_temperature(state.population)

    def reweighted(self, state: SMCState) -> tuple[SMCState, Array, Array]:
        """The state at the next temperature, its particles weighted and resampled but not yet moved, Cholesky's factor
        of the steps that suit them, and their effective number before they were resampled."""
        key, resample_key = jax.random.split(state.key)
        old = state.population
        temperature = next_temperature(old, self.ess_share)
        log_weight = old.log_weight + incremental_log_weight(old, temperature)
        log_evidence = state.log_evidence + logsumexp(log_weight) - logsumexp(old.log_weight)
        weighted = old._replace(log_weight=log_weight, temperature=temperature)
        population = self._resampled(resample_key, weighted)
        state = SMCState(population, log_evidence, state.num_steps + 1, key, state.made)
        return state, walk_factor(weighted), effective_size.ess(log_weight)

    def _step(self, state: SMCState, bound: Bound) -> tuple[SMCState, Array]:
        """A step of temperature, and what is told of it: effective sample size, acceptance rate and scale of moves."""
        state, factor, size = self.reweighted(state)
        key, move_key = jax.random.split(state.key)
        population, rates = moved(move_key, bound, state.population, factor, self.num_moves)
        population = rescaled(population, rates.mean())
        told = jnp.stack([size, rates.mean(), population.log_scale])
        return state._replace(population=population, key=key), told

    def _resampled(self, key: Array, weighted: Population) -> Population:
        """The particles in proportion to their weights, which are equal afterwards."""
        ancestors = resampling.multinomial(key, jax.nn.softmax(weighted.log_weight), self.num_particles)
        return weighted._replace(
            positions=weighted.positions[ancestors],
            log_likelihood=weighted.log_likelihood[ancestors],
            eves=weighted.eves[ancestors],
            log_weight=jnp.zeros_like(weighted.log_weight),
        )


def relative_variance(eves: np.ndarray, num_steps: int) -> float:
    """The variance of an estimate of the evidence relative to its square, from the first ancestors of all particles.

    Lee and Whiteley (2018), Biometrika 105, for multinomial resampling in every step; 1 where all have one ancestor.
    """
    number = len(eves)
    counts = np.unique(eves, return_counts=True)[1]
    pairs_apart = 1 - np.sum((counts / number) ** 2)
    if number == 1:
        return 1.0
    return max(float(1 - (number / (number - 1)) ** (num_steps + 1) * pairs_apart), 0.0)
