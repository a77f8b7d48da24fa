"""Checks of settings of the Monte Carlo methods."""

from typing import Any


def require_share(settings: Any, name: str) -> None:
    """Raises ValueError for a setting that is not between 0 and 1."""
    value = getattr(settings, name)
    if not isinstance(value, float) or not 0 < value < 1:
        raise ValueError(f"{name} of {type(settings).__name__} must be between 0 and 1, but is {value!r}")
