"""The heart: the conditional of a site given everything else, and its local evidence, by differentiation.

For a latent site x with prior p(x | parents) and children c, the terms of the log joint that x reaches,

    g(x) = log p(x | parents) + sum over children of log p(c | x, ...),

are the log density of p(x | rest) up to a constant. If that is a member of a family, gradients of g at a few points
give its coefficients, and at any x*

    log of the integral of exp(g)  =  g(x*) - log p(x* | rest).

`Rule` says how a site is eliminated, `conditional` does it; `bayeslab.verification.findings` shows that it is right.
"""

import operator
from collections.abc import Callable, Sequence
from functools import lru_cache, partial, reduce
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import Distribution, biject_to

from bayeslab.distributions import Enumerated, JointNormal
from bayeslab.distributions.block_tridiagonal.step_normal import StepStructure
from bayeslab.distributions.markov.log_likelihoods import dense
from bayeslab.elimination.chain_families import step_block_conditional
from bayeslab.elimination.discrete.chains.tables import chain_conditional
from bayeslab.elimination.discrete.element_draws import possible
from bayeslab.elimination.discrete.joint import joint_conditional
from bayeslab.elimination.family import Eta, Family, Local, SiteFunction
from bayeslab.elimination.normal_blocks import (
    Densities,
    block_conditional,
    evidence_unless_rounded,
    table_name,
    tabled_conditional,
)
from bayeslab.elimination.rules import Block as Block
from bayeslab.elimination.rules import Rule as Rule
from bayeslab.elimination.terms import EnumeratedTerm, Prior, Term, sum_of_terms, terms
from bayeslab.programs.program import Bound, Values
from bayeslab.programs.tracing.repeated_axes import evaluate_at_choices, gradient_and_changes
from bayeslab.programs.tracing.repeated_operations import Repeated


class Conditional(NamedTuple):
    """distribution: p(site | everything else), of the shape of the site.

    log_evidence: log of the integral (or sum) over the site of its prior times its children, (*batch) where the
    elements of the site are independent and their children can be told apart, else ().
    """

    distribution: Distribution
    log_evidence: Array


TermDensities = Callable[[Array], list[Array]]
"""From a value of a site to the densities of the terms that it reaches."""


def conditional(
    rule: Rule,
    log_joint_terms: Sequence[Term],
    bound: Bound,
    values: Values,
    initial: Array | None = None,
    prior: Distribution | None = None,
) -> Conditional:
    """p(site | values) under the sum of some terms; the value of the site itself is not used.

    log_joint_terms: the terms whose sum is the log joint.
    initial: a likely value of the site, a draw of a Markov chain for example: gradients are taken there, once. Without
    it they are taken in the middle of the support, and again around what that gives.
    prior: the prior of the site, if not the one at these values.
    """
    site_terms = rule.reached(log_joint_terms)
    if rule.block is not None:

        def joint_density(x: Array) -> Array:
            return sum_of_terms(site_terms, bound, values | rule.named(x))

        if isinstance(rule.block, StepStructure):
            return Conditional(*step_block_conditional(rule.block, joint_density, initial))
        table: Any = values.get(table_name(rule.sites))
        if table is not None:
            return Conditional(*tabled_conditional(rule.block, table, block_densities(rule, site_terms, bound, values)))
        normal = block_conditional(rule.block, joint_density, initial)
        log_integral = joint_density(normal.mean) - normal.log_prob(normal.mean)
        return Conditional(normal, evidence_unless_rounded(normal, log_integral))
    if rule.field is not None and rule.field.chain is not None:
        return Conditional(*chain_conditional(rule.field, site_terms, bound, values))
    if rule.field is not None:
        return Conditional(*joint_conditional(rule.field, site_terms, bound, values))
    site = terms(bound).priors[rule.site]

    def term_densities(x: Array) -> list[Array]:
        return [term.density(bound, values | {rule.site: x}) for term in site_terms]

    family = rule.family
    if family.enumerates:
        return _enumerate(site, site_terms, bound, values)
    if len(site_terms) == 1 and site_terms[0].reader is not None:
        distribution, point = site_terms[0].reader(rule.site, bound, values)
        return Conditional(distribution, _log_evidence(rule, distribution, point, site, site_terms, term_densities))
    if prior is None:
        prior = site.distribution(bound, values | {rule.site: _placeholder(site, bound, values)})
    elif prior.shape() != site.shape:  # without the plates it is repeated in
        prior = prior.expand(site.shape[: len(site.shape) - site.event_dim])

    local = _local_functions(site, site_terms, bound, values)
    if family.joint:
        distribution, point = _normal_by_newton(rule, local.density, site.shape, initial)
    elif family.evidence is not None:
        eta = family.read(local, _placeholder(site, bound, values), prior)
        return Conditional(family.build(eta, prior), family.evidence(eta, prior))
    else:
        distribution, point = _read_family(family, local, prior, initial)
    return Conditional(distribution, _log_evidence(rule, distribution, point, site, site_terms, term_densities))


