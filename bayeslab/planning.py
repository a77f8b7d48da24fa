"""The plan of a fit: the method, by default the one that the program allows, and the sampler that it makes."""

from collections.abc import Sequence
from contextlib import suppress
from itertools import permutations
from math import prod
from typing import NamedTuple

from jax.sharding import Mesh

from bayeslab.distributions import precision_structure
from bayeslab.distributions.block_tridiagonal.step_normal import StepStructure
from bayeslab.elimination.chain_families import NUM_COLOURS
from bayeslab.elimination.conditional import Rule
from bayeslab.elimination.discrete.mixture_components import component_sites, summation_cost
from bayeslab.elimination.normal_blocks import num_directions
from bayeslab.elimination.terms import terms
from bayeslab.methods.exact import Exact
from bayeslab.methods.gibbs import MAX_SLICED_ELEMENTS, Gibbs
from bayeslab.methods.laplace import MAP
from bayeslab.methods.mcmc import MAX_DENSE_MASS_DIMENSIONS, NUTS
from bayeslab.methods.moves.noncentered import noncentered_sites
from bayeslab.methods.svi import SVI
from bayeslab.methods.wrappers.imputed import ImputedSampler, gaps_of
from bayeslab.mixed_membership import methods as mixed_membership
from bayeslab.programs.missing.gaps import without_given_elements
from bayeslab.programs.program import Bound, Site
from bayeslab.programs.validation import listed_names
from bayeslab.sampling.protocols import Method, Sampler
from bayeslab.transforms.analysis import Analysis
from bayeslab.transforms.exchangeable_labels import may_exchange_labels
from bayeslab.transforms.stick_labels import stick_labels
from bayeslab.verification.conditioning import condition_number
from bayeslab.verification.findings import rules_of

MAX_SITES_FOR_EXACT = 12
"""Eliminations, of a latent site or of jointly Normal ones, beyond which `fit` does not look for their order."""


MAX_ELIMINATION_COST = 10**6
"""Numbers that integrating Normal sites out, or summing over discrete ones, may read and write for one gradient of
NUTS, at most: a millisecond."""


MAX_COST_OF_ILL_CONDITIONED, MIN_CONDITION_NUMBER = 3 * 10**7, 20.0**2
"""The same, some ten milliseconds, for Normal sites whose correlations have at least this condition number: NUTS over
them takes hundreds of steps a draw, and their scales hardly move. Of a random walk of 100 steps, written as a sum of
them, it is 40 squared, and 4 squared of 120 independent coefficients."""


MAX_SIZE_WHERE_SUMMED = 1000
"""Elements of the continuous sites that NUTS moves in place of a sweep that has conditionals for some, at most."""


ACCEPT_PROB_OF_HIERARCHIES = 0.95
"""Acceptance that NUTS aims at where effects have unknown scales, moved or integrated out: what is left of funnels
needs short steps, and so do scales with vague priors, whose densities end in cliffs. They cost little there."""


class Choice(NamedTuple):
    """A method, and why it is the one for a program, in words."""

    method: Method
    why: str


class Plan(NamedTuple):
    """How a posterior will be drawn from. why: the method was chosen; empty where the user named it."""

    method: Method
    sampler: Sampler
    why: str = ""


def plan(analysis: Analysis, method: Method | None = None, mesh: Mesh | None = None) -> Plan:
    """The plan of a fit. method: by default that of `default_method`. mesh: devices that the fit is spread over.

    A program of mixed membership with many origins has methods of its own (`bayeslab.mixed_membership.methods`), which
    take the place of those of the same names.
    Raises ValueError where the method does not apply.
    """
    if method is None:
        method, why = default_method(analysis)
    else:
        method, why = mixed_membership.method_at_size(analysis, method), ""
    if mesh is not None:
        method = mixed_membership.spread_method(method, mesh)
    if (learned := analysis.bound.learned) and not method.learns:
        gives = "numpyro.handlers.lift gives it a prior"
        if learned[0].endswith("$params"):
            gives = "random_flax_module and the like of numpyro.contrib.module give it priors"
        raise ValueError(
            f"{type(method).__name__} draws all sites, but numpyro.param '{learned[0]}' has no prior to draw from; "
            f"MAP(), EM() and SVI() learn it, and {gives}"
        )
    return Plan(method, _sampler(method, analysis), why)


def _sampler(method: Method, analysis: Analysis) -> Sampler:
    """The sampler of a method. One that moves coordinates gets those of missing elements alone, not of given ones."""
    bound = analysis.bound
    gaps = gaps_of(bound, method.collapse) if method.moves_coordinates else ()
    if not gaps:
        return method.plan(analysis)
    return ImputedSampler(method.plan(Analysis(without_given_elements(bound, gaps))), gaps)


