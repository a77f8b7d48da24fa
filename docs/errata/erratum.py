"""What one erratum is: the printed form, the right one, and the number that tells them apart."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple


class Shown(NamedTuple):
    """One quantity computed three times: as printed, as it should be, and without either formula.

    quantity: what is computed, a phrase with the inputs chosen. by: how the truth was found ("quadrature").
    tolerance: how far `right` may be from `truth`, absolute; Monte Carlo error where the truth is simulated.
    """

    quantity: str
    printed: float
    right: float
    truth: float
    by: str
    tolerance: float = 1e-9


@dataclass(frozen=True)
class Erratum:
    """One wrong formula.

    label: its number in the list, such as "M10". place: the chapter or section.
    printed, right: Markdown with formulas between dollars.
    why: a sentence on what is wrong, where the two forms do not say it.
    shown: computes the number; none for slips of the pen that change no number.
    """

    label: str
    place: str
    printed: str
    right: str
    why: str = ""
    shown: Callable[[], Shown] | None = None
