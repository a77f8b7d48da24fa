"""The exchange algorithm: Metropolis and Hastings for weights of fields whose partition function nobody computes.

A random walk proposes weights and draws an auxiliary field x' from them. The move is taken with probability

    min(1, p(new) f(x | new) f(x' | old) / (p(old) f(x | old) f(x' | new))),    p(x | weights) = f(x | weights) / Z

so that both partition functions cancel, and the posterior is exact (Murray, Ghahramani and MacKay 2006, UAI 22).
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree
from numpyro.distributions import Distribution
from numpyro.handlers import block, seed, substitute, trace

from bayeslab.elimination.terms import terms
from bayeslab.graphical_models.unnormalised import UnnormalisedFields, field_of
from bayeslab.methods.setting_checks import require_count, require_positive
from bayeslab.methods.wrappers.collapsed import collapsed_sampler, without_discrete_sites
from bayeslab.monte_carlo.random_walk import Walk, adapted_walk, first_walk
from bayeslab.programs.program import Bound, DerivedProgram, Program, Values
from bayeslab.programs.unconstrained import constrain_flat, flat_log_posterior, random_position
from bayeslab.programs.validation import listed_sites
from bayeslab.sampling.protocols import Draws, Method, Sampler
from bayeslab.transforms.analysis import Analysis


@dataclass(frozen=True)
class Exchange(Method):
    """The exchange algorithm, for programs that observe fields whose weights are unknown.

    Fields are `MarkovRandomField` and `RestrictedBoltzmann`. All continuous sites walk, with steps that warm-up adapts.
    num_sweeps: by default auxiliary fields are drawn exactly, which takes a field that can be summed over, and draws
    are of the exact posterior. Where it cannot, so many sweeps of Gibbs from the data stand in (Liang 2010, Journal of
    Statistical Computation and Simulation 80:1007), and the posterior is exact in the limit of many: see whether twice
    as many change it.
    num_warmup: steps before the first draw. thinning: keep one draw in so many.
    """

    num_sweeps: int | None = None
    num_warmup: int = 1000
    num_samples: int = 1000
    num_chains: int = 4
    thinning: int = 1

    def __post_init__(self) -> None:
        require_positive(self, "num_samples", "num_chains", "thinning")
        require_count(self, "num_warmup")
        if self.num_sweeps is not None:
            require_positive(self, "num_sweeps")

    def program_of(self, model: Program) -> Program:
        """The program that `fit` binds: that of the user with fields that know no partition function."""
        return model if isinstance(model, DerivedProgram) else UnnormalisedFields(model, self.num_sweeps)

    def plan(self, analysis: Analysis) -> Sampler:
        bound = _unnormalised(analysis.bound, self.num_sweeps)
        fields = [name for name, site in bound.sites.items() if site.family == "UnnormalisedField"]
        if not fields:
            raise ValueError(
                "Exchange is for programs with a MarkovRandomField or a RestrictedBoltzmann, of which there is none; "
                "use NUTS()"
            )
        if unknown := [name for name in fields if name not in bound.observed or name in bound.present]:
            raise ValueError(
                f"Exchange needs all values of every field, but some of {listed_sites(unknown)} are missing"
            )
        left = without_discrete_sites(Analysis(bound), self)
        of_field = {one.name: one.depends for one in terms(bound.plain).terms if one.name in fields}
        if met := sorted(set().union(*of_field.values()) - set(left.latent)):
            raise ValueError(f"{listed_sites(met)} would be summed over, but fields depend on them; give their values")
        return collapsed_sampler(ExchangeSampler(tuple(fields), self.num_sweeps, self.num_warmup), left, bound)


class ExchangeState(NamedTuple):
    """The state of a chain. flat: unconstrained coordinates."""

    flat: Array
    walk: Walk
    key: Array


class AtWeights(NamedTuple):
    """What a step needs to know of some weights. log_density: of them and of the data, but for partition functions.
    fields: the distributions of the fields, by site."""

    log_density: Array
    fields: dict[str, Distribution]

    def log_weight(self, values: Values) -> Array:
        """The log weight of fields that have some values."""
        return sum((self.fields[name].log_prob(value).sum() for name, value in values.items()), jnp.zeros(()))


@dataclass(frozen=True)
class ExchangeSampler(Sampler):
    """A random walk over weights. sites: the fields. num_warmup: the steps in which it adapts."""

    sites: tuple[str, ...]
    num_sweeps: int | None
    num_warmup: int

    warmup_draws = True
    prepares = True

    def prepare(self, bound: Bound) -> Bound:
        return _unnormalised(bound, self.num_sweeps)

    def start(self, key: Array, bound: Bound) -> ExchangeState:
        key, position_key = jax.random.split(key)
        flat = ravel_pytree(random_position(position_key, bound))[0]
        return ExchangeState(flat, first_walk(flat), key)

    def advance(self, state: ExchangeState, bound: Bound) -> tuple[ExchangeState, Draws]:
        key, step_key, field_key, accept_key = jax.random.split(state.key, 4)
        proposed = state.flat + state.walk.factor @ jax.random.normal(step_key, state.flat.shape)
        log_ratio = self.log_ratio(field_key, bound, state.flat, proposed)
        rate = jnp.exp(jnp.minimum(jnp.where(jnp.isnan(log_ratio), -jnp.inf, log_ratio), 0.0))
        flat = jnp.where(jax.random.uniform(accept_key) < rate, proposed, state.flat)
        walk = adapted_walk(state.walk, flat, rate, state.walk.num_steps < self.num_warmup)
        return ExchangeState(flat, walk, key), Draws(constrain_flat(bound, flat), {"acceptance_rate": rate})

    def log_ratio(self, key: Array, bound: Bound, old: Array, new: Array) -> Array:
        """The log of the ratio that decides, at flat coordinates."""
        there, here = self._at(bound, new), self._at(bound, old)
        auxiliary = self.auxiliary(key, bound, there)
        return there.log_density - here.log_density + here.log_weight(auxiliary) - there.log_weight(auxiliary)

    def auxiliary(self, key: Array, bound: Bound, at: AtWeights) -> Values:
        """Fields drawn from some weights."""
        keys = jax.random.split(key, len(self.sites))
        return {
            name: at.fields[name].sample(own)
            if self.num_sweeps is None
            else field_of(at.fields[name]).swept(own, bound.observed[name], self.num_sweeps)
            for name, own in zip(self.sites, keys, strict=True)
        }

    def _at(self, bound: Bound, flat: Array) -> AtWeights:
        values = constrain_flat(bound, flat)
        latent = {name: values[name] for name in bound.latent}
        run = substitute(seed(bound.plain.program, jax.random.PRNGKey(0)), data=latent)
        with block():
            sites = trace(run).get_trace()
        return AtWeights(flat_log_posterior(bound, flat), {name: sites[name]["fn"] for name in self.sites})


def _unnormalised(bound: Bound, num_sweeps: int | None) -> Bound:
    """The Bound of the program whose fields know no partition function."""
    if isinstance(bound.function, UnnormalisedFields):
        return bound
    return replace(bound, function=UnnormalisedFields(bound.function, num_sweeps))
