"""Independent draws from the exact posterior of any program whose sites can be eliminated one after the other."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from bayeslab.elimination.conditional import Rule, conditional, elimination_stages
from bayeslab.elimination.sweep import deterministic_values, draw_block
from bayeslab.methods.setting_checks import require_positive
from bayeslab.programs.program import Bound, Values, compilation_signature
from bayeslab.programs.pytrees import Ordered
from bayeslab.sampling.protocols import Draws, Method, Sampler
from bayeslab.transforms.analysis import Analysis
from bayeslab.transforms.draw_checks import Conditionals, conditionals_of_blocks
from bayeslab.transforms.sufficient_statistics.tables import Groups, groups_beside_rules, program_parts, replace_rows
from bayeslab.verification.identity import excess_over_rounding


@dataclass(frozen=True)
class Exact(Method):
    """Eliminate every site in turn, and draw them back in the opposite order.

    What remains when all sites are gone is the log evidence of the data, in `tree.attrs["log_evidence"]`; with improper
    priors there is none. The order is found, last drawn first where that works. Every elimination is proven.
    """

    num_samples: int = 1000
    num_warmup = 0
    num_chains = 1
    thinning = 1

    def __post_init__(self) -> None:
        require_positive(self, "num_samples")

    def plan(self, analysis: Analysis) -> "ExactSampler":
        if not (bound := analysis.bound).latent:
            raise ValueError("every site of the program is observed: there is nothing to infer")
        try:
            rules = analysis.order(bound.latent)
        except ValueError as reasons:
            raise ValueError(f"Exact cannot eliminate all sites ({reasons}); use Gibbs() or NUTS()") from None
        is_proper = not any(bound.sites[name].improper for name in bound.latent)
        groups = groups_beside_rules(analysis.groups, bound, rules)
        return ExactSampler(rules, analysis.rules, groups, compilation_signature(bound), is_proper)


class ExactState(NamedTuple):
    """The state of the sampler: what all draws share, and how many of them were made.

    last: the distribution of the site that was eliminated last, which depends on the data alone.
    """

    key: Array
    made: Array
    last: Ordered
    log_evidence: Array


@dataclass(frozen=True)
class ExactSampler(Sampler):
    """The sampler of Exact.

    rules: of all sites, in the order of their elimination. alone: of every site given all others, which tables of
    sufficient statistics are made from. is_proper: whether all priors are, without which the data have no evidence.
    """

    rules: tuple[Rule, ...]
    alone: tuple[Rule, ...]
    groups: Groups
    structure: Any
    is_proper: bool = True

    warmup_draws = independent = prepares = True

    @property
    def statistics(self) -> Groups:
        return self.groups

    def conditionals(self, bound: Bound) -> Conditionals:
        return conditionals_of_blocks(bound, [self.rules])

    def prepare(self, bound: Bound) -> Bound:
        return replace_rows(self.groups, self.alone, bound)

    def start(self, key: Array, data: Bound) -> ExactState:
        bound, all_terms, tables = program_parts(data)
        rule, stage = self.rules[-1], elimination_stages(self.rules, all_terms)[-1]
        last = conditional(rule, stage, bound, tables)
        constants = (term.density(bound, tables).sum() for term in stage if not term.depends)
        log_evidence = sum(constants, last.log_evidence.sum())
        return ExactState(key, jnp.zeros((), int), Ordered(last.distribution), log_evidence)

    def advance(self, state: ExactState, data: Bound) -> tuple[ExactState, Draws]:
        draw = jax.tree.map(lambda leaf: leaf[0], self.batch(state, data, state.made, 1))
        return state._replace(made=state.made + 1), draw

    def batch(self, state: ExactState, data: Bound, index: Array, size: int) -> Draws:
        """Independent draws, all at once: of the site that was eliminated last, and then of the others given each."""
        first, others = jax.random.split(jax.random.fold_in(state.key, index))
        rule = self.rules[-1]
        last = state.last.distribution.sample(first, (size,))

        def completed(key: Array, value: Array) -> Draws:
            values = {name: x.astype(data.sites[name].dtype) for name, x in rule.named(value).items()}
            return self._completed(key, state, data, values)

        return jax.vmap(completed)(jax.random.split(others, size), last)

    def _completed(self, key: Array, state: ExactState, data: Bound, values: Values) -> Draws:
        """A draw of all sites, given that of the site that was eliminated last."""
        bound, all_terms, tables = program_parts(data)
        log_q = state.last.distribution.log_prob(self.rules[-1].joined(values)).sum()
        samples, distributions = draw_block(key, self.rules[:-1], all_terms, bound, values | tables)
        log_q += sum((q.log_prob(rule.joined(samples)).sum() for rule, q in distributions.items()), jnp.zeros(()))
        values = {name: samples[name] for name in bound.latent}
        densities = [term.density(bound, values | tables) for term in all_terms]
        lp, size = (
            sum((jnp.sum(change(part)) for part in densities), jnp.zeros(())) for change in (jnp.asarray, jnp.abs)
        )
        size += jnp.abs(log_q) + jnp.abs(state.log_evidence)
        excess = excess_over_rounding(lp - log_q - state.log_evidence, size, float(jnp.finfo(lp.dtype).eps))
        is_lost = jnp.isneginf(state.log_evidence) & jnp.isfinite(lp)  # none where too much of it is rounding
        stats = {"lp": lp, "log_q": log_q, "excess": jnp.where(is_lost, jnp.inf, excess)}
        if self.is_proper:
            stats["log_evidence"] = state.log_evidence
        return Draws(values | deterministic_values(bound, values), stats)
