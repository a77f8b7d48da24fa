"""Checks that the settings of all methods share."""

from typing import Any


def require_positive(settings: Any, *names: str) -> None:
    """Raises ValueError for a setting that is not a positive integer."""
    for name in names:
        value = getattr(settings, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} of {type(settings).__name__} must be a positive integer, but is {value!r}")
