"""Gibbs sampling: sites with a conditional in closed form are drawn from it, the others by NUTS."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro.infer
from jax import Array
from numpyro.infer import CustomGibbs
from numpyro.infer.mcmc import MCMCKernel

from bayeslab.elimination.conditional import Block, Rule
from bayeslab.elimination.sweep import computed, somewhere, sweep
from bayeslab.elimination.terms import terms, total
from bayeslab.methods.mcmc import block_kernel, kernel_stats
from bayeslab.methods.setting_checks import require_blocks, require_count, require_positive
from bayeslab.programs.program import Bound, Values, evaluate, structure
from bayeslab.sampling.protocols import Draws, Sampler, State
from bayeslab.transforms.analysis import Analysis
from bayeslab.transforms.draw_checks import Conditionals, conditionals
from bayeslab.transforms.tables import Group, Groups, pieces, summarised
from bayeslab.verification.ordering import blocked

TRIALS, TRIAL_SWEEPS = 4, 10
"""Short chains to choose a start from. Without them 13 of 60 chains of a hidden Markov model stayed in a poor mode."""


@dataclass(frozen=True)
class Gibbs:
    """Draw every site in turn from its conditional given all others; what has none in closed form gets a NUTS step.

    The conditionals are found and proven by the laboratory; `explain` shows them. Discrete sites are enumerated, all
    elements of a plate at once. Scalar sites whose terms are replaced by sufficient statistics are drawn jointly where
    they can be, the last eliminated first, and then the others given it. With discrete sites, which are drawn first, a
    chain starts where the best of a few short ones has come: in mixtures and hidden chains many points lead to poor
    modes.
    thinning: keep one draw in so many.
    joint: blocks of sites to be drawn jointly besides, such as (("tau", "mu"),).
    """

    num_warmup: int = 200
    num_samples: int = 1000
    num_chains: int = 4
    thinning: int = 1
    joint: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        require_positive(self, "num_samples", "num_chains", "thinning")
        require_count(self, "num_warmup")
        require_blocks(self, "joint")

    def plan(self, analysis: Analysis) -> "SweepSampler | BlockSampler":
        bound = analysis.bound
        if not bound.latent:
            raise ValueError("every site of the program is observed: there is nothing to infer")
        rest = [one for one in analysis.findings if one.rule is None]
        for one in rest:
            if bound.sites[one.site].is_discrete:
                raise ValueError(f"site '{one.site}' is discrete and cannot be enumerated: {one.reason}")
        rules = analysis.rules
        if not rules:
            reasons = "; ".join(f"site '{one.site}': {one.reason}" for one in rest)
            raise ValueError(f"no site has a conditional in closed form ({reasons}); use NUTS()")
        joint = analysis.joint_blocks(self.joint)
        if rest:
            left, moved = _with_movers(bound, rules, [one.site for one in rest])
            if not left or {rule.site for block in joint for rule in block} & set(moved):
                raise ValueError(
                    f"{moved} have to be moved together, since coordinates of one depend on others; use NUTS()"
                )
            return BlockSampler(blocked(joint, left), tuple(moved), structure(bound), self.num_warmup)
        groups = analysis.groups
        asked = {rule.site for block in joint for rule in block}
        for group in (group for group in groups if isinstance(group, Group)):
            sites = [rule.site for rule in group.rules]
            scalar = all(bound.sites[rule.site].event_dim == 0 and not rule.coupled for rule in group.rules)
            if len(sites) > 1 and scalar and asked.isdisjoint(sites):
                with suppress(ValueError):
                    joint.append(analysis.order(sites))
        blocks = blocked(joint, rules)
        blocks = tuple(sorted(blocks, key=lambda block: not any(bound.sites[rule.site].is_discrete for rule in block)))
        return SweepSampler(blocks, rules, groups, structure(bound))


def _with_movers(bound: Bound, rules: tuple[Rule, ...], rest: list[str]) -> tuple[tuple[Rule, ...], list[str]]:
    """Conditionals, and the sites of the block by NUTS: with a site whose coordinates move, those that move them.

    Raises ValueError where a discrete site does.
    """
    moving = set(bound.moving) & set(rest)
    movers = [rule for rule in rules if moving & set(rule.children)]
    for rule in movers:
        if bound.sites[rule.site].is_discrete:
            raise ValueError(f"the coordinates of {sorted(moving)} depend on site '{rule.site}', which is discrete")
    if not movers:
        return rules, rest
    left = tuple(rule for rule in rules if rule not in movers)
    return _with_movers(bound, left, [*rest, *(rule.site for rule in movers)])


class Sweep(NamedTuple):
    values: Values
    key: Array


@dataclass(frozen=True)
class SweepSampler(Sampler):
    """Every site has a conditional. rules: of every site given all others, in program order."""

    blocks: tuple[Block, ...]
    rules: tuple[Rule, ...]
    groups: Groups
    structure: Any

    warmup_draws = prepares = True

    @property
    def statistics(self) -> Groups:
        return self.groups

    def conditionals(self, bound: Bound) -> Conditionals:
        return conditionals(bound, self.blocks)

    def prepare(self, bound: Bound) -> Bound:
        return summarised(self.groups, self.rules, bound)

    def start(self, key: Array, data: Bound) -> Sweep:
        """Anywhere, or with discrete sites where the best of a few short chains has come."""
        if not any(data.plain.sites[name].is_discrete for name in data.plain.latent):
            return self._anywhere(key, data)

        def step(state: Sweep, _: None) -> tuple[Sweep, Array]:
            state, draws = self.advance(state, data)
            return state, draws.stats["lp"]

        def trial(key: Array) -> tuple[Sweep, Array]:
            state, log_joint = jax.lax.scan(step, self._anywhere(key, data), None, TRIAL_SWEEPS)
            return state, jnp.nan_to_num(log_joint[-1], nan=-jnp.inf)

        states, log_joint = jax.lax.map(trial, jax.random.split(key, TRIALS))
        return jax.tree.map(lambda leaf: leaf[jnp.argmax(log_joint)], states)

    def _anywhere(self, key: Array, data: Bound) -> Sweep:
        key, here = jax.random.split(key)
        return Sweep(somewhere(here, data.plain), key)

    def advance(self, state: Sweep, data: Bound) -> tuple[Sweep, Draws]:
        key, now = jax.random.split(state.key)
        bound, of, tables = pieces(data)
        known = sweep(now, self.blocks, of, bound, state.values | tables)
        log_p = total(of, bound, known)
        values = {name: known[name] for name in state.values}
        return Sweep(values, key), Draws(values | computed(bound, values), {"lp": log_p})


@dataclass(frozen=True)
class BlockSampler(Sampler):
    """One block of conditionals, one of NUTS, composed by `numpyro.infer.Gibbs`."""

    blocks: tuple[Block, ...]
    rest: tuple[str, ...]
    structure: Any
    num_warmup: int

    warmup_draws = True

    def conditionals(self, bound: Bound) -> Conditionals:
        return conditionals(bound, self.blocks)

    def start(self, key: Array, bound: Bound) -> State:
        key, now = jax.random.split(key)
        values = somewhere(now, bound)
        first = {name: values[name] for name in self._mine}
        return self._kernel(bound).init(key, self.num_warmup, first, (bound,), {})

    def advance(self, state: State, bound: Bound) -> tuple[State, Draws]:
        kernel = self._kernel(bound)
        first = {name: state.z[name] for name in self._mine}
        kernel.init(jax.random.PRNGKey(0), self.num_warmup, first, (bound,), {})
        state = kernel.sample(state, (bound,), {})
        values = kernel.postprocess_fn((bound,), {})(state.z)
        latent = {name: values[name] for name in bound.latent}
        log_p = total(terms(bound).terms, bound, latent)
        return state, Draws(values, kernel_stats(state.block_states[1]) | {"lp": log_p})

    @property
    def _mine(self) -> list[str]:
        return [rule.site for block in self.blocks for rule in block]

    def _kernel(self, bound: Bound) -> MCMCKernel:
        def update(rng_key: Array, gibbs_sites: Values, hmc_sites: Values) -> Values:
            drawn = sweep(rng_key, self.blocks, terms(bound).terms, bound, dict(gibbs_sites) | dict(hmc_sites))
            return {name: drawn[name] for name in self._mine}

        step = block_kernel(bound, self.rest)(evaluate)
        blocks = [(CustomGibbs(update), self._mine), (step, list(self.rest))]
        return numpyro.infer.Gibbs(blocks)
