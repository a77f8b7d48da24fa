"""Mean-field variational inference from the conditionals of a program."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree
from numpyro.distributions import Distribution, biject_to

from bayeslab.compress import Groups, pieces, summarised
from bayeslab.draws import Draws, Sampler
from bayeslab.elimination import ENUMERATED, NORMAL, Rule, conditional, stages, typical
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
from bayeslab.methods.acceleration import Ascent, ascended, ascent
from bayeslab.methods.settings import require_blocks, require_positive
from bayeslab.methods.starts import best_of
from bayeslab.methods.summarising import groups_for_starts
from bayeslab.order import Block, blocked, joint_blocks
from bayeslab.program import Bound, Values, structure, unwrapped
from bayeslab.proof import Point, find_all, points, rules_of, widened
from bayeslab.sweep import computed, scattered
from bayeslab.terms import Prior, Term, terms, total


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
        largest = max(blocks, key=lambda block: sum(prod(bound.sites[rule.site].shape) for rule in block))
        blocks = (largest, *(block for block in blocks if block != largest))  # what sweeps begin with is not remembered
        groups = groups_for_starts(bound, found, self.num_starts)
        sampler = FactorSampler(blocks, rules, groups, self.tolerance, structure(bound))
        _require_exact(sampler, bound)
        return best_of(sampler, self.num_starts, "elbo")


Move = Callable[[Array], Array]


class Factors(NamedTuple):
    """The factor of every block.

    last: the distribution of its site that is eliminated last. known: what averages need of its sites.
    entropies: (block,).
    """

    last: dict[str, Distribution]
    known: dict[str, Any]
    entropies: Array


class Climb(NamedTuple):
    ascent: Ascent
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

    def start(self, key: Array, data: Bound) -> Climb:
        key, now = jax.random.split(key)
        bound, of, tables = pieces(data)
        of = tuple(term._replace(reader=None) for term in of)  # averages have none, and a state keeps its form
        values = scattered(now, self.rules, of, bound, tables)

        def found(values: Values) -> Factors:
            return self._joined([_factor(block, of, bound, values | tables, values) for block in self.blocks])

        # a sweep needs to know something of every site, and nothing else: it would take as long to compile again
        shapes = jax.eval_shape(found, values)
        factors = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        for rule in self.rules:
            shape = shapes.known[stored(rule.site)]
            factors.known[stored(rule.site)] = _only(rule, of, bound, values | tables, shape)
        return Climb(ascent(factors, self._coordinates(factors, bound)[0], -jnp.inf), key)

    def adapt(self, state: Climb, data: Bound) -> tuple[Climb, Draws]:
        new = ascended(state.ascent, partial(self._swept, data), lambda gain, _: gain < self.tolerance)
        elbo = jnp.where(state.ascent.converged, jnp.nan, new.objective)
        return state._replace(ascent=new), Draws({}, {}, {"elbo": elbo, "converged": new.converged})

    def advance(self, state: Climb, data: Bound) -> tuple[Climb, Draws]:
        key, *keys = jax.random.split(state.key, 1 + len(self.rules))
        bound, of, tables = pieces(data)
        factors: Factors = state.ascent.best
        values: Values = {}
        log_q = jnp.zeros(())
        for block in self.blocks:
            mine = self._expected(block, of)
            for rule, stage in zip(block[::-1], stages(block, mine)[::-1], strict=True):
                site = bound.sites[rule.site]
                q = factors.last.get(rule.site)
                if q is None:
                    q = conditional(rule, stage, bound, values | factors.known | tables).distribution
                values[rule.site] = q.sample(keys.pop()).reshape(site.shape).astype(site.dtype)
                log_q += q.log_prob(values[rule.site]).sum()
        lp = total(of, bound, values | tables)
        stats = {"lp": lp, "log_q": log_q, "evidence_bound": state.ascent.objective}
        return state._replace(key=key), Draws(values | computed(bound, values), stats)

    def _swept(self, data: Bound, best: Factors, at: Array, leapt: Array) -> tuple[Factors, Array, Array]:
        """All factors anew, one after the other; where they are; the bound."""
        bound, of, tables = pieces(data)
        known, found = dict(best.known), []
        for name, far in self._coordinates(best, bound)[1](at).items():
            known[name] = jnp.where(leapt, far, known[name])
        for block in self.blocks:
            others = [other for other in self.blocks if other != block]
            rule = block[-1]
            drawn = mean_prior(rule, terms(bound).priors[rule.site], others, bound, known)
            near = _middles(block, best)
            found.append(_factor(block, self._expected(block, of), bound, known | tables, near, drawn))
            known |= found[-1].known
        new = self._joined(found)
        elbo = found[-1].log_evidence + new.entropies[:-1].sum()
        return new, self._coordinates(new, bound)[0], elbo

    def _expected(self, block: Block, of: tuple[Term, ...]) -> tuple[Term, ...]:
        """The terms of the log joint, averaged over all other blocks."""
        for other in self.blocks:
            if other != block:
                of = averaged_jointly(other, of) if len(other) > 1 else averaged(other[0], of)
        return of

    def _joined(self, found: Sequence["Factor"]) -> Factors:
        last = {block[-1].site: one.last for block, one in zip(self.blocks, found, strict=True)}
        known = {name: value for one in found for name, value in one.known.items()}
        return Factors(last, known, jnp.stack([one.entropy for one in found]))

    def _coordinates(self, factors: Factors, bound: Bound) -> tuple[Array, Callable[[Array], dict[str, Array]]]:
        """Flat coordinates of what a sweep starts from, and the way back.

        The first block is left out, as a sweep begins by replacing it, and so are sites with structure.
        """
        free, back = {}, {}
        for rule in (rule for block in self.blocks[1:] for rule in block):
            name = stored(rule.site)
            if isinstance(factors.known[name], jax.Array):
                out, back[name] = _free(rule, terms(bound).priors[rule.site], bound, factors)
                free[name] = out(factors.known[name])
        flat, unflat = ravel_pytree(free)
        flat = flat.astype(factors.entropies.dtype)  # none are numbers of single precision
        return flat, lambda at: {name: back[name](value) for name, value in unflat(at).items()}


class Factor(NamedTuple):
    """The optimal factor of one block. log_evidence: of all its sites, with the terms that they do not reach."""

    last: Distribution
    known: dict[str, Any]
    entropy: Array
    log_evidence: Array


def _factor(
    block: Block,
    of: tuple[Term, ...],
    bound: Bound,
    values: Values,
    near: Values,
    drawn: Distribution | None = None,
) -> Factor:
    """The conditional of a block under some terms, the site that is eliminated last first.

    near: likely values, see `conditional`. drawn: the prior of the last site.
    """
    priors, before = terms(bound).priors, stages(block, of)
    rule, stage = block[-1], before[-1]
    last = conditional(rule, stage, bound, values, near.get(rule.site), drawn)
    rest = total([term for term in stage if rule.site not in term.depends], bound, values)
    known = {rule.site: density(rule, priors[rule.site], last.distribution)}
    total_entropy = entropy(rule, priors[rule.site], last.distribution)
    for rule, stage in zip(block[-2::-1], before[-2::-1], strict=True):

        def given(at: Values, rule: Rule = rule, stage: tuple[Term, ...] = stage) -> tuple[Array, Array]:
            q = conditional(rule, stage, bound, values | at, near.get(rule.site)).distribution
            return density(rule, priors[rule.site], q), entropy(rule, priors[rule.site], q)

        points, entropies = jax.vmap(given)(known)
        times = points.shape[1]
        known = {name: jnp.repeat(value, times, axis=0) for name, value in known.items()}
        known[rule.site] = points.reshape(-1, *points.shape[2:])
        total_entropy += entropies.mean()
    named = {stored(site): value for site, value in known.items()}
    return Factor(last.distribution, named, total_entropy, last.log_evidence.sum() + rest)


def _only(rule: Rule, of: tuple[Term, ...], bound: Bound, values: Values, shape: Any) -> Any:
    """What averages need of a site that has one value; of a site with structure, its conditional."""
    prior, value = terms(bound).priors[rule.site], values[rule.site]
    if rule.family == ENUMERATED:
        return (value[..., None] == jnp.asarray(prior.choices)).astype(shape.dtype)
    if prior.discrete:
        return density(rule, prior, conditional(rule, of, bound, values).distribution)
    return jnp.broadcast_to(value, shape.shape).astype(shape.dtype)


def _middles(block: Block, factors: Factors) -> Values:
    """Likely values of the continuous sites of a block, where they are known."""
    found = {}
    for rule in block:
        points = factors.known[stored(rule.site)]
        if rule.family == NORMAL:
            found[rule.site] = points.mean(0)
        elif rule.site in factors.last and rule.family != ENUMERATED and isinstance(points, jax.Array):
            found[rule.site] = typical(factors.last[rule.site], points[0])
    return found


def _free(rule: Rule, prior: Prior, bound: Bound, factors: Factors) -> tuple[Move, Move]:
    """From what is known of a site to real numbers, and back."""
    if rule.family == ENUMERATED:
        return lambda probs: jnp.log(jnp.maximum(probs, jnp.finfo(probs.dtype).tiny)), jax.nn.softmax
    points = {name: factors.known[stored(name)] for name in prior.depends}
    others = {name: one[0] if isinstance(one, jax.Array) else one.mode() for name, one in points.items()}
    transform = biject_to(prior.distribution(bound, others).support)
    return transform.inv, transform


def _require_exact(sampler: FactorSampler, bound: Bound) -> None:
    """Averages over a block must be as exact as those over one site, whatever is known of the other sites."""
    joint = [block for block in sampler.blocks if len(block) > 1]
    if not joint:
        return
    with jax.enable_x64(True):
        here, there = points(widened(bound))
        known: Any = {stored(rule.site): _any(rule, here, there[1]) for rule in sampler.rules}
        for block in joint:
            at = [(plain, known | values | {"given": known}) for plain, values in (here, there)]
            require_linear(sampler._expected(block, terms(bound).terms), block, at)


def _any(rule: Rule, point: Point, other: Values) -> Any:
    """Something that could be known of a site: two points, or uneven probabilities."""
    prior, site = terms(point[0]).priors[rule.site], rule.site
    if rule.family == ENUMERATED:
        assert prior.choices is not None
        weights = 1.5 + jnp.cos(jnp.arange(prod(prior.shape) * len(prior.choices)))
        weights = weights.reshape(*prior.shape, -1)
        return weights / weights.sum(-1, keepdims=True)
    if prior.discrete:
        return unwrapped(prior.distribution(*point))
    return jnp.stack([point[1][site], other[site]])
