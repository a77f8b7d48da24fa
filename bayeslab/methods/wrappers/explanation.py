"""The sampler of MAP where all latent sites are discrete: their most probable values together."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from bayeslab.elimination.conditional import Rule
from bayeslab.elimination.sweep import deterministic_values
from bayeslab.programs.program import Bound
from bayeslab.sampling.protocols import Draws, Sampler
from bayeslab.transforms.draw_checks import Conditionals, conditionals_of_blocks
from bayeslab.transforms.whole_field import most_probable_elements


class ExplanationState(NamedTuple):
    """The most probable explanation.

    indices: of the choices of all elements (size,). log_joint: log p(values, data). log_probability: of the values
    given the data.
    """

    indices: Array
    log_joint: Array
    log_probability: Array


@dataclass(frozen=True)
class ExplanationSampler(Sampler):
    """Finds the most probable values of all elements by variable elimination with maxima in place of sums.

    rule: sums over all sites of the program.
    """

    rule: Rule

    def conditionals(self, bound: Bound) -> Conditionals:
        return conditionals_of_blocks(bound, [(self.rule,)])

    def start(self, key: Array, bound: Bound) -> ExplanationState:
        assert self.rule.field is not None
        joint, indices, log_evidence = most_probable_elements(self.rule.field, bound)
        log_probability = joint.log_prob(indices)
        return ExplanationState(indices, log_probability + log_evidence, log_probability)

    def adapt(self, state: ExplanationState, bound: Bound) -> tuple[ExplanationState, Draws]:
        return state, Draws({}, {}, {"log_joint": state.log_joint, "converged": jnp.array(True)})

    def advance(self, state: ExplanationState, bound: Bound) -> tuple[ExplanationState, Draws]:
        latent = {name: value.astype(bound.sites[name].dtype) for name, value in self.rule.named(state.indices).items()}
        return state, Draws(latent | deterministic_values(bound, latent), {"lp": state.log_joint})

    def run_summary(self, state: ExplanationState, data: Any) -> dict[str, float]:
        return {"log_probability": float(np.asarray(state.log_probability)[0])}
