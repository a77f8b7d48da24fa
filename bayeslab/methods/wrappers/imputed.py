"""Samplers of programs with continuous sites that are missing in part: they move the missing elements alone."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bayeslab.programs.missing.gaps import (
    Gaps,
    missing_elements,
    with_given_elements,
    without_given,
    without_given_elements,
)
from bayeslab.programs.missing.names import given_part, whole_site
from bayeslab.programs.probing import probe_splits
from bayeslab.programs.program import Bound
from bayeslab.sampling.protocols import Draws, SamplerWrapper, State


def gaps_of(bound: Bound, integrated_out: tuple[str, ...]) -> tuple[Gaps, ...]:
    """The missing elements of continuous sites that are missing in part, where they stand by themselves.

    integrated_out: sites that are eliminated, which is found for their whole shape.
    """
    names = [name for name in bound.imputed if not bound.sites[name].is_discrete and name not in integrated_out]
    names = [name for name in names if not bound.sites[name].scanned]  # whose steps have one shape
    gaps = []
    for name, split in probe_splits(bound.plain, [given_part(name) for name in names]).items() if names else ():
        if split.elements_ndim is not None:
            site_gaps = Gaps(whole_site(name), split.elements_ndim, 0)
            gaps.append(site_gaps._replace(size=int(np.sum(missing_elements(bound, site_gaps)))))
    return tuple(gaps)


class ImputedData(NamedTuple):
    """What such a sampler is given. bound: without the given elements. inner: what its sampler is given."""

    bound: Bound
    inner: Any


@dataclass(frozen=True)
class ImputedSampler(SamplerWrapper):
    """A sampler of a program without the given elements of some sites, whose draws have them again."""

    gaps: tuple[Gaps, ...]

    prepares = True

    def prepare(self, bound: Bound) -> ImputedData:
        without = without_given_elements(bound, self.gaps)
        return ImputedData(without, self.inner.prepare(without))

    def start(self, key: Array, data: ImputedData) -> State:
        return self.inner.start(key, data.inner)

    def adapt(self, state: State, data: ImputedData) -> tuple[State, Draws]:
        return self.inner.adapt(state, data.inner)

    def advance(self, state: State, data: ImputedData) -> tuple[State, Draws]:
        state, draws = self.inner.advance(state, data.inner)
        return state, draws._replace(samples=with_given_elements(data.bound, draws.samples))

    def run_summary(self, state: State, data: ImputedData) -> dict[str, float]:
        return self.inner.run_summary(state, data.inner)

    def weighted_draws(self, state: State, data: ImputedData) -> dict[str, Any]:
        draws = dict(self.inner.weighted_draws(state, data.inner))
        if not draws:
            return draws
        log_weight = draws.pop("log_weight")
        whole = jax.vmap(jax.vmap(lambda values: with_given_elements(data.bound, values)))(draws)
        return {**whole, "log_weight": log_weight}

    def convergence_verdict(
        self, state: State, data: ImputedData, samples: dict[str, Any]
    ) -> tuple[State | None, str] | None:
        return self.inner.convergence_verdict(state, data.inner, samples | self._missing(data.bound, samples))

    def form_of_conditionals(self, bound: Bound, samples: dict[str, Any]) -> tuple[Bound, dict[str, Any]]:
        without = without_given_elements(bound, self.gaps)
        chains = [
            self._missing(without, {name: values[chain] for name, values in samples.items()})
            for chain in range(len(next(iter(samples.values()))))
        ]
        missing = jax.tree.map(lambda *each: np.stack(each), *chains)
        return self.inner.form_of_conditionals(without, samples | missing)

    def _missing(self, without: Bound, samples: dict[str, Any]) -> dict[str, Any]:
        """The missing elements (draw, element, *event) of draws of whole sites (draw, *site)."""
        return {
            gaps.site: without_given(gaps, without.gaps[gaps.site], jnp.asarray(samples[gaps.site]))
            for gaps in self.gaps
            if gaps.site in samples
        }
