"""The plan of a method for data that are simulated again and again."""

from collections.abc import Collection, Mapping
from dataclasses import replace

import jax
import jax.numpy as jnp
from jax import Array

from bayeslab.planning import Plan, plan
from bayeslab.programs.program import Bound, Values
from bayeslab.sampling.protocols import Method, Sampler
from bayeslab.transforms.analysis import Analysis
from bayeslab.transforms.draw_checks import FalseConditional, check_draws

NUM_SIMULATED = 4
"""Simulated data sets for which rules have to hold. Two classes of eight rows, of which any share is as likely, are of
one size in one data set of nine, so in all of these once in 6,561 times."""


def plan_for_simulated(
    bound: Bound, method: Method, simulated: Collection[str], values: Mapping[str, Array] | None = None
) -> Plan:
    """The plan of a method whose rules hold for the given data, and for others that the program simulates.

    Rules are found for data, and rest on what is alike in them: where classes have one size their means have one
    precision, and effects whose labels never meet have none between them. Observed sites that are discrete have other
    values in every simulation. So this is the first plan, of those for the given data and for some simulated ones,
    whose rules hold for all; the one for the given data where none does.
    simulated: the observed sites that are. values: of latent sites that are not, (draw, *site).
    Raises ValueError where the method does not apply to the given data.
    """
    given = plan(Analysis(bound), method)
    if not (any(bound.sites[name].is_discrete for name in simulated) and _rests_on_labels(given.sampler, bound)):
        return given
    others = [_simulated(number, bound, simulated, values or {}) for number in range(NUM_SIMULATED)]
    for candidate in (bound, *(data for data, _ in others)):
        try:
            planned = given if candidate is bound else plan(Analysis(candidate), method)
        except ValueError:  # the method applies to other data only
            continue
        if all(_holds(planned.sampler, data, latent) for data, latent in others):
            return planned
    return given


def _rests_on_labels(sampler: Sampler, bound: Bound) -> bool:
    """Whether a rule has elements of which data may say which of them meet."""
    return any(rule.family.joint or rule.field is not None for _, rule in sampler.conditionals(bound))


def _simulated(
    number: int, bound: Bound, simulated: Collection[str], values: Mapping[str, Array]
) -> tuple[Bound, Values]:
    """The program with simulated data, and the values of its latent sites that these are drawn from."""
    known = {name: draws[number % len(draws)] for name, draws in values.items()}
    drawn = _drawn(jax.random.PRNGKey(number), bound, known)
    observed = {name: jnp.asarray(drawn[name], bound.observed[name].dtype) for name in simulated}
    return replace(bound, observed=dict(bound.observed) | observed), {name: drawn[name] for name in bound.latent}


@jax.jit
def _drawn(key: Array, bound: Bound, known: Values) -> Values:
    """The values of all sites in one run of the program, with some that are known."""
    return {name: site["value"] for name, site in bound.prior_draw(key, values=known).items()}


def _holds(sampler: Sampler, bound: Bound, latent: Values) -> bool:
    """Whether the rules of a sampler hold for some data, at values of the latent sites."""
    try:
        values = {name: value[None, None] for name, value in latent.items()}
        check_draws(*sampler.form_of_conditionals(bound, values), sampler.conditionals)
    except FalseConditional:
        return False
    return True
