"""Probabilities of the values of discrete sites given what else is known of their row, by elimination.

The label of a generative classifier, a node of a network: for every draw of the parameters the site is summed over with
all that is known beside it, so that nothing is counted. The average over draws is p(value | rest of the row, data), and
the log probability of a value that is known a log score, or, for data of the fit, what `az.loo` needs to leave it out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bayeslab.elimination.conditional import Rule, conditional
from bayeslab.elimination.terms import terms
from bayeslab.prediction.known_sites import Known, informed_sites, known_of, own_ancestors, without_uninformed
from bayeslab.prediction.pointwise_likelihood import labels_one_by_one, row_sites
from bayeslab.programs.missing.names import given_part
from bayeslab.programs.program import Bound, Values
from bayeslab.transforms.analysis import Analysis
from bayeslab.transforms.collapse import marginal

if TYPE_CHECKING:
    from xarray import Dataset

GIVEN_THE_REST = " given the rest"
"""What the name of a site gets for log probabilities of its values given all else that is known of their row."""


class ClassProbabilities(NamedTuple):
    """Probabilities of the values of one site, its own known values not used.

    values: those that it may have. log_mean: log of the probability of each, averaged over draws, (*site, value).
    log_probability: of the value that is known (draw, *site), NaN where it is missing; None where none is known.
    """

    values: np.ndarray
    log_mean: np.ndarray
    log_probability: np.ndarray | None


def class_probabilities(
    known: Known, latent: Values, num_draws: int, only_known: bool = False, sites: Sequence[str] | None = None
) -> dict[str, ClassProbabilities]:
    """The probabilities of the values of all discrete sites of rows, by site.

    latent: draws (draw, *site) of the others, num_draws of them. Sites whose elements depend on each other given all
    else have none, nor have those beside which other sites cannot be integrated out. only_known: of sites of which some
    values are known. sites: those that are asked for, if not all.
    """
    bound, tables = known.bound, {}
    for site in known.own if sites is None else sites:
        choices = terms(bound).priors[site].choices
        if choices is None or bound.sites[site].event_dim or (only_known and site not in bound.imputed):
            continue
        fixed = {name: value for name, value in latent.items() if name not in known.by_draw}
        alone = _marginal_beside(known, site, {name: value[0] for name, value in fixed.items()})
        if alone is None:
            continue
        by_draw = {given_part(name): latent[name] for name in known.by_draw}
        given = bound.observed[given_part(site)] if site in bound.imputed else jnp.zeros(bound.sites[site].shape)
        index = jnp.argmin(jnp.abs(given[..., None] - choices), -1)
        log_mean, log_probability = _averaged(alone.bound, fixed, by_draw, index, alone.rule, num_draws)
        scores = None
        if site in bound.imputed:
            scores = np.where(bound.present[given_part(site)], log_probability, np.nan)
        tables[site] = ClassProbabilities(np.asarray(choices), np.asarray(log_mean), scores)
    return tables


def class_probabilities_of_fit(bound: Bound, latent: Values) -> dict[str, ClassProbabilities]:
    """The probabilities of known values of discrete sites that others depend on, for the data of the fit.

    latent: draws (draw, *site) of the fit; those of sites that belong to rows are not used.
    """
    private = row_sites(bound)
    shared = {name: value for name, value in latent.items() if name not in private}
    if not shared or not any(site.role == "observed" and site.is_discrete for site in bound.sites.values()):
        return {}
    known = known_of(bound, shared, {})
    num_draws = len(next(iter(shared.values())))
    return class_probabilities(known, shared, num_draws, only_known=True) if known.bound.imputed else {}


def probabilities_dataset(
    tables: Mapping[str, ClassProbabilities], dims: Mapping[str, list[str]], categories: Mapping[str, Sequence[str]]
) -> "Dataset":
    """Probabilities of values (*site, value) and log scores (*site) as a Dataset.

    dims: of sites. categories: what the values of a site stand for, where they have names.
    """
    from xarray import Dataset

    dataset = Dataset()
    for name, table in tables.items():
        value_dim = f"{name}_value"
        labels = categories.get(name, ())
        dataset[name] = ((*dims[name], value_dim), np.exp(table.log_mean))
        dataset = dataset.assign_coords({value_dim: [labels[v] for v in table.values] if labels else table.values})
        if table.log_probability is not None:
            number = len(table.log_probability)
            with np.errstate(invalid="ignore"):  # NaN where no value is known
                log_score = np.logaddexp.reduce(table.log_probability, axis=0) - np.log(number)
            dataset[f"{name}_log_score"] = (tuple(dims[name]), log_score)
    return dataset


class _Alone(NamedTuple):
    """A program in which one site is left of those of rows. rule: eliminates it."""

    bound: Bound
    rule: Rule


def _marginal_beside(known: Known, site: str, values: Values) -> _Alone | None:
    """The program without the known values of a site, all other sites that are informed integrated out: together, or,
    where that leaves no rows apart, as in a network with loops, one after another. values: of one draw."""
    kept = {site, *informed_sites(known), *own_ancestors(known, site)}
    bound = without_uninformed(known, kept)
    if site in bound.imputed:
        none = jnp.zeros_like(bound.present[given_part(site)])
        bound = replace(bound, present=bound.present | {given_part(site): none})
    others = tuple(name for name in known.own if name in kept - {site})
    try:
        together = marginal(bound, others)
        [finding] = Analysis(together).findings_of([site])
        if finding.rule is None and others:
            choice = jnp.asarray(terms(bound).priors[site].choices)[0]
            at = values | {site: jnp.full(bound.sites[site].shape, choice, bound.sites[site].dtype)}
            one_by_one = labels_one_by_one(together, Analysis(bound), at)
            if one_by_one is not None:
                together = one_by_one
                [finding] = Analysis(together).findings_of([site])
    except ValueError:
        return None
    return None if finding.rule is None or not finding.rule.family.enumerates else _Alone(together, finding.rule)


@partial(jax.jit, static_argnames=("rule", "num_draws"))
def _averaged(
    bound: Bound, fixed: Values, by_draw: Values, index: Array, rule: Rule, num_draws: int
) -> tuple[Array, Array]:
    """The log of mean probabilities (*site, value), and log probabilities (draw, *site) of the values at `index`."""
    log_joint_terms = terms(bound).terms

    def step(total: Array, at: tuple[Values, Values]) -> tuple[Array, Array]:
        values, given = at
        here = replace(bound, observed=bound.observed | given)
        log_probs = jax.nn.log_softmax(conditional(rule, log_joint_terms, here, values).distribution.logits)
        return jnp.logaddexp(total, log_probs), jnp.take_along_axis(log_probs, index[..., None], -1)[..., 0]

    size = len(terms(bound).priors[rule.site].choices)  # type: ignore[arg-type]
    total, scores = jax.lax.scan(step, jnp.full((*index.shape, size), -jnp.inf), (fixed, by_draw), num_draws)
    return total - jnp.log(num_draws), scores
