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

from bayeslab.elimination.conditional import Block, Rule, conditional, elimination_stages
from bayeslab.elimination.sweep import deterministic_values, random_start
from bayeslab.elimination.terms import sum_of_terms, terms
from bayeslab.methods.acceleration import Ascent, ascent_step, initial_ascent, without_memory
from bayeslab.methods.mean_field_factors import (
    Factors,
    in_order_of_size,
    join_factors,
    optimal_factor,
    point_density,
    real_coordinates,
    terms_averaged_over_others,
    typical_block_values,
)
from bayeslab.methods.minibatches.batches import SubsampledPlate, findings_of_batches, subsampled_plates
from bayeslab.methods.minibatches.stochastic_mean_field import BatchSampler
from bayeslab.methods.setting_checks import require_blocks, require_positive
from bayeslab.methods.wrappers.compressed import groups_for_multistart
from bayeslab.methods.wrappers.multistart import best_of_starts
from bayeslab.methods.wrappers.softmax_bound import softmax_bound_sampler
from bayeslab.programs.program import Bound, Values, compilation_signature
from bayeslab.programs.pytrees import unwrap_distributions, wrap_distributions
from bayeslab.programs.wrapped_distributions import innermost_distribution
from bayeslab.sampling.protocols import Draws, Method, Sampler
from bayeslab.transforms.analysis import Analysis
from bayeslab.transforms.draw_checks import Conditionals, conditionals_of_blocks
from bayeslab.transforms.expectation import expected_prior, moment_key, require_averages, require_linear
from bayeslab.transforms.stick_labels import spread_start, stick_labels
from bayeslab.transforms.sufficient_statistics.tables import Groups, program_parts, replace_rows
from bayeslab.verification.findings import Finding, rules_of
from bayeslab.verification.ordering import blocks_in_program_order, require_block_names
from bayeslab.verification.points.likely_points import in_double_precision
from bayeslab.verification.points.probe_points import Point, generic_points


