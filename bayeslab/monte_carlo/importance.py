"""Importance sampling and its resampling.

Draws z_1, ..., z_N of a proposal q get weights p(z, y) / q(z). Their mean estimates the evidence without bias;
normalised, they turn draws of q into draws of the posterior. The weights are kept beside the result, in group
`weighted_posterior`; the draws of group `posterior` have equal weights, resampled from them, so that every statistic of
them is one of the posterior. A draw that was taken several times stands there as often in a row, as in a Markov chain
that stays where it is, so that the effective sample sizes and the Monte Carlo errors of ArviZ count it once.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.diagnostics import psis_weights
from blackjax.smc import resampling
from jax import Array

from bayeslab.diagnostics.pareto_tail import pareto_tail
from bayeslab.methods.setting_checks import require_positive
from bayeslab.monte_carlo.proposals import ProposalWrapper, TakesProposal, proposal_sampler
from bayeslab.programs.unconstrained import number_or_zero_mass
from bayeslab.sampling.protocols import Draws, Method, Sampler, State
from bayeslab.transforms.analysis import Analysis

Resampling = Callable[[Array, Array, int], Array]


@dataclass(frozen=True)
class ImportanceSampling(TakesProposal, Method):
    """Weighted draws of a proposal: the evidence with its error, and expectations under the posterior.

    proposal: a method that says its own density, as `SVI()` with any guide, `Laplace()` or `MeanField()`, which is
    fitted first; or a result of `fit` by any method, whose draws are smoothed into a mixture of Student t; by default
    the prior.
    num_samples: draws of the proposal, and as many that are resampled from them, systematically.

    The weights are smoothed by a generalised Pareto distribution (Vehtari et al. 2024, arXiv:1507.02646), but for the
    evidence, which has the weights as they are and so no bias. `attrs` have `log_evidence`, `log_evidence_se`, `k_hat`,
    which above 0.7 says that the weights have no mean that these draws could tell, and `importance_ess`. None of them
    tells of a mode that no draw of the proposal has reached; the prior as the proposal, or `SMC`, does.
    Discrete sites are summed over; those that cannot be are drawn from the prior, where that is the proposal.
    """

    num_samples: int = 10_000

    num_chains = 1
    thinning = 1

    def __post_init__(self) -> None:
        require_positive(self, "num_samples")
        super().__post_init__()

    @property
    def num_warmup(self) -> int:
        return 1 + self.num_fit_steps

    def plan(self, analysis: Analysis) -> Sampler:
        inner = proposal_sampler(analysis, self)
        return WeightedSampler(inner, self.num_warmup, self.num_samples, self.num_samples, resampling.systematic, True)


@dataclass(frozen=True)
class SIR(TakesProposal, Method):
    """Sampling importance resampling (Rubin 1988): a few draws out of many of a proposal, each with a probability in
    proportion to its weight.

    proposal: as of `ImportanceSampling`. num_proposals: many more than num_samples, so that few are taken twice.
    The weights are those of the ratio, not smoothed. `attrs` are those of `ImportanceSampling`.
    """

    num_proposals: int = 20_000
    num_samples: int = 1000

    num_chains = 1
    thinning = 1

    def __post_init__(self) -> None:
        require_positive(self, "num_samples", "num_proposals")
        super().__post_init__()

    @property
    def num_warmup(self) -> int:
        return 1 + self.num_fit_steps

    def plan(self, analysis: Analysis) -> Sampler:
        inner = proposal_sampler(analysis, self)
        return WeightedSampler(
            inner, self.num_warmup, self.num_proposals, self.num_samples, resampling.multinomial, False
        )


class WeightedState(NamedTuple):
    """The state of weighted sampling.

    inner: of the proposal. num_steps: of its fit. converged: whether that fit has. filled: whether the draws below are
    made.
    draws: of the proposal (proposal, *site). lp, log_ratio: their log joint, and that minus their log density
    (proposal,). log_weight: of the draws, normalised. ancestors: the draws that were resampled (sample,).
    made: how many of these were handed out.
    """

    inner: State
    key: Array
    num_steps: Array
    converged: Array
    filled: Array
    draws: dict[str, Array]
    lp: Array
    log_ratio: Array
    log_weight: Array
    ancestors: Array
    made: Array


@dataclass(frozen=True)
class WeightedSampler(ProposalWrapper):
    """Draws of a proposal, weighted and resampled at once when the proposal is fitted; then handed out one by one."""

    num_steps: int
    num_proposals: int
    num_samples: int
    resample: Resampling
    smooth: bool

    continues = False
    warmup_draws = False

    def start(self, key: Array, data: Any) -> WeightedState:
        key, inner_key = jax.random.split(key)
        inner = self.inner.start(inner_key, data)
        shapes = jax.eval_shape(self.inner.advance, inner, data)[1].samples
        draws = {n: jnp.zeros((self.num_proposals, *shape.shape), shape.dtype) for n, shape in shapes.items()}
        number, none = jnp.zeros(self.num_proposals), jnp.zeros((), jnp.int32)
        taken = jnp.zeros(self.num_samples, jnp.int32)
        no = jnp.array(False)
        return WeightedState(inner, key, none, no, no, draws, number, number, number, taken, none)

    def adapt(self, state: WeightedState, data: Any) -> tuple[WeightedState, Draws]:
        """One step of the fit of the proposal; once that has converged, or is out of steps, all draws."""
        shapes = jax.eval_shape(self.inner.adapt, state.inner, data)[1].history

        nothing = {name: jnp.full(shape.shape, jnp.nan).astype(shape.dtype) for name, shape in shapes.items()}

        def fit_step(state: WeightedState) -> tuple[WeightedState, dict[str, Array]]:
            inner, draws = self.inner.adapt(state.inner, data)
            converged = jnp.all(jnp.asarray(draws.history.get("converged", False)))
            return state._replace(inner=inner, num_steps=state.num_steps + 1, converged=converged), draws.history

        def fill(state: WeightedState) -> tuple[WeightedState, dict[str, Array]]:
            return self._filled(state, data), nothing

        def stay(state: WeightedState) -> tuple[WeightedState, dict[str, Array]]:
            return state, nothing

        if self.num_steps == 1:
            state, _ = jax.lax.cond(state.filled, stay, fill, state)
            return state, Draws({})
        ready = state.converged | (state.num_steps >= self.num_steps - 1)
        choice = jnp.where(state.filled, 2, jnp.where(ready, 1, 0))
        state, history = jax.lax.switch(choice, [fit_step, fill, stay], state)
        if "converged" in history:  # runners stop there, so it waits for the draws
            history |= {"converged": (state.filled & state.converged).astype(shapes["converged"].dtype)}
        return state, Draws({}, {}, history)

    def advance(self, state: WeightedState, data: Any) -> tuple[WeightedState, Draws]:
        index = state.ancestors[state.made % self.num_samples]
        samples = {name: value[index] for name, value in state.draws.items()}
        return state._replace(made=state.made + 1), Draws(samples, {"lp": state.lp[index]})

    def run_summary(self, state: WeightedState, data: Any) -> dict[str, float]:
        size = float(np.max(np.abs(state.lp[np.isfinite(state.lp)]), initial=1.0))
        return summary_of_weights(np.asarray(state.log_ratio)[0], np.asarray(state.log_weight)[0], size)

    def weighted_draws(self, state: WeightedState, data: Any) -> dict[str, Any]:
        return {**state.draws, "log_weight": state.log_weight}

    def _filled(self, state: WeightedState, data: Any) -> WeightedState:
        """The state with all draws of the proposal, their weights and what was resampled."""

        def draw(inner: State, _: None) -> tuple[State, tuple[dict[str, Array], Array, Array]]:
            inner, draws = self.inner.advance(inner, data)
            return inner, (draws.samples, draws.stats["lp"], draws.stats["log_q"])

        key, resample_key = jax.random.split(state.key)
        inner, (draws, lp, log_q) = jax.lax.scan(draw, state.inner, length=self.num_proposals)
        log_ratio = number_or_zero_mass(lp - log_q)
        log_weight = psis_weights(log_ratio)[0] if self.smooth else jax.nn.log_softmax(log_ratio)
        ancestors = self.resample(resample_key, jnp.exp(log_weight), self.num_samples)
        return state._replace(
            inner=inner,
            key=key,
            filled=jnp.array(True),
            draws=draws,
            lp=lp,
            log_ratio=log_ratio,
            log_weight=log_weight,
            ancestors=ancestors.astype(jnp.int32),
        )


def summary_of_weights(log_ratio: np.ndarray, log_weight: np.ndarray, size: float) -> dict[str, float]:
    """What weights say of the run: the evidence, how heavy their tail is, and how many equal ones they are worth.

    log_ratio: log p(z, y) - log q(z). log_weight: of the draws, whose sum need not be one. size: of the log densities
    that the ratios are differences of, which rounding is relative to.
    """
    log_evidence, error = evidence_of_ratios(log_ratio)
    shares = np.exp(log_weight - log_weight.max())
    return {
        "log_evidence": log_evidence,
        "log_evidence_se": error,
        "k_hat": pareto_tail(log_ratio, size)[0],
        "importance_ess": float(shares.sum() ** 2 / (shares**2).sum()),
    }


def evidence_of_ratios(log_ratio: np.ndarray) -> tuple[float, float]:
    """The log of the mean of independent ratios p(z, y) / q(z), and its standard error by the delta method."""
    largest = np.max(log_ratio)
    if not np.isfinite(largest):
        return -np.inf, np.nan
    ratios = np.exp(log_ratio - largest)
    error = ratios.std(ddof=1) / ratios.mean() / np.sqrt(ratios.size) if ratios.size > 1 else np.nan
    return float(largest + np.log(ratios.mean())), float(error)
