"""Decisions that follow each other: plans for Markov decision processes, exploration, linear quadratic control."""

from bayeslab.control.exploration import certainty_equivalence, thompson_sampling
from bayeslab.control.linear_quadratic import LinearControl, finite_control, stationary_control
from bayeslab.control.lqg import LinearSystem, closed_loop, expected_cost
from bayeslab.control.plans import Plan, policy_iteration, policy_value, posterior_plans, value_iteration

__all__ = [
    "LinearControl",
    "LinearSystem",
    "Plan",
    "certainty_equivalence",
    "closed_loop",
    "expected_cost",
    "finite_control",
    "policy_iteration",
    "policy_value",
    "posterior_plans",
    "stationary_control",
    "thompson_sampling",
    "value_iteration",
]
