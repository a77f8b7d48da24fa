"""Programs whose latent sites are all discrete: one table-by-table sum over all of their elements."""

import jax
from jax import Array

from bayeslab.distributions.factor_graphs.factor_distribution import FactorDistribution
from bayeslab.elimination.conditional import Rule
from bayeslab.elimination.discrete.fields import Field
from bayeslab.elimination.discrete.joint import Tables, joint_tables
from bayeslab.elimination.families import JOINTLY_ENUMERATED
from bayeslab.elimination.terms import sum_of_terms, terms
from bayeslab.programs.program import Bound
from bayeslab.programs.validation import listed_sites
from bayeslab.transforms.sufficient_statistics.tables import program_parts
from bayeslab.verification.discrete_fields import field_points, find_field_rule
from bayeslab.verification.points.likely_points import in_double_precision


def rule_of_all_elements(bound: Bound) -> Rule:
    """The verified rule that sums over all latent sites of a program at once.

    Raises ValueError where one is not discrete or has too many values, and where the sum takes too large a table.
    """
    if not bound.latent:
        raise ValueError("every site of the program is observed: there is nothing to infer")
    priors = terms(bound).priors
    if continuous := [name for name in bound.latent if not bound.sites[name].is_discrete]:
        raise ValueError(
            f"{listed_sites(continuous)} cannot be summed over, being continuous; give values in the data, or "
            "integrate out by bl.collapse what is conjugate"
        )
    for name in bound.latent:
        if priors[name].choices is None:
            family = bound.sites[name].family
            chain = "; bl.states.smoothed_states and most_probable_path sum over a chain, given any result"
            raise ValueError(
                f"site '{name}' ({family}) has too many values to be summed over"
                f"{chain if family in ('MarkovChain', 'LinearChainCRF') else ''}"
            )
    with jax.enable_x64(True):
        widened_bound = in_double_precision(bound)
        log_joint_terms = program_parts(widened_bound).terms
        points = field_points(widened_bound, ())
        finding = find_field_rule(widened_bound, log_joint_terms, tuple(bound.latent), JOINTLY_ENUMERATED, points)
    if finding.rule is None:
        raise ValueError(f"{listed_sites(bound.latent)} cannot be summed over together: {finding.reason}")
    return finding.rule


def tables_of_all_elements(field: Field, bound: Bound) -> Tables:
    """The tables whose sum, with a constant, is the log joint of a program that has no other latent sites."""
    parts = program_parts(bound)
    tables = joint_tables(field, parts.terms, parts.plain, parts.tables)
    others = [term for term in parts.terms if term.depends.isdisjoint(field.names)]
    return tables._replace(constant=tables.constant + sum_of_terms(others, parts.plain, parts.tables))


def most_probable_elements(field: Field, bound: Bound) -> tuple[FactorDistribution, Array, Array]:
    """The joint distribution of all elements, their most probable values as indices of choices (size,), and the log
    evidence."""
    tables = tables_of_all_elements(field, bound)
    joint = tables.joint
    return joint, joint.mode(), joint.log_partition + tables.constant
