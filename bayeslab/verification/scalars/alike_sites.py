"""Scalar sites that differ in their names and parents alone are tested by one piece of code.

A program may name dozens of numbers one by one: the coefficients of a regression, the states of a chain that is written
as a loop. Code for each of them would take longer to compile than all else. Here one test runs over the indices of such
sites: the site with an index takes the values that are tried, every other one keeps its own, and terms that the site
does not reach count for nothing. The test itself is that of `bayeslab.verification.identity`.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import Distribution

from bayeslab.elimination.conditional import Rule
from bayeslab.elimination.families import families_of
from bayeslab.elimination.family import Family
from bayeslab.elimination.terms import Prior, Term, terms, terms_of
from bayeslab.programs.program import Bound, Values, abstract_bound, compilation_signature
from bayeslab.programs.tracing.compilation import evaluate_all
from bayeslab.verification.identity import IdentityVerdict, TestArguments, check_identity, identity_check

MIN_ALIKE_SITES = 3
"""Sites from which on one piece of code for all of them compiles sooner than one for each."""
MAX_EXTRA_COST = 10**7
"""Numbers that terms may read and write which sites do not reach, for one value of all of them: some milliseconds."""


class AlikeSites(NamedTuple):
    """Names of scalar sites that are tested together for a family."""

    family: Family
    names: tuple[str, ...]


def verdicts_on(
    log_joint_terms: tuple[Term, ...], rules: Sequence[Rule], arguments: TestArguments
) -> list[IdentityVerdict]:
    """The verdicts of the identity test on some rules under the sum of some terms, on the host."""
    groups = _groups_of_alike_sites(log_joint_terms, compilation_signature(arguments[0])) if rules else ()
    members = {(group.family, name): group for group in groups for name in group.names}
    group_of = {rule: members.get((rule.family, rule.site)) if _is_of_one_number(rule) else None for rule in rules}
    alone = [rule for rule in rules if group_of[rule] is None]
    checks = [identity_check(log_joint_terms, rule) for rule in alone]
    verdicts = dict(zip(alone, evaluate_all(checks, arguments), strict=True)) if alone else {}
    for group in dict.fromkeys(group for group in group_of.values() if group is not None):
        asked = {rule.site: rule for rule in rules if group_of[rule] == group}
        chosen = np.array([name in asked for name in group.names])
        [verdict] = evaluate_all([_check_of_alike_sites(log_joint_terms, group)], (arguments, chosen))
        for place in np.flatnonzero(chosen):
            verdicts[asked[group.names[place]]] = IdentityVerdict(*(numbers[place] for numbers in verdict))
    return [verdicts[rule] for rule in rules]


def _is_of_one_number(rule: Rule) -> bool:
    """Whether a rule says nothing but the family of one site."""
    return rule.block is None and rule.field is None and not rule.coupled and not rule.same_precision


@lru_cache(maxsize=256)
def _groups_of_alike_sites(log_joint_terms: tuple[Term, ...], signature: Any) -> tuple[AlikeSites, ...]:
    """Sets of scalar sites that may be tested together, of a program of one structure."""
    priors, bound = terms_of(signature).priors, abstract_bound(signature)
    scalars = {name: prior for name, prior in priors.items() if prior.shape == () and families_of(prior)}
    scalars = {name: prior for name, prior in scalars.items() if _is_read_by_values(log_joint_terms, name, bound)}
    groups: dict[Any, list[str]] = {}
    for name, prior in scalars.items():
        for family in families_of(prior):
            key = (family, _choices(prior)) if family.enumerates else (family,)
            if not (family.enumerates or family.joint):  # the prior is asked for more than its support
                key = (*key, prior.kind, *_layout(prior, bound))
            groups.setdefault(key, []).append(name)
    chosen = (AlikeSites(key[0], tuple(names)) for key, names in groups.items() if len(names) >= MIN_ALIKE_SITES)
    return tuple(group for group in chosen if _extra_cost(log_joint_terms, group.names) <= MAX_EXTRA_COST)


def _is_read_by_values(log_joint_terms: Sequence[Term], name: str, bound: Bound) -> bool:
    """Whether the terms that a site reaches are densities of the program, none with a conditional of its own."""
    reached = [term for term in log_joint_terms if name in term.depends]
    return all(
        term.name in bound.sites and term.reader is None and (term.choices is None or term.choices.site != name)
        for term in reached
    )


def _choices(prior: Prior) -> tuple[float, ...]:
    return () if prior.choices is None else tuple(prior.choices.tolist())


def _layout(prior: Prior, bound: Bound) -> tuple[Any, ...]:
    """The structure of the prior of a site, and the shapes of its parameters."""
    values = {name: jax.ShapeDtypeStruct(each.shape, each.dtype) for name, each in bound.latent_shapes.items()}
    leaves, tree = jax.tree.flatten(jax.eval_shape(prior.distribution, bound, values))
    return tree, *(leaf.shape for leaf in leaves)


def _extra_cost(log_joint_terms: Sequence[Term], names: Sequence[str]) -> int:
    """Numbers that the terms of all sites read and write for those of the sites that do not reach them."""
    reached = [term for term in log_joint_terms if not term.depends.isdisjoint(names)]
    return sum(term.cost * sum(name not in term.depends for name in names) for term in reached)


@lru_cache(maxsize=256)
def _check_of_alike_sites(
    log_joint_terms: tuple[Term, ...], group: AlikeSites
) -> Callable[[tuple[TestArguments, Array]], IdentityVerdict]:
    """A function of the arguments of a test and of which sites are asked for (site,), that tests each, (site,)."""

    def check(argument: tuple[TestArguments, Array]) -> IdentityVerdict:
        (bound, values, noise, num_probes), asked = argument

        @jax.jit  # traced once, for the shapes of its verdict as well
        def of_site(place: Array) -> IdentityVerdict:
            rule = Rule(group.names[0], group.family, (), ())
            own_terms = _terms_of_site(log_joint_terms, group.names, place, values)
            kinds = [values[name] for name in group.names]
            own_values = {**values, rule.site: jnp.stack(kinds)[place]}
            prior = None if group.family.joint or group.family.enumerates else _prior(bound, group, place, values)
            return check_identity(own_terms, rule, (bound, own_values, noise, num_probes), prior)

        places = jnp.arange(len(group.names))
        blank = jax.tree.map(lambda kind: jnp.zeros(kind.shape, kind.dtype), jax.eval_shape(of_site, places[0]))

        def step(row: tuple[Array, Array]) -> IdentityVerdict:
            return jax.lax.cond(row[1], of_site, lambda _: blank, row[0])

        return jax.lax.map(step, (places, asked))

    return check


def _terms_of_site(
    log_joint_terms: tuple[Term, ...], names: tuple[str, ...], place: Array, values: Values
) -> tuple[Term, Term]:
    """What the log joint says of the site with an index among others, as terms of a site with the name of the first.

    They are its own prior, and all its children in one vector.
    """
    stand_in, depends = names[0], frozenset({names[0]})

    def term(name: str, numbers: Callable[..., Array]) -> Term:
        return Term(name, depends, lambda bound, given: numbers(bound, values, place, given[stand_in]), 0)

    # No term has the name of another site here, so that of any stands for the children.
    prior, children = _numbers_of_terms(log_joint_terms, names)
    return term(stand_in, prior), term(names[1], children)


@lru_cache(maxsize=256)
def _numbers_of_terms(
    log_joint_terms: tuple[Term, ...], names: tuple[str, ...]
) -> tuple[Callable[..., Array], Callable[..., Array]]:
    """Functions of the program, values, the index of a site and its value, that give the numbers of terms in a row.

    The first is of the prior of the site, the second of its children; what it does not reach is zero. All numbers are
    apart, as in the test of one site: what changes is the sum of all changes without signs.
    """
    reached = [term for term in log_joint_terms if not term.depends.isdisjoint(names)]
    is_own = np.array([[name == term.name for term in reached] for name in names])
    is_child = np.array([[name in term.depends for term in reached] for name in names]) & ~is_own

    def of(counted: np.ndarray) -> Callable[..., Array]:
        some = [(term, counted[:, index]) for index, term in enumerate(reached) if counted[:, index].any()]

        @jax.jit  # traced once, however often it is asked for
        def numbers(bound: Bound, values: Values, place: Array, value: Array) -> Array:
            moved = jnp.stack([values[name] for name in names]).at[place].set(value)
            here = {**values, **{name: moved[index] for index, name in enumerate(names)}}
            parts = [jnp.ravel(term.density(bound, here)) for term, _ in some]
            masks = [np.repeat(column[:, None], part.size, 1) for part, (_, column) in zip(parts, some, strict=True)]
            if not parts:
                return jnp.zeros(1)
            return jnp.where(jnp.asarray(np.concatenate(masks, 1))[place], jnp.concatenate(parts), 0.0)

        return numbers

    return of(is_own), of(is_child)


def _prior(bound: Bound, group: AlikeSites, place: Array, values: Values) -> Distribution:
    """The prior of the site with an index among others."""
    priors = terms(bound).priors
    flat = [jax.tree.flatten(priors[name].distribution(bound, values)) for name in group.names]
    leaves, trees = zip(*flat, strict=True)
    stacked = (jnp.stack([jnp.asarray(leaf) for leaf in each])[place] for each in zip(*leaves, strict=True))
    return jax.tree.unflatten(trees[0], stacked)
