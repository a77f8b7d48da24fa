"""What the texts of options stand for. Nothing heavy is imported: help and mistakes cost little."""

import json
from argparse import ArgumentTypeError
from contextlib import suppress
from pathlib import Path
from typing import Any

ALIKE_SIGNS = str.maketrans({"\u00a0": " ", "\u202f": " ", "\u2009": " ", "\u2019": "'", "\u2212": "-"})
"""For str.translate: narrow blanks and those that break no line as blanks, the typographic apostrophe and minus as on
keyboards."""


def positive_integer(text: str) -> int:
    """The positive whole number that a text stands for."""
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"'{text}' is not a positive whole number")
    return int(text)


def integer_or_word(text: str) -> int | str:
    """The integer that a text stands for, or the text itself."""
    return int(text) if text.removeprefix("-").isdecimal() else text


def separator(text: str) -> str:
    """The character between columns that a text stands for; a tab can be written as tab or \\t."""
    character = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";"}.get(text, text)
    if len(character) != 1:
        raise ArgumentTypeError(f"'{text}' is not one character, and none of tab, comma and semicolon")
    return character


def thousands(text: str) -> str:
    """The sign before every three digits that a text stands for."""
    return text.translate(ALIKE_SIGNS)


def ascending_numbers(text: str) -> tuple[int, ...]:
    """The ascending numbers from 1 that a text such as 2-6, 3 or 2,4,6 stands for."""
    numbers: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not (first.isdecimal() and (last.isdecimal() or not dash)) or int(first) < 1:
            raise ArgumentTypeError(f"'{text}' is no range such as 2-6, and no list such as 2,3,5")
        numbers |= set(range(int(first), int(last or first) + 1))
    if not numbers:
        raise ArgumentTypeError(f"'{text}' has no number in it")
    return tuple(sorted(numbers))


def alpha_or_learn(text: str) -> float | None:
    """The positive number that a text stands for, None for "learn"."""
    if text == "learn":
        return None
    try:
        alpha = float(text)
    except ValueError:
        alpha = -1.0
    if not 0 < alpha < float("inf"):
        raise ArgumentTypeError(f"'{text}' is neither a positive number nor 'learn'")
    return alpha


def existing_file(text: str) -> Path:
    """The path that a text stands for. Raises FileNotFoundError, before anything is imported that takes seconds."""
    path = Path(text)
    if not path.exists():
        raise FileNotFoundError(f"there is no file '{text}'")
    return path


def number_or_list(name: str, text: str) -> Any:
    """The number or list of numbers that a text stands for. Raises ValueError where it stands for none."""
    with suppress(json.JSONDecodeError):
        if _is_numeric(value := json.loads(text)):
            return value
    raise ValueError(f"'{name}' takes a number or a list of numbers such as [1, 2], not '{text}'")


def _is_numeric(value: Any) -> bool:
    """Whether a value is a number, true or false, or a list of such values."""
    return all(map(_is_numeric, value)) if isinstance(value, list) else isinstance(value, int | float)
