"""Stochastic mean field from batches of the subsampled plates of a program: natural-gradient steps for the sites that
all elements share (Hoffman, Blei, Wang and Paisley 2013, arXiv:1206.7055)."""

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from bayeslab.elimination.conditional import Rule
from bayeslab.elimination.sweep import deterministic_values, random_start
from bayeslab.elimination.terms import Term, sum_of_terms, terms
from bayeslab.methods.mean_field_factors import (
    Factors,
    join_factors,
    optimal_factor,
    point_density,
    terms_averaged_over_others,
    typical_block_values,
)
from bayeslab.methods.minibatches.batches import SubsampledPlate, multiplicity, random_batch
from bayeslab.programs.program import Bound, Values
from bayeslab.programs.pytrees import unwrap_distributions, wrap_distributions
from bayeslab.sampling.protocols import Draws, Sampler
from bayeslab.transforms.expectation import expected_prior, moment_key

NUM_LOCAL_SWEEPS = 20
"""The number of sweeps over the sites of a batch, where it has several."""


class Average(NamedTuple):
    """A running average of noisy values. squares: the sum of their squared deviations. number: how many there were."""

    mean: Array
    squares: Array
    number: Array

    def with_value(self, value: Array) -> "Average":
        """The average with one value more, by the algorithm of Welford (1962), doi:10.1080/00401706.1962.10490022."""
        number = self.number + 1
        mean = self.mean + (value - self.mean) / number
        return Average(mean, self.squares + (value - self.mean) * (value - mean), number)

    @property
    def standard_error(self) -> Array:
        """The standard error of the mean, of independent values."""
        return jnp.sqrt(self.squares / (self.number - 1) / self.number)


class StochasticState(NamedTuple):
    """The state of stochastic mean field.

    factors: of the shared sites. elbo: the bound, averaged over the batches that the factors are made from. last: the
    bound of the last factors, averaged over other batches; over none before the first draw.
    """

    factors: Factors
    elbo: Array
    last: Average
    step: Array
    key: Array