def block_densities(rule: Rule, site_terms: Sequence[Term], bound: Bound, values: Values) -> Densities:
    """Terms as functions of one vector of the values of jointly Normal sites."""

    def density(term: Term, x: Array) -> Array:
        return sum_of_terms([term], bound, values | rule.named(x))

    return {term.name: partial(density, term) for term in site_terms}


def likelihood_message(
    rule: Rule, log_joint_terms: Sequence[Term], bound: Bound, values: Values
) -> tuple[Distribution, Eta]:
    """The prior of a site that has a family, and the natural parameters of the likelihood message of its children."""
    site = terms(bound).priors[rule.site]
    site_terms = [term for term in log_joint_terms if rule.site in term.depends]
    placeholder = _placeholder(site, bound, values)
    prior = site.distribution(bound, values | {rule.site: placeholder})
    return prior, rule.family.read(_local_functions(site, site_terms, bound, values), placeholder, prior)


def _local_functions(prior: Prior, site_terms: Sequence[Term], bound: Bound, values: Values) -> Local:
    """The terms that a site reaches, as functions of its value."""

    def density(x: Array) -> Array:
        return sum_of_terms(site_terms, bound, values | {prior.name: x})

    others = [term for term in site_terms if term.name != prior.name and _enumerated_term(term, prior) is None]
    enumerated_likelihoods = [
        enumerated.log_likelihoods(bound, values)
        for term in site_terms
        if (enumerated := _enumerated_term(term, prior)) is not None
    ]
    if others or len(enumerated_likelihoods) > 1:
        enumerated_likelihoods = [dense(likelihoods) for likelihoods in enumerated_likelihoods]

    def likelihood(x: Array) -> Array:
        all_values = values | {prior.name: x}
        return sum(
            (sum_to_site(term.density(bound, all_values), term, prior)[0] for term in others), jnp.zeros(prior.shape)
        )

    return Local(density, likelihood, reduce(operator.add, enumerated_likelihoods) if enumerated_likelihoods else None)


def _enumerated_term(term: Term, prior: Prior) -> EnumeratedTerm | None:
    """The term at every value of a discrete site, where it can be computed for all of them at once; else None."""
    return term.choices if term.choices is not None and term.choices.site == prior.name else None


def _placeholder(prior: Prior, bound: Bound, values: Values) -> Array:
    """A value that only has the right shape and type: for priors, which do not depend on it."""
    return jnp.zeros(prior.shape, bound.sites[prior.name].dtype)


def _read_family(
    family: Family, local: Local, prior: Distribution, initial: Array | None
) -> tuple[Distribution, Array]:
    """The conditional of a site with a family, and the value at which its coefficients were read.

    They are read twice where no likely value is given.
    """
    if prior.support.is_discrete:
        q = family.build(family.read(local, jnp.zeros(prior.shape(), int), prior), prior)
        return q, q.sample(jax.random.PRNGKey(0))
    if initial is not None:
        return family.build(family.read(local, initial, prior), prior), initial
    transform = biject_to(prior.support)
    start = transform(jnp.zeros(transform.inverse_shape(prior.shape())))

    def step(point: Array, _: None) -> tuple[Array, tuple[Eta, Array]]:
        eta = family.read(local, point, prior)
        return family.typical(family.build(eta, prior), point), (eta, point)

    _, visited = jax.lax.scan(step, start, None, 2)
    eta, point = jax.tree.map(lambda leaf: leaf[-1], visited)
    return family.build(eta, prior), point


