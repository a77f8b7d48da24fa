"""Collapsed samplers: sites that a method cannot draw, or was asked not to, are integrated out before it, and drawn
given the others after it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from bayeslab.elimination.sweep import deterministic_values
from bayeslab.programs.program import Bound, Values
from bayeslab.sampling.protocols import Draws, Sampler, SamplerWrapper, State
from bayeslab.transforms.analysis import Analysis
from bayeslab.transforms.collapse import Marginal, draw_eliminated, marginal
from bayeslab.transforms.draw_checks import Conditionals, conditionals_of_blocks

EliminatedSitesRule = Callable[[Array, Bound, Values], Values]
"""(key, a program with sites integrated out, values of its other sites) -> values of all."""


def without_discrete_sites(analysis: Analysis, method: Any) -> Bound:
    """The program with its discrete sites integrated out, and those that `method.collapse` names.

    Raises ValueError where that cannot be done, and where no latent site is left.
    """
    name, bound = type(method).__name__, analysis.bound
    if not bound.latent:
        raise ValueError("every site of the program is observed: there is nothing to infer")
    collapsed = marginal(bound, method.collapse, analysis.plain)
    discrete = [name for name in collapsed.latent if collapsed.sites[name].is_discrete]
    try:
        collapsed = marginal(collapsed, discrete, analysis.plain)
    except ValueError as reasons:
        listed = " and ".join(f"'{site}' ({bound.sites[site].family})" for site in discrete)
        why = str(reasons).split(" cannot be integrated out: ")[-1]
        raise ValueError(
            f"{name} needs continuous sites, but {listed} cannot be summed over: {why}; Gibbs() draws discrete "
            "elements one after another"
        ) from None
    if not collapsed.latent:
        raise ValueError(f"{name} has no site left to draw once {list(bound.latent)} are integrated out; use Exact()")
    return collapsed


def collapsed_sampler(
    sampler: Sampler, left: Bound, bound: Bound, pick: EliminatedSitesRule = draw_eliminated
) -> Sampler:
    """A sampler of `left`, which `without_discrete_sites` made of `bound`, as a sampler of all sites of `bound`."""
    if left.transform == bound.transform:
        return sampler
    assert isinstance(left.transform, Marginal)
    return CollapsedSampler(sampler, left.transform, tuple(bound.sites), pick)


class CollapsedData(NamedTuple):
    """What a collapsed sampler is given. bound: the program with sites integrated out. inner: what its sampler is
    given."""

    bound: Bound
    inner: Any


class CollapsedState(NamedTuple):
    """The state of a collapsed sampler. inner: that of the sampler of the collapsed program."""

    inner: State
    key: Array


@dataclass(frozen=True)
class CollapsedSampler(SamplerWrapper):
    """A sampler of a collapsed program that draws the eliminated sites after every draw of the others.

    sites: those that a draw has in the end. recover_values: gives the eliminated sites their values.
    """

    transform: Marginal
    sites: tuple[str, ...]
    recover_values: EliminatedSitesRule

    prepares = True

    def conditionals(self, bound: Bound) -> Conditionals:
        inner = self.inner.conditionals(bound)
        return tuple(dict.fromkeys((*conditionals_of_blocks(bound, [self.transform.rules]), *inner)))

    def prepare(self, bound: Bound) -> CollapsedData:
        collapsed = replace(bound.plain, transform=self.transform)
        inner = self.inner.prepare(collapsed)
        has_all_rows = isinstance(inner, Bound) and getattr(inner.transform, "rows", None) is None
        return CollapsedData(inner if has_all_rows else collapsed, inner)

    def convergence_verdict(
        self, state: CollapsedState, data: CollapsedData, samples: dict[str, Any]
    ) -> tuple[CollapsedState | None, str] | None:
        ending = self.inner.convergence_verdict(state.inner, data.inner, samples)
        return ending if ending is None or ending[0] is None else (state._replace(inner=ending[0]), ending[1])

    def moments(self, state: CollapsedState, bound: Bound) -> dict[str, tuple[Any, Any]]:
        return self.inner.moments(state.inner, bound)

    def run_summary(self, state: CollapsedState, data: CollapsedData) -> dict[str, float]:
        return self.inner.run_summary(state.inner, data.inner)

    def weighted_draws(self, state: CollapsedState, data: CollapsedData) -> dict[str, Any]:
        """The weighted draws of the sites that are left, each with a draw of the eliminated ones."""
        draws = dict(self.inner.weighted_draws(state.inner, data.inner))
        if not draws:
            return draws
        log_weight = draws.pop("log_weight")
        latent = {name: draws[name] for name in data.bound.latent}
        keys = jax.random.split(jnp.asarray(state.key)[0], log_weight.shape)
        samples = jax.jit(jax.vmap(jax.vmap(lambda key, values: self._recovered(key, data.bound, values))))(
            keys, latent
        )
        return {**samples, "log_weight": log_weight}

    def start(self, key: Array, data: CollapsedData) -> CollapsedState:
        key, start_key = jax.random.split(key)
        return CollapsedState(self.inner.start(start_key, data.inner), key)

    def advance(self, state: CollapsedState, data: CollapsedData) -> tuple[CollapsedState, Draws]:
        key, pick_key = jax.random.split(state.key)
        inner, draws = self.inner.advance(state.inner, data.inner)
        values = {name: draws.samples[name] for name in data.bound.latent}
        return CollapsedState(inner, key), draws._replace(samples=self._recovered(pick_key, data.bound, values))

    def _recovered(self, key: Array, bound: Bound, values: Values) -> Values:
        """Values of all sites, from those of the sites that are left. bound: with sites integrated out."""
        latent = self.recover_values(key, bound, values)
        samples = latent | deterministic_values(bound.plain, latent)
        return {name: samples[name] for name in self.sites if name in samples}

    def adapt(self, state: CollapsedState, data: CollapsedData) -> tuple[CollapsedState, Draws]:
        inner, draws = self.inner.adapt(state.inner, data.inner)
        return state._replace(inner=inner), draws