def default_method(analysis: Analysis) -> Choice:
    """The method of a fit that names none.

    Exact where all sites can be eliminated. Else, without discrete sites, NUTS with jointly Normal sites integrated out
    where others are left that few data or the priors of these tell about (`collapsible_sites`). Else NUTS where
    discrete sites are cheap to sum over and do not select among components that may be exchanged. Else Gibbs where each
    site has a conditional in closed form or one is discrete, else NUTS. Where origins of mixed membership are too many
    to be kept, Gibbs counts them; where the program has a numpyro.param, SVI learns it, or MAP if nothing else that is
    continuous is latent.
    """
    bound = analysis.bound
    if bound.learned:
        drawn = set(bound.latent) - set(bound.learned)
        learner = MAP() if all(bound.sites[name].is_discrete for name in drawn) else SVI()
        return Choice(learner, f"it learns numpyro.param {listed_names(bound.learned)}")
    if mixed_membership.membership_at_size(analysis) is not None:
        return Choice(mixed_membership.Gibbs(), "origins are counted, not kept")
    try:
        findings = analysis.findings
    except ValueError:  # the program cannot be taken apart
        findings = ()
    fields = analysis.discrete_fields if findings else ()
    in_fields = {name for field in fields for name in field.names}
    closed = bool(findings) and all(finding.rule is not None or finding.site in in_fields for finding in findings)
    if closed and _num_eliminations(analysis) <= MAX_SITES_FOR_EXACT and not _labels_are_shared(analysis):
        try:
            Exact().plan(analysis)
        except ValueError:
            pass
        else:
            return Choice(Exact(), "all sites can be eliminated")
    discrete = [name for name in bound.latent if bound.sites[name].is_discrete]
    if stepped := [f.site for f in findings if f.has_jumps and prod(bound.sites[f.site].shape) <= MAX_SLICED_ELEMENTS]:
        return Choice(Gibbs(), f"the log joint has steps in {listed_names(stepped)}, drawn by slices")
    if not discrete and findings and (sites := collapsible_sites(analysis, closed)):
        left = [name for name in bound.latent if name not in sites]
        method = NUTS(collapse=sites, target_accept_prob=ACCEPT_PROB_OF_HIERARCHIES)
        return Choice(
            method, f"{listed_names(sites)} {_are(sites)} Normal given {listed_names(left)} and integrated out"
        )
    if discrete and findings and _is_summation_cheap(analysis, closed):
        accept_prob = ACCEPT_PROB_OF_HIERARCHIES if noncentered_sites(bound) else NUTS().target_accept_prob
        method = NUTS(target_accept_prob=accept_prob)
        with suppress(ValueError):
            method.plan(analysis)
            return Choice(method, f"{listed_names(discrete)} {_are(discrete)} discrete and summed over")
    if closed:
        return Choice(Gibbs(), "each site has a conditional in closed form")
    if discrete:
        return Choice(Gibbs(), f"{listed_names(discrete)} {_are(discrete)} discrete")
    why = "some sites have no conditional in closed form"
    if sites := noncentered_sites(bound):
        standard = f"{listed_names(sites)} {_are(sites)} moved in partly standard coordinates"
        return Choice(NUTS(target_accept_prob=ACCEPT_PROB_OF_HIERARCHIES), f"{why}; {standard}")
    return Choice(NUTS(), why)


def collapsible_sites(analysis: Analysis, closed: bool) -> tuple[str, ...]:
    """The Normal sites that NUTS integrates out by default; none where that does not pay or cannot be done.

    closed: whether every site has a conditional in closed form. If so, Gibbs sampling is the alternative, which mixes
    badly only where a scale of the Normal sites is unknown; else it is NUTS over all sites, Gaussian processes and
    linear Gaussian chains among them.
    """
    bound = analysis.bound
    if bound.transform is not None:
        return ()
    normal = [rule.site for rule in analysis.rules if rule.family.is_normal]
    processes = [] if closed else [rule.site for rule in analysis.rules if rule.family.process]
    others = set(bound.latent) - {*normal, *processes}
    priors = terms(bound).priors
    if not others or not {*bound.moving} <= {*processes}:
        return ()
    if closed and not any(priors[name].depends & others for name in normal):
        return ()
    largest = max(
        (rule.sites for rule in rules_of(analysis.normal_blocks)),
        key=lambda sites: sum(prod(bound.sites[name].shape) for name in sites),
        default=(),
    )
    moved = set(noncentered_sites(bound))
    both = tuple(name for name in bound.latent if name in {*normal, *processes})
    for sites in dict.fromkeys((both, tuple(normal), largest)):
        if not {*bound.moving} <= {*sites} or any(priors[name].depends & set(sites) for name in moved - set(sites)):
            continue  # standard coordinates need the mean and the scale of the prior
        with suppress(ValueError):
            if sites and _is_elimination_worthwhile(analysis, sites):
                return sites
    return ()


