"""Formulas of regressions taken apart: the response, the terms that all rows share, and those of groups.

`y ~ x1 * x2 + C(site) + (1 + x1 | person)`: what stands left of a bar varies between the groups on its right, as lme4
writes it. The rest is for formulaic. An expression may name columns and call the functions of FUNCTIONS and NumPy's
elementwise ones: a result that comes from a file holds its formula, and `predict` computes what it says.
"""

import ast
import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

import numpy as np

from bayeslab.formulas.tables import suggestion

FUNCTIONS = (
    *("C", "I", "bs", "cc", "center", "cr", "cs", "exp", "exp10", "exp2", "log", "log10", "log2"),
    *("poly", "scale", "standardize"),
)
"""What expressions may call, beside functions of NumPy that work element by element, and CONTRASTS."""

CONTRASTS = ("Treatment", "Poly", "Sum", "Helmert", "Diff")
"""Codes of factors, as in C(site, Sum)."""

RESERVED_NAMES = ("chain", "draw", "feature", "row", "w", "x", "y", "sigma")
"""Names that a result of a regression has already, which no factor of groups can have."""

_QUOTED = re.compile(r"`([^`]*)`")
_NODES = (
    *(ast.Expression, ast.Name, ast.Load, ast.Call, ast.keyword, ast.Constant, ast.Attribute, ast.List, ast.Tuple),
    *(ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.operator, ast.unaryop, ast.cmpop, ast.boolop),
)


class GroupTerm(NamedTuple):
    """A term (effects | columns). effects: the right side of a formula. columns: those whose levels make the groups."""

    effects: str
    columns: tuple[str, ...]

    @property
    def name(self) -> str:
        return ":".join(self.columns)


class ParsedFormula(NamedTuple):
    """The parts of a formula. fixed: the right side without the terms of groups."""

    response: str
    fixed: str
    groups: tuple[GroupTerm, ...]


def is_formula(text: str, columns: Collection[str]) -> bool:
    """Whether a text is a formula, and no name of a column."""
    return "~" in text and text not in columns


def parse_formula(formula: str) -> ParsedFormula:
    """The parts of a formula. Raises ValueError for what is none, with a sentence."""
    sides = list(_split(formula, "~"))
    if len(sides) != 2 or not all(side.strip() for _, side in sides):
        raise ValueError(f"{formula!r} is no formula; expected 'response ~ terms', such as 'y ~ x1 + C(site)'.")
    (_, response), (_, right) = sides
    fixed, groups = "", list[GroupTerm]()
    for sign, piece in _split(right, "+-"):
        if not any(character == "|" for character, _ in _characters(piece)):
            fixed += f" {sign} {piece.strip()}" if piece.strip() or fixed else ""
        elif sign == "-":
            raise ValueError(f"formula {formula!r} takes the group term {piece.strip()} away: leave it out.")
        else:
            groups.append(_group_term(piece.strip()))
    names = [term.name for term in groups]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"two group terms are of {repeated[0]!r}: write one, such as (1 + x | {repeated[0]}).")
    if reserved := [name for name in names if name in RESERVED_NAMES]:
        raise ValueError(
            f"groups cannot be named {reserved[0]!r}, as another part of the result is: rename the column."
        )
    fixed = fixed.strip().removeprefix("+").strip()
    return ParsedFormula(response.strip(), fixed or "1", tuple(groups))


def names_in(expression: str) -> list[str]:
    """The names of columns in an expression of a formula, in order.

    Raises ValueError for what is neither a column, a number nor a permitted call.
    """
    quoted = _QUOTED.findall(expression)
    numbers = iter(range(len(quoted)))
    text = _QUOTED.sub(lambda _: f"_quoted_{next(numbers)}", expression)
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except SyntaxError:
        raise ValueError(f"formula term {expression!r} is no expression.") from None
    functions = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    names = []
    for node in ast.walk(tree):
        if not isinstance(node, _NODES) or (isinstance(node, ast.Attribute) and not _is_permitted(node)):
            raise ValueError(
                f"formula term {expression!r} has {ast.unparse(node)!r}, which formulas may not; make a column of it."
            )
        if not isinstance(node, ast.Name) or node.id in ("np", "contr"):
            continue
        if id(node) in functions and node.id not in (*FUNCTIONS, *CONTRASTS):
            raise ValueError(f"formula term {expression!r} calls {node.id!r}{suggestion(node.id, [*FUNCTIONS])}")
        if id(node) not in functions and node.id not in CONTRASTS:
            is_quoted = node.id.startswith("_quoted_")
            names.append(quoted[int(node.id.removeprefix("_quoted_"))] if is_quoted else node.id)
    return list(dict.fromkeys(names))


def _is_permitted(node: ast.Attribute) -> bool:
    """Whether an attribute is a contrast or an elementwise function of NumPy."""
    owner = node.value.id if isinstance(node.value, ast.Name) else ""
    is_plain = not node.attr.startswith("_")
    return is_plain and (owner == "contr" or (owner == "np" and isinstance(getattr(np, node.attr, None), np.ufunc)))


def _group_term(piece: str) -> GroupTerm:
    """The term that (effects | columns) writes."""
    wrong = f"group term {piece!r} is not understood; expected (1 | site), (1 + x | site) or (1 | site:year)"
    if not (piece.startswith("(") and piece.endswith(")")):
        raise ValueError(f"{wrong}.")
    sides = [side.strip() for _, side in _split(piece[1:-1], "|")]
    if len(sides) == 3 and not sides[1]:
        raise ValueError(f"group term {piece!r} has two bars: its effects are correlated here, write one bar.")
    if len(sides) != 2 or not all(sides):
        raise ValueError(f"{wrong}.")
    effects, factor = sides
    columns = tuple(name.strip().strip("`") for _, name in _split(factor, ":"))
    if "/" in factor:
        first, second, *_ = (name.strip() for name in factor.split("/"))
        raise ValueError(
            f"group term {piece!r} is nested: write ({effects} | {first}) + ({effects} | {first}:{second})."
        )
    if not all(columns) or any(set(name) & set("()+*^|") for name in columns):
        raise ValueError(f"{wrong}.")
    return GroupTerm(effects, columns)


def _split(text: str, separators: str) -> Iterator[tuple[str, str]]:
    """The pieces of a text between separators outside brackets and quotes, each with the separator before it."""
    sign, piece = separators[0], ""
    for character, depth in _characters(text):
        if depth == 0 and character in separators:
            yield sign, piece
            sign, piece = character, ""
        else:
            piece += character
    yield sign, piece


def _characters(text: str) -> Iterator[tuple[str, int]]:
    """The characters of a text, each with the number of brackets around it, -1 inside quotes."""
    depth, quote = 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
            yield (character, -1)
            continue
        if character in "`'\"":
            quote = character
            yield (character, -1)
            continue
        depth -= character in ")]}"
        yield (character, depth)
        depth += character in "([{"
