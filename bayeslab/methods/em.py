"""Expectation maximisation from the conditionals of a program."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.flatten_util import ravel_pytree
from numpyro.distributions import biject_to

from bayeslab.elimination.conditional import Rule, conditional, elimination_stages
from bayeslab.elimination.sweep import random_start
from bayeslab.elimination.terms import Term, sum_of_terms, terms
from bayeslab.methods.acceleration import Ascent, ascent_step, initial_ascent
from bayeslab.methods.setting_checks import require_names, require_positive
from bayeslab.methods.wrappers.collapsed import collapsed_sampler, without_discrete_sites
from bayeslab.methods.wrappers.compressed import EVALUATIONS_PER_START, row_replacement
from bayeslab.methods.wrappers.multistart import best_of_starts
from bayeslab.programs import unconstrained
from bayeslab.programs.program import Bound, Values
from bayeslab.programs.tracing.compilation import evaluate_all
from bayeslab.sampling.protocols import Draws, Method, Sampler
from bayeslab.transforms.analysis import Analysis
from bayeslab.transforms.collapse import Marginal, modes_of_eliminated
from bayeslab.transforms.draw_checks import Conditionals, conditionals_of_blocks
from bayeslab.transforms.expectation import expected_terms, moment_key, named_moments, require_averages, require_linear
from bayeslab.transforms.sufficient_statistics.tables import bound_parts
from bayeslab.verification.points.likely_points import in_double_precision
from bayeslab.verification.points.probe_points import generic_points

NUM_LBFGS_STEPS = 5
"""The number of L-BFGS steps, in every step of EM, for sites without a mode in closed form."""


@dataclass(frozen=True)
class EM(Method):
    """The maximum of p(others | observed), the others being the sites that are not integrated out.

    Discrete sites are integrated out, those of `collapse`, such as ("a",), and those of which some elements are missing
    where these have a conditional in closed form. A step takes the expectation of the log joint over them at the
    current point and maximises it over the others, one after the other: by the mode of the conditional
    where there is one in closed form, by quasi-Newton steps otherwise (Dempster, Laird and Rubin 1977; Meng and Rubin
    1993). Steps start where those before lead, and are kept where the density grows, so it never decreases
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
    learns = finds_maximum = True

    def __post_init__(self) -> None:
        require_positive(self, "num_steps", "num_starts")
        require_names(self, "collapse")

    @property
    def num_warmup(self) -> int:
        return self.num_steps

    def plan(self, analysis: Analysis) -> Sampler:
        bound, findings = analysis.bound, {finding.site: finding for finding in analysis.plain.findings}
        marginal_bound = without_discrete_sites(analysis, replace(self, collapse=self._integrated_out(analysis)))
        if not isinstance(marginal_bound.transform, Marginal):
            raise ValueError(
                "EM takes expectations over discrete sites, and the program has none; name continuous ones, "
                f"EM(collapse=...), of {list(bound.latent)}, or use MAP()"
            )
        plain, expect = bound.plain, marginal_bound.transform.rules
        for rule in expect:
            if not rule.family.has_expectations or (rule.field is not None and len(expect) > 1):
                raise ValueError(f"site '{rule.site}': the family {rule.family.name} has no expectations; use MAP()")
        mode_rules = [
            r for n in marginal_bound.latent if (r := findings[n].rule) is not None and r.family.mode is not None
        ]
        numeric_sites = tuple(name for name in marginal_bound.latent if name not in {rule.site for rule in mode_rules})
        summary = row_replacement(marginal_bound, analysis, EVALUATIONS_PER_START * self.num_starts)
        structure = summary.structure(marginal_bound)
        sampler = EMSampler(expect, tuple(mode_rules), numeric_sites, analysis.plain.rules, structure)
        _require_exact_expectations(expect, plain)
        best = summary.around(best_of_starts(sampler, self.num_starts, "log_joint"))
        return collapsed_sampler(best, marginal_bound, bound, modes_of_eliminated)

    def _integrated_out(self, analysis: Analysis) -> tuple[str, ...]:
        """The continuous sites that are integrated out."""
        rules = {rule.site: rule for rule in analysis.plain.rules}
        imputed = [name for name in analysis.bound.imputed if name in rules and name in analysis.bound.latent]
        more = [n for n in imputed if rules[n].family.has_expectations and not analysis.bound.sites[n].is_discrete]
        return tuple(dict.fromkeys((*self.collapse, *more)))