def _is_elimination_worthwhile(analysis: Analysis, sites: tuple[str, ...]) -> bool:
    """Whether integrating Normal sites out is cheap, or not too expensive where NUTS over them would mix badly."""
    cost = elimination_cost(analysis.bound, analysis.order(sites))
    if MAX_ELIMINATION_COST < cost <= MAX_COST_OF_ILL_CONDITIONED:
        return condition_number(analysis.bound, analysis.rules, sites) >= MIN_CONDITION_NUMBER
    return cost <= MAX_ELIMINATION_COST


def elimination_cost(bound: Bound, rules: Sequence[Rule]) -> int:
    """Numbers that integrating Normal sites out reads and writes, about."""
    total = 0
    for rule in rules:
        if isinstance(rule.block, StepStructure):
            steps, numbers = rule.block.shape
            own, directions = steps * numbers**3, NUM_COLOURS * numbers
        elif rule.block is not None:
            own, directions = precision_structure.elimination_cost(rule.block), num_directions(rule.block)
        else:
            shape = bound.sites[rule.site].shape
            directions = prod(shape[axis] for axis in rule.coupled)
            if rule.family.by_steps:
                directions = NUM_COLOURS * directions // shape[0]
            own = prod(shape) * directions**2
        total += own + directions * sum(term.cost for term in rule.reached(terms(bound).terms))
    return total


def _is_summation_cheap(analysis: Analysis, closed: bool) -> bool:
    """Whether discrete sites are better summed over than drawn: few other sites, and no labels of like components.

    Labels that select among components which may be exchanged, or but for the order of a stick, stay with Gibbs
    sampling, which is fast and mixes no worse between their modes. So do those that select the prior of jointly Normal
    sites and of no others, as a spike and a slab: Gibbs sampling draws them with these integrated out.
    closed: whether every site has a conditional in closed form.
    """
    bound = analysis.bound
    if bound.transform is not None:
        return False
    joint_rules = [field.jointly.rule for field in analysis.discrete_fields]
    if any(rule is None or rule.field is None or rule.field.chain is None for rule in joint_rules):
        return False  # sites that meet other than in chains have sweeps of their own
    if _select_normal_priors(analysis):
        return False
    size = sum(prod(bound.sites[name].shape) for name in bound.latent if not bound.sites[name].is_discrete)
    largest = MAX_DENSE_MASS_DIMENSIONS if closed else MAX_SIZE_WHERE_SUMMED
    if not 0 < size <= largest or summation_cost(bound) > MAX_ELIMINATION_COST:
        return False
    return not component_sites(bound) or not (stick_labels(analysis.rules, bound) or may_exchange_labels(bound))


def _select_normal_priors(analysis: Analysis) -> bool:
    """Whether a discrete site is in the priors of Normal sites that are integrated out together, and in no others."""
    bound, priors = analysis.bound, terms(analysis.bound).priors
    single = [{rule.site} for rule in analysis.rules if rule.family.is_normal]
    joint = [*single, *({*rule.sites} for rule in rules_of(analysis.normal_blocks))]
    continuous = [name for name in bound.latent if not bound.sites[name].is_discrete]
    for label in (name for name in bound.latent if bound.sites[name].is_discrete):
        selected = {name for name in continuous if label in priors[name].depends}
        if selected and any(selected <= sites for sites in joint):
            return True
    return False


def _are(names: Sequence[str]) -> str:
    return "are" if len(names) > 1 else "is"


def _num_eliminations(analysis: Analysis) -> int:
    """How many sites, and sets of jointly Normal ones, there are to eliminate."""
    joined = [*(rule.sites for rule in rules_of(analysis.normal_blocks)), *(f.names for f in analysis.discrete_fields)]
    return len(analysis.findings) - sum(len(sites) - 1 for sites in joined)


def _labels_are_shared(analysis: Analysis) -> bool:
    """Whether several elements of a discrete site meet one element of another site, as the labels of a mixture do.

    They depend on each other once that site is eliminated, and make a mixture of it when they go first: `Exact` would
    search in vain. Discrete sites that are summed over together are no such sites, nor are those of one value.
    """
    bound = analysis.bound
    choices = {name: prior.choices for name, prior in terms(bound).priors.items()}
    sure = {name for name, values in choices.items() if values is not None and len(values) == 1}
    together = [field.names for field in analysis.discrete_fields if field.jointly.rule is not None]

    def shared(label: Site, other: Site) -> bool:
        common = prod(plate.size for plate in label.plates if plate in other.plates)
        return label.is_discrete and label.name not in sure and prod(label.shape) > common

    pairs = (pair for term in terms(bound).terms for pair in permutations(term.depends, 2))
    pairs = (pair for pair in pairs if not any(set(pair) <= set(names) for names in together))
    return any(shared(bound.sites[label], bound.sites[other]) for label, other in pairs)
