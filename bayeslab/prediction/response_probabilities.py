"""Probabilities of the classes of new rows where a program draws classes given covariates, as in logistic regression.

Nothing depends on such a response, so its distribution given the parameters of a draw is all there is: it is averaged
over draws, and nothing is counted. What others depend on is for `class_probabilities`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import MaskedDistribution
from numpyro.handlers import condition, substitute, trace

from bayeslab.elimination.terms import terms
from bayeslab.prediction.class_probabilities import ClassProbabilities, class_probabilities
from bayeslab.prediction.known_sites import goes_on_from_itself, known_of, sites_that_others_depend_on
from bayeslab.programs.missing.names import whole_site
from bayeslab.programs.program import Bound, Values

MAX_CLASSES = 64
"""Values of a site, at most, of which probabilities are tabulated."""


def response_probabilities(
    bound: Bound, latent: Values, groups: Mapping[str, tuple[int, ...]]
) -> dict[str, ClassProbabilities]:
    """The probabilities of values, by site, of discrete sites on which none depends.

    bound: of new rows, values of such sites known or not: they are not used, but scored. latent: draws (draw, *site).
    What such a site depends on beside what has draws, as a label of its row, is summed over. groups: see `known_of`.
    """
    discrete = [name for name, site in bound.sites.items() if site.is_discrete and not site.event_dim and site.shape]
    candidates = [name for name in discrete if name in bound.observed or (name in bound.latent and name not in latent)]
    if candidates:
        others_use = {*sites_that_others_depend_on(bound), *bound.imputed}
        candidates = [name for name in candidates if name not in others_use and whole_site(name) == name]
        candidates = [name for name in candidates if not goes_on_from_itself(bound, name)]
    if not candidates:
        return {}
    unknown = _without_values(bound, candidates)
    program, tables = terms(unknown), dict[str, ClassProbabilities]()
    for name in candidates:
        choices = program.priors[name].choices if name in program.priors else None
        if choices is None or len(choices) > MAX_CLASSES:
            continue
        if not _is_response(name, unknown, latent):
            tables |= _given_own_sites(bound, latent, groups, name)
            continue
        log_mean = np.asarray(_averaged(unknown, latent, jnp.asarray(choices), name))
        tables[name] = ClassProbabilities(np.asarray(choices), log_mean, _scores(bound, name, choices, log_mean))
    return tables


def _without_values(bound: Bound, names: Sequence[str]) -> Bound:
    """The program in which nothing is known of some sites."""
    kept = {name: value for name, value in bound.observed.items() if name not in names}
    return replace(bound, observed=kept, present={n: mask for n, mask in bound.present.items() if n in kept})


def _given_own_sites(
    bound: Bound, latent: Values, groups: Mapping[str, tuple[int, ...]], name: str
) -> dict[str, ClassProbabilities]:
    """The probabilities of a site, with known values, that depends on others of its row; of one without any
    `class_probabilities` has them."""
    if name not in bound.observed:
        return {}
    known = known_of(_without_values(bound, [name]), latent, groups)
    found = class_probabilities(known, latent, len(next(iter(latent.values()))), sites=(name,))
    return {
        site: table._replace(log_probability=_scores(bound, site, table.values, table.log_mean))
        for site, table in found.items()
    }


def _is_response(name: str, bound: Bound, latent: Values) -> bool:
    """Whether no other site depends on a site, and all that it depends on has draws."""
    own = next(term for term in terms(bound).terms if term.name == name)
    others = [term for term in terms(bound).terms if term.name != name and name in term.depends]
    return not others and {*own.depends} - {name} <= latent.keys()


def _scores(bound: Bound, name: str, choices: np.ndarray, log_mean: np.ndarray) -> np.ndarray | None:
    """The log probability of the values that are known (1, *site), NaN where they are missing; None where none is."""
    if name not in bound.observed:
        return None
    index = np.argmin(np.abs(np.asarray(bound.observed[name])[..., None] - np.asarray(choices)), -1)
    score = np.take_along_axis(log_mean, index[..., None], -1)[..., 0]
    return np.where(np.asarray(bound.present.get(name, True)), score, np.nan)[None]


@partial(jax.jit, static_argnames="name")
def _averaged(bound: Bound, latent: Values, choices: Array, name: str) -> Array:
    """The log of the mean over draws of the probability of every value, (*site, value)."""

    def step(total: Array, values: Values) -> tuple[Array, None]:
        model = condition(bound.unconditioned(jax.random.PRNGKey(0)), data=bound.observed)
        distribution = trace(substitute(model, data=values)).get_trace(**bound.inputs)[name]["fn"]
        while isinstance(distribution, MaskedDistribution):
            distribution = distribution.base_dist
        shape = bound.sites[name].shape
        log_probs = jnp.stack(
            [distribution.log_prob(jnp.full(shape, value, bound.sites[name].dtype)) for value in choices], -1
        )
        return jnp.logaddexp(total, jax.nn.log_softmax(log_probs)), None

    start = jnp.full((*bound.sites[name].shape, len(choices)), -jnp.inf)
    return jax.lax.scan(step, start, latent)[0] - jnp.log(len(next(iter(latent.values()))))