@dataclass(frozen=True)
class EMSampler(Sampler):
    """The sampler of EM.

    expect: rules of the sites that the log joint is averaged over, in the order of their elimination.
    closed: rules of the sites whose conditional has a mode in closed form. rest: sites that have none.
    alone: rules of all sites that have one, each given all other sites.
    """

    expect: tuple[Rule, ...]
    closed: tuple[Rule, ...]
    rest: tuple[str, ...]
    alone: tuple[Rule, ...]
    structure: Any

    def conditionals(self, bound: Bound) -> Conditionals:
        return conditionals_of_blocks(bound, [self.expect, *((rule,) for rule in self.closed)])

    def start(self, key: Array, bound: Bound) -> Ascent:
        plain, all_terms, tables = bound_parts(bound)
        values = random_start(key, self.alone, all_terms, plain, tables)
        values = {name: values[name] for name in bound.latent}
        values |= {n: transform(at) for n, (at, transform) in unconstrained.learned_starts(key, bound).items()}
        return initial_ascent(values, unconstrained.flat_position(bound, values), -jnp.inf)

    def adapt(self, state: Ascent, bound: Bound) -> tuple[Ascent, Draws]:
        new = ascent_step(
            state, partial(self._step_from, bound), lambda _, moved: moved <= jnp.sqrt(jnp.finfo(moved.dtype).eps)
        )
        log_joint = jnp.where(state.converged, jnp.nan, new.objective)
        return new, Draws({}, {}, {"log_joint": log_joint, "converged": new.converged})

    def convergence_verdict(self, state: Ascent, bound: Bound, _: Any) -> tuple[None, str] | None:
        """That there is no maximum where a derivative is not a number. Else steps that gain nothing end at one."""
        if not self.rest or np.all(np.isfinite(evaluate_all([_gradient], (bound, state.best))[0])):
            return None
        return None, "a derivative of the log joint is not a number where the ascent ended"

    def advance(self, state: Ascent, bound: Bound) -> tuple[Ascent, Draws]:
        return state, Draws(state.best, {"lp": state.objective})

    def _step_from(self, bound: Bound, best: Values, at: Array, leapt: Array) -> tuple[Values, Array, Array]:
        """Values after a step of EM from the flat coordinates `at`, their flat coordinates, and their log joint."""
        unravel = ravel_pytree(unconstrained.unconstrain(bound, best))[1]
        extrapolated = unconstrained.constrain(bound, unravel(at))
        values = self._step({name: jnp.where(leapt, extrapolated[name], value) for name, value in best.items()}, bound)
        return values, unconstrained.flat_position(bound, values), _log_joint(bound, values)

    def _step(self, values: Values, bound: Bound) -> Values:
        """Values after one step of EM: the expectation, and then the maximum over one site after the other."""
        plain, all_terms, tables = bound_parts(bound)
        known: dict[str, Any] = tables | {"given": values | tables}
        for rule, stage in zip(self.expect, elimination_stages(self.expect, all_terms), strict=True):
            if not _depends_on_expected(rule, stage, self.expect):
                distribution = conditional(rule, stage, plain, values | tables).distribution
                known |= {moment_key(name): moments for name, moments in named_moments(rule, distribution).items()}
        assert isinstance(bound.transform, Marginal)
        all_terms, values = bound.transform.counted(self._expected(all_terms)), dict(values)
        for rule in self.closed:
            site = plain.sites[rule.site]
            distribution = conditional(rule, all_terms, plain, values | known, initial=values[rule.site]).distribution
            assert rule.family.mode is not None
            values[rule.site] = rule.family.mode(distribution).reshape(site.shape).astype(site.dtype)
        return self._lbfgs_steps(all_terms, plain, values, known) if self.rest else values

    def _expected(self, of: tuple[Term, ...]) -> tuple[Term, ...]:
        """The terms of the log joint, averaged over the sites that are integrated out."""
        for rule, stage in zip(self.expect, elimination_stages(self.expect, of), strict=True):
            of = expected_terms(rule, of, stage if _depends_on_expected(rule, stage, self.expect) else None)
        return of

    def _lbfgs_steps(self, of: tuple[Term, ...], bound: Bound, values: Values, known: dict[str, Any]) -> Values:
        """Values after a few steps of L-BFGS over the sites without a mode, or as they were if the expectation of the
        log joint does not grow."""
        priors = terms(bound).priors
        site_terms = [term for term in of if not term.depends.isdisjoint(self.rest)]

        def written(position: Values) -> Values:
            constrained = dict(values)
            for name in self.rest:
                support = priors[name].distribution(bound, constrained).support
                constrained[name] = biject_to(support)(position[name])
            return constrained

        def loss(position: Values) -> Array:
            value = -sum_of_terms(site_terms, bound, written(position) | known)
            return jnp.where(jnp.isfinite(value), value, 1e300 if value.dtype == jnp.float64 else 1e30)

        initial = {n: biject_to(priors[n].distribution(bound, values).support).inv(values[n]) for n in self.rest}
        optimizer = optax.lbfgs()

        def step(_: int, state: tuple[Values, Any]) -> tuple[Values, Any]:
            position, memory = state
            value, gradient = optax.value_and_grad_from_state(loss)(position, state=memory)
            updates, memory = optimizer.update(gradient, memory, position, value=value, grad=gradient, value_fn=loss)
            return optax.apply_updates(position, updates), memory

        last, _ = jax.lax.fori_loop(0, NUM_LBFGS_STEPS, step, (initial, optimizer.init(initial)))
        improves = loss(last) < loss(initial)
        return written(jax.tree.map(lambda a, b: jnp.where(improves, a, b), last, initial))


