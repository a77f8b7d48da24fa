"""Slice sampling of scalar sites in which the log joint has steps or bends, as change points and thresholds.

Derivatives say nothing about a step, so Hamiltonian moves do not find it. A slice needs values alone (Neal 2003,
Annals of Statistics 31): a level below the density is drawn, then points of an interval, which shrinks towards the
current one until one of them is above the level. The interval begins as the whole support, in a coordinate in which
the prior is about uniform, so that no width has to be chosen and far modes are reached.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import expit, logit
from numpyro.distributions import Distribution, biject_to

from bayeslab.elimination.conditional import Block, without
from bayeslab.elimination.sweep import draw_block
from bayeslab.elimination.terms import Term, sum_of_terms, terms
from bayeslab.programs.program import Bound, Values
from bayeslab.programs.unconstrained import number_or_zero_mass

MAX_SHRINKS = 200
"""Points of an interval that are tried, at most; then the site stays where it is."""


@dataclass(frozen=True)
class SliceStep:
    """The draw of one site by slices, element by element.

    block: sites that are jointly drawn in closed form right afterwards; they are integrated out meanwhile, where there
    are any, so that both move together.
    """

    site: str
    block: Block = ()

    @property
    def sites(self) -> tuple[str, ...]:
        return (self.site,)

    def draw(self, key: Array, log_joint_terms: tuple[Term, ...], bound: Bound, values: Values) -> Values:
        """Values after draws of the site and of the block."""
        site_key, block_key = jax.random.split(key)
        left = log_joint_terms
        for rule in self.block:
            left = without(rule, left)
        values = values | {self.site: self._moved(site_key, left, bound, values)}
        if self.block:
            values, _ = draw_block(block_key, self.block, log_joint_terms, bound, values)
        return values

    def _moved(self, key: Array, log_joint_terms: tuple[Term, ...], bound: Bound, values: Values) -> Array:
        """A new value of the site."""
        old = values[self.site]
        fn = terms(bound).priors[self.site].distribution(bound, values)
        reached = [term for term in log_joint_terms if self.site in term.depends]
        transform = biject_to(fn.support)
        middle, width = _location_and_width(fn, bound.sites[self.site].support)

        def value_at(quantiles: Array) -> Array:
            return transform(middle + width * logit(quantiles)).astype(old.dtype)

        def log_density(quantiles: Array) -> Array:
            value, free = value_at(quantiles), middle + width * logit(quantiles)
            volume = jnp.sum(transform.log_abs_det_jacobian(free, value)) - jnp.log(quantiles * (1 - quantiles)).sum()
            return number_or_zero_mass(sum_of_terms(reached, bound, values | {self.site: value}) + volume)

        def move_element(index: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
            quantiles, key = state
            key, element_key = jax.random.split(key)
            return _slice_move(element_key, quantiles, index, log_density), key

        start = expit((transform.inv(old) - middle) / width)
        quantiles, _ = jax.lax.fori_loop(0, start.size, move_element, (start, key))
        return value_at(quantiles)


def _location_and_width(fn: Distribution, support: str) -> tuple[Array, Array]:
    """The middle and the width of a prior in unconstrained coordinates, roughly: quantiles of a logistic there."""
    middle, width = jnp.zeros(()), jnp.ones(())
    with suppress(ArithmeticError, AttributeError, NotImplementedError, ValueError):
        if support == "real":
            middle, width = jnp.asarray(fn.mean), 0.6 * jnp.sqrt(fn.variance)
        elif support in ("positive", "nonnegative"):
            middle, width = jnp.log(fn.mean), 2.0 * jnp.ones(())
    return jnp.where(jnp.isfinite(middle), middle, 0.0), jnp.where(jnp.isfinite(width) & (width > 0), width, 3.0)


def _slice_move(key: Array, quantiles: Array, index: Array, log_density: Callable[[Array], Array]) -> Array:
    """The quantiles (*site) after a move of one element, by its flat index; unchanged where no point is found."""
    level_key, key = jax.random.split(key)
    level = log_density(quantiles) + jnp.log(jax.random.uniform(level_key, minval=jnp.finfo(quantiles.dtype).tiny))
    current = quantiles.ravel()[index]

    def at(point: Array) -> Array:
        return quantiles.ravel().at[index].set(point).reshape(quantiles.shape)

    def searching(state: Any) -> Array:
        inside, shrinks = state[3], state[4]
        return ~inside & (shrinks < MAX_SHRINKS)

    def shrink(state: Any) -> Any:
        key, low, high, _, shrinks, _ = state
        key, point_key = jax.random.split(key)
        point = low + (high - low) * jax.random.uniform(point_key, (), quantiles.dtype)
        inside = log_density(at(point)) > level
        low, high = jnp.where(point < current, point, low), jnp.where(point < current, high, point)
        return key, low, high, inside, shrinks + 1, point

    ends = jnp.asarray(0.0, quantiles.dtype), jnp.asarray(1.0, quantiles.dtype)
    state = (key, *ends, jnp.array(False), jnp.zeros((), int), current)
    *_, inside, _, point = jax.lax.while_loop(searching, shrink, state)
    return at(jnp.where(inside, point, current))