@dataclass(frozen=True)
class MeanField(Method):
    """The product of distributions, one a site, that is closest to the posterior, by coordinate ascent.

    Each factor is in turn the conditional under the expected log joint, the expectation being over all other factors: a
    natural-gradient step of full length of the evidence lower bound, which never decreases (Bishop 2006, section 10.1;
    Blei, Kucukelbir and McAuliffe 2017, arXiv:1601.00670). Factors are the families of the conditionals: chains and
    joint Normals keep their dependence. Every site needs a conditional in closed form; `explain` shows them. Or all of
    them are coefficients of a softmax regression, one Normal (`bayeslab.methods.wrappers.softmax_bound`).
    joint: blocks of continuous sites that keep their dependence on each other as well, such as (("tau", "mu"),).
    tolerance: it has converged when a sweep gains less, in nats. Where weights come by breaking a stick, labels are
    then put in the order of their sizes, which is kept where it gains more than that, and sweeps go on.
    num_steps: the most sweeps that are made; `tree.attrs["converged"]` says whether they were enough.
    num_starts: random starts, run together; draws are of the one with the largest bound, group `history` has all.
    Plates that the program subsamples are not drawn whole, as they are by other methods: a step takes a batch of each.
    There are num_steps of them, the result has the sites that batches share, and its bound is an average over half as
    many other batches, with its standard error (`bayeslab.methods.minibatches.stochastic_mean_field`).
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

    def plan(self, analysis: Analysis) -> Sampler:
        bound = analysis.bound
        if not bound.latent:
            raise ValueError("every site of the program is observed: there is nothing to infer")
        if plates := subsampled_plates(bound):
            return best_of_starts(self._stochastic_sampler(bound, plates), self.num_starts, "elbo")
        if (softmax := softmax_bound_sampler(bound)) is not None:
            require_block_names(self.joint, bound)
            return softmax
        rules = _averageable_rules(analysis.findings, bound)
        for name in (name for block in self.joint for name in block):
            if name in bound.latent and bound.sites[name].is_discrete:
                raise ValueError(f"joint names site '{name}', which is discrete; MeanField keeps no dependence on it")
        for rule in (rule for block in self.joint for rule in rules if rule.site in block):
            if rule.family.linear is not None:
                raise ValueError(
                    f"joint names site '{rule.site}', whose factor is a {rule.family.name} and nothing larger"
                )
        blocks = blocks_in_program_order(analysis.joint_blocks(self.joint), rules)
        largest = max(
            blocks, key=lambda block: sum(prod(bound.sites[name].shape) for rule in block for name in rule.sites)
        )
        blocks = (largest, *(block for block in blocks if block != largest))  # what sweeps begin with is not remembered
        # labels of broken sticks come first, since all others follow their new names; then averages over sites with
        # structure, and those over the parameters of their priors afterwards
        sticks = stick_labels(rules, bound)
        blocks = tuple(sorted(blocks, key=lambda block: (block[0].site not in sticks, not block[0].family.structured)))
        groups = groups_for_multistart(analysis, self.num_starts)
        factors = FactorSampler(blocks, rules, groups, self.tolerance, compilation_signature(bound), sticks)
        _require_exact_averages(factors, bound)
        return best_of_starts(factors, self.num_starts, "elbo")

    def _stochastic_sampler(self, bound: Bound, plates: tuple[SubsampledPlate, ...]) -> BatchSampler:
        """The sampler for a program that subsamples plates."""
        if self.joint:
            raise ValueError("MeanField keeps no joint blocks with subsampled plates; draw the plates whole")
        if bound.transform is not None:
            raise ValueError("MeanField takes batches of a program as it is written, without sites integrated out")
        batch, findings = findings_of_batches(bound, plates)
        rules = _averageable_rules(findings, batch)
        names = {plate.plate for plate in plates}
        local_rules = [rule for rule in rules if names & {plate.name for plate in batch.sites[rule.site].plates}]
        shared_rules = [rule for rule in rules if rule not in local_rules]
        for rule in local_rules:
            _require_whole_elements(rule.site, names, batch)
        if not shared_rules:
            raise ValueError("every site is inside of a subsampled plate, so there is nothing that batches share")
        for rule in shared_rules:
            if rule.family.linear is not None:
                raise ValueError(f"site '{rule.site}' is a chain that batches share; draw the plates whole")
        return BatchSampler(
            tuple(shared_rules), tuple(local_rules), plates, self.num_steps, compilation_signature(bound)
        )


def _require_whole_elements(site: str, plates: set[str], bound: Bound) -> None:
    """Raises ValueError where a batch has a site of an element, but not all terms that the site reaches."""
    site_plates = {plate.name for plate in bound.sites[site].plates}
    for term in terms(bound).terms:
        if site in term.depends:
            for plate in bound.sites[term.name].plates:
                if plate.name in plates - site_plates:
                    raise ValueError(
                        f"site '{site}' of a batch reaches '{term.name}', of which subsampled plate '{plate.name}' "
                        "leaves out a part; draw that plate whole"
                    )


def _averageable_rules(findings: Sequence[Finding], bound: Bound) -> tuple[Rule, ...]:
    """The rules of all sites. Raises ValueError unless terms can be averaged over every one of them."""
    if reasons := [f"site '{finding.site}': {finding.reason}" for finding in findings if finding.rule is None]:
        raise ValueError(f"MeanField needs conditionals in closed form ({'; '.join(reasons)}); use SVI()")
    rules = rules_of(findings)
    priors = terms(bound).priors
    for rule in rules:
        if not rule.family.has_expectations:
            raise ValueError(f"site '{rule.site}': the family {rule.family.name} has no expectations; use SVI()")
        labels = [name for name in priors[rule.site].depends if priors[name].discrete]
        if labels and rule.family.linear is not None:
            raise ValueError(f"site '{rule.site}' is a chain that depends on discrete sites {labels}; use Gibbs()")
    return rules


class CoordinateAscentState(NamedTuple):
    """The state of coordinate ascent.

    acceleration: the state of the accelerated ascent. key: for draws. in_order: whether labels of broken sticks have
    been put in the order of their sizes, and that gained nothing.
    """

    acceleration: Ascent
    key: Array
    in_order: Array


@dataclass(frozen=True)
class FactorSampler(Sampler):
    """The sampler of MeanField.

    blocks: rules of the sites that share a factor, in the order of a sweep. rules: of every site given all others.
    sticks: sites of labels whose weights come by breaking a stick; their factors are the first of a sweep.
    """

    blocks: tuple[Block, ...]
    rules: tuple[Rule, ...]
    groups: Groups
    tolerance: float
    structure: Any
    sticks: tuple[str, ...] = ()

    prepares = True

    @property
    def statistics(self) -> Groups:
        return self.groups

    def conditionals(self, bound: Bound) -> Conditionals:
        return conditionals_of_blocks(bound, [(rule,) for rule in self.rules])

    def prepare(self, bound: Bound) -> Bound:
        return replace_rows(self.groups, self.rules, bound)

    def start(self, key: Array, data: Bound) -> CoordinateAscentState:
        key, start_key = jax.random.split(key)
        bound, all_terms, tables = program_parts(data)
        all_terms = tuple(
            term._replace(reader=None) for term in all_terms
        )  # averages have none, and a state keeps its form
        values = random_start(start_key, self.rules, all_terms, bound, tables)
        for site in self.sticks:
            values = spread_start(start_key, site, self.rules, all_terms, bound, values | tables)

        def all_factors(values: Values) -> Factors:
            return join_factors(
                self.blocks, [optimal_factor(block, all_terms, bound, values | tables, values) for block in self.blocks]
            )

        # a sweep needs to know something of every site, and nothing else: it would take as long to compile again
        shapes = jax.eval_shape(all_factors, values)
        factors = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        for rule in self.rules:
            shape = shapes.known[moment_key(rule.site)]
            factors.known[moment_key(rule.site)] = point_density(rule, all_terms, bound, values | tables, shape)
        return CoordinateAscentState(
            initial_ascent(wrap_distributions(factors), self._coordinates(factors, bound)[0], -jnp.inf),
            key,
            jnp.array(not self.sticks),
        )

    def adapt(self, state: CoordinateAscentState, data: Bound) -> tuple[CoordinateAscentState, Draws]:
        old, in_order = state.acceleration, state.in_order
        sorts = old.converged & ~in_order
        start = old._replace(converged=old.converged & in_order)
        new = ascent_step(start, partial(self._sweep_from, data, sorts), lambda gain, _: gain < self.tolerance)
        if self.sticks:
            new = jax.tree.map(lambda a, b: jnp.where(sorts, a, b), without_memory(new), new)
            in_order = jnp.where(sorts, new.converged, in_order)
        elbo = jnp.where(old.converged & state.in_order, jnp.nan, new.objective)
        converged = new.converged & in_order
        return CoordinateAscentState(new, state.key, in_order), Draws({}, {}, {"elbo": elbo, "converged": converged})

    def advance(self, state: CoordinateAscentState, data: Bound) -> tuple[CoordinateAscentState, Draws]:
        key, *keys = jax.random.split(state.key, 1 + len(self.rules))
        bound, all_terms, tables = program_parts(data)
        factors: Factors = unwrap_distributions(state.acceleration.best)
        values: Values = {}
        log_q = jnp.zeros(())
        for block in self.blocks:
            block_terms = terms_averaged_over_others(block, self.blocks, all_terms)
            for rule, stage in zip(block[::-1], elimination_stages(block, block_terms)[::-1], strict=True):
                q = factors.last.get(rule.site)
                if q is None:
                    q = conditional(rule, stage, bound, values | factors.known | tables).distribution
                for name, value in rule.named(q.sample(keys.pop())).items():
                    values[name] = value.reshape(bound.sites[name].shape).astype(bound.sites[name].dtype)
                log_q += q.log_prob(rule.joined(values)).sum()
        lp = sum_of_terms(all_terms, bound, values | tables)
        stats = {"lp": lp, "log_q": log_q, "evidence_bound": state.acceleration.objective}
        return state._replace(key=key), Draws(values | deterministic_values(bound, values), stats)

    def _sweep_from(
        self, data: Bound, sorts: Array, best: Factors, at: Array, leapt: Array
    ) -> tuple[Factors, Array, Array]:
        """The factors after one sweep of coordinate ascent from the flat coordinates `at`, their flat coordinates, and
        the evidence lower bound.

        sorts: whether labels of broken sticks get the order of their sizes. The factors of all other sites are then
        those that are best for labels with these names, and the bound is theirs.
        """
        bound, all_terms, tables = program_parts(data)
        best = unwrap_distributions(best)
        known, new_factors = dict(best.known), []
        for name, extrapolated in self._coordinates(best, bound)[1](at).items():
            known[name] = jnp.where(leapt, extrapolated, known[name])
        for block in self.blocks:
            others = [other for other in self.blocks if other != block]
            rule = block[-1]
            prior = expected_prior(rule, terms(bound).priors[rule.sites[0]], others, bound, known)
            initial = typical_block_values(block, best)
            new_factors.append(
                optimal_factor(
                    block,
                    terms_averaged_over_others(block, self.blocks, all_terms),
                    bound,
                    known | tables,
                    initial,
                    prior,
                )
            )
            if rule.site in self.sticks:
                new_factors[-1] = in_order_of_size(new_factors[-1], rule.site, sorts)
            known |= new_factors[-1].known
        new = join_factors(self.blocks, new_factors)
        elbo = new_factors[-1].log_evidence + new.entropies[:-1].sum()
        return wrap_distributions(new), self._coordinates(new, bound)[0], elbo

    def _coordinates(self, factors: Factors, bound: Bound) -> tuple[Array, Callable[[Array], dict[str, Array]]]:
        """Flat coordinates of what a sweep starts from, and the function that turns such coordinates into densities.

        The first block is left out, as a sweep begins by replacing it, and so are sites with structure.
        """
        free, inverses = {}, {}
        for rule in (rule for block in self.blocks[1:] for rule in block):
            for site in rule.sites:
                name = moment_key(site)
                if isinstance(factors.known[name], jax.Array):
                    forward, inverses[name] = real_coordinates(rule, terms(bound).priors[site], bound, factors)
                    free[name] = forward(factors.known[name])
        flat, unflat = ravel_pytree(free)
        flat = flat.astype(factors.entropies.dtype)  # none are numbers of single precision
        return flat, lambda at: {name: inverses[name](value) for name, value in unflat(at).items()}


def _require_exact_averages(sampler: FactorSampler, bound: Bound) -> None:
    """Raises ValueError unless averages over blocks are as exact as those over single sites, whatever is known of the
    other sites."""
    require_averages(sampler.rules, bound)
    joint = [block for block in sampler.blocks if len(block) > 1]
    if not joint:
        return
    with jax.enable_x64(True):
        first_point, second_point = generic_points(in_double_precision(bound))
        known: Any = {
            moment_key(rule.site): _arbitrary_density(rule, first_point, second_point[1]) for rule in sampler.rules
        }
        for block in joint:
            probe_points = [(plain, known | values | {"given": known}) for plain, values in (first_point, second_point)]
            require_linear(terms_averaged_over_others(block, sampler.blocks, terms(bound).terms), block, probe_points)


def _arbitrary_density(rule: Rule, point: Point, other: Values) -> Any:
    """An arbitrary density of a site, as averages need it: two points, or uneven probabilities."""
    prior, site = terms(point[0]).priors[rule.site], rule.site
    if rule.family.enumerates:
        assert prior.choices is not None
        weights = 1.5 + jnp.cos(jnp.arange(prod(prior.shape) * len(prior.choices)))
        weights = weights.reshape(*prior.shape, -1)
        return weights / weights.sum(-1, keepdims=True)
    if rule.family.structured:
        return innermost_distribution(prior.distribution(*point))
    return jnp.stack([point[1][site], other[site]])
