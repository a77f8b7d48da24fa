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

from bayeslab.elimination.sweep import somewhere
from bayeslab.elimination.terms import terms
from bayeslab.methods.mcmc import block_kernel, kernel_stats
from bayeslab.mixed_membership.ascent import joined, split
from bayeslab.mixed_membership.counts import Counts
from bayeslab.mixed_membership.dirichlet import Priors, dirichlet, log_density_of_counts
from bayeslab.mixed_membership.draw_checks import require_likelihood, require_no_falls
from bayeslab.mixed_membership.genotypes.allele_counts import Shape
from bayeslab.mixed_membership.genotypes.collapsed_sweep import (
    ANCHOR,
    Due,
    Summed,
    first_summed,
    jumped,
    summed_sweep,
)
from bayeslab.mixed_membership.layouts import layout
from bayeslab.mixed_membership.likelihood import Likeliest, log_powers
from bayeslab.mixed_membership.packed_data import Counted, concentrations, counted_in_blocks, log_prior, priors, whole
from bayeslab.mixed_membership.recognition import Membership
from bayeslab.mixed_membership.samplers.point import WIDE
from bayeslab.mixed_membership.tokens.block_gibbs import Origins, drawn_given, drawn_in_blocks
from bayeslab.mixed_membership.tokens.topic_counts import Tokens
from bayeslab.programs.program import Bound, Values
from bayeslab.sampling.protocols import Draws, Sampler

SETTLE = 50
"""Steps of the other sites before the first sweep: weights and components would follow other sites to anywhere."""
EXPAND = 10
"""Sweeps of the warm-up after which the log likelihood is expanded again, for proposals without origins."""
MANY = 5
"""Populations for which joint moves of ancestry and frequencies are due in every sweep: with twice as many they are due
in every second sweep, with three times as many in every third, since their time goes with the third power."""
TURN, TURN_WITH_OTHERS = 4, 2
"""Sweeps of which one draws origins, where the others need none; and these with other latent sites. A draw of origins
moves frequencies near 0 from where proposals leave them. Weights with given concentrations below 1, whose density has
no maximum, need it in every sweep. Other sites are drawn given counts of origins, so they wait for it."""

Moments = tuple[Array, Array]
"""Means and mean squares, or sums of them."""


class Sweep(NamedTuple):
    """The state of the Markov chain after a sweep.

    about: the state of sweeps without origins, None where there are none.
    origins: those of tokens, where they are drawn in blocks of words, which do not need the components.
    others: the state of the kernel of the other sites, None where there are none. number: of sweeps made.
    sums: of the means and mean squares of weights and components given the counts of each draw, where components are
    not kept; None where they are.
    """

    weights: Array
    components: Array
    about: Summed | None
    origins: Origins | None
    others: Any
    key: Array
    number: Array
    sums: tuple[Moments, ...] | None


@dataclass(frozen=True)
class Others:
    """The program of the other sites given counts of origins, from which weights and components are integrated out.

    Given weights and components a small concentration would hardly move: the probabilities that it leads to are below
    the smallest numbers.
    """

    found: Membership
    structure: Any

    def __call__(self, data: Counted, counts: Counts) -> None:
        program_terms, others = terms(bound := whole(self.structure, data)), frozenset(self.found.others)
        values: Values = {}
        for name in self.found.others:
            values[name] = numpyro.sample(name, program_terms.priors[name].distribution(bound, values))
        weights, components, is_allele = concentrations(self.found, self.structure, data, values)
        if others & program_terms.priors[self.found.weights].depends:
            numpyro.factor("individuals", log_density_of_counts(weights, counts.individuals, jnp.array(True)))
        if components is not None and others & program_terms.priors[self.found.components].depends:
            numpyro.factor("alleles", log_density_of_counts(components, counts.alleles, is_allele))


