"""Mean-field variational inference from the conditionals of a program."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from numpyro.distributions import Distribution

from bayeslab.compress import Groups, pieces, summarised
from bayeslab.draws import Draws, Sampler
from bayeslab.elimination import Rule, conditional, stages
from bayeslab.expectation import (
    averaged,
    averaged_jointly,
    density,
    entropy,
    has_expectations,
    mean_prior,
    require_linear,
    stored,
)
from bayeslab.methods.settings import require_blocks, require_positive
from bayeslab.methods.starts import best_of
from bayeslab.methods.summarising import groups_for_starts
from bayeslab.order import Block, blocked, joint_blocks
from bayeslab.program import Bound, Values, structure
from bayeslab.proof import find_all, rules_of, widened
from bayeslab.sweep import computed, scattered
from bayeslab.terms import Term, terms, total


@dataclass(frozen=True)
class MeanField:
    """The product of distributions, one a site, that is closest to the posterior, by coordinate ascent.

    Each factor is in turn the conditional under the expected log joint, the expectation being over all other factors: a
    natural-gradient step of full length of the evidence lower bound, which never decreases (Bishop 2006, section 10.1;
    Blei, Kucukelbir and McAuliffe 2017, arXiv:1601.00670). Factors are the families of the conditionals: chains and
    joint Normals keep their dependence. Every site needs a conditional in closed form; `explain` shows them.
    joint: blocks of continuous sites that keep their dependence on each other as well, such as (("tau", "mu"),).
    tolerance: it has converged when a sweep gains less, in nats.
    num_steps: the most sweeps that are made; `tree.attrs["converged"]` says whether they were enough.
    num_starts: random starts, run together; draws are of the one with the largest bound, group `history` has all.
    """

    num_steps: int = 2000
    num_samples: int = 1000
    num_starts: int = 10
    tolerance: float = 1e-6
    joint: tuple[tuple[str, ...], ...] = ()

    num_chains = 1
    thinning = 1

    def __post_init__(self) -> None:
        require_positive(self, "num_steps", "num_samples", "num_starts")
        require_blocks(self, "joint")
        if not self.tolerance > 0:
            raise ValueError(f"tolerance of MeanField must be positive, but is {self.tolerance}")

    @property
    def num_warmup(self) -> int:
        return self.num_steps

    def plan(self, bound: Bound) -> Sampler:
        if not bound.latent:
            raise ValueError("every site of the program is observed: there is nothing to infer")
        found = find_all(bound)
        if reasons := [f"site '{one.site}': {one.reason}" for one in found if one.rule is None]:
            raise ValueError(f"MeanField needs conditionals in closed form ({'; '.join(reasons)}); use SVI()")
        rules = rules_of(found)
        priors = terms(bound).priors
        for rule in rules:
            if not has_expectations(rule, priors[rule.site]):
                raise ValueError(f"site '{rule.site}': the family {rule.family} has no expectations; use SVI()")
            labels = [name for name in priors[rule.site].depends if priors[name].discrete]
            if labels and rule.family == "MarkovChain":
                raise ValueError(f"site '{rule.site}' is a chain that depends on discrete sites {labels}; use Gibbs()")
        for name in (name for block in self.joint for name in block):
            if name in bound.latent and bound.sites[name].is_discrete:
                raise ValueError(f"joint names site '{name}', which is discrete; MeanField keeps no dependence on it")
        blocks = blocked(joint_blocks(self.joint, bound, found), rules)
        groups = groups_for_starts(bound, found, self.num_starts)
        sampler = FactorSampler(blocks, rules, groups, self.tolerance, structure(bound))
        _require_exact(sampler, bound)
        return best_of(sampler, self.num_starts, "elbo")


class Factors(NamedTuple):
    """The factor of every block.

    last: the distribution of its site that is eliminated last. known: what averages need of its sites.
    entropies: (block,). elbo: after the last sweep.
    """

    last: dict[str, Distribution]
    known: dict[str, Any]
    entropies: Array
    elbo: Array
    converged: Array
    key: Array


@dataclass(frozen=True)
class FactorSampler:
    """rules: of every site given all others."""

    blocks: tuple[Block, ...]
    rules: tuple[Rule, ...]
    groups: Groups
    tolerance: float
    structure: Any

    def prepare(self, bound: Bound) -> Bound:
        return summarised(self.groups, self.rules, bound)

    def start(self, key: Array, data: Bound) -> Factors:
        key, now = jax.random.split(key)
        bound, of, tables = pieces(data)
        values = scattered(now, self.rules, bound)
        of = tuple(term._replace(reader=None) for term in of)  # averages have none, and a state keeps its form
        found = []
        for block in self.blocks:
            mine = {rule.site for rule in block}
            others = {name: value for name, value in values.items() if name not in mine}
            found.append(_factor(block, of, bound, others | tables))
        state = Factors({}, {}, jnp.zeros(0), -jnp.inf * jnp.ones(()), jnp.array(False), key)
        return self._with(state, found)

    def adapt(self, state: Factors, data: Bound) -> tuple[Factors, Draws]:
        new = jax.lax.cond(state.converged, lambda state: state, lambda state: self._swept(state, data), state)
        elbo = jnp.where(state.converged, jnp.nan, new.elbo)
        return new, Draws({}, {}, {"elbo": elbo, "converged": new.converged})

    def advance(self, state: Factors, data: Bound) -> tuple[Factors, Draws]:
        key, *keys = jax.random.split(state.key, 1 + len(self.rules))
        bound, of, tables = pieces(data)
        values: Values = {}
        log_q = jnp.zeros(())
        for block in self.blocks:
            mine = self._expected(block, of)
            for rule, stage in zip(block[::-1], stages(block, mine)[::-1], strict=True):
                site = bound.sites[rule.site]
                q = state.last.get(rule.site)
                if q is None:
                    q = conditional(rule, stage, bound, values | state.known | tables).distribution
                values[rule.site] = q.sample(keys.pop()).reshape(site.shape).astype(site.dtype)
                log_q += q.log_prob(values[rule.site]).sum()
        stats = {"lp": total(of, bound, values | tables), "log_q": log_q, "evidence_bound": state.elbo}
        return state._replace(key=key), Draws(values | computed(bound, values), stats)

    def _swept(self, state: Factors, data: Bound) -> Factors:
        """All factors anew, one after the other."""
        bound, of, tables = pieces(data)
        known, found = dict(state.known), []
        for block in self.blocks:
            others = [other for other in self.blocks if other != block]
            rule = block[-1]
            drawn = mean_prior(rule, terms(bound).priors[rule.site], others, bound, known)
            found.append(_factor(block, self._expected(block, of), bound, known | tables, drawn))
            known |= found[-1].known
        new = self._with(state, found)
        elbo = found[-1].log_evidence + new.entropies[:-1].sum()
        return new._replace(elbo=elbo, converged=elbo - state.elbo < self.tolerance)

    def _expected(self, block: Block, of: tuple[Term, ...]) -> tuple[Term, ...]:
        """The terms of the log joint, averaged over all other blocks."""
        for other in self.blocks:
            if other != block:
                of = averaged_jointly(other, of) if len(other) > 1 else averaged(other[0], of)
        return of

    def _with(self, state: Factors, found: Sequence["Factor"]) -> Factors:
        last = {block[-1].site: one.last for block, one in zip(self.blocks, found, strict=True)}
        known = {name: value for one in found for name, value in one.known.items()}
        return state._replace(last=last, known=known, entropies=jnp.stack([one.entropy for one in found]))


class Factor(NamedTuple):
    """The optimal factor of one block. log_evidence: of all its sites, with the terms that they do not reach."""

    last: Distribution
    known: dict[str, Any]
    entropy: Array
    log_evidence: Array


def _factor(
    block: Block, of: tuple[Term, ...], bound: Bound, values: Values, drawn: Distribution | None = None
) -> Factor:
    """The conditional of a block under some terms, the site that is eliminated last first. drawn: its prior."""
    priors, before = terms(bound).priors, stages(block, of)
    rule, stage = block[-1], before[-1]
    last = conditional(rule, stage, bound, values, drawn=drawn)
    rest = total([term for term in stage if rule.site not in term.depends], bound, values)
    known = {rule.site: density(rule, priors[rule.site], last.distribution)}
    total_entropy = entropy(rule, priors[rule.site], last.distribution)
    for rule, stage in zip(block[-2::-1], before[-2::-1], strict=True):

        def given(at: Values, rule: Rule = rule, stage: tuple[Term, ...] = stage) -> tuple[Array, Array]:
            q = conditional(rule, stage, bound, values | at).distribution
            return density(rule, priors[rule.site], q), entropy(rule, priors[rule.site], q)

        points, entropies = jax.vmap(given)(known)
        times = points.shape[1]
        known = {name: jnp.repeat(value, times, axis=0) for name, value in known.items()}
        known[rule.site] = points.reshape(-1, *points.shape[2:])
        total_entropy += entropies.mean()
    named = {stored(site): value for site, value in known.items()}
    return Factor(last.distribution, named, total_entropy, last.log_evidence.sum() + rest)


def _require_exact(sampler: FactorSampler, bound: Bound) -> None:
    """Averages over a block must be as exact as those over one site, with the factors that a fit begins with."""
    joint = [block for block in sampler.blocks if len(block) > 1]
    if not joint:
        return
    data = jax.jit(sampler.prepare)(bound)
    state = jax.jit(sampler.start)(jax.random.PRNGKey(0), data)
    plain, of, tables = pieces(widened(data))
    known: Any = widened(state.known)
    for block in joint:
        values = {rule.site: known[stored(rule.site)][0] for rule in block}
        at = (plain, known | tables | values | {"given": known | tables})
        require_linear(sampler._expected(block, of), block, [at])
