"""Gibbs sampling: sites with a conditional in closed form are drawn from it, those with steps by slices, others by
NUTS."""

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import prod

from bayeslab.elimination.conditional import Block, Rule
from bayeslab.elimination.terms import terms
from bayeslab.methods.gibbs_samplers import BlockSampler, SweepSampler
from bayeslab.methods.moves.slice_sampling import SliceStep
from bayeslab.methods.setting_checks import require_blocks, require_count, require_positive
from bayeslab.programs.program import Bound, compilation_signature
from bayeslab.sampling.protocols import Method
from bayeslab.transforms.analysis import Analysis
from bayeslab.transforms.sufficient_statistics.tables import Group, groups_beside
from bayeslab.verification.discrete_fields import joint_size
from bayeslab.verification.findings import rules_of
from bayeslab.verification.ordering import blocks_in_program_order

MAX_JOINT_NUMBERS = 2**16
"""Numbers of all tables that arise when discrete sites are drawn at once, at most: a millisecond."""


MAX_SLICED_ELEMENTS = 16
"""Elements of a site, at most, that are drawn one by one where the log joint has steps in it."""

MAX_COLLAPSED_ELEMENTS = 100
"""Discrete elements, and elements of the Normal sites, at most, where the latter are integrated out for every draw of
the former."""


@dataclass(frozen=True)
class Gibbs(Method):
    """Draw every site in turn from its conditional given all others; what has none in closed form gets a NUTS step.

    The conditionals are found and proven by the laboratory; `explain` shows them. Discrete sites are enumerated, all
    elements of a plate at once. Sites that are jointly Normal given all others are drawn at once. Scalar sites whose
    terms are replaced by sufficient statistics are drawn jointly where they can be, the last eliminated first, and then
    the others given it. With discrete sites, which are drawn first, a chain starts where the best of a few short ones
    has come: in mixtures and hidden chains many points lead to poor modes.
    thinning: keep one draw in so many.
    joint: blocks of sites to be drawn jointly besides, such as (("tau", "mu"),).
    """

    num_warmup: int = 200
    num_samples: int = 1000
    num_chains: int = 4
    thinning: int = 1
    joint: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        require_positive(self, "num_samples", "num_chains", "thinning")
        require_count(self, "num_warmup")
        require_blocks(self, "joint")

    def plan(self, analysis: Analysis) -> SweepSampler | BlockSampler:
        bound = analysis.bound
        if not bound.latent:
            raise ValueError("every site of the program is observed: there is nothing to infer")
        discrete_blocks = _discrete_blocks(analysis, [name for block in self.joint for name in block])
        together = _sites_of(discrete_blocks)
        open_findings = [one for one in analysis.findings if one.rule is None and one.site not in together]
        for finding in open_findings:
            if bound.sites[finding.site].is_discrete:
                more = [each.by_element.reason for each in analysis.discrete_fields if finding.site in each.names]
                why = " and ".join([finding.reason, *more])
                raise ValueError(f"site '{finding.site}' is discrete and cannot be enumerated: {why}")
        rules = analysis.rules
        slices = _slice_steps(analysis)
        if not rules and not slices and not discrete_blocks:
            reasons = "; ".join(f"site '{finding.site}': {finding.reason}" for finding in open_findings)
            raise ValueError(f"no site has a conditional in closed form ({reasons}); use NUTS()")
        joint = [*analysis.joint_blocks(self.joint), *discrete_blocks]
        sliced = {step.site for step in slices}
        if nuts_names := [finding.site for finding in open_findings if finding.site not in sliced]:
            gibbs_rules, nuts_sites = _split_gibbs_and_nuts(bound, rules, nuts_names)
            joint = _with_normal_blocks(joint, analysis, [rule.site for rule in gibbs_rules])
            slices = tuple(step for step in slices if not _sites_of([step.block]) & set(nuts_sites))
            if not (gibbs_rules or slices or discrete_blocks) or _sites_of(joint) & set(nuts_sites):
                raise ValueError(
                    f"{nuts_sites} have to be moved together, since coordinates of one depend on others; use NUTS()"
                )
            return BlockSampler(
                blocks_in_program_order(joint, gibbs_rules),
                tuple(nuts_sites),
                compilation_signature(bound),
                self.num_warmup,
                slices,
            )
        groups = groups_beside(analysis.groups, bound, together)
        joint_sites = _sites_of(joint)
        for group in (group for group in groups if isinstance(group, Group)):
            sites = [rule.site for rule in group.rules]
            scalar = all(bound.sites[rule.site].event_dim == 0 and not rule.coupled for rule in group.rules)
            if len(sites) > 1 and scalar and joint_sites.isdisjoint(sites):
                with suppress(ValueError):
                    joint.append(analysis.order(sites))
        joint = _with_normal_blocks(joint, analysis, [rule.site for rule in rules])
        blocks = tuple(sorted(blocks_in_program_order(joint, rules), key=partial(_rank_in_scan, bound)))
        is_discrete = any(bound.sites[name].is_discrete for name in bound.latent)
        return SweepSampler(blocks, rules, groups, compilation_signature(bound), slices, is_discrete)


def _rank_in_scan(bound: Bound, block: Block) -> int:
    """When a block is drawn: discrete sites first, then Normal ones, then the rest.

    From a random start, effects are drawn while scales are still of the same size, so that they follow the data. Drawn
    first, the precision of effects that start all but equal is large, and then keeps them so for hundreds of sweeps.
    """
    if any(bound.sites[rule.sites[0]].is_discrete for rule in block):
        return 0
    return 1 if any(rule.family.is_normal for rule in block) else 2


