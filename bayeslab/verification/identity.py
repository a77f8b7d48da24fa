"""The numerical identity test that guards every elimination: a rule must hold at points that could refute it.

For two values x, y of a site, [g(x) - g(y)] - [log q(x) - log q(y)] = 0, where g is what the log joint says of the
site and q the conditional that was found. The points lie on both sides of the middle of q, at a third of, once, three
and ten times its spread, and where the caller has the site. A violation is relative to what changes between the two
values: element by element, or in the terms that belong to several elements of the site and in what the other terms
leave of the conditional. So two elements that a factor ties are seen among thousands.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple
from zlib import crc32

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import Distribution

from bayeslab.elimination.conditional import Rule, conditional, sum_to_site
from bayeslab.elimination.families import ELEMENT_BY_ELEMENT
from bayeslab.elimination.normal_blocks import joined_terms
from bayeslab.elimination.terms import Prior, Term, terms
from bayeslab.programs.program import Bound, Values
from bayeslab.verification.element_changes import changes_of_elements

RESIDUAL_TOLERANCE = 1e-8
"""Residual of a rule that passes, at most."""
PROBE_DISTANCES = (1 / 3, 1.0, 3.0, 10.0)
"""Distances from the middle of a conditional at which a rule is tested, in its spreads, on both sides."""
NUM_NEAR_PROBES = 2 + 2 * 3
"""Probe values that are near, the first ones: the middle, the current value and those within three spreads."""
ALL_PROBES = 2**31 - 1
"""As many probe values as there are."""
NO_PROBES = 0
"""Nothing is tested: the middle of the conditional is all that is asked for."""
ROUNDING_SHARE = 1e-4
"""Share of their size that terms count for beside their change: so much of the tolerance is left to rounding."""
MIN_VIOLATION_NATS = 1e-3
"""Nats below which a violation changes no posterior."""
MAX_PROBE_ELEMENTS = 10**5
"""Elements of all probe values together, beyond which near ones do where a rule that holds is tested again."""


class IdentityVerdict(NamedTuple):
    """The result of the identity test of a rule at one point.

    residual: the largest violation, relative to what changes; not a number where the density is none near the middle of
    the conditional. excess: by how many nats the largest violation near the middle is more than rounding.
    share: the largest share of the children in what changes; zero where nothing that they say does.
    possible: whether any value of a discrete site near the middle has a probability that is not zero; else nothing is
    tested.
    middle: the middle of the conditional, a likely value of the site.
    """

    residual: Array
    excess: Array
    share: Array
    possible: Array
    middle: Array


TestArguments = tuple[Bound, Values, dict[str, np.ndarray], int]
"""Arguments of a test: the program, values of all sites, noise by `probe_noise`, how many probe values do."""


@lru_cache(maxsize=1024)
def identity_check(log_joint_terms: tuple[Term, ...], rule: Rule) -> Callable[[TestArguments], IdentityVerdict]:
    """The function that tests a rule under the sum of some terms; the same function for the same arguments."""
    if rule.family is ELEMENT_BY_ELEMENT:
        return lambda asked: _check_element_draws(log_joint_terms, rule, *asked)
    return lambda asked: check_identity(log_joint_terms, rule, asked)


def probe_noise(bound: Bound, seed: int | None = None) -> dict[str, np.ndarray]:
    """How far elements are moved from the middle, in spreads, (point, *site), by the shape of the continuous sites.

    Moves have either sign and none of them is small; what moves an element up in one point moves it down in the next.

    seed: by default a function of the data, so that points are others for every fit, and the same for the same one.
    """
    rng = np.random.default_rng(_data_checksums(bound) if seed is None else seed)
    noise: dict[str, np.ndarray] = {}
    for name in bound.latent:
        site = bound.sites[name]
        if not site.is_discrete and str(site.shape) not in noise:
            shape = (len(PROBE_DISTANCES), *site.shape)
            move = rng.uniform(0.5, 2.0, shape) * rng.choice([-1.0, 1.0], shape)
            move *= np.reshape(PROBE_DISTANCES, (-1, *(1 for _ in site.shape)))
            noise[str(site.shape)] = np.stack([move, -move], axis=1).reshape(-1, *site.shape)
    return noise


def excess_over_rounding(violation: Any, size: Any, eps: float) -> Any:
    """By how many nats a violation is more than rounding. size: of all that was added up, without signs.

    eps: of the precision in which it was.
    """
    return abs(violation) - max(MIN_VIOLATION_NATS, eps**0.5) - eps**0.5 * size


def _data_checksums(bound: Bound) -> list[int]:
    return [crc32(np.ascontiguousarray(leaf).tobytes()) for leaf in jax.tree.leaves(bound)]


def check_identity(
    log_joint_terms: Sequence[Term], rule: Rule, asked: TestArguments, own_prior: Distribution | None = None
) -> IdentityVerdict:
    """The verdict on a rule at one point.

    asked: as many probe values as are asked for do; all are taken, unless none is asked for, where they are no more
    than MAX_PROBE_ELEMENTS numbers. own_prior: the prior of the site, if not the one that the program draws.
    """
    bound, values, noise, num_probes = asked
    site_terms = rule.reached(log_joint_terms)
    if rule.block is not None:
        site_terms = joined_terms(site_terms, rule.sites)
    q = conditional(rule, site_terms, bound, values, prior=own_prior).distribution
    prior = terms(bound).priors[rule.sites[0]]
    probe_values = _probe_values(rule, prior, q, bound, values, noise)

    def densities(x: Array) -> tuple[tuple[Array, ...], Array]:
        return tuple(term.density(bound, values | rule.named(x)) for term in site_terms), q.log_prob(x)

    kinds = jax.eval_shape(densities, probe_values[0])
    compare = _comparison_of_changes(rule, prior, site_terms, kinds[1].shape, bound)

    def step(index: Array, state: Any) -> Any:
        first, worst, excess, share, undefined, compared, possible = state
        current = densities(probe_values[index])
        first = jax.tree.map(lambda old, new: jnp.where(index == 0, new, old), first, current)
        residual, nats, child_share, lost = compare(current, first)
        is_near = index < NUM_NEAR_PROBES
        log_joint_here = sum(part.sum() for part in current[0])
        return (
            first,
            jnp.fmax(worst, residual),
            jnp.where(is_near, jnp.fmax(excess, nats), excess),
            jnp.fmax(share, child_share),
            undefined | (is_near & lost),
            compared + ~lost,
            possible | (is_near & ~jnp.isneginf(log_joint_here)),
        )

    zero = jnp.zeros(())
    blank = jax.tree.map(lambda kind: jnp.zeros(kind.shape, kind.dtype), kinds)
    few = probe_values.size <= MAX_PROBE_ELEMENTS
    wanted = jnp.where(num_probes == NO_PROBES, NO_PROBES, ALL_PROBES) if few else num_probes
    number = jnp.minimum(wanted, len(probe_values))
    state = (blank, zero, zero, zero, jnp.array(False), jnp.zeros((), int), jnp.array(False))
    _, worst, excess, share, undefined, compared, possible = jax.lax.fori_loop(0, number, step, state)
    was_compared = compared > (0 if prior.discrete else 1)
    silent = ~possible if prior.discrete else jnp.array(False)
    worst = jnp.where(undefined | ~was_compared, jnp.nan, worst)
    return IdentityVerdict(jnp.where(silent, 0.0, worst), excess, share, ~silent, probe_values[0])


def _check_element_draws(
    log_joint_terms: Sequence[Term],
    rule: Rule,
    bound: Bound,
    values: Values,
    noise: dict[str, Any],
    _: int | Array,
) -> IdentityVerdict:
    changes = changes_of_elements(rule, log_joint_terms, bound, values)
    violation = jnp.abs(changes.joint - changes.conditional)
    scale = changes.moved + ROUNDING_SHARE * (changes.moved + changes.size)
    finite = jnp.isfinite(changes.joint) & jnp.isfinite(changes.conditional)
    residual = jnp.where(finite, violation / jnp.where(scale > 0, scale, 1.0), 0.0)
    beyond = excess_over_rounding(violation, changes.size, float(jnp.finfo(violation.dtype).eps))
    undefined = jnp.isnan(changes.joint).any() | changes.excluded | ~finite.any()
    return IdentityVerdict(
        jnp.where(undefined, jnp.nan, residual.max(initial=0.0)),
        jnp.where(finite, beyond, -jnp.inf).max(initial=-jnp.inf),
        jnp.ones(()),
        finite.any() | changes.excluded,
        changes.indices,
    )


def _comparison_of_changes(
    rule: Rule, prior: Prior, site_terms: Sequence[Term], shape: tuple[int, ...], bound: Bound
) -> Callable[..., tuple[Array, ...]]:
    """A function of densities at a value and at the first one, that compares their changes.

    It gives the violation, relative and in nats beyond rounding, the share of the children in what changes, and whether
    anything is not a number. shape: of log densities of q.
    """
    batch = len(prior.shape) - prior.event_dim
    apart = rule.block is None and rule.field is None and not rule.coupled and shape[:batch] == prior.shape[:batch]
    elementwise = [apart and _has_plates(bound, term, prior) for term in site_terms]

    def sum_at_elements(part: Array, term: Term) -> Array:
        """A part of a term summed to the elements of the site that it belongs to."""
        return sum_to_site(part, term, prior)[0].sum(tuple(range(batch, len(prior.shape))))

    def compare(current: Any, first: Any) -> tuple[Array, ...]:
        (new, log_q), (old, log_q_first) = current, first
        axes = tuple(range(batch if apart else 0, log_q.ndim))
        step = log_q.sum(axes) - log_q_first.sum(axes)
        by_element, shared = [jnp.zeros_like(step)] * 4, [jnp.zeros(())] * 4
        for new_part, old_part, term, elements in zip(new, old, site_terms, elementwise, strict=True):
            difference = new_part - old_part
            amounts = [difference, jnp.abs(difference), jnp.abs(new_part) + jnp.abs(old_part)]
            sums = [sum_at_elements(amount, term) if elements else amount.sum() for amount in amounts]
            sums.append(jnp.zeros_like(sums[1]) if term.name in rule.sites else sums[1])  # of the children alone
            if elements:
                by_element = [total + each for total, each in zip(by_element, sums, strict=True)]
            else:
                shared = [total + each for total, each in zip(shared, sums, strict=True)]
        # What terms of several elements say is held against what the others leave of the conditional: no more than
        # rounding, unless elements of one are said of by another element of the other.
        unexplained = by_element[0] - step
        change, moved, size, child_change = (
            element_sum.sum() + shared_sum for element_sum, shared_sum in zip(by_element, shared, strict=True)
        )
        violation, step = jnp.abs(unexplained.sum() + shared[0]), step.sum()
        size += jnp.abs(log_q).sum() + jnp.abs(log_q_first).sum()
        scale = jnp.abs(unexplained).sum() + shared[1] + ROUNDING_SHARE * (moved + size)
        residual = violation / jnp.where(scale > 0, scale, 1.0)
        if all(elementwise):  # element by element, if these are in their places
            scales = by_element[1] + ROUNDING_SHARE * by_element[2]
            residual = jnp.fmin(residual, (jnp.abs(unexplained) / jnp.where(scales > 0, scales, 1.0)).max(initial=0.0))
        # q may hold probabilities, as those of a path, which are zero below the smallest float.
        impossible = jnp.isneginf(change)
        unlikely = (impossible | (change < math.log(jnp.finfo(change.dtype).tiny))) & jnp.isneginf(step)
        lost = ~(unlikely | impossible) & ~jnp.isfinite(change - step)
        quiet = unlikely | lost
        residual = jnp.where(impossible, jnp.inf, residual)
        beyond = excess_over_rounding(violation, size, float(jnp.finfo(change.dtype).eps))
        nats = jnp.where(impossible, jnp.inf, beyond)
        share = jnp.where(quiet | impossible, 0.0, child_change / jnp.where(moved > 0, moved, 1.0))
        return jnp.where(quiet, 0.0, residual), jnp.where(quiet, 0.0, nats), share, lost

    return compare


def _has_plates(bound: Bound, term: Term, prior: Prior) -> bool:
    """Whether a term has a part for every element of a site. Equal sizes alone do not tell."""
    site, batch = bound.sites.get(term.name), len(prior.shape) - prior.event_dim
    named = len(prior.plates) == batch and site is not None and set(prior.plates) <= set(site.plates)
    return named or term.name == prior.name


def _probe_values(
    rule: Rule, prior: Prior, q: Distribution, bound: Bound, values: Values, noise: dict[str, Any]
) -> Array:
    """Values of the site at which the rule is tested: a likely one first, then the current one."""
    current = rule.joined(values)
    assert current is not None
    if rule.block is not None:
        moves = [noise[str(shape)] for shape in rule.block.shapes]
        signs = [np.random.default_rng(place).choice([-1.0, 1.0], np.shape(move)) for place, move in enumerate(moves)]
        steps = [move * sign for move, sign in zip(moves, signs, strict=True)]
        joined = jax.vmap(rule.joined)(dict(zip(rule.sites, steps, strict=True)))
        return rule.family.around(q, current, joined, None)
    if rule.field is not None:
        return rule.family.around(q, current, None, None)
    chain = prior.distribution(bound, values) if prior.discrete and not rule.family.enumerates else None
    return rule.family.around(q, current, noise.get(str(prior.shape)), chain)
