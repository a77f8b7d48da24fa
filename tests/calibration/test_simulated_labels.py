"""Labels that are simulated: what a plan finds alike in the given ones, as classes of one size, others do not share."""

from typing import Any

import pytest

import bayeslab as bl
from bayeslab.calibration.plan_for_simulated import plan_for_simulated
from bayeslab.models import gaussian_discriminant
from bayeslab.programs.program import precision_scope
from bayeslab.transforms.analysis import Analysis
from ranks import smallest_p

MODEL, DATA = gaussian_discriminant.model, gaussian_discriminant.example()
"""Four rows of each of two classes, whose means have one precision. It is another in classes of other sizes."""


def test_rules_hold_for_simulated_labels() -> None:
    with precision_scope():
        bound = bl.bind(MODEL, DATA)
        alike = {rule.site: rule.same_precision for rule in Analysis(bound).rules}
        planned = plan_for_simulated(bound, bl.Exact(39), bound.observed).sampler.rules
    assert alike["mu"]
    assert not any(rule.same_precision for rule in planned)


@pytest.mark.parametrize("method", [bl.Exact(39), pytest.param(bl.Gibbs(20, 39, 1, 2), marks=pytest.mark.slow)])
def test_right_methods_are_calibrated_whatever_labels_are_simulated(method: Any) -> None:
    """Exact draws from the plan of the given labels were refused by their check, and those of Gibbs sampling wrong."""
    assert smallest_p(bl.sbc(1, MODEL, DATA, method, 500, progress=False)) > 1e-4