@dataclass(frozen=True)
class MembershipGibbs(Sampler):
    """Gibbs sampling with collapsed origins.

    found: the roles of sites. structure: of the Bound. keeps: whether every draw has the components.
    """

    found: Membership
    structure: Any
    num_warmup: int
    keeps: bool

    compiler_options = WIDE
    warmup_draws = prepares = True

    @property
    def turn(self) -> int:
        """Sweeps of which one draws origins: 1 unless both weights and components can be drawn without."""
        shape = self.found.shape
        if self.found.known or not isinstance(shape, Shape) or shape.alleles > 2 or shape.populations == 1:
            return 1
        return TURN_WITH_OTHERS if self.found.others else TURN

    @property
    def num_devices(self) -> int:
        return self.found.shape.devices.number

    def prepare(self, bound: Bound) -> Counted:
        return counted_in_blocks(self.found, bound)

    def start(self, key: Array, data: Counted) -> Sweep:
        """The state near a mode of the likelihood; another key may lead to another mode."""
        keys, roles, shape = jax.random.split(key, 4), self.found, self.found.shape
        if roles.known:
            weights = jnp.full((shape.individuals, shape.populations), 1 / shape.populations, jnp.float32)
            known = {roles.components: data.bound.observed[roles.components]}
            return self._at(*roles.values({roles.weights: weights} | known), keys[2], keys[3], data)
        return self._at(*self._likeliest(keys[0], data).near_top(keys[1]), keys[2], keys[3], data)

    @property
    def start_sites(self) -> tuple[str, ...]:
        return (self.found.weights,) if self.found.known else self.found.probabilities

    def start_at(self, key: Array, data: Counted, values: Values) -> Sweep:
        keys, roles = jax.random.split(key, 4), self.found
        if roles.known:
            values = values | {roles.components: data.bound.observed[roles.components]}
            return self._at(*roles.values(values), keys[2], keys[3], data)
        coordinates = self._likeliest(keys[0], data).inside(joined(*roles.values(values)))
        return self._at(*split(coordinates, roles.shape), keys[2], keys[3], data)

    def _likeliest(self, key: Array, data: Counted) -> Likeliest:
        """The likelihood as an objective: flat priors, with the alleles that a locus has."""
        feasible = somewhere(key, whole(self.structure, data))
        prior = priors(self.found, self.structure, data, {name: feasible[name] for name in self.found.others})
        flat = prior._replace(weights=jnp.ones_like(prior.weights), components=jnp.ones_like(prior.components))
        return Likeliest(data.packed, self.found.shape, flat)

    def _at(self, weights: Array, components: Array, now: Array, key: Array, data: Counted) -> Sweep:
        """The state at weights and components. now: the key of this state. key: that of the chain."""
        averaged = not (self.keeps or self.found.known)
        sums = tuple((jnp.zeros_like(site_value),) * 2 for site_value in (weights, components)) if averaged else None
        shape = self.found.shape
        others = self._settled(now, data, weights, components)
        about = origins = None
        if isinstance(shape, Shape) and shape.populations > 1:
            about = first_summed(weights, components, data.packed, shape, self.turn > 1)
        if data.blocks is not None and isinstance(shape, Tokens):
            key, origin_key = jax.random.split(key)
            origins = drawn_given(origin_key, weights, components, data.blocks, shape)
        return Sweep(weights, components, about, origins, others, key, jnp.array(0), sums)

    def advance(self, state: Sweep, data: Counted) -> tuple[Sweep, Draws]:
        roles, (key, *keys) = self.found, jax.random.split(state.key, 6)
        state = state._replace(key=key, number=state.number + 1)
        if self.turn > 1:
            due = state.number % self.turn == 1
            if not roles.others:  # a choice that depends on what is drawn would not leave the posterior alone
                due |= (self._priors(keys[4], state, data).weights < 1).any()
            state = jax.lax.cond(due, partial(self._jumped, keys, data), lambda state: state, state)
            state, stats = self._without_origins(keys[3], state, data)
            log_likelihood = stats["carried"] = state.about.log_likelihood  # type: ignore[union-attr]
            moments = tuple((value, value**2) for value in (state.weights, state.components))
        else:
            state, stats = self._without_origins(keys[3], state, data)
            state, counts, moments = self._with_origins(keys, state, data)
            log_likelihood = _log_joint(counts, state.weights, state.components)
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

    def watched(self, bound: Bound, draws: Draws) -> None:
        """Raises FalseConditional where the likelihood of draws is not what sweeps say, or falls for one of them."""
        if (carried := draws.stats.pop("carried", None)) is not None:
            require_no_falls(np.asarray(carried, float))
            if self.keeps:
                require_likelihood(self.found, bound, draws.samples, np.asarray(carried, float))

    def _without_origins(self, key: Array, state: Sweep, data: Counted) -> tuple[Sweep, dict[str, Array]]:
        """The state with weights, and components where possible, drawn without origins; statistics of acceptance."""
        shape, number, about = self.found.shape, state.number, state.about
        if about is None or not isinstance(shape, Shape):
            return state, {}
        early = jnp.isin(number, jnp.array([1, 2, 4])) | (number % EXPAND == 0) & (number <= 3 * self.num_warmup // 4)
        expand = (number == 1) | early & (number <= self.num_warmup) | (number == self.num_warmup)
        warm, first = number <= self.num_warmup, number == 1
        renew = first | expand & (number <= self.num_warmup // 2)
        due = Due(expand, renew, number % max(shape.populations // MANY, 1) == 0, warm, first | (number % ANCHOR == 0))
        prior = self._priors(key, state, data)
        weights, components, about, stats = summed_sweep(
            key, state.weights, state.components, about, data.packed, shape, prior, due
        )
        return state._replace(weights=weights, components=components, about=about), stats

    def _with_origins(
        self, keys: Sequence[Array], state: Sweep, data: Counted
    ) -> tuple[Sweep, Counts, tuple[Moments, ...]]:
        """The state with all sites drawn, the counts of origins, and moments of weights and components given these."""
        roles, prior = self.found, self._priors(keys[4], state, data)
        counts, origins = self._drawn(keys[0], state, prior, data)
        if roles.others:
            now, kernel = (data, counts), self._kernel(keys[4], data, self._no_counts(state))[0]
            state = state._replace(others=kernel.sample(kernel.refresh(state.others, now, {}), now, {}))
            prior = self._priors(keys[4], state, data)
        weight_posterior, component_posterior = prior.weights + counts.individuals, prior.components + counts.alleles
        weights = dirichlet(keys[1], weight_posterior, jnp.array(True))
        components = state.components if roles.known else dirichlet(keys[2], component_posterior, prior.real)
        moments = _moments(weight_posterior, jnp.array(True)), _moments(component_posterior, prior.real)
        return state._replace(weights=weights, components=components, origins=origins), counts, moments

    def _jumped(self, keys: Sequence[Array], data: Counted, state: Sweep) -> Sweep:
        """The state after a sweep with origins among those without."""
        new, _, _ = self._with_origins(keys, state, data)
        moves = (state.weights, new.weights), (state.components, new.components)
        return new._replace(about=jumped(state.about, *moves, data.packed, self.found.shape))  # type: ignore[arg-type]

    def _others(self, key: Array, state: Sweep, data: Counted) -> Values:
        """Values of the other sites."""
        if not self.found.others:
            return {}
        kernel, _ = self._kernel(key, data, none := self._no_counts(state))
        return kernel.get_constrain_fn((data, none), {})(state.others.z)

    def _priors(self, key: Array, state: Sweep, data: Counted) -> Priors:
        return priors(self.found, self.structure, data, self._others(key, state, data))

    def _no_counts(self, state: Sweep) -> Counts:
        return Counts(jnp.zeros_like(state.weights), jnp.zeros_like(state.components))

    def _drawn(self, key: Array, state: Sweep, prior: Priors, data: Counted) -> tuple[Counts, Origins | None]:
        """Counts of drawn origins, and the origins where they are kept."""
        shape = self.found.shape
        if state.origins is None or data.blocks is None or not isinstance(shape, Tokens):
            return layout(shape).drawn(key, state.weights, state.components, data.packed, shape), None
        origins = drawn_in_blocks(key, state.weights, *prior[:2], data.blocks, state.origins, shape)
        return origins.counts, origins

    def moments(self, state: Sweep, bound: Bound) -> dict[str, tuple[Any, Any]]:
        """Means and standard deviations (chain, *site) of sites that are not kept in every draw."""
        if state.sums is None:
            return {}
        draws = np.maximum(np.asarray(state.number) - self.num_warmup, 1)
        shapes = state.weights.shape[1:], self.found.shape.table
        means_and_sds = {}
        for name, sums, shape in zip((self.found.weights, self.found.components), state.sums, shapes, strict=True):
            mean, square = (
                np.asarray(total).reshape(-1, *shape) / draws.reshape(-1, *(1 for _ in shape)) for total in sums
            )
            means_and_sds[name] = mean, np.sqrt(np.maximum(square - mean**2, 0.0))
        return means_and_sds

    def _settled(self, key: Array, data: Counted, weights: Array, components: Array) -> Any:
        """The state of the kernel of the other sites after a few steps, None where there are none."""
        if not self.found.others:
            return None
        counts, _ = layout(self.found.shape).expected(weights, components, data.packed, self.found.shape)
        kernel, initial = self._kernel(key, data, counts)

        def step(_: int, state: Any) -> Any:
            return kernel.sample(state, (data, counts), {})

        return jax.lax.fori_loop(0, SETTLE, step, initial)

    def _kernel(self, key: Array, data: Counted, counts: Counts) -> tuple[MCMCKernel, Any]:
        """The kernel of the other sites, and its first state."""
        build = block_kernel(whole(self.structure, data), self.found.others)
        kernel = build(Others(self.found, self.structure))
        return kernel, kernel.init(key, SETTLE + self.num_warmup // self.turn, None, (data, counts), {})


def _moments(concentration: Array, real: Array) -> Moments:
    """Means and mean squares of Dirichlet probabilities."""
    concentration = jnp.where(real, concentration, 0.0)
    total = concentration.sum(-1, keepdims=True)
    mean = concentration / total
    return mean, mean * (1 - mean) / (total + 1) + mean**2


def _log_joint(counts: Counts, weights: Array, components: Array) -> Array:
    """The log density of origins and of observed alleles, given weights and components."""
    return log_powers(counts.individuals, weights) + log_powers(counts.alleles, components)