def _normal_by_newton(
    rule: Rule, density: SiteFunction, shape: tuple[int, ...], initial: Array | None
) -> tuple[Distribution, Array]:
    """The Normal conditional of a quadratic g by Newton's method, and its mean.

    Its Hessian is constant, and diagonal but for the coupled axes. One Newton step is exact; a second one, from close
    by, is for rounding.
    """
    gradient, coupled = jax.grad(density), rule.coupled
    start, steps = (jnp.zeros(shape), 2) if initial is None else (initial, 1)
    if not coupled:
        all_at_once = Repeated((np.ones((1,) * (1 + len(shape))),), (1, *shape))

        def step(mean: Array, _: None) -> tuple[Array, Array]:
            slope, [curvature] = gradient_and_changes(gradient, mean, all_at_once)
            return mean - slope / curvature, curvature

        mean, curvature = jax.lax.scan(step, start, None, steps)
        return dist.Normal(mean, 1 / jnp.sqrt(-curvature[0])), mean
    size = prod(shape[axis] for axis in coupled)
    batch_axes = [axis for axis in range(len(shape)) if axis not in coupled]
    axes_order = (*batch_axes, *coupled)
    batch = tuple(shape[axis] for axis in batch_axes)

    def flat(x: Array) -> Array:
        return jnp.transpose(x, axes_order).reshape(*batch, size)

    def unflat(x: Array) -> Array:
        inverse = [axes_order.index(axis) for axis in range(len(shape))]
        return jnp.transpose(x.reshape(*batch, *(shape[axis] for axis in coupled)), inverse)

    one_each = [shape[axis] if axis in coupled else 1 for axis in range(len(shape))]
    directions = Repeated((np.eye(size).reshape(size, *one_each),), (size, *shape))
    slope, changes = gradient_and_changes(gradient, start, directions)
    columns = jax.vmap(flat)(changes)
    if rule.same_precision:
        columns = columns.reshape(size, -1, size)[:, 0]
    precision = -jnp.moveaxis(columns, 0, -1)
    precision = (precision + precision.mT) / 2
    factor = jnp.linalg.cholesky(precision)
    inverse_factor = None
    if rule.same_precision:  # products with the inverse are ten times as fast as solves of all right-hand sides
        inverse_factor = jax.scipy.linalg.solve_triangular(factor, jnp.eye(size, dtype=factor.dtype), lower=True)

    def solve(x: Array) -> Array:
        if inverse_factor is not None:
            return x @ (inverse_factor.T @ inverse_factor)
        return jax.scipy.linalg.cho_solve((factor, True), x[..., None])[..., 0]

    mean = flat(start) + solve(flat(slope))
    if initial is None:
        mean += solve(flat(gradient(unflat(mean))))
    return JointNormal(mean, factor, tuple(coupled), tuple(shape), inverse=inverse_factor), unflat(mean)


def _enumerate(prior: Prior, site_terms: Sequence[Term], bound: Bound, values: Values) -> Conditional:
    """The conditional of an enumerated site: every element at every choice, all elements at once."""
    choices = jnp.asarray(prior.choices)
    enumerated_logits = [
        enumerated.density(bound, values)
        for term in site_terms
        if (enumerated := _enumerated_term(term, prior)) is not None
    ]
    others = [term for term in site_terms if _enumerated_term(term, prior) is None]

    def log_joint_at(x: Array) -> Array:
        arrays = [sum_to_site(term.density(bound, values | {prior.name: x}), term, prior)[0] for term in others]
        return sum(arrays, jnp.zeros(prior.shape))

    logits = sum(enumerated_logits, jnp.zeros(()))
    if others:
        logits += jnp.moveaxis(evaluate_at_choices(log_joint_at, prior.choices, prior.shape), 0, -1)
    log_evidence = _log_total(logits)
    event_axes = tuple(range(log_evidence.ndim - prior.event_dim, log_evidence.ndim))
    return Conditional(Enumerated(logits, choices).to_event(prior.event_dim), log_evidence.sum(event_axes))


def _log_total(logits: Array) -> Array:
    """The log of the sum over the last axis; where no choice is possible it is -inf, with a derivative of zero."""
    return jnp.where(jnp.isneginf(logits).all(-1), -jnp.inf, jax.nn.logsumexp(possible(logits), axis=-1))


