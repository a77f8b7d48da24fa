"""Cases of which `make test` takes some and `make slow` all others."""

from collections.abc import Iterable
from typing import Any

import pytest


def quick_ones(cases: Iterable[Any], *quick: Any) -> list[Any]:
    """The cases as parameters of a test, of which all that are not named here are slow. A tuple has several parameters.

    Raises ValueError for one that is no case.
    """
    every = list(cases)
    if unknown := [case for case in quick if case not in every]:
        raise ValueError(f"{unknown} are no cases; expected some of {every}")
    parts = [case if isinstance(case, tuple) else (case,) for case in every]
    return [
        pytest.param(*part, marks=[] if case in quick else pytest.mark.slow)
        for case, part in zip(every, parts, strict=True)
    ]
