"""Particle marginal Metropolis-Hastings: a random walk over parameters, with estimates of their likelihoods."""

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from numpyro.handlers import block, seed

from bayeslab.elimination.sweep import deterministic_values
from bayeslab.methods.setting_checks import require_count, require_positive
from bayeslab.monte_carlo.metropolis import chain_start
from bayeslab.monte_carlo.random_walk import Walk, adapted_walk, first_walk
from bayeslab.particles.particle_filter import ParticleFilter, run_filter
from bayeslab.particles.paths import Ancestry, drawn_index, traced_path
from bayeslab.particles.scans import ScanFinder, ScanFound
from bayeslab.particles.state_space import StateSpace, require_guide, state_space
from bayeslab.programs.program import Bound, Values
from bayeslab.programs.unconstrained import constrain_flat, flat_log_posterior, number_or_zero_mass
from bayeslab.programs.validation import listed_sites
from bayeslab.sampling.protocols import Draws, Method, Sampler
from bayeslab.transforms.analysis import Analysis


@dataclass(frozen=True)
class ParticleMarginalMetropolisHastings(Method):
    """Particle marginal Metropolis-Hastings (Andrieu, Doucet and Holenstein 2010, JRSS B 72), for programs with a scan
    over latent states and few parameters.

    A random walk in the unconstrained space of the parameters, whose acceptance takes the estimates of a particle
    filter for their likelihoods; a path of that filter is the draw of the states. As the estimates have no bias, the
    posterior is exact for any number of particles; with few of them a chain stays for long where an estimate was too
    high. It costs least where the standard deviation of the log of the estimates is about 1.2 (Doucet, Pitt,
    Deligiannidis and Kohn 2015, Biometrika 102): `log_evidence_sd` of `filter` at likely parameters.
    particle_filter: its settings, and what is drawn by whom.
    num_warmup: steps before the first draw, in which the covariance and the size of the walk are adapted.
    thinning: keep one draw in so many.
    """

    particle_filter: ParticleFilter = field(default_factory=partial(ParticleFilter, 200))
    num_warmup: int = 1000
    num_samples: int = 1000
    num_chains: int = 4
    thinning: int = 1

    def __post_init__(self) -> None:
        require_positive(self, "num_samples", "num_chains", "thinning")
        require_count(self, "num_warmup")

    def plan(self, analysis: Analysis) -> Sampler:
        bound, space = analysis.bound, analysis.ask(state_space)
        if not space.parameters:
            raise ValueError(
                "all parameters of the program are given, so there is none to walk over; use ParticleGibbs()"
            )
        if discrete := [name for name in space.parameters if bound.sites[name].is_discrete]:
            raise ValueError(f"{listed_sites(discrete)} is discrete, and a random walk is over continuous parameters")
        if self.particle_filter.guide is not None:
            require_guide(bound, self.particle_filter.guide)
        return MarginalSampler(self.particle_filter, space, self.num_warmup)


@partial(jax.tree_util.register_dataclass, data_fields=[], meta_fields=["hidden"])
@dataclass(frozen=True)
class BeforeScan:
    """A program up to its scan: a transform of a Bound, whose latent sites are the parameters alone.

    hidden: sites that go with the states: those that start them, and what is observed of these.
    """

    hidden: tuple[str, ...]

    statistics = None

    def with_statistics(self, statistics: Any) -> "BeforeScan":
        return self

    def run(self, bound: Bound) -> None:
        with block(hide=list(self.hidden)), seed(rng_seed=jax.random.PRNGKey(0)), ScanFinder():
            try:
                bound.program()
            except ScanFound:
                return


class Estimate(NamedTuple):
    """What is known at parameters: the log prior, with Jacobian; that plus the estimate of the log likelihood; a
    path."""

    flat: Array
    log_prior: Array
    log_density: Array
    path: Values


class MarginalState(NamedTuple):
    """The state of a chain."""

    current: Estimate
    walk: Walk
    key: Array


@dataclass(frozen=True)
class MarginalSampler(Sampler):
    """A random walk over parameters. num_warmup: the steps in which it adapts."""

    settings: ParticleFilter
    space: StateSpace
    num_warmup: int

    warmup_draws = True

    def start(self, key: Array, bound: Bound) -> MarginalState:
        key, position_key, run_key = jax.random.split(key, 3)
        flat = chain_start(position_key, self._parameters_of(bound))
        return MarginalState(self._estimate(run_key, bound, flat), first_walk(flat), key)

    def advance(self, state: MarginalState, bound: Bound) -> tuple[MarginalState, Draws]:
        key, step_key, run_key, accept_key = jax.random.split(state.key, 4)
        current, walk = state.current, state.walk
        step = walk.factor @ jax.random.normal(step_key, current.flat.shape)
        proposed = self._estimate(run_key, bound, current.flat + step)
        rate = jnp.exp(jnp.minimum(_log_ratio(proposed, current), 0.0))
        accepted = jax.random.uniform(accept_key) < rate
        current = jax.tree.map(partial(jnp.where, accepted), proposed, current)
        walk = adapted_walk(walk, current.flat, rate, walk.num_steps < self.num_warmup)
        parameters = constrain_flat(self._parameters_of(bound), current.flat)
        latent = {name: (parameters | current.path)[name] for name in bound.latent}
        stats = {"lp": current.log_density, "acceptance_rate": rate}
        return MarginalState(current, walk, key), Draws(latent | deterministic_values(bound, latent), stats)

    def _estimate(self, key: Array, bound: Bound, flat: Array) -> Estimate:
        """One run of the filter at flat unconstrained parameters."""
        run_key, path_key = jax.random.split(key)
        values = constrain_flat(self._parameters_of(bound), flat)
        parameters = {name: values[name] for name in self.space.parameters}
        start, (ancestry, log_weight, increments) = run_filter(
            run_key,
            self.settings,
            self.space,
            bound,
            parameters,
            lambda one: (Ancestry(one.values, one.ancestors), one.log_weight, one.log_increment),
        )
        path = traced_path(drawn_index(path_key, log_weight[-1]), start, ancestry)
        log_likelihood = start.log_increment + increments.sum()
        log_prior = number_or_zero_mass(flat_log_posterior(self._parameters_of(bound), flat))
        return Estimate(flat, log_prior, number_or_zero_mass(log_prior + log_likelihood), path)

    def _parameters_of(self, bound: Bound) -> Bound:
        """The program up to its scan."""
        return replace(bound, transform=BeforeScan((*self.space.initial, *self.space.initial_observed)))


def _log_ratio(proposed: Estimate, current: Estimate) -> Array:
    """The log of the ratio that decides. A chain that begins where no particle is possible walks over the prior until
    some are."""
    nowhere = ~jnp.isfinite(current.log_density) & ~jnp.isfinite(proposed.log_density)
    of_priors = number_or_zero_mass(proposed.log_prior - current.log_prior)
    return jnp.where(nowhere, of_priors, proposed.log_density - current.log_density)
