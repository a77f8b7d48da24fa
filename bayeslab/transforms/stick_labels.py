"""Labels whose weights come by breaking a stick: but for that, their components could have any other order.

Label k has the weight (1 - v_1) ... (1 - v_{k-1}) v_k, so it matters which component comes first. With v_k ~ Beta(1,
alpha), let neighbouring components have a rows and b rows, and later ones c. With v integrated out, exchanging the two
multiplies the probability of the labels by (alpha + b + c) / (alpha + a + c): larger components come first (Kurihara,
Welling and Teh 2007, Collapsed variational Dirichlet process mixture models). The last of K, to which all the rest of
the stick belongs, is an exception where alpha is above 1, so an order is to be compared with the one before.
"""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array

from bayeslab.elimination.conditional import Rule, conditional
from bayeslab.elimination.terms import Term, terms
from bayeslab.programs.program import Bound, Values
from bayeslab.programs.tracing.compilation import UNOPTIMISED_OPTIONS
from bayeslab.programs.wrapped_distributions import innermost_distribution
from bayeslab.transforms.exchangeable_labels import RELATIVE_ERROR
from bayeslab.verification.points.likely_points import in_double_precision
from bayeslab.verification.points.probe_points import generic_points

NUM_LAST_PASSES = 10
"""Passes over labels and components, as those of k-means, once each component has the row that it starts from."""


def stick_labels(rules: Sequence[Rule], bound: Bound) -> tuple[str, ...]:
    """The sites of labels whose components may be exchanged but for the order in which a stick is broken for them.

    Those are labels 0..K - 1, one at a time, whose weights depend on K - 1 elements with Beta priors; all else that the
    program says stays the same when labels are renamed and sites in plates of K components are reordered with them.
    rules: of every site given all others.
    """
    return tuple(rule.site for rule in rules if _breaks_stick(rule, bound) and _is_exchangeable(rule.site, bound))


def _breaks_stick(rule: Rule, bound: Bound) -> bool:
    """Whether a site has independent labels with a weight for each from one share less, each with a Beta prior."""
    priors = terms(bound).priors
    prior = priors[rule.sites[0]]
    if len(rule.sites) > 1 or rule.family.structured or not rule.family.enumerates or prior.num_labels is None:
        return False
    shares = [priors[name] for name in prior.depends if priors[name].kind is dist.Beta]
    return any(share.shape == (prior.num_labels - 1,) for share in shares)


def _is_exchangeable(site: str, bound: Bound) -> bool:
    """Whether no term but the priors of the labels and of their weights changes where components are exchanged.

    A cycle through all components and the exchange of two generate every permutation. They are tried at values that
    have nothing to do with the data, and at others.
    """
    num_labels = terms(bound).priors[site].num_labels
    assert num_labels is not None
    same = np.arange(num_labels)
    orders = np.stack([same, np.roll(same, 1), np.concatenate([same[1::-1], same[2:]])])
    with jax.enable_x64(True):
        for point, values in generic_points(in_double_precision(bound)):
            kept, *moved = _terms_in_orders(site, point, values, jnp.asarray(orders))
            if not all(np.allclose(row, kept, rtol=RELATIVE_ERROR, atol=RELATIVE_ERROR) for row in moved):
                return False
    return True


@partial(jax.jit, static_argnums=0, compiler_options=UNOPTIMISED_OPTIONS)
def _terms_in_orders(site: str, bound: Bound, values: Values, orders: Array) -> Array:
    """The terms (order, term) apart from the priors of labels and weights, with components in other orders.

    orders: (order, component), the old place of each component.
    """
    traced = terms(bound)
    labels = traced.priors[site]
    apart = {site, *labels.depends}
    names = {plate.name for plate in labels.plates}
    axes = {
        name: plate.dim - prior.event_dim
        for name, prior in traced.priors.items()
        if name not in apart
        for plate in prior.plates
        if plate.size == labels.num_labels and plate.name not in names
    }

    def terms_in_order(order: Array) -> Array:
        moved = {name: jnp.take(values[name], order, axis=axis) for name, axis in axes.items()}
        moved[site] = jnp.argsort(order)[values[site]].astype(values[site].dtype)
        rest = [term.density(bound, values | moved).sum() for term in traced.terms if term.name not in apart]
        return jnp.stack(rest)

    return jax.vmap(terms_in_order)(orders)


def spread_start(
    key: Array, site: str, rules: Sequence[Rule], log_joint_terms: Sequence[Term], bound: Bound, values: Values
) -> Values:
    """A random start whose components, but for the last, each begin at one row; the last one begins at all others.

    Rows that components begin at are drawn one after another, with probabilities proportional to how much less likely a
    row is at the best of the components so far than the best row is: k-means++ (Arthur and Vassilvitskii 2007), where
    components are Normal with one precision. Labels at random would leave many rows to components that are all alike.
    site: of the labels. values: of all sites; shares of the stick keep theirs.
    """
    labels = terms(bound).priors[site]
    last = len(labels.choices) - 1 if labels.choices is not None else 0
    [label_rule] = [rule for rule in rules if rule.site == site]
    component_rules = [rule for rule in rules if rule.site not in {site, *labels.depends}]
    row_key, key = jax.random.split(key)
    gumbel = jax.random.gumbel(row_key, (last + NUM_LAST_PASSES, values[site].size))

    def step(values: Values, drawn: tuple[Array, Array]) -> tuple[Values, None]:
        component, noise = drawn
        values = dict(values)
        q, log_evidence = conditional(label_rule, log_joint_terms, bound, values)
        densities = log_evidence[..., None] + jax.nn.log_softmax(innermost_distribution(q).logits)
        densities = densities.reshape(-1, last + 1)
        best = jnp.where(jnp.arange(last + 1) < component, densities, -jnp.inf).max(-1)
        best = jnp.where(component > 0, best, 0.0)
        farness = jnp.log(best.max() - best)
        row = jnp.argmax(jnp.where(component > 0, farness, 0.0) + noise)
        seeded = values[site].ravel().at[row].set(component)
        nearest = densities.argmax(-1).astype(seeded.dtype)
        values[site] = jnp.where(component < last, seeded, nearest).reshape(values[site].shape)
        for rule in component_rules:
            old = values[rule.site]
            q = conditional(rule, log_joint_terms, bound, values, initial=old).distribution
            values[rule.site] = rule.family.middle(key, q, old).reshape(old.shape).astype(old.dtype)
        return values, None

    first = values | {site: jnp.full_like(values[site], last)}
    return jax.lax.scan(step, first, (jnp.arange(len(gumbel)), gumbel))[0]
