"""Data that a posterior predicts without error, so that the prior alone says how far coefficients go.

A. Albert and J. A. Anderson (1984), On the existence of maximum likelihood estimates in logistic regression models,
Biometrika 71, 1-10.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from math import prod

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bayeslab.elimination.terms import Term, sum_of_terms, terms
from bayeslab.programs.program import Bound, Values
from bayeslab.programs.tracing.compilation import evaluate_all

MAX_LOSS_NATS, MAX_LOSS_PER_ROW = 1.0, 0.1
"""Minus the log likelihood of all values of a discrete site, and its mean, up to which they are predicted without
error: where no line separates classes one row costs log 2, wherever coefficients are."""
NUM_DRAWS_LOOKED_AT = 64
"""Draws at which the log likelihood is computed, about."""


def describe_separation(bound: Bound, draws: Mapping[str, Array | np.ndarray]) -> str:
    """A sentence on a discrete site whose observed values are all but certain at most draws, or nothing.

    draws: (chain, draw, *site) of the latent sites.
    """
    bound = bound.plain
    for term in terms(bound).terms:
        site, names = bound.sites.get(term.name), sorted(term.depends)
        if site is None or site.role != "observed" or not site.is_discrete or prod(site.shape) < 2:
            continue
        if not names or not term.depends <= draws.keys() or any(bound.sites[name].is_discrete for name in names):
            continue
        drawn = {name: np.asarray(draws[name]).reshape(-1, *bound.sites[name].shape) for name in names}
        step = -(-len(drawn[names[0]]) // NUM_DRAWS_LOOKED_AT)
        values = {name: jnp.asarray(each[::step]) for name, each in drawn.items()}
        log_likelihoods = evaluate_all([_log_likelihoods(term)], (bound, values))[0]
        if -np.median(log_likelihoods) <= min(MAX_LOSS_NATS, MAX_LOSS_PER_ROW * prod(site.shape)):
            listed = " and ".join(f"'{name}'" for name in names)
            return (
                f"at most draws all {prod(site.shape):,} values of '{term.name}' are predicted without error, as where "
                f"a line separates classes, so only the prior bounds {listed}, and chains diverge or mix slowly far "
                f"out; give {listed} a prior with a scale of a few units"
            )
    return ""


@lru_cache(maxsize=64)
def _log_likelihoods(term: Term) -> Callable[[tuple[Bound, Values]], Array]:
    """A function that gives a term at several draws; the same one for the same term, so that it is compiled once."""

    def at_draws(argument: tuple[Bound, Values]) -> Array:
        bound, values = argument
        return jax.lax.map(lambda each: sum_of_terms([term], bound, each), values)

    return at_draws