@dataclass(frozen=True)
class BatchSampler(Sampler):
    """Stochastic variational inference (Hoffman, Blei, Wang and Paisley 2013, arXiv:1206.7055).

    A step draws a batch, finds the factors of its own sites, and moves the factor of every shared site a part of the
    way to the conditional that the whole data would give if they were like the batch.
    shared, own: rules of the sites outside and inside of the subsampled plates.
    num_steps: in the first half, steps are long enough to get there; in the second, their average is taken.
    The bound of the last factors is an average over half as many batches of its own: those before had a part in what
    the factors are, and in which of several starts is best.
    """

    shared: tuple[Rule, ...]
    own: tuple[Rule, ...]
    plates: tuple[SubsampledPlate, ...]
    num_steps: int
    structure: Any

    def start(self, key: Array, bound: Bound) -> StochasticState:
        key, batch_key, start_key = jax.random.split(key, 3)
        batch = random_batch(batch_key, bound, self.plates)
        batch_terms, values = (
            terms(batch).terms,
            random_start(start_key, (*self.shared, *self.own), terms(batch).terms, batch, {}),
        )
        known = self._point_densities(batch_terms, batch, values, (*self.shared, *self.own))
        all_rows = {rule: self._counted(self._terms_of(rule, batch_terms, batch), batch) for rule in self.shared}
        factors = [self._factor(rule, all_rows[rule], batch, known, values) for rule in self.shared]
        zero = jnp.zeros((), factors[0].entropy.dtype)
        return StochasticState(
            wrap_distributions(join_factors(_singleton_blocks(self.shared), factors)),
            zero,
            _empty_average(zero),
            jnp.array(0),
            key,
        )

    def adapt(self, state: StochasticState, bound: Bound) -> tuple[StochasticState, Draws]:
        key, batch_key = jax.random.split(state.key)
        rate = robbins_monro_rate(state.step, self.num_steps)
        batch = random_batch(batch_key, bound, self.plates)
        batch_terms = terms(batch).terms
        factors: Factors = unwrap_distributions(state.factors)
        known, noisy = self._elbo_estimate(factors, batch_terms, batch)
        elbo = state.elbo + jnp.where(state.step == 0, 1.0, rate) * (noisy - state.elbo)
        new_factors = []
        for rule in self.shared:
            before = {"rate": rate, "before": factors.last}
            initial = typical_block_values((rule,), factors)
            all_rows = self._counted(self._terms_of(rule, batch_terms, batch), batch)
            blended = _natural_gradient_terms(all_rows, rule.site)
            new_factors.append(self._factor(rule, blended, batch, known | before, initial))
            known |= new_factors[-1].known
        new = wrap_distributions(join_factors(_singleton_blocks(self.shared), new_factors))
        return StochasticState(new, elbo, _empty_average(elbo), state.step + 1, key), Draws({}, {}, {"elbo": elbo})

    def advance(self, state: StochasticState, bound: Bound) -> tuple[StochasticState, Draws]:
        key, bound_key, *keys = jax.random.split(state.key, 2 + len(self.shared))
        factors: Factors = unwrap_distributions(state.factors)
        last = self._final_elbo(bound_key, factors, state.last, bound)
        values: Values = {}
        for rule, site_key in zip(self.shared, keys, strict=True):
            site = bound.sites[rule.site]
            values[rule.site] = factors.last[rule.site].sample(site_key).reshape(site.shape).astype(site.dtype)
        stats = {"evidence_bound": last.mean, "evidence_bound_se": last.standard_error}
        samples = values if self.own else values | deterministic_values(bound, values)
        return state._replace(last=last, key=key), Draws(samples, stats)

    def _final_elbo(self, key: Array, factors: Factors, average: Average, bound: Bound) -> Average:
        """The evidence lower bound of factors, averaged over fresh batches, if there are not enough of these yet."""
        num_batches = max(2, self.num_steps // 2)

        def step(average: Average) -> Average:
            batch = random_batch(jax.random.fold_in(key, average.number), bound, self.plates)
            return average.with_value(self._elbo_estimate(factors, terms(batch).terms, batch)[1])

        return jax.lax.while_loop(lambda average: average.number < num_batches, step, average)

    def _elbo_estimate(self, factors: Factors, of: tuple[Term, ...], small: Bound) -> tuple[dict[str, Any], Array]:
        """What averages need of all sites of a batch, and the evidence lower bound if all rows were like the batch."""
        known, entropies = self._completed(of, small, dict(factors.known))
        averaged = self._counted(terms_averaged_over_others((), self._blocks(small), of), small)
        return known, sum_of_terms(averaged, small, known) + factors.entropies.sum() + entropies

    def _point_densities(
        self, of: tuple[Term, ...], small: Bound, values: Values, rules: tuple[Rule, ...]
    ) -> dict[str, Any]:
        """What averages need of sites that have a single value."""

        def densities_at(values: Values) -> dict[str, Any]:
            factors = [optimal_factor((rule,), of, small, values, values) for rule in rules]
            return {name: value for site_factor in factors for name, value in site_factor.known.items()}

        shapes = jax.eval_shape(densities_at, values)
        return {
            moment_key(rule.site): point_density(rule, of, small, values, shapes[moment_key(rule.site)])
            for rule in rules
        }

    def _completed(self, of: tuple[Term, ...], small: Bound, known: dict[str, Any]) -> tuple[dict[str, Any], Array]:
        """What averages need of the shared sites and of those of a batch, whose factors are found here, and the entropy
        of the latter for all rows."""
        if not self.own:
            return known, jnp.zeros(())

        def sweep(known: dict[str, Any]) -> tuple[dict[str, Any], Array]:
            entropy = jnp.zeros(())
            for rule in self.own:
                site_factor = self._factor(rule, self._terms_of(rule, of, small), small, known, {})
                known = known | site_factor.known
                entropy += self._times(rule.site, small) * site_factor.entropy
            return known, entropy

        if len(self.own) > 1:
            for index, rule in enumerate(self.own):  # what is said of a site without those that come after it
                later = {other.site for other in self.own[index + 1 :]}
                earlier_terms = tuple(term for term in of if term.depends.isdisjoint(later))
                known = known | self._factor(rule, self._terms_of(rule, earlier_terms, small), small, known, {}).known
            known = jax.lax.fori_loop(0, NUM_LOCAL_SWEEPS - 1, lambda _, known: sweep(known)[0], known)
        return sweep(known)

    def _terms_of(self, rule: Rule, of: tuple[Term, ...], small: Bound) -> tuple[Term, ...]:
        """The terms of a batch that a site is in, averaged over all other sites."""
        return terms_averaged_over_others((rule,), self._blocks(small), of)

    def _factor(
        self, rule: Rule, site_terms: tuple[Term, ...], small: Bound, values: dict[str, Any], near: Values
    ) -> Any:
        """The optimal factor of a site under its terms in a batch."""
        others = [block for block in self._blocks(small) if block != (rule,)]
        prior = expected_prior(rule, terms(small).priors[rule.site], others, small, values)
        return optimal_factor((rule,), site_terms, small, values, near, prior)

    def _counted(self, of: tuple[Term, ...], small: Bound) -> tuple[Term, ...]:
        """Terms of a batch, scaled to all rows."""
        return _scaled_terms(of, tuple(self._times(term.name, small) for term in of))

    def _times(self, site: str, small: Bound) -> float:
        """The number of elements that each element of a site in a batch stands for."""
        return multiplicity(self.plates, (plate.name for plate in small.sites[site].plates))

    def _blocks(self, small: Bound) -> tuple[tuple[Rule], ...]:
        """A block for each site, in the order of averages: over sites with structure first, and over the parameters of
        their priors afterwards."""
        rules = sorted((*self.shared, *self.own), key=lambda rule: not rule.family.structured)
        return _singleton_blocks(tuple(rules))


def robbins_monro_rate(step: Array, num_steps: int) -> Array:
    """The relative size of a step; the sum of all grows without end, and that of their squares does not (Robbins and
    Monro 1951)."""
    half = num_steps / 2
    return 1 / (jnp.sqrt(1.0 + jnp.minimum(step, half)) + jnp.maximum(step - half, 0))


def _empty_average(like: Array) -> Average:
    """The average of no values, with the shape and dtype of `like`."""
    return Average(jnp.zeros_like(like), jnp.zeros_like(like), jnp.array(0))


def _singleton_blocks(rules: tuple[Rule, ...]) -> tuple[tuple[Rule], ...]:
    """A block for each rule."""
    return tuple((rule,) for rule in rules)


@lru_cache(maxsize=256)
def _scaled_terms(of: tuple[Term, ...], times: tuple[float, ...]) -> tuple[Term, ...]:
    """Terms, each multiplied by its number of times."""

    def counted(term: Term, times: float) -> Term:
        choices = term.choices
        if choices is not None:
            choices = choices._replace(statistics=partial(_scaled_value, times, choices.statistics))
        return term._replace(density=partial(_scaled_value, times, term.density), choices=choices, reader=None)

    return tuple(counted(*pair) if pair[1] != 1 else pair[0] for pair in zip(of, times, strict=True))


def _scaled_value(times: float, function: Any, bound: Bound, values: Values) -> Array:
    """The value of a function of a Bound and values, multiplied."""
    return times * function(bound, values)


@lru_cache(maxsize=256)
def _natural_gradient_terms(of: tuple[Term, ...], site: str) -> tuple[Term, ...]:
    """The terms of a natural-gradient step for the factor of a site.

    The terms that the site reaches are weighted with the rate that the values have, and the log density of the factor
    of the step before with one minus the rate. Other terms are left out: they say nothing about the site.
    """

    def weighted(term: Term) -> Term:
        def density(bound: Bound, values: Values) -> Array:
            return values["rate"] * term.density(bound, values)

        return term._replace(density=density, choices=None, reader=None)

    def previous(bound: Bound, values: Values) -> Array:
        before: Any = values["before"]
        return (1 - values["rate"]) * before[site].log_prob(values[site])

    site_terms = tuple(weighted(term) for term in of if site in term.depends)
    return (*site_terms, Term(f"factor of {site} before", frozenset({site}), previous, None))
