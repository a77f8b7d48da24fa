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


def conditional(
    rule: Rule,
    of: Sequence[Term],
    bound: Bound,
    values: Values,
    near: Array | None = None,
    drawn: Distribution | None = None,
) -> Conditional:
    """p(site | values) under the sum of the terms `of`; the value of the site itself is not used.

    near: a likely value of the site, a draw of a Markov chain for example: gradients are taken there, once. Without
    it they are taken in the middle of the support, and again around what that gives.
    drawn: its prior, if not the one at these values.
    """
    prior = terms(bound).priors[rule.site]
    mine = [term for term in of if rule.site in term.depends]

    def parts(x: Array) -> list[Array]:
        return [term.density(bound, values | {rule.site: x}) for term in mine]

    family = rule.family
    if family.enumerates:
        return _enumerated(prior, mine, bound, values)
    if len(mine) == 1 and mine[0].reader is not None:
        distribution, at = mine[0].reader(rule.site, bound, values)
        return Conditional(distribution, _evidence(rule, distribution, at, prior, mine, parts))
    if drawn is None:
        drawn = prior.distribution(bound, values | {rule.site: _middle(prior, bound, values)})
    elif drawn.shape() != prior.shape:  # without the plates it is repeated in
        drawn = drawn.expand(prior.shape[: len(prior.shape) - prior.event_dim])

    local = _local(prior, mine, bound, values)
    if family.joint:
        distribution, at = _normal(rule.coupled, local.density, prior.shape, near)
    elif family.evidence is not None:
        eta = family.read(local, _middle(prior, bound, values), drawn)
        return Conditional(family.build(eta, drawn), family.evidence(eta, drawn))
    else:
        distribution, at = _of_family(family, local, drawn, near)
    return Conditional(distribution, _evidence(rule, distribution, at, prior, mine, parts))


def evidence(rule: Rule, of: Sequence[Term], bound: Bound, values: Values) -> tuple[Distribution, Eta]:
    """The prior of a site that has a family, and the coefficients of what its children say of it."""
    prior = terms(bound).priors[rule.site]
    mine = [term for term in of if rule.site in term.depends]
    anywhere = _middle(prior, bound, values)
    drawn = prior.distribution(bound, values | {rule.site: anywhere})
    return drawn, rule.family.read(_local(prior, mine, bound, values), anywhere, drawn)


def _local(prior: Prior, mine: Sequence[Term], bound: Bound, values: Values) -> Local:
    """The terms that a site reaches, as functions of its value."""

    def density(x: Array) -> Array:
        return total(mine, bound, values | {prior.name: x})

    others = [term for term in mine if term.name != prior.name and _at_every_value(term, prior) is None]
    known = [c.evidence(bound, values) for term in mine if (c := _at_every_value(term, prior)) is not None]
    if others or len(known) > 1:
        known = [array_of(one) for one in known]

    def likelihood(x: Array) -> Array:
        given = values | {prior.name: x}
        return sum((aligned(term.density(bound, given), term, prior)[0] for term in others), jnp.zeros(prior.shape))

    return Local(density, likelihood, reduce(operator.add, known) if known else None)


def _at_every_value(term: Term, prior: Prior) -> Choices | None:
    """What a term says of every value of a discrete site, where it knows that at once."""
    return term.choices if term.choices is not None and term.choices.site == prior.name else None


def _middle(prior: Prior, bound: Bound, values: Values) -> Array:
    """A value that only has the right shape: for priors that do not depend on it."""
    return jnp.zeros(prior.shape, bound.sites[prior.name].dtype)


def _of_family(family: Family, local: Local, prior: Distribution, near: Array | None) -> tuple[Distribution, Array]:
    """Read the coefficients, twice where it is not known where to look."""
    if prior.support.is_discrete:
        drawn = family.build(family.read(local, jnp.zeros(prior.shape(), int), prior), prior)
        return drawn, drawn.sample(jax.random.PRNGKey(0))
    if near is not None:
        return family.build(family.read(local, near, prior), prior), near
    transform = biject_to(prior.support)
    middle = transform(jnp.zeros(transform.inverse_shape(prior.shape())))

    def step(at: Array, _: None) -> tuple[Array, tuple[Eta, Array]]:
        eta = family.read(local, at, prior)
        return family.typical(family.build(eta, prior), at), (eta, at)

    _, read = jax.lax.scan(step, middle, None, 2)
    eta, at = jax.tree.map(lambda leaf: leaf[-1], read)
    return family.build(eta, prior), at


