"""Gibbs sampling: sites with a conditional in closed form are drawn from it, the others by NUTS."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro.infer
from jax import Array
from numpyro.handlers import seed, substitute, trace
from numpyro.infer import CustomGibbs
from numpyro.infer.mcmc import MCMCKernel

from bayeslab.draws import Draws, State
from bayeslab.elimination import Rule, conditional
from bayeslab.methods.mcmc import DENSE_UP_TO, NUTSKernel, kernel_stats
from bayeslab.methods.settings import require_count, require_positive
from bayeslab.program import Bound, Values, evaluate, feasible, structure
from bayeslab.proof import find_all
from bayeslab.terms import terms


@dataclass(frozen=True)
class Gibbs:
    """Draw every site in turn from its conditional given all others; what has none in closed form gets a NUTS step.

    The conditionals are found and proven by the laboratory; `explain` shows them. Discrete sites are enumerated, all
    elements of a plate at once.
    thinning: keep one draw in so many.
    """

    num_warmup: int = 200
    num_samples: int = 1000
    num_chains: int = 4
    thinning: int = 1

    def __post_init__(self) -> None:
        require_positive(self, "num_samples", "num_chains", "thinning")
        require_count(self, "num_warmup")

    def plan(self, bound: Bound) -> "SweepSampler | BlockSampler":
        if not bound.latent:
            raise ValueError("every site of the program is observed: there is nothing to infer")
        found = find_all(bound)
        rest = [one for one in found if one.rule is None]
        for one in rest:
            if bound.sites[one.site].is_discrete:
                raise ValueError(f"site '{one.site}' is discrete and cannot be enumerated: {one.reason}")
        rules = tuple(one.rule for one in found if one.rule is not None)
        if not rules:
            reasons = "; ".join(f"site '{one.site}': {one.reason}" for one in rest)
            raise ValueError(f"no site has a conditional in closed form ({reasons}); use NUTS()")
        if not rest:
            return SweepSampler(rules, structure(bound))
        return BlockSampler(rules, tuple(one.site for one in rest), structure(bound), self.num_warmup)


class Sweep(NamedTuple):
    values: Values
    key: Array


@dataclass(frozen=True)
class SweepSampler:
    """Every site has a conditional. rules: in program order."""

    rules: tuple[Rule, ...]
    structure: Any

    def start(self, key: Array, bound: Bound) -> Sweep:
        key, now = jax.random.split(key)
        return Sweep(_somewhere(now, bound), key)

    def advance(self, state: Sweep, bound: Bound) -> tuple[Sweep, Draws]:
        key, now = jax.random.split(state.key)
        values = sweep(now, self.rules, bound, state.values)
        log_p = sum((term.density(bound, values).sum() for term in terms(bound).terms), jnp.zeros(()))
        return Sweep(values, key), Draws(values | _computed(bound, values), {"lp": log_p})

    adapt = advance


@dataclass(frozen=True)
class BlockSampler:
    """One block of conditionals, one of NUTS, composed by `numpyro.infer.Gibbs`."""

    rules: tuple[Rule, ...]
    rest: tuple[str, ...]
    structure: Any
    num_warmup: int

    def start(self, key: Array, bound: Bound) -> State:
        key, now = jax.random.split(key)
        values = _somewhere(now, bound)
        first = {rule.site: values[rule.site] for rule in self.rules}
        return self._kernel(bound).init(key, self.num_warmup, first, (bound,), {})

    def advance(self, state: State, bound: Bound) -> tuple[State, Draws]:
        kernel = self._kernel(bound)
        first = {rule.site: state.z[rule.site] for rule in self.rules}
        kernel.init(jax.random.PRNGKey(0), self.num_warmup, first, (bound,), {})
        state = kernel.sample(state, (bound,), {})
        values = kernel.postprocess_fn((bound,), {})(state.z)
        latent = {name: values[name] for name in bound.latent}
        log_p = sum((term.density(bound, latent).sum() for term in terms(bound).terms), jnp.zeros(()))
        return state, Draws(values, kernel_stats(state.block_states[1]) | {"lp": log_p})

    adapt = advance

    def _kernel(self, bound: Bound) -> MCMCKernel:
        def update(rng_key: Array, gibbs_sites: Values, hmc_sites: Values) -> Values:
            drawn = sweep(rng_key, self.rules, bound, dict(gibbs_sites) | dict(hmc_sites))
            return {rule.site: drawn[rule.site] for rule in self.rules}

        size = sum((bound.sites[name].shape and jnp.zeros(bound.sites[name].shape).size) or 1 for name in self.rest)
        step = NUTSKernel(size <= DENSE_UP_TO, 0.8, 10)(evaluate)
        blocks = [(CustomGibbs(update), [rule.site for rule in self.rules]), (step, list(self.rest))]
        return numpyro.infer.Gibbs(blocks)


def sweep(key: Array, rules: tuple[Rule, ...], bound: Bound, values: Values) -> Values:
    """One draw of every site that has a rule, each given the newest values of all others."""
    of, values = terms(bound).terms, dict(values)
    for rule, now in zip(rules, jax.random.split(key, len(rules)), strict=True):
        old = values[rule.site]
        drawn = conditional(rule, of, bound, values, near=old).distribution.sample(now)
        values[rule.site] = drawn.reshape(old.shape).astype(old.dtype)
    return values


def _somewhere(key: Array, bound: Bound) -> Values:
    """A point inside all supports."""
    sites = trace(substitute(seed(bound.program, key), substitute_fn=feasible)).get_trace()
    return {name: jnp.asarray(sites[name]["value"]) for name in bound.latent}


def _computed(bound: Bound, values: Values) -> Values:
    """Values of deterministic sites."""
    if not any(site.role == "deterministic" for site in bound.sites.values()):
        return {}
    sites = trace(substitute(seed(bound.program, jax.random.PRNGKey(0)), data=values)).get_trace()
    return {name: site["value"] for name, site in sites.items() if site["type"] == "deterministic"}
