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
"""Steps of the other sites before the first sweep: weights and components would follow them to anywhere."""
EXPAND = 10
"""Sweeps after which the log likelihood is expanded again, for proposals without origins, in the warm-up."""
MANY = 5
"""Populations: with twice as many, moves of ancestry and frequencies together are due in every second sweep, with three
times as many in every third one, since their time goes with the third power."""
TURN, TURN_WITH_OTHERS = 4, 2
"""Sweeps of which one draws origins, where the others need none: it moves frequencies near 0 from where proposals leave
them. Weights with given concentrations below 1, whose density has no maximum, need it every time. Other sites are drawn
given counts of origins, so they wait for it."""

Moments = tuple[Array, Array]
"""Means and mean squares, or sums of them."""


class Sweep(NamedTuple):
    """number: of sweeps made. others: the state of the kernel of the other sites, None where there are none.

    about: what proposals without origins are made of; None where there are none.
    origins: where they are drawn in blocks of words, which do not look for the components.
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

    Given those a small concentration would hardly move: probabilities that it leads to are below the smallest numbers.
    """

    found: Membership
    structure: Any

    def __call__(self, data: Counted, counts: Counts) -> None:
        of, others = terms(bound := whole(self.structure, data)), frozenset(self.found.others)
        values: Values = {}
        for name in self.found.others:
            values[name] = numpyro.sample(name, of.priors[name].distribution(bound, values))
        weights, components, real = concentrations(self.found, self.structure, data, values)
        if others & of.priors[self.found.weights].depends:
            numpyro.factor("individuals", log_density_of_counts(weights, counts.individuals, jnp.array(True)))
        if components is not None and others & of.priors[self.found.components].depends:
            numpyro.factor("alleles", log_density_of_counts(components, counts.alleles, real))