def _slice_steps(analysis: Analysis) -> tuple[SliceStep, ...]:
    """The steps that draw scalar sites in which the log joint has steps.

    Each comes with the Normal sites that meet it in a term, where these can be integrated out while it moves.
    """
    bound, normal = analysis.bound, [rule.site for rule in analysis.rules if rule.family.is_normal]
    steps = []
    for finding in analysis.findings:
        size = prod(bound.sites[finding.site].shape)
        if finding.rule is None and finding.has_steps and size <= MAX_SLICED_ELEMENTS:
            reached = [term for term in terms(bound).terms if finding.site in term.depends]
            block: Block = ()
            if near := [name for name in normal if any(name in term.depends for term in reached)]:
                with suppress(ValueError):
                    block = analysis.order(near)
            steps.append(SliceStep(finding.site, block))
    return tuple(steps)


def _discrete_blocks(analysis: Analysis, named: Sequence[str]) -> list[Block]:
    """Blocks of discrete sites that meet, or whose elements do: drawn at once where that takes few numbers, else one
    element after another, with the Normal sites integrated out that go with single elements. So are scalar sites, such
    as change points, which hardly ever move while the lines on both sides of them stay.

    named: sites of blocks that the user names.
    """
    blocks: list[Block] = []
    for field in analysis.discrete_fields:
        if not set(named).isdisjoint(field.names):
            continue
        meets = any(one.rule is None for one in analysis.findings_of(field.names))
        normal = _integrated_out(analysis, field.names, {*named, *_sites_of(blocks)}) if meets else ()
        jointly, by_element = (each.rule for each in (field.jointly, field.by_element))
        if normal:
            collapsed = analysis.collapsed_field(normal[0], field.names)
            if (rule := _affordable(collapsed.jointly.rule) or collapsed.by_element.rule) is not None:
                blocks.append((*normal, rule))
                continue
        if (rule := _affordable(jointly) or (by_element if meets else None)) is not None:
            blocks.append((rule,))
    for name in _scalar_choices(analysis):
        taken = {*named, *_sites_of(blocks)}
        if name not in taken and (normal := _integrated_out(analysis, (name,), taken)):
            with suppress(ValueError):
                blocks.append(analysis.order((*normal[0].sites, name)))
    return blocks


def _scalar_choices(analysis: Analysis) -> list[str]:
    """The scalar sites of few choices, such as change points."""
    priors = {name: terms(analysis.bound).priors[name] for name in analysis.bound.latent}
    choices = {name: prior.choices for name, prior in priors.items() if not analysis.bound.sites[name].shape}
    return [name for name, each in choices.items() if each is not None and 1 < len(each) <= MAX_COLLAPSED_ELEMENTS]


def _affordable(jointly: Rule | None) -> Rule | None:
    """The rule that draws discrete sites at once, where that takes few numbers."""
    small = jointly is not None and jointly.field is not None and joint_size(jointly.field) <= MAX_JOINT_NUMBERS
    return jointly if small else None


def _integrated_out(analysis: Analysis, names: Sequence[str], taken: Collection[str]) -> Block:
    """The rule of Normal sites that are integrated out while discrete elements are drawn, none or one.

    A coefficient that is left out of a regression follows its prior, so that it hardly ever comes back in.
    """
    bound, blocks = analysis.bound, rules_of(analysis.normal_blocks)
    in_blocks = {name for rule in blocks for name in rule.sites}
    alone = [rule for rule in analysis.rules if rule.family.is_normal and rule.site not in in_blocks]
    sizes = {rule: sum(prod(bound.sites[name].shape) for name in rule.sites) for rule in (*blocks, *alone)}
    largest = max((sum(prod(bound.sites[name].shape) for name in names), *sizes.values()))
    met = [rule for rule in sizes if not rule.blanket(terms(bound).terms).isdisjoint(names)]
    met = [rule for rule in met if set(rule.sites).isdisjoint(taken)]
    return tuple(met[:1]) if largest <= MAX_COLLAPSED_ELEMENTS else ()


def _sites_of(blocks: Sequence[Block]) -> set[str]:
    """The sites of some blocks."""
    return {name for block in blocks for rule in block for name in rule.sites}


def _with_normal_blocks(joint: Sequence[Block], analysis: Analysis, sites: Sequence[str]) -> list[Block]:
    """Some blocks, and those of other sites that are jointly Normal."""
    taken = _sites_of(joint)
    rest = [name for name in sites if name not in taken]
    return [*joint, *((rule,) for rule in rules_of(analysis.normal_blocks_of(rest)))]


def _split_gibbs_and_nuts(bound: Bound, rules: tuple[Rule, ...], rest: list[str]) -> tuple[tuple[Rule, ...], list[str]]:
    """The rules of the sites that are drawn from their conditionals, and the names of those that NUTS moves.

    With a site whose unconstrained coordinates depend on other sites, NUTS moves those others as well. Raises
    ValueError where one of them is discrete.
    """
    moving = set(bound.moving) & set(rest)
    movers = [rule for rule in rules if moving & set(rule.children)]
    for rule in movers:
        if bound.sites[rule.site].is_discrete:
            raise ValueError(f"the coordinates of {sorted(moving)} depend on site '{rule.site}', which is discrete")
    if not movers:
        return rules, rest
    remaining = tuple(rule for rule in rules if rule not in movers)
    return _split_gibbs_and_nuts(bound, remaining, [*rest, *(rule.site for rule in movers)])
