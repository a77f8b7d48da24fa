"""The samplers of Gibbs sampling: a scan of conditionals, alone or beside a block that NUTS moves."""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import numpyro.infer
from jax import Array
from numpyro.infer import CustomGibbs
from numpyro.infer.mcmc import MCMCKernel

from bayeslab.elimination.conditional import Block, Rule
from bayeslab.elimination.sweep import deterministic_values, feasible_point, gibbs_sweep
from bayeslab.elimination.terms import Term, sum_of_terms, terms
from bayeslab.methods.mcmc import kernel_stats, nuts_block_kernel
from bayeslab.programs.program import Bound, Values, evaluate
from bayeslab.sampling.protocols import Draws, Sampler, State, TrialChains
from bayeslab.transforms.draw_checks import Conditionals, conditionals_of_blocks
from bayeslab.transforms.sufficient_statistics.tables import Groups, program_parts, replace_rows

TRIALS = TrialChains(number=4, steps=10)
"""The short chains that a start is chosen from. Without them 13 of 60 chains of a hidden Markov model stayed in a poor
mode."""


class SiteStep(Protocol):
    """A draw of some sites given all others that rests on no conditional in closed form."""

    @property
    def sites(self) -> tuple[str, ...]: ...

    def draw(self, key: Array, log_joint_terms: tuple[Term, ...], bound: Bound, values: Values) -> Values:
        """Values of all sites after the draw."""
        ...


def _sweep(
    key: Array,
    sampler: "SweepSampler | BlockSampler",
    log_joint_terms: tuple[Term, ...],
    bound: Bound,
    values: Values,
) -> Values:
    """Values after every step, and one draw of every block, of a sampler."""
    if sampler.steps:
        steps_key, key = jax.random.split(key)
        step_keys = jax.random.split(steps_key, len(sampler.steps))
        for step, step_key in zip(sampler.steps, step_keys, strict=True):
            values = step.draw(step_key, log_joint_terms, bound, values)
    return gibbs_sweep(key, sampler.blocks, log_joint_terms, bound, values)


class SweepState(NamedTuple):
    """The state of a chain of sweeps."""

    values: Values
    key: Array


@dataclass(frozen=True)
class SweepSampler(Sampler):
    """A systematic scan of conditionals, for programs whose sites all have one.

    blocks: rules of the sites that are drawn jointly, in the order of the scan.
    rules: of every site that has one given all others, in program order. steps: of sites that are drawn another way.
    has_discrete_sites: whether many starts may lead to poor modes.
    """

    blocks: tuple[Block, ...]
    rules: tuple[Rule, ...]
    groups: Groups
    structure: Any
    steps: tuple[SiteStep, ...] = ()
    has_discrete_sites: bool = False

    warmup_draws = prepares = True

    @property
    def statistics(self) -> Groups:
        return self.groups

    def conditionals(self, bound: Bound) -> Conditionals:
        return conditionals_of_blocks(bound, self.blocks)

    def prepare(self, bound: Bound) -> Bound:
        return replace_rows(self.groups, self.rules, bound)

    @property
    def trials(self) -> TrialChains | None:
        return TRIALS if self.has_discrete_sites else None

    def start(self, key: Array, data: Bound) -> SweepState:
        """A random point of finite density."""
        key, start_key = jax.random.split(key)
        return SweepState(feasible_point(start_key, program_parts(data).plain), key)

    def advance(self, state: SweepState, data: Bound) -> tuple[SweepState, Draws]:
        key, sweep_key = jax.random.split(state.key)
        bound, all_terms, tables = program_parts(data)
        known = _sweep(sweep_key, self, all_terms, bound, state.values | tables)
        log_p = sum_of_terms(all_terms, bound, known)
        values = {name: known[name] for name in state.values}
        return SweepState(values, key), Draws(values | deterministic_values(bound, values), {"lp": log_p})


@dataclass(frozen=True)
class BlockSampler(Sampler):
    """One block of sites that are drawn from conditionals and one that NUTS moves, composed by `numpyro.infer.Gibbs`.

    blocks: rules of the first, in the order in which they are drawn. rest: the sites of the second. steps: of
    sites that are drawn another way, which belong to the first.
    """

    blocks: tuple[Block, ...]
    rest: tuple[str, ...]
    structure: Any
    num_warmup: int
    steps: tuple[SiteStep, ...] = ()

    warmup_draws = True

    def conditionals(self, bound: Bound) -> Conditionals:
        return conditionals_of_blocks(bound, self.blocks)

    def start(self, key: Array, bound: Bound) -> State:
        key, start_key = jax.random.split(key)
        values = feasible_point(start_key, bound)
        initial = {name: values[name] for name in self._gibbs_sites}
        return self._kernel(bound).init(key, self.num_warmup, initial, (bound,), {})

    def advance(self, state: State, bound: Bound) -> tuple[State, Draws]:
        kernel = self._kernel(bound)
        initial = {name: state.z[name] for name in self._gibbs_sites}
        kernel.init(jax.random.PRNGKey(0), self.num_warmup, initial, (bound,), {})
        state = kernel.sample(state, (bound,), {})
        values = kernel.postprocess_fn((bound,), {})(state.z)
        latent = {name: values[name] for name in bound.latent}
        log_p = sum_of_terms(terms(bound).terms, bound, latent)
        return state, Draws(values, kernel_stats(state.block_states[1]) | {"lp": log_p})

    @property
    def _gibbs_sites(self) -> list[str]:
        """The sites that are drawn from their conditionals."""
        drawn = [name for block in self.blocks for rule in block for name in rule.sites]
        return [*drawn, *(name for step in self.steps for name in step.sites)]

    def _kernel(self, bound: Bound) -> MCMCKernel:
        """The NumPyro kernel of both blocks."""

        def update(rng_key: Array, gibbs_sites: Values, hmc_sites: Values) -> Values:
            samples = _sweep(rng_key, self, terms(bound).terms, bound, dict(gibbs_sites) | dict(hmc_sites))
            return {name: samples[name] for name in self._gibbs_sites}

        step = nuts_block_kernel(bound, self.rest)(evaluate)
        blocks = [(CustomGibbs(update), self._gibbs_sites), (step, list(self.rest))]
        return (ReplayedGibbs if bound.moving else numpyro.infer.Gibbs)(blocks)


class ReplayedGibbs(numpyro.infer.Gibbs):
    """NumPyro's Gibbs sampling without its refusal of intervals that depend on sites: here these are in the same block,
    and `ReplayedNUTS` runs the program to turn positions into values."""

    @staticmethod
    def _block_trace(model_trace: Any, names: Any) -> dict[str, Any]:
        """No sites, where NumPyro looks for intervals that depend on others."""
        return {}
