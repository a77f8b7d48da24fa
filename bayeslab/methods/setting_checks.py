"""Checks of settings that methods share."""

from typing import Any


def require_positive(settings: Any, *names: str) -> None:
    """Raises ValueError for a setting that is not a positive integer."""
    _require_at_least(1, "a positive integer", settings, names)


def require_count(settings: Any, *names: str) -> None:
    """Raises ValueError for a setting that is not zero or a positive integer."""
    _require_at_least(0, "zero or a positive integer", settings, names)


def require_names(settings: Any, name: str) -> None:
    """Makes a tuple of a setting that lists sites; raises ValueError for what is none."""
    value = getattr(settings, name)
    if isinstance(value, str) or not all(isinstance(site, str) for site in value):
        raise ValueError(f'{name} of {type(settings).__name__} must be names of sites such as ("w",), not {value!r}')
    object.__setattr__(settings, name, tuple(value))


def require_blocks(settings: Any, name: str) -> None:
    """Makes tuples of a setting that lists blocks of sites; raises ValueError for what is none."""
    value = getattr(settings, name)
    if isinstance(value, str) or any(isinstance(block, str) for block in value):
        raise ValueError(f'{name} must be blocks of names such as (("tau", "mu"),), not {value!r}')
    object.__setattr__(settings, name, tuple(tuple(block) for block in value))


def require_share(settings: Any, name: str) -> None:
    """Raises ValueError for a setting that is not between 0 and 1."""
    value = getattr(settings, name)
    if not isinstance(value, float) or not 0 < value < 1:
        raise ValueError(f"{name} of {type(settings).__name__} must be between 0 and 1, but is {value!r}")


def require_flags(settings: Any, *names: str) -> None:
    """Raises ValueError for a setting that is not True, False or None."""
    for name in names:
        value = getattr(settings, name)
        if not (value is None or isinstance(value, bool)):
            raise ValueError(f"{name} of {type(settings).__name__} must be True, False or None, but is {value!r}")


def _require_at_least(least: int, wanted: str, settings: Any, names: tuple[str, ...]) -> None:
    """Raises ValueError for a setting that is not an integer of at least this size. wanted: in words."""
    for name in names:
        value = getattr(settings, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"{name} of {type(settings).__name__} must be {wanted}, but is {value!r}")
