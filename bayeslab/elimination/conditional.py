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
from functools import lru_cache, reduce
from math import prod
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import Distribution, biject_to

from bayeslab.distributions import Enumerated, JointNormal
from bayeslab.distributions.markov.log_likelihoods import array_of
from bayeslab.elimination.family import Eta, Family, Function, Local
from bayeslab.elimination.terms import Choices, Prior, Term, reaching, terms, total
from bayeslab.programs.program import Bound, Values


class Conditional(NamedTuple):
    """distribution: p(site | everything else), of the shape of the site.

    log_evidence: log of the integral (or sum) over the site of its prior times its children, (*batch) where the
    elements of the site are independent and their children can be told apart, else ().
    """

    distribution: Distribution
    log_evidence: Array


class Rule(NamedTuple):
    """How a site is eliminated.

    family: the row of the table.
    coupled: axes of the site over which a Normal is joint; the others hold independent elements.
    children: the terms that it reaches, its own prior apart.
    """

    site: str
    family: Family
    coupled: tuple[int, ...]
    children: tuple[str, ...]


Block = tuple[Rule, ...]
"""Sites that are taken jointly, in the order in which they are eliminated; often one."""

Parts = Callable[[Array], list[Array]]
"""From a value of a site to the densities of the terms that it reaches."""


def conditional(
    rule: Rule,
    of: Sequence[Term],
    bound: Bound,
    values: Values,
    near: Array | None = None,
    drawn: Distribution | None = None,
) -> Conditional:
    """p(site | values) under the sum of some terms; the value of the site itself is not used.

    log_joint_terms: the terms whose sum is the log joint.
    initial: a likely value of the site, a draw of a Markov chain for example: gradients are taken there, once. Without
    it they are taken in the middle of the support, and again around what that gives.
    prior: the prior of the site, if not the one at these values.
    """
    site = terms(bound).priors[rule.site]
    site_terms = [term for term in of if rule.site in term.depends]

    def term_densities(x: Array) -> list[Array]:
        return [term.density(bound, values | {rule.site: x}) for term in site_terms]

    family = rule.family
    if family.enumerates:
        return _enumerated(site, site_terms, bound, values)
    if len(site_terms) == 1 and site_terms[0].reader is not None:
        distribution, point = site_terms[0].reader(rule.site, bound, values)
        return Conditional(distribution, _evidence(rule, distribution, point, site, site_terms, term_densities))
    if drawn is None:
        drawn = site.distribution(bound, values | {rule.site: _middle(site, bound, values)})
    elif drawn.shape() != site.shape:  # without the plates it is repeated in
        drawn = drawn.expand(site.shape[: len(site.shape) - site.event_dim])

    local = _local(site, site_terms, bound, values)
    if family.joint:
        distribution, point = _normal(rule.coupled, local.density, site.shape, near)
    elif family.evidence is not None:
        eta = family.read(local, _middle(site, bound, values), drawn)
        return Conditional(family.build(eta, drawn), family.evidence(eta, drawn))
    else:
        distribution, point = _of_family(family, local, drawn, near)
    return Conditional(distribution, _evidence(rule, distribution, point, site, site_terms, term_densities))


def evidence(rule: Rule, of: Sequence[Term], bound: Bound, values: Values) -> tuple[Distribution, Eta]:
    """The prior of a site that has a family, and the natural parameters of the likelihood message of its children."""
    site = terms(bound).priors[rule.site]
    site_terms = [term for term in of if rule.site in term.depends]
    placeholder = _middle(site, bound, values)
    prior = site.distribution(bound, values | {rule.site: placeholder})
    return prior, rule.family.read(_local(site, site_terms, bound, values), placeholder, prior)


def _local(prior: Prior, mine: Sequence[Term], bound: Bound, values: Values) -> Local:
    """The terms that a site reaches, as functions of its value."""

    def density(x: Array) -> Array:
        return total(mine, bound, values | {prior.name: x})

    others = [term for term in mine if term.name != prior.name and _at_every_value(term, prior) is None]
    enumerated_likelihoods = [
        enumerated.log_likelihoods(bound, values)
        for term in mine
        if (enumerated := _at_every_value(term, prior)) is not None
    ]
    if others or len(enumerated_likelihoods) > 1:
        enumerated_likelihoods = [array_of(likelihoods) for likelihoods in enumerated_likelihoods]

    def likelihood(x: Array) -> Array:
        all_values = values | {prior.name: x}
        return sum(
            (aligned(term.density(bound, all_values), term, prior)[0] for term in others), jnp.zeros(prior.shape)
        )

    return Local(density, likelihood, reduce(operator.add, enumerated_likelihoods) if enumerated_likelihoods else None)


def _at_every_value(term: Term, prior: Prior) -> Choices | None:
    """The term at every value of a discrete site, where it can be computed for all of them at once; else None."""
    return term.choices if term.choices is not None and term.choices.site == prior.name else None


def _middle(prior: Prior, bound: Bound, values: Values) -> Array:
    """A value that only has the right shape and type: for priors, which do not depend on it."""
    return jnp.zeros(prior.shape, bound.sites[prior.name].dtype)


