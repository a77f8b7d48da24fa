"""Gibbs sampling of a program of mixed membership at size: origins are drawn, counted and forgotten."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax import Array
from numpyro.infer.mcmc import MCMCKernel

from bayeslab.elimination.sweep import feasible_point
from bayeslab.elimination.terms import terms
from bayeslab.methods.mcmc import kernel_stats, nuts_block_kernel
from bayeslab.mixed_membership.coordinates import from_coordinates, to_coordinates
from bayeslab.mixed_membership.counts import Counts
from bayeslab.mixed_membership.dirichlet import Priors, dirichlet_multinomial_log_density, draw_dirichlet
from bayeslab.mixed_membership.draw_checks import require_likelihood, require_no_falls
from bayeslab.mixed_membership.genotypes.allele_counts import GenotypeShape
from bayeslab.mixed_membership.genotypes.collapsed_sweep import (
    SWEEPS_PER_LIKELIHOOD_EVALUATION,
    CollapsedState,
    Schedule,
    after_jump,
    initial_collapsed_state,
    sweep_without_origins,
)
from bayeslab.mixed_membership.genotypes.records import Genotypes, Position
from bayeslab.mixed_membership.layouts import layout
from bayeslab.mixed_membership.likelihood import Likelihood, counts_log_likelihood
from bayeslab.mixed_membership.packed_data import (
    PackedData,
    concentrations,
    log_prior,
    pack_data_in_blocks,
    priors,
    with_placeholder_data,
)
from bayeslab.mixed_membership.recognition import Membership
from bayeslab.mixed_membership.samplers.base import MembershipSampler
from bayeslab.mixed_membership.tokens.block_gibbs import TokenOrigins, initial_origins, sweep_blocks
from bayeslab.mixed_membership.tokens.topic_counts import TokenShape
from bayeslab.programs.program import Bound, Values
from bayeslab.sampling.protocols import Draws

NUM_SETTLING_STEPS = 50
"""Steps of the other sites before the first sweep: weights and components would follow other sites to anywhere."""
SWEEPS_PER_EXPANSION = 10
"""Sweeps of the warm-up after which the log likelihood is expanded again, for proposals without origins."""
POPULATIONS_PER_JOINT_MOVE_INTERVAL = 5
"""Populations for which joint moves of ancestry and frequencies are due in every sweep: with twice as many they are due
in every second sweep, with three times as many in every third, since their time goes with the third power."""
SWEEPS_PER_ORIGIN_DRAW, SWEEPS_PER_ORIGIN_DRAW_WITH_OTHERS = 4, 2
"""Sweeps of which one draws origins, where the others need none; and these with other latent sites. A draw of origins
moves frequencies near 0 from where proposals leave them. Weights with given concentrations below 1, whose density has
no maximum, need it in every sweep. Other sites are drawn given counts of origins, so they wait for it."""

Moments = tuple[Array, Array]
"""Means and mean squares, or sums of them."""


class GibbsState(NamedTuple):
    """The state of the Markov chain after a sweep.

    collapsed: the state of sweeps without origins, None where there are none.
    origins: those of tokens, where they are drawn in blocks of words, which do not need the components.
    others: the state of the kernel of the other sites, None where there are none. number: of sweeps made.
    sums: of the means and mean squares of weights and components given the counts of each draw, where components are
    not kept; None where they are.
    """

    weights: Array
    components: Array
    collapsed: CollapsedState | None
    origins: TokenOrigins | None
    others: Any
    key: Array
    number: Array
    sums: tuple[Moments, ...] | None


@dataclass(frozen=True)
class OtherSitesModel:
    """The program of the other sites given counts of origins, from which weights and components are integrated out.

    Given weights and components a small concentration would hardly move: the probabilities that it leads to are below
    the smallest numbers.
    """

    roles: Membership
    structure: Any

    def __call__(self, data: PackedData, counts: Counts) -> None:
        program_terms, others = (
            terms(bound := with_placeholder_data(self.structure, data)),
            frozenset(self.roles.others),
        )
        values: Values = {}
        for name in self.roles.others:
            values[name] = numpyro.sample(name, program_terms.priors[name].distribution(bound, values))
        weights, components, is_allele = concentrations(self.roles, self.structure, data, values)
        if others & program_terms.priors[self.roles.weights].depends:
            numpyro.factor(
                "individuals", dirichlet_multinomial_log_density(weights, counts.individuals, jnp.array(True))
            )
        if components is not None and others & program_terms.priors[self.roles.components].depends:
            numpyro.factor("alleles", dirichlet_multinomial_log_density(components, counts.alleles, is_allele))


@dataclass(frozen=True)
class MembershipGibbs(MembershipSampler):
    """Gibbs sampling with collapsed origins.

    num_warmup: see `Gibbs`. keeps: whether every draw has the components.
    """

    num_warmup: int
    keeps: bool

    warmup_draws = True

    @property
    def sweeps_per_origin_draw(self) -> int:
        """Sweeps of which one draws origins: 1 unless both weights and components can be drawn without."""
        shape = self.roles.shape
        if self.roles.known or not isinstance(shape, GenotypeShape) or shape.alleles > 2 or shape.populations == 1:
            return 1
        return SWEEPS_PER_ORIGIN_DRAW_WITH_OTHERS if self.roles.others else SWEEPS_PER_ORIGIN_DRAW

    def prepare(self, bound: Bound) -> PackedData:
        return pack_data_in_blocks(self.roles, bound)

    def start(self, key: Array, data: PackedData) -> GibbsState:
        """The state near a mode of the likelihood; another key may lead to another mode."""
        keys, roles, shape = jax.random.split(key, 4), self.roles, self.roles.shape
        if roles.known:
            weights = jnp.full((shape.individuals, shape.populations), 1 / shape.populations, jnp.float32)
            known = {roles.components: data.bound.observed[roles.components]}
            return self._at(*roles.values({roles.weights: weights} | known), keys[2], keys[3], data)
        return self._at(*self._flat_likelihood(keys[0], data).near_mode(keys[1]), keys[2], keys[3], data)

    @property
    def start_sites(self) -> tuple[str, ...]:
        return (self.roles.weights,) if self.roles.known else self.roles.probabilities

    def start_at(self, key: Array, data: PackedData, values: Values) -> GibbsState:
        keys, roles = jax.random.split(key, 4), self.roles
        if roles.known:
            values = values | {roles.components: data.bound.observed[roles.components]}
            return self._at(*roles.values(values), keys[2], keys[3], data)
        coordinates = self._flat_likelihood(keys[0], data).clip_coordinates(to_coordinates(*roles.values(values)))
        return self._at(*from_coordinates(coordinates, roles.shape), keys[2], keys[3], data)

    def _flat_likelihood(self, key: Array, data: PackedData) -> Likelihood:
        """The likelihood as an objective: flat priors, with the alleles that a locus has."""
        feasible = feasible_point(key, with_placeholder_data(self.structure, data))
        prior = priors(self.roles, self.structure, data, {name: feasible[name] for name in self.roles.others})
        flat = prior._replace(weights=jnp.ones_like(prior.weights), components=jnp.ones_like(prior.components))
        return Likelihood(data.packed, self.roles.shape, flat)

    def _at(self, weights: Array, components: Array, now: Array, key: Array, data: PackedData) -> GibbsState:
        """The state at weights and components. now: the key of this state. key: that of the chain."""
        averaged = not (self.keeps or self.roles.known)
        sums = tuple((jnp.zeros_like(site_value),) * 2 for site_value in (weights, components)) if averaged else None
        shape = self.roles.shape
        others = self._settled(now, data, weights, components)
        about = origins = None
        if isinstance(shape, GenotypeShape) and shape.populations > 1:
            about = initial_collapsed_state(
                Position(weights, components), Genotypes(data.packed, shape), self.sweeps_per_origin_draw > 1
            )
        if data.blocks is not None and isinstance(shape, TokenShape):
            key, origin_key = jax.random.split(key)
            origins = initial_origins(origin_key, weights, components, data.blocks, shape)
        return GibbsState(weights, components, about, origins, others, key, jnp.array(0), sums)

    def advance(self, state: GibbsState, data: PackedData) -> tuple[GibbsState, Draws]:
        roles, (key, *keys) = self.roles, jax.random.split(state.key, 6)
        state = state._replace(key=key, number=state.number + 1)
        if self.sweeps_per_origin_draw > 1:
            due = state.number % self.sweeps_per_origin_draw == 1
            if not roles.others:  # a choice that depends on what is drawn would not leave the posterior alone
                due |= (self._priors(keys[4], state, data).weights < 1).any()
            state = jax.lax.cond(due, partial(self._draw_with_origins, keys, data), lambda state: state, state)
            state, stats = self._without_origins(keys[3], state, data)
            log_likelihood = stats["carried"] = state.collapsed.log_likelihood  # type: ignore[union-attr]
            moments = tuple((value, value**2) for value in (state.weights, state.components))
        else:
            state, stats = self._without_origins(keys[3], state, data)
            state, counts, moments = self._with_origins(keys, state, data)
            log_likelihood = _origins_log_likelihood(counts, state.weights, state.components)
        others = self._others(keys[4], state, data)
        if others:
            stats |= {name: value for name, value in kernel_stats(state.others).items() if name != "lp"}
        samples = roles.named(state.weights, state.components) | others
        if roles.known:
            del samples[roles.components]
        stats["lp"] = log_prior(roles, self.structure, data, samples) + log_likelihood
        if state.sums is not None:
            late = (state.number > self.num_warmup).astype(state.components.dtype)
            state = state._replace(sums=jax.tree.map(lambda sum_, value: sum_ + late * value, state.sums, moments))
            del samples[roles.components]
        return state, Draws(samples, stats)

    def check_draws(self, bound: Bound, draws: Draws) -> None:
        """Raises FalseConditional where the likelihood of draws is not what sweeps say, or falls for one of them."""
        if (carried := draws.stats.pop("carried", None)) is not None:
            require_no_falls(np.asarray(carried, float))
            if self.keeps:
                require_likelihood(self.roles, bound, draws.samples, np.asarray(carried, float))

    def _without_origins(self, key: Array, state: GibbsState, data: PackedData) -> tuple[GibbsState, dict[str, Array]]:
        """The state with weights, and components where possible, drawn without origins; statistics of acceptance."""
        shape, number, about = self.roles.shape, state.number, state.collapsed
        if about is None or not isinstance(shape, GenotypeShape):
            return state, {}
        early = jnp.isin(number, jnp.array([1, 2, 4])) | (number % SWEEPS_PER_EXPANSION == 0) & (
            number <= 3 * self.num_warmup // 4
        )
        expand = (number == 1) | early & (number <= self.num_warmup) | (number == self.num_warmup)
        warm, first = number <= self.num_warmup, number == 1
        renew = first | expand & (number <= self.num_warmup // 2)
        due = Schedule(
            expand,
            renew,
            number % max(shape.populations // POPULATIONS_PER_JOINT_MOVE_INTERVAL, 1) == 0,
            warm,
            # anew after the last sweep of the warm-up, so that draws do not carry what its first steps rounded
            first | (number % SWEEPS_PER_LIKELIHOOD_EVALUATION == 0) | (number == self.num_warmup),
        )
        prior = self._priors(key, state, data)
        position, genotypes = Position(state.weights, state.components), Genotypes(data.packed, shape)
        position, about, stats = sweep_without_origins(key, position, genotypes, prior, about, due)
        return state._replace(weights=position.ancestry, components=position.frequencies, collapsed=about), stats

    def _with_origins(
        self, keys: Sequence[Array], state: GibbsState, data: PackedData
    ) -> tuple[GibbsState, Counts, tuple[Moments, ...]]:
        """The state with all sites drawn, the counts of origins, and moments of weights and components given these."""
        roles, prior = self.roles, self._priors(keys[4], state, data)
        counts, origins = self._drawn(keys[0], state, prior, data)
        if roles.others:
            now, kernel = (data, counts), self._kernel(keys[4], data, self._no_counts(state))[0]
            state = state._replace(others=kernel.sample(kernel.refresh(state.others, now, {}), now, {}))
            prior = self._priors(keys[4], state, data)
        weight_posterior, component_posterior = prior.weights + counts.individuals, prior.components + counts.alleles
        weights = draw_dirichlet(keys[1], weight_posterior, jnp.array(True))
        components = state.components if roles.known else draw_dirichlet(keys[2], component_posterior, prior.is_allele)
        moments = (
            _dirichlet_mean_squares(weight_posterior, jnp.array(True)),
            _dirichlet_mean_squares(component_posterior, prior.is_allele),
        )
        return state._replace(weights=weights, components=components, origins=origins), counts, moments

    def _draw_with_origins(self, keys: Sequence[Array], data: PackedData, state: GibbsState) -> GibbsState:
        """The state after a sweep with origins among those without."""
        new, _, _ = self._with_origins(keys, state, data)
        assert state.collapsed is not None and isinstance(self.roles.shape, GenotypeShape)  # noqa: PT018
        before, after = Position(state.weights, state.components), Position(new.weights, new.components)
        genotypes = Genotypes(data.packed, self.roles.shape)
        return new._replace(collapsed=after_jump(state.collapsed, before, after, genotypes))

    def _others(self, key: Array, state: GibbsState, data: PackedData) -> Values:
        """Values of the other sites."""
        if not self.roles.others:
            return {}
        kernel, _ = self._kernel(key, data, none := self._no_counts(state))
        return kernel.get_constrain_fn((data, none), {})(state.others.z)

    def _priors(self, key: Array, state: GibbsState, data: PackedData) -> Priors:
        return priors(self.roles, self.structure, data, self._others(key, state, data))

    def _no_counts(self, state: GibbsState) -> Counts:
        return Counts(jnp.zeros_like(state.weights), jnp.zeros_like(state.components))

    def _drawn(
        self, key: Array, state: GibbsState, prior: Priors, data: PackedData
    ) -> tuple[Counts, TokenOrigins | None]:
        """Counts of drawn origins, and the origins where they are kept."""
        shape = self.roles.shape
        if state.origins is None or data.blocks is None or not isinstance(shape, TokenShape):
            return layout(shape).drawn(key, state.weights, state.components, data.packed, shape), None
        origins = sweep_blocks(key, state.weights, prior[:2], data.blocks, state.origins, shape)
        return origins.counts, origins

    def moments(self, state: GibbsState, bound: Bound) -> dict[str, tuple[Any, Any]]:
        """Means and standard deviations (chain, *site) of sites that are not kept in every draw."""
        if state.sums is None:
            return {}
        draws = np.maximum(np.asarray(state.number) - self.num_warmup, 1)
        shapes = state.weights.shape[1:], self.roles.shape.table
        means_and_sds = {}
        for name, sums, shape in zip((self.roles.weights, self.roles.components), state.sums, shapes, strict=True):
            mean, square = (
                np.asarray(total).reshape(-1, *shape) / draws.reshape(-1, *(1 for _ in shape)) for total in sums
            )
            means_and_sds[name] = mean, np.sqrt(np.maximum(square - mean**2, 0.0))
        return means_and_sds

    def _settled(self, key: Array, data: PackedData, weights: Array, components: Array) -> Any:
        """The state of the kernel of the other sites after a few steps, None where there are none."""
        if not self.roles.others:
            return None
        counts, _ = layout(self.roles.shape).expected(weights, components, data.packed, self.roles.shape)
        kernel, initial = self._kernel(key, data, counts)

        def step(_: int, state: Any) -> Any:
            return kernel.sample(state, (data, counts), {})

        return jax.lax.fori_loop(0, NUM_SETTLING_STEPS, step, initial)

    def _kernel(self, key: Array, data: PackedData, counts: Counts) -> tuple[MCMCKernel, Any]:
        """The kernel of the other sites, and its first state."""
        build = nuts_block_kernel(with_placeholder_data(self.structure, data), self.roles.others)
        kernel = build(OtherSitesModel(self.roles, self.structure))
        return kernel, kernel.init(
            key, NUM_SETTLING_STEPS + self.num_warmup // self.sweeps_per_origin_draw, None, (data, counts), {}
        )


def _dirichlet_mean_squares(concentration: Array, is_category: Array) -> Moments:
    """Means and mean squares of Dirichlet probabilities."""
    concentration = jnp.where(is_category, concentration, 0.0)
    total = concentration.sum(-1, keepdims=True)
    mean = concentration / total
    return mean, mean * (1 - mean) / (total + 1) + mean**2


def _origins_log_likelihood(counts: Counts, weights: Array, components: Array) -> Array:
    """The log density of origins and of observed alleles, given weights and components."""
    return counts_log_likelihood(counts.individuals, weights) + counts_log_likelihood(counts.alleles, components)