def _normal(
    coupled: tuple[int, ...], density: Function, shape: tuple[int, ...], near: Array | None
) -> tuple[Distribution, Array]:
    """g is quadratic: its gradient and its constant Hessian, which is diagonal but for the coupled axes.

    A step of Newton's is exact; a second one, from close by, is for rounding.
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
    apart = [axis for axis in range(len(shape)) if axis not in coupled]
    order = (*apart, *coupled)
    batch = tuple(shape[axis] for axis in apart)

    def flat(x: Array) -> Array:
        return jnp.transpose(x, order).reshape(*batch, size)

    def unflat(x: Array) -> Array:
        inverse = [order.index(axis) for axis in range(len(shape))]
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
    """Every element of the site at every choice, all elements at once."""
    choices = jnp.asarray(prior.choices)
    known = [c.density(bound, values) for term in mine if (c := _at_every_value(term, prior)) is not None]
    others = [term for term in mine if _at_every_value(term, prior) is None]

    def at(choice: Array) -> Array:
        given = values | {prior.name: jnp.full(prior.shape, choice)}
        arrays = [aligned(term.density(bound, given), term, prior)[0] for term in others]
        return sum(arrays, jnp.zeros(prior.shape))

    logits = sum(known, jax.vmap(at, out_axes=-1)(choices) if others else jnp.zeros(()))
    evidence = jax.nn.logsumexp(logits, axis=-1)
    event = tuple(range(evidence.ndim - prior.event_dim, evidence.ndim))
    return Conditional(Enumerated(logits, choices).to_event(prior.event_dim), evidence.sum(event))


def _evidence(rule: Rule, drawn: Distribution, at: Array, prior: Prior, mine: Sequence[Term], parts: Parts) -> Array:
    """g(x*) - log p(x* | rest), for every element of the batch if the terms can be told apart."""
    density = parts(at)
    placed = [aligned(part, term, prior) for part, term in zip(density, mine, strict=True)]
    if rule.coupled or any(shared for _, shared in placed):
        return sum((part.sum() for part in density), jnp.zeros(())) - jnp.sum(drawn.log_prob(at))
    event = tuple(range(len(prior.shape) - prior.event_dim, len(prior.shape)))
    joint = sum((array for array, _ in placed), jnp.zeros(prior.shape)).sum(event)
    density_of_all = drawn.log_prob(at)
    return joint - density_of_all.sum(tuple(range(joint.ndim, density_of_all.ndim)))


def aligned(part: Array, term: Term, prior: Prior) -> tuple[Array, bool]:
    """A term added up for every element of a site (*batch, *event), and whether it belongs to several at once.

    Axes of the batch meet axes of the batch, from the right as plates do, and events meet events, or their first axes
    where the term has more, as features of a step; where one of the two has no batch, its axes meet whatever the other
    has. What belongs to several elements goes to the first of them: the site is then not elementwise in this term.
    """
    lead = part.ndim if term.batch_ndim is None else term.batch_ndim
    extra, batch = part.ndim - lead, len(prior.shape) - prior.event_dim
    event = prior.shape[batch:]
    more = extra > len(event) > 0 and part.shape[lead:][: len(event)] == event
    if more and (lead > 0 or part.shape[-len(event) :] != event):
        part, extra = part.sum(tuple(range(lead + len(event), part.ndim))), len(event)
    events = part.shape[lead:] == event
    if not (events or lead == 0 or (batch == 0 and extra == 0)):
        part = part.sum(tuple(range(lead, part.ndim)))
        part = part.reshape(part.shape + (1,) * prior.event_dim)
    part = part.sum(tuple(range(part.ndim - len(prior.shape)))) if part.ndim > len(prior.shape) else part
    part = part.reshape((1,) * (len(prior.shape) - part.ndim) + part.shape)
    unlike = [i for i, (own, size) in enumerate(zip(part.shape, prior.shape, strict=True)) if own not in (1, size)]
    part = part.sum(unlike, keepdims=True)
    shared = part.shape[:batch] != prior.shape[:batch]
    place = tuple(slice(0, own) for own in part.shape)
    return jnp.zeros(prior.shape).at[place].add(part), shared


def stages(rules: Sequence[Rule], of: tuple[Term, ...]) -> list[tuple[Term, ...]]:
    """The terms before each of several eliminations, one after the other."""
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
    mine = [term for term in of if rule.site in term.depends]

    def evidence(bound: Bound, values: Values) -> Array:
        return conditional(rule, of, bound, values).log_evidence

    rest = [term for term in of if rule.site not in term.depends]
    holds = frozenset().union(*(term.holds or {term.name} for term in mine))
    kinks = frozenset().union(*(term.kinks for term in mine))
    name = f"evidence of {rule.site}"
    return (*rest, Term(name, reaching(mine, rule.site), evidence, None, holds=holds, kinks=kinks))
