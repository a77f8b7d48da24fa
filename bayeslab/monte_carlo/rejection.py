"""Rejection sampling: independent draws of the posterior itself, where a bound of the ratio to a proposal is known."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bayeslab.methods.laplace import lbfgs_start, lbfgs_step
from bayeslab.methods.setting_checks import require_positive
from bayeslab.methods.wrappers.collapsed import collapsed_sampler
from bayeslab.monte_carlo.fitted_draws import FittedDraws, KernelMixture
from bayeslab.monte_carlo.proposals import (
    KernelMixtureSampler,
    ProposalWrapper,
    TakesProposal,
    density_proposal,
    proposal_sampler,
)
from bayeslab.monte_carlo.targets import flat_densities, flat_prior_draw
from bayeslab.programs.program import Bound
from bayeslab.programs.unconstrained import flat_log_posterior
from bayeslab.sampling.protocols import Draws, Method, Sampler, State
from bayeslab.transforms.analysis import Analysis

NUM_STARTS = 20
"""Draws of the proposal from which the largest ratio is searched."""
MAX_STEPS = 200
"""Steps of the search."""
MARGIN = 1e-6
"""What a bound that was found is raised by, in nats: where a search stops, rounding remains."""


ROUNDING = 16
"""Units in the last place by which a ratio may be above a bound that it equals."""


@dataclass(frozen=True)
class RejectionSampling(TakesProposal, Method):
    """Draw z of a proposal q and keep it with probability p(z, y) / (M q(z)): draws of the posterior, independent.

    proposal: the prior by default, or a result of `fit`, whose draws are smoothed (`ImportanceSampling`); with a
    `log_bound`, also a method that says its density.
    log_bound: log M, for which p(z, y) <= M q(z) must hold everywhere. By default it is searched by L-BFGS from twenty
    draws of the proposal, which needs continuous sites (discrete ones are summed over).
    max_proposals: proposals for one draw, at most.
    `attrs` have `log_evidence`, which is log M plus the log of the share that was kept, with its error, and
    `acceptance_rate`. Raises ValueError where a proposal lies above the bound, as then the draws are not of the
    posterior; where no maximum was found; and where a draw has used up its proposals.
    """

    log_bound: float | None = None
    num_samples: int = 1000
    max_proposals: int = 100_000

    num_chains = 1
    thinning = 1

    def __post_init__(self) -> None:
        require_positive(self, "num_samples", "max_proposals")
        super().__post_init__()

    @property
    def num_warmup(self) -> int:
        return MAX_STEPS if self.log_bound is None else self.num_fit_steps

    def plan(self, analysis: Analysis) -> Sampler:
        if self.log_bound is not None:
            return RejectionSampler(proposal_sampler(analysis, self), self.max_proposals, float(self.log_bound))
        if not (self.proposal is None or isinstance(self.proposal, FittedDraws)):
            name = type(self.proposal).__name__
            raise ValueError(
                f"the ratio to {name} is known at its own draws alone, so give RejectionSampling a log_bound"
            )
        left, base = density_proposal(analysis, self)
        if discrete := [name for name in left.latent if left.sites[name].is_discrete]:
            raise ValueError(
                f"no bound can be searched over {discrete}, which are discrete and cannot be summed over; "
                "give log_bound"
            )
        mixture = base.mixture if isinstance(base, KernelMixtureSampler) else None
        return collapsed_sampler(RejectionSampler(base, self.max_proposals, None, mixture), left, analysis.bound)


class RejectionState(NamedTuple):
    """The state of rejection sampling.

    searches: for the largest ratio, from all starts; none where the bound was given. converged: whether all have.
    log_bound: in use. highest: the largest ratio among the proposals. num_proposals, num_accepted: so far.
    failed: whether a draw has used up its proposals, after which no more are tried.
    """

    inner: State
    key: Array
    searches: Any
    converged: Array
    log_bound: Array
    highest: Array
    num_proposals: Array
    num_accepted: Array
    failed: Array


@dataclass(frozen=True)
class RejectionSampler(ProposalWrapper):
    """Proposals, and the bound of their ratio. log_bound: None where it is searched. mixture: of the proposal; the
    prior is the proposal where there is none."""

    max_proposals: int
    log_bound: float | None
    mixture: KernelMixture | None = None

    warmup_draws = False

    def start(self, key: Array, data: Any) -> RejectionState:
        key, inner_key, search_key = jax.random.split(key, 3)
        searches: Any = ()
        log_bound: Any = self.log_bound
        if log_bound is None:
            keys = jax.random.split(search_key, NUM_STARTS)
            points = jax.vmap(lambda key: self._flat_draw(key, data))(keys)
            searches, log_bound = jax.vmap(lbfgs_start)(keys, points), -jnp.inf
        none = jnp.zeros((), int)
        lowest = jnp.asarray(-jnp.inf, jnp.result_type(float))
        inner = self.inner.start(inner_key, data)
        no, bound_so_far = jnp.array(False), jnp.full_like(lowest, log_bound)
        return RejectionState(inner, key, searches, no, bound_so_far, lowest, none, none, no)

    def adapt(self, state: RejectionState, data: Any) -> tuple[RejectionState, Draws]:
        """One step of all searches, or of the fit of the proposal where the bound is given."""
        if self.log_bound is not None:
            inner, draws = self.inner.adapt(state.inner, data)
            return state._replace(inner=inner), draws

        def step(state: RejectionState) -> RejectionState:
            searches, _ = jax.vmap(partial(lbfgs_step, lambda flat: self._log_ratio(data, flat)))(state.searches)
            log_bound = jnp.max(-searches.loss) + MARGIN
            return state._replace(searches=searches, log_bound=log_bound, converged=jnp.all(searches.converged))

        state = jax.lax.cond(state.converged, lambda s: s, step, state)
        return state, Draws({}, {}, {"log_joint": state.log_bound, "converged": state.converged})

    def advance(self, state: RejectionState, data: Any) -> tuple[RejectionState, Draws]:
        def propose(carry: Any) -> Any:
            inner, key, highest, count, _, _ = carry
            key, accept_key = jax.random.split(key)
            inner, draws = self.inner.advance(inner, data)
            ratio = draws.stats["lp"] - draws.stats["log_q"] - state.log_bound
            taken = self._accepts(jax.random.uniform(accept_key), ratio)
            return inner, key, jnp.fmax(highest, ratio), count + 1, taken, draws

        nothing = jax.tree.map(
            lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(self.inner.advance, state.inner, data)[1]
        )
        first = (
            state.inner,
            state.key,
            jnp.full_like(state.highest, -jnp.inf),
            jnp.zeros((), int),
            jnp.array(False),
            nothing,
        )
        going: Callable[[Any], Array] = lambda carry: ~carry[4] & ~state.failed & (carry[3] < self.max_proposals)  # noqa: E731
        inner, key, highest, count, taken, draws = jax.lax.while_loop(going, propose, first)
        state = state._replace(
            inner=inner,
            key=key,
            highest=jnp.fmax(state.highest, highest),
            num_proposals=state.num_proposals + count,
            num_accepted=state.num_accepted + taken,
            failed=state.failed | ~taken,
        )
        stats = {"lp": draws.stats["lp"], "above_bound": highest, "accepted": taken}
        return state, Draws(draws.samples, stats)

    def check_draws(self, bound: Bound, draws: Draws) -> None:
        above, accepted = (np.asarray(draws.stats.pop(name)) for name in ("above_bound", "accepted"))
        if not np.isfinite(above).any():
            raise ValueError(
                "no proposal of rejection sampling has a finite ratio to a finite bound, so none was found; the ratio "
                "has no maximum, or the proposal misses the posterior"
            )
        log_joint = np.asarray(draws.stats["lp"])
        size = np.max(abs(log_joint[np.isfinite(log_joint)]), initial=1.0)
        if (largest := float(above.max())) > MARGIN + ROUNDING * size * np.finfo(log_joint.dtype).eps:
            given = "the log_bound that was given" if self.log_bound is not None else "the bound that was found"
            raise ValueError(
                f"the ratio of posterior to proposal is {largest:.3g} nats above {given} at a draw, so the draws would "
                "not be of the posterior; give a larger log_bound"
            )
        if not accepted.all():
            raise ValueError(
                f"a draw of rejection sampling used up its {self.max_proposals:,} proposals; take a proposal closer to "
                "the posterior, such as the result of another method"
            )

    def run_summary(self, state: RejectionState, data: Any) -> dict[str, float]:
        accepted, proposals = (float(np.asarray(n)[0]) for n in (state.num_accepted, state.num_proposals))
        rate = accepted / proposals
        return {
            "log_bound": float(np.asarray(state.log_bound)[0]),
            "acceptance_rate": rate,
            "log_evidence": float(np.asarray(state.log_bound)[0]) + float(np.log(rate)),
            "log_evidence_se": float(np.sqrt((1 - rate) / accepted)),
        }

    def convergence_verdict(self, state: RejectionState, data: Any, samples: dict[str, Any]) -> None:
        """Raises ValueError where the largest ratio that was found still rises."""
        if self.log_bound is None:
            best = np.nanargmin(np.asarray(state.searches.loss))
            if not np.asarray(state.searches.converged)[best]:
                raise ValueError(
                    f"the ratio of posterior to proposal still rises after {MAX_STEPS} steps of the search for its "
                    "bound, so none was found; give log_bound, or a proposal with heavier tails"
                )

    def _accepts(self, uniform: Array, log_ratio: Array) -> Array:
        """Whether a proposal is kept. log_ratio: of posterior and proposal, without the bound."""
        return jnp.log(uniform) < log_ratio

    def _flat_draw(self, key: Array, bound: Bound) -> Array:
        return flat_prior_draw(key, bound) if self.mixture is None else self.mixture.draw(key)

    def _log_ratio(self, bound: Bound, flat: Array) -> Array:
        """log p(z, y) - log q(z) at unconstrained coordinates."""
        if self.mixture is None:
            return flat_densities(bound, flat).likelihood
        return flat_log_posterior(bound, flat) - self.mixture.log_density(flat)