def _of_family(family: Family, local: Local, prior: Distribution, near: Array | None) -> tuple[Distribution, Array]:
    """The conditional of a site with a family, and the value at which its coefficients were read.

    They are read twice where no likely value is given.
    """
    if prior.support.is_discrete:
        q = family.build(family.read(local, jnp.zeros(prior.shape(), int), prior), prior)
        return q, q.sample(jax.random.PRNGKey(0))
    if near is not None:
        return family.build(family.read(local, near, prior), prior), near
    transform = biject_to(prior.support)
    start = transform(jnp.zeros(transform.inverse_shape(prior.shape())))

    def step(point: Array, _: None) -> tuple[Array, tuple[Eta, Array]]:
        eta = family.read(local, point, prior)
        return family.typical(family.build(eta, prior), point), (eta, point)

    _, visited = jax.lax.scan(step, start, None, 2)
    eta, point = jax.tree.map(lambda leaf: leaf[-1], visited)
    return family.build(eta, prior), point


def _normal(
    coupled: tuple[int, ...], density: Function, shape: tuple[int, ...], near: Array | None
) -> tuple[Distribution, Array]:
    """The Normal conditional of a quadratic g by Newton's method, and its mean.

    Its Hessian is constant, and diagonal but for the coupled axes. One Newton step is exact; a second one, from close
    by, is for rounding.
    """
    gradient = jax.grad(density)
    start, steps = (jnp.zeros(shape), 2) if near is None else (near, 1)
    if not coupled:

        def step(mean: Array, _: None) -> tuple[Array, Array]:
            slope, curvature = jax.jvp(gradient, (mean,), (jnp.ones(shape),))
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

    slope, change = jax.linearize(gradient, start)

    def column(direction: Array) -> Array:
        return flat(change(unflat(jnp.broadcast_to(direction, (*batch, size)))))

    precision = -jnp.moveaxis(jax.vmap(column)(jnp.eye(size)), 0, -1)
    precision = (precision + precision.mT) / 2
    factor = jnp.linalg.cholesky(precision)

    def solve(x: Array) -> Array:
        return jax.scipy.linalg.cho_solve((factor, True), x[..., None])[..., 0]

    mean = flat(start) + solve(flat(slope))
    if near is None:
        mean += solve(flat(gradient(unflat(mean))))
    return JointNormal(mean, factor, tuple(coupled), tuple(shape)), unflat(mean)


def _enumerated(prior: Prior, mine: Sequence[Term], bound: Bound, values: Values) -> Conditional:
    """The conditional of an enumerated site: every element at every choice, all elements at once."""
    choices = jnp.asarray(prior.choices)
    enumerated_logits = [
        enumerated.density(bound, values) for term in mine if (enumerated := _at_every_value(term, prior)) is not None
    ]
    others = [term for term in mine if _at_every_value(term, prior) is None]

    def log_joint_at(choice: Array) -> Array:
        all_values = values | {prior.name: jnp.full(prior.shape, choice)}
        arrays = [aligned(term.density(bound, all_values), term, prior)[0] for term in others]
        return sum(arrays, jnp.zeros(prior.shape))

    logits = sum(enumerated_logits, jax.vmap(log_joint_at, out_axes=-1)(choices) if others else jnp.zeros(()))
    log_evidence = jax.nn.logsumexp(logits, axis=-1)
    event_axes = tuple(range(log_evidence.ndim - prior.event_dim, log_evidence.ndim))
    return Conditional(Enumerated(logits, choices).to_event(prior.event_dim), log_evidence.sum(event_axes))


def _evidence(rule: Rule, drawn: Distribution, at: Array, prior: Prior, mine: Sequence[Term], parts: Parts) -> Array:
    """The local log evidence g(x*) - log p(x* | rest), (*batch) if the terms can be told apart, else ()."""
    densities = parts(at)
    summed = [aligned(part, term, prior) for part, term in zip(densities, mine, strict=True)]
    if rule.coupled or any(shared for _, shared in summed):
        return sum((part.sum() for part in densities), jnp.zeros(())) - jnp.sum(drawn.log_prob(at))
    event_axes = tuple(range(len(prior.shape) - prior.event_dim, len(prior.shape)))
    joint = sum((array for array, _ in summed), jnp.zeros(prior.shape)).sum(event_axes)
    log_q = drawn.log_prob(at)
    return joint - log_q.sum(tuple(range(joint.ndim, log_q.ndim)))


def aligned(part: Array, term: Term, prior: Prior) -> tuple[Array, bool]:
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
    corner = tuple(slice(0, own) for own in part.shape)
    return jnp.zeros(prior.shape).at[corner].add(part), shared


def stages(rules: Sequence[Rule], of: tuple[Term, ...]) -> list[tuple[Term, ...]]:
    """For each of several eliminations, one after the other, the terms before it."""
    before = []
    for rule in rules:
        before.append(of)
        of = without(rule, of)
    return before


@lru_cache(maxsize=256)
def without(rule: Rule, of: tuple[Term, ...]) -> tuple[Term, ...]:
    """The terms with a site integrated out: those it reaches become one, its local evidence.

    The same arguments give the same terms, so that what is compiled for them is compiled once.
    """
    site_terms = [term for term in of if rule.site in term.depends]

    def log_evidence(bound: Bound, values: Values) -> Array:
        return conditional(rule, of, bound, values).log_evidence

    others = [term for term in of if rule.site not in term.depends]
    holds = frozenset().union(*(term.holds or {term.name} for term in site_terms))
    kinks = frozenset().union(*(term.kinks for term in site_terms))
    name = f"evidence of {rule.site}"
    return (*others, Term(name, reaching(site_terms, rule.site), log_evidence, None, holds=holds, kinks=kinks))
