"""Checks that methods share."""

from typing import Any

from bayeslab.program import Bound


def require_positive(settings: Any, *names: str) -> None:
    """Raises ValueError for a setting that is not a positive integer."""
    _require_at_least(1, "a positive integer", settings, names)


def require_count(settings: Any, *names: str) -> None:
    """Raises ValueError for a setting that is not zero or a positive integer."""
    _require_at_least(0, "zero or a positive integer", settings, names)


def require_continuous(bound: Bound, method: str) -> None:
    """Raises ValueError for a program with a discrete latent site, or with no latent site at all."""
    if not bound.latent:
        raise ValueError("every site of the program is observed: there is nothing to infer")
    for name in bound.latent:
        if bound.sites[name].is_discrete:
            raise ValueError(
                f"{method} needs continuous sites, but site '{name}' is discrete ({bound.sites[name].family}); "
                "sum over its values in the program, or observe it"
            )


def _require_at_least(least: int, wanted: str, settings: Any, names: tuple[str, ...]) -> None:
    for name in names:
        value = getattr(settings, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"{name} of {type(settings).__name__} must be {wanted}, but is {value!r}")