@dataclass(frozen=True)
class MembershipGibbs(Sampler):
    """found: the sites. structure: of the Bound. keeps: components in every draw."""

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
        """Near the maximum of the likelihood, where another key may lead to another one."""
        keys, found, shape = jax.random.split(key, 4), self.found, self.found.shape
        if found.known:
            weights = jnp.full((shape.individuals, shape.populations), 1 / shape.populations, jnp.float32)
            known = {found.components: data.bound.observed[found.components]}
            return self._at(*found.values({found.weights: weights} | known), keys[2], keys[3], data)
        return self._at(*self._likeliest(keys[0], data).near_top(keys[1]), keys[2], keys[3], data)

    @property
    def start_sites(self) -> tuple[str, ...]:
        return (self.found.weights,) if self.found.known else self.found.probabilities

    def start_at(self, key: Array, data: Counted, values: Values) -> Sweep:
        keys, found = jax.random.split(key, 4), self.found
        if found.known:
            values = values | {found.components: data.bound.observed[found.components]}
            return self._at(*found.values(values), keys[2], keys[3], data)
        near = self._likeliest(keys[0], data).inside(joined(*found.values(values)))
        return self._at(*split(near, found.shape), keys[2], keys[3], data)

    def _likeliest(self, key: Array, data: Counted) -> Likeliest:
        """The likelihood, with the alleles that a locus has."""
        anywhere = somewhere(key, whole(self.structure, data))
        prior = priors(self.found, self.structure, data, {name: anywhere[name] for name in self.found.others})
        flat = prior._replace(weights=jnp.ones_like(prior.weights), components=jnp.ones_like(prior.components))
        return Likeliest(data.packed, self.found.shape, flat)

    def _at(self, weights: Array, components: Array, now: Array, key: Array, data: Counted) -> Sweep:
        averaged = not (self.keeps or self.found.known)
        sums = tuple((jnp.zeros_like(one),) * 2 for one in (weights, components)) if averaged else None
        shape = self.found.shape
        others = self._settled(now, data, weights, components)
        about = origins = None
        if isinstance(shape, Shape) and shape.populations > 1:
            about = first_summed(weights, components, data.packed, shape, self.turn > 1)
        if data.blocks is not None and isinstance(shape, Tokens):
            key, first = jax.random.split(key)
            origins = drawn_given(first, weights, components, data.blocks, shape)
        return Sweep(weights, components, about, origins, others, key, jnp.array(0), sums)

    def advance(self, state: Sweep, data: Counted) -> tuple[Sweep, Draws]:
        found, (key, *keys) = self.found, jax.random.split(state.key, 6)
        state = state._replace(key=key, number=state.number + 1)
        if self.turn > 1:
            due = state.number % self.turn == 1
            if not found.others:  # a choice that depends on what is drawn would not leave the posterior alone
                due |= (self._priors(keys[4], state, data).weights < 1).any()
            state = jax.lax.cond(due, partial(self._jumped, keys, data), lambda state: state, state)
            state, stats = self._without_origins(keys[3], state, data)
            log_likelihood = stats["carried"] = state.about.log_likelihood  # type: ignore[union-attr]
            given = tuple((one, one**2) for one in (state.weights, state.components))
        else:
            state, stats = self._without_origins(keys[3], state, data)
            state, counts, given = self._with_origins(keys, state, data)
            log_likelihood = _log_joint(counts, state.weights, state.components)
        others = self._others(keys[4], state, data)
        if others:
            stats |= {name: value for name, value in kernel_stats(state.others).items() if name != "lp"}
        samples = found.named(state.weights, state.components) | others
        if found.known:
            del samples[found.components]
        stats["lp"] = log_prior(found, self.structure, data, samples) + log_likelihood
        if state.sums is not None:
            late = (state.number > self.num_warmup).astype(state.components.dtype)
            state = state._replace(sums=jax.tree.map(lambda sum_, one: sum_ + late * one, state.sums, given))
            del samples[found.components]
        return state, Draws(samples, stats)

    def watched(self, bound: Bound, draws: Draws) -> None:
        """Raises FalseConditional where the likelihood of draws is not what sweeps say, or falls for one of them."""
        if (carried := draws.stats.pop("carried", None)) is not None:
            require_no_falls(np.asarray(carried, float))
            if self.keeps:
                require_likelihood(self.found, bound, draws.samples, np.asarray(carried, float))

    def _without_origins(self, key: Array, state: Sweep, data: Counted) -> tuple[Sweep, dict[str, Array]]:
        """Weights, and components where they can be, and what was accepted."""
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
        """All sites, the counts of origins, and moments of weights and components given these."""
        found, prior = self.found, self._priors(keys[4], state, data)
        counts, origins = self._drawn(keys[0], state, prior, data)
        if found.others:
            now, kernel = (data, counts), self._kernel(keys[4], data, self._no_counts(state))[0]
            state = state._replace(others=kernel.sample(kernel.refresh(state.others, now, {}), now, {}))
            prior = self._priors(keys[4], state, data)
        of_weights, of_components = prior.weights + counts.individuals, prior.components + counts.alleles
        weights = dirichlet(keys[1], of_weights, jnp.array(True))
        components = state.components if found.known else dirichlet(keys[2], of_components, prior.real)
        given = _moments(of_weights, jnp.array(True)), _moments(of_components, prior.real)
        return state._replace(weights=weights, components=components, origins=origins), counts, given

    def _jumped(self, keys: Sequence[Array], data: Counted, state: Sweep) -> Sweep:
        """After a sweep with origins among those without."""
        new, _, _ = self._with_origins(keys, state, data)
        both = (state.weights, new.weights), (state.components, new.components)
        return new._replace(about=jumped(state.about, *both, data.packed, self.found.shape))  # type: ignore[arg-type]

    def _others(self, key: Array, state: Sweep, data: Counted) -> Values:
        if not self.found.others:
            return {}
        kernel, _ = self._kernel(key, data, none := self._no_counts(state))
        return kernel.get_constrain_fn((data, none), {})(state.others.z)

    def _priors(self, key: Array, state: Sweep, data: Counted) -> Priors:
        return priors(self.found, self.structure, data, self._others(key, state, data))

    def _no_counts(self, state: Sweep) -> Counts:
        return Counts(jnp.zeros_like(state.weights), jnp.zeros_like(state.components))

    def _drawn(self, key: Array, state: Sweep, prior: Priors, data: Counted) -> tuple[Counts, Origins | None]:
        """Counts of origins, and the origins where they are kept."""
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
        found = {}
        for name, sums, shape in zip((self.found.weights, self.found.components), state.sums, shapes, strict=True):
            mean, square = (
                np.asarray(one).reshape(-1, *shape) / draws.reshape(-1, *(1 for _ in shape)) for one in sums
            )
            found[name] = mean, np.sqrt(np.maximum(square - mean**2, 0.0))
        return found

    def _settled(self, key: Array, data: Counted, weights: Array, components: Array) -> Any:
        """The state of the kernel of the other sites after a few steps, None where there are none."""
        if not self.found.others:
            return None
        counts, _ = layout(self.found.shape).expected(weights, components, data.packed, self.found.shape)
        kernel, first = self._kernel(key, data, counts)

        def step(_: int, state: Any) -> Any:
            return kernel.sample(state, (data, counts), {})

        return jax.lax.fori_loop(0, SETTLE, step, first)

    def _kernel(self, key: Array, data: Counted, counts: Counts) -> tuple[MCMCKernel, Any]:
        """Of the other sites, and its first state."""
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
    """Of origins and what they show."""
    return log_powers(counts.individuals, weights) + log_powers(counts.alleles, components)
