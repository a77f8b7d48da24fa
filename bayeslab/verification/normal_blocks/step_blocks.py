"""Sites of steps that are jointly Normal, of which neighbouring steps alone meet, as a level and a slope that walk.

One after another they would be eliminated as dense arrays: what is left of the second, once the first is integrated
out, has no neighbours any more.
"""

from collections.abc import Sequence

import numpy as np

from bayeslab.distributions.block_tridiagonal.step_normal import StepStructure
from bayeslab.elimination.chain_families import normal_by_steps
from bayeslab.elimination.conditional import Rule
from bayeslab.elimination.terms import Term
from bayeslab.programs.tracing.compilation import evaluate_all
from bayeslab.verification.coupled_elements import far_meetings
from bayeslab.verification.discrete_fields import meeting_sites
from bayeslab.verification.normal_blocks.responses import compatible_groups, conflicting_sites, measured_responses
from bayeslab.verification.points.probe_points import Point

MAX_NUMBERS_OF_STEP_OF_BLOCK = 16
"""Numbers of one step of all sites, at most: a step costs its cube."""


def candidate_step_blocks(
    log_joint_terms: tuple[Term, ...], rules: Sequence[Rule], points: Sequence[Point]
) -> list[Rule]:
    """Rules for sets of sites that look like one chain of steps, at least two of which are chains; not yet proven.

    rules: of the sites that are Normal given all others. points: as for `measured_responses`.
    """
    shapes = {rule.site: np.shape(points[0][1][rule.site]) for rule in rules}
    chains = {rule.site for rule in rules if rule.family.by_steps}
    found = []
    for num_steps in sorted({shapes[name][0] for name in chains}):
        names = tuple(rule.site for rule in rules if shapes[rule.site][:1] == (num_steps,))
        if len(chains.intersection(names)) < 2:
            continue
        measured = measured_responses(log_joint_terms, names, points)
        if measured is None:
            continue
        groups = compatible_groups([shapes[name] for name in names], conflicting_sites(measured), descending=False)
        for group in groups:
            for together in meeting_sites(log_joint_terms, [names[index] for index in group]):
                structure = StepStructure(tuple(together), tuple(shapes[name] for name in together))
                is_small = structure.shape[1] <= MAX_NUMBERS_OF_STEP_OF_BLOCK
                if len(chains.intersection(together)) >= 2 and is_small:
                    found.append(structure)
    near = _of_neighbours(log_joint_terms, found, points[1])
    others = [each for each in found if each not in near and not chains.issuperset(each.names)]
    of_chains = [[name for name in each.names if name in chains] for each in others]
    alone = [StepStructure(tuple(names), tuple(shapes[name] for name in names)) for names in of_chains]
    return [_rule(each, log_joint_terms) for each in (*near, *_of_neighbours(log_joint_terms, alone, points[1]))]


def _of_neighbours(
    log_joint_terms: tuple[Term, ...], structures: Sequence[StepStructure], point: Point
) -> list[StepStructure]:
    """Those structures of which neighbouring steps alone seem to meet."""
    checks = [far_meetings(log_joint_terms, structure.names) for structure in structures]
    far = evaluate_all(checks, point) if checks else []
    return [structure for structure, meets in zip(structures, far, strict=True) if not meets]


def _rule(structure: StepStructure, log_joint_terms: Sequence[Term]) -> Rule:
    rule = Rule(", ".join(structure.names), normal_by_steps((0, 1)), (), (), structure)
    reached = [term.name for term in rule.reached(log_joint_terms) if term.name not in structure.names]
    return rule._replace(children=tuple(reached))