def _log_evidence(
    rule: Rule, q: Distribution, point: Array, prior: Prior, site_terms: Sequence[Term], term_densities: TermDensities
) -> Array:
    """The local log evidence g(x*) - log p(x* | rest), (*batch) if the terms can be told apart, else ()."""
    densities = term_densities(point)
    summed = [sum_to_site(part, term, prior) for part, term in zip(densities, site_terms, strict=True)]
    if rule.coupled or any(shared for _, shared in summed):
        return sum((part.sum() for part in densities), jnp.zeros(())) - jnp.sum(q.log_prob(point))
    event_axes = tuple(range(len(prior.shape) - prior.event_dim, len(prior.shape)))
    joint = sum((array for array, _ in summed), jnp.zeros(prior.shape)).sum(event_axes)
    log_q = q.log_prob(point)
    return joint - log_q.sum(tuple(range(joint.ndim, log_q.ndim)))


def sum_to_site(part: Array, term: Term, prior: Prior) -> tuple[Array, bool]:
    """A term summed to the elements of a site (*batch, *event), and whether a part of it belongs to several at once.

    Axes of the batch meet axes of the batch, from the right as plates do, and events meet events, or their first axes
    where the term has more, as features of a step; where one of the two has no batch, its axes meet whatever the other
    has. What belongs to several elements goes to the first of them: the site is then not elementwise in this term.
    """
    term_batch_ndim = part.ndim if term.batch_ndim is None else term.batch_ndim
    term_event_ndim, batch = part.ndim - term_batch_ndim, len(prior.shape) - prior.event_dim
    event = prior.shape[batch:]
    has_feature_axes = term_event_ndim > len(event) > 0 and part.shape[term_batch_ndim:][: len(event)] == event
    if has_feature_axes and (term_batch_ndim > 0 or part.shape[-len(event) :] != event):
        part, term_event_ndim = part.sum(tuple(range(term_batch_ndim + len(event), part.ndim))), len(event)
    events_match = part.shape[term_batch_ndim:] == event
    if not (events_match or term_batch_ndim == 0 or (batch == 0 and term_event_ndim == 0)):
        part = part.sum(tuple(range(term_batch_ndim, part.ndim)))
        part = part.reshape(part.shape + (1,) * prior.event_dim)
    part = part.sum(tuple(range(part.ndim - len(prior.shape)))) if part.ndim > len(prior.shape) else part
    part = part.reshape((1,) * (len(prior.shape) - part.ndim) + part.shape)
    mismatched = [i for i, (own, size) in enumerate(zip(part.shape, prior.shape, strict=True)) if own not in (1, size)]
    part = part.sum(mismatched, keepdims=True)
    shared = part.shape[:batch] != prior.shape[:batch]
    behind = [(0, size - own) for own, size in zip(part.shape, prior.shape, strict=True)]
    return (jnp.pad(part, behind) if part.shape != prior.shape else part), shared


def elimination_stages(rules: Sequence[Rule], log_joint_terms: tuple[Term, ...]) -> list[tuple[Term, ...]]:
    """For each of several eliminations, one after the other, the terms before it."""
    before = []
    for rule in rules:
        before.append(log_joint_terms)
        log_joint_terms = without(rule, log_joint_terms)
    return before


@lru_cache(maxsize=256)
def without(rule: Rule, log_joint_terms: tuple[Term, ...]) -> tuple[Term, ...]:
    """The terms with a site integrated out: those it reaches become one, its local evidence.

    The same arguments give the same terms, so that what is compiled for them is compiled once.
    """
    site_terms = rule.reached(log_joint_terms)

    def log_evidence(bound: Bound, values: Values) -> Array:
        return conditional(rule, log_joint_terms, bound, values).log_evidence

    others = [term for term in log_joint_terms if term not in site_terms]
    holds = frozenset().union(*(term.holds or {term.name} for term in site_terms))
    kinks = frozenset().union(*(term.kinks for term in site_terms))
    name = f"evidence of {rule.site}"
    return (*others, Term(name, rule.blanket(site_terms), log_evidence, None, holds=holds, kinks=kinks))
