"""The page of the guide, with every number computed anew."""

from collections.abc import Iterator

from errata import LECTURES
from errata.erratum import Erratum

OPENING = """# Errata

The models of bayeslab follow lectures whose printed formulas are not always right. For each slip: what is printed, what
is right and, where a number can tell, the same quantity computed with either form and a third time without them. The
numbers were computed when this page was built; the code is in `docs/errata`, and tests hold every right form against
the truth.
"""


def page() -> str:
    """Markdown of all errata."""
    lines = [OPENING]
    for lecture, chapters in LECTURES.items():
        lines += [f"## {lecture}", ""]
        for chapter, errata in chapters.items():
            lines += [f"### {chapter}", ""]
            for erratum in errata:
                lines += [*entry(erratum), ""]
    return "\n".join(lines)


def entry(erratum: Erratum) -> Iterator[str]:
    """One erratum: a target for links, its two forms, and a table of numbers."""
    yield f"({erratum.label.lower()})="
    yield f"**{erratum.label}** ({erratum.place}). {erratum.why}".rstrip()
    yield ""
    yield f"- printed: {erratum.printed}"
    yield f"- right: {erratum.right}"
    if erratum.shown is not None:
        shown = erratum.shown()
        yield ""
        yield f"| {shown.quantity} | |"
        yield "|---|---|"
        yield f"| as printed | {shown.printed:.6g} |"
        yield f"| right | {shown.right:.6g} |"
        yield f"| by {shown.by} | {shown.truth:.6g} |"