def _depends_on_expected(rule: Rule, stage: tuple[Term, ...], rules: tuple[Rule, ...]) -> bool:
    """Whether the conditional of a site that is averaged over depends on others of those sites."""
    return not rule.blanket(stage).isdisjoint(name for other in rules for name in other.sites)


def _log_joint(bound: Bound, values: Values) -> Array:
    """The log joint density with sites integrated out."""
    assert isinstance(bound.transform, Marginal)
    plain, _, tables = bound_parts(bound)
    return sum_of_terms(bound.transform.terms(plain), plain, values | tables)


def _gradient(argument: tuple[Bound, Values]) -> Array:
    """The gradient of the log joint, with sites integrated out, over flat unconstrained coordinates."""
    bound, values = argument
    flat, unravel = ravel_pytree(unconstrained.unconstrain(bound, values))
    return jax.grad(lambda at: _log_joint(bound, unconstrained.constrain(bound, unravel(at))))(flat)


def _require_exact_expectations(expect: tuple[Rule, ...], bound: Bound) -> None:
    """Raises ValueError unless expectations over the sites that are integrated out are exact."""
    sites = {name for rule in expect for name in rule.sites}
    with jax.enable_x64(True):
        probe_points: list[Any] = []
        for point_bound, values in generic_points(in_double_precision(bound)):
            probe_points.append((point_bound, values | {"given": {n: v for n, v in values.items() if n not in sites}}))
    require_averages(expect, bound)
    require_linear(terms(bound).terms, expect, probe_points)
