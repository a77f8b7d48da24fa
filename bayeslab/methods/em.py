"""Expectation maximisation from the conditionals of a program."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.flatten_util import ravel_pytree
from numpyro.distributions import biject_to

from bayeslab.elimination.conditional import Rule, conditional, stages
from bayeslab.elimination.sweep import scattered
from bayeslab.elimination.terms import Term, reaching, terms, total
from bayeslab.methods.acceleration import Ascent, ascended, ascent
from bayeslab.methods.setting_checks import require_names, require_positive
from bayeslab.methods.wrappers.collapsed import continuous, recovering
from bayeslab.methods.wrappers.compressed import groups_for_starts
from bayeslab.methods.wrappers.multistart import best_of
from bayeslab.programs import unconstrained
from bayeslab.programs.program import Bound, Values, structure
from bayeslab.sampling.protocols import Draws, Sampler
from bayeslab.transforms.analysis import Analysis
from bayeslab.transforms.collapse import Marginal, most_probable
from bayeslab.transforms.draw_checks import Conditionals, conditionals
from bayeslab.transforms.expectation import averaged, density, require_linear, stored
from bayeslab.transforms.tables import Groups, pieces, summarised
from bayeslab.verification.likely_points import widened
from bayeslab.verification.probe_points import points

INNER = 5
"""Quasi-Newton steps for sites without a mode in closed form, in every step of EM."""


@dataclass(frozen=True)
class EM:
    """The maximum of p(others | observed), the others being the sites that are not integrated out.

    Discrete sites are integrated out, and those of `collapse`, such as ("a",). A step takes the expectation of the log
    joint over them at the current point and maximises it over the others, one after the other: by the mode of the
    conditional where there is one in closed form, by quasi-Newton steps otherwise (Dempster, Laird and Rubin 1977; Meng
    and Rubin 1993). Steps start where those before lead, and are kept where the density grows, so it never decreases
    (`bayeslab.methods.acceleration`).
    It is the point that `MAP` looks for as well: a density of the sites as they are written; `Laplace` has its errors.
    num_steps: the most steps that are made; `tree.attrs["converged"]` says whether they were enough.
    num_starts: random starts, run together; the best is the result, group `history` has all.
    """

    num_steps: int = 1000
    num_starts: int = 10
    collapse: tuple[str, ...] = ()

    num_samples = 1
    num_chains = 1
    thinning = 1

    def __post_init__(self) -> None:
        require_positive(self, "num_steps", "num_starts")
        require_names(self, "collapse")

    @property
    def num_warmup(self) -> int:
        return self.num_steps

    def plan(self, analysis: Analysis) -> Sampler:
        bound, found = analysis.bound, {one.site: one for one in analysis.plain.findings}
        left = continuous(analysis, self)
        if not isinstance(left.transform, Marginal):
            raise ValueError(
                "EM takes expectations over discrete sites, and the program has none; name continuous ones, "
                f"EM(collapse=...), of {list(bound.latent)}, or use MAP()"
            )
        plain, expect = bound.plain, left.transform.rules
        for rule in expect:
            if not rule.family.has_expectations:
                raise ValueError(f"site '{rule.site}': the family {rule.family.name} has no expectations; use MAP()")
        closed = [r for n in left.latent if (r := found[n].rule) is not None and r.family.mode is not None]
        rest = tuple(name for name in left.latent if name not in {rule.site for rule in closed})
        groups = groups_for_starts(analysis.plain, self.num_starts)
        sampler = EMSampler(expect, tuple(closed), rest, analysis.plain.rules, groups, structure(left))
        _require_exact(expect, plain)
        return recovering(best_of(sampler, self.num_starts, "log_joint"), left, bound, most_probable)


@dataclass(frozen=True)
class EMSampler(Sampler):
    """expect: sites that are averaged over, in the order of their elimination. closed: sites with a mode.

    rest: sites without. alone: rules of all sites that have one given all others.
    """

    expect: tuple[Rule, ...]
    closed: tuple[Rule, ...]
    rest: tuple[str, ...]
    alone: tuple[Rule, ...]
    groups: Groups
    structure: Any

    prepares = True

    @property
    def statistics(self) -> Groups:
        return self.groups

    def conditionals(self, bound: Bound) -> Conditionals:
        return conditionals(bound, [self.expect, *((rule,) for rule in self.closed)])

    def prepare(self, bound: Bound) -> Bound:
        return summarised(self.groups, self.alone, bound)

    def start(self, key: Array, bound: Bound) -> Ascent:
        plain, of, tables = pieces(bound)
        values = scattered(key, self.alone, of, plain, tables)
        values = {name: values[name] for name in bound.latent}
        return ascent(values, ravel_pytree(unconstrained.position(bound, values))[0], -jnp.inf)

    def adapt(self, state: Ascent, bound: Bound) -> tuple[Ascent, Draws]:
        new = ascended(
            state, partial(self._climbed, bound), lambda _, moved: moved <= jnp.sqrt(jnp.finfo(moved.dtype).eps)
        )
        log_joint = jnp.where(state.converged, jnp.nan, new.objective)
        return new, Draws({}, {}, {"log_joint": log_joint, "converged": new.converged})

    def advance(self, state: Ascent, bound: Bound) -> tuple[Ascent, Draws]:
        return state, Draws(state.best, {"lp": state.objective})

    def _climbed(self, bound: Bound, best: Values, at: Array, leapt: Array) -> tuple[Values, Array, Array]:
        back = ravel_pytree(unconstrained.position(bound, best))[1]
        far = unconstrained.constrained(bound, back(at))
        values = self._step({name: jnp.where(leapt, far[name], value) for name, value in best.items()}, bound)
        return values, ravel_pytree(unconstrained.position(bound, values))[0], _log_joint(bound, values)

    def _step(self, values: Values, bound: Bound) -> Values:
        """One step of EM."""
        plain, of, tables = pieces(bound)
        known: dict[str, Any] = tables | {"given": values | tables}
        for rule, stage in zip(self.expect, stages(self.expect, of), strict=True):
            if not _depends(rule, stage, self.expect):
                q = conditional(rule, stage, plain, values | tables).distribution
                known[stored(rule.site)] = density(rule.family, q)
        of, values = self._expected(of), dict(values)
        for rule in self.closed:
            site = plain.sites[rule.site]
            q = conditional(rule, of, plain, values | known, near=values[rule.site]).distribution
            assert rule.family.mode is not None
            values[rule.site] = rule.family.mode(q).reshape(site.shape).astype(site.dtype)
        return self._ascended(of, plain, values, known) if self.rest else values

    def _expected(self, of: tuple[Term, ...]) -> tuple[Term, ...]:
        """Terms averaged over the sites that are integrated out."""
        for rule, stage in zip(self.expect, stages(self.expect, of), strict=True):
            of = averaged(rule, of, stage if _depends(rule, stage, self.expect) else None)
        return of

    def _ascended(self, of: tuple[Term, ...], bound: Bound, values: Values, known: dict[str, Any]) -> Values:
        """A few steps of L-BFGS over the sites without a mode, kept where the expectation grows."""
        priors = terms(bound).priors
        mine = [term for term in of if not term.depends.isdisjoint(self.rest)]

        def written(position: Values) -> Values:
            found = dict(values)
            for name in self.rest:
                support = priors[name].distribution(bound, found).support
                found[name] = biject_to(support)(position[name])
            return found

        def loss(position: Values) -> Array:
            value = -total(mine, bound, written(position) | known)
            return jnp.where(jnp.isfinite(value), value, 1e300 if value.dtype == jnp.float64 else 1e30)

        first = {n: biject_to(priors[n].distribution(bound, values).support).inv(values[n]) for n in self.rest}
        optimizer = optax.lbfgs()

        def step(_: int, state: tuple[Values, Any]) -> tuple[Values, Any]:
            position, memory = state
            value, gradient = optax.value_and_grad_from_state(loss)(position, state=memory)
            updates, memory = optimizer.update(gradient, memory, position, value=value, grad=gradient, value_fn=loss)
            return optax.apply_updates(position, updates), memory

        last, _ = jax.lax.fori_loop(0, INNER, step, (first, optimizer.init(first)))
        better = loss(last) < loss(first)
        return written(jax.tree.map(lambda a, b: jnp.where(better, a, b), last, first))


def _depends(rule: Rule, stage: tuple[Term, ...], rules: tuple[Rule, ...]) -> bool:
    """Whether a site is averaged over given others of the sites that are."""
    return not reaching(stage, rule.site).isdisjoint(other.site for other in rules)


def _log_joint(bound: Bound, values: Values) -> Array:
    """With sites integrated out."""
    assert isinstance(bound.transform, Marginal)
    plain, _, tables = pieces(bound)
    return total(bound.transform.terms(plain), plain, values | tables)


def _require_exact(expect: tuple[Rule, ...], bound: Bound) -> None:
    sites = {rule.site for rule in expect}
    with jax.enable_x64(True):
        at: list[Any] = []
        for here, values in points(widened(bound)):
            at.append((here, values | {"given": {n: v for n, v in values.items() if n not in sites}}))
    require_linear(terms(bound).terms, expect, at)
