"""Which method applies to which lecture, as planning finds it: writes the catalogue of the guide.

    .venv/bin/python benchmarks/catalogue.py

Nothing is fitted. What a method refuses stands below the table, in its own words.
"""

from pathlib import Path
from types import ModuleType

import bayeslab as bl
from bayeslab.models import LECTURES
from bayeslab.planning import default_method, plan
from bayeslab.programs.program import precision_scope
from bayeslab.reports.demonstration import first_line
from bayeslab.transforms.analysis import Analysis

PAGE = Path(__file__).parents[1] / "docs" / "catalogue.md"
METHODS = (bl.Exact(), bl.Gibbs(), bl.NUTS(), bl.MeanField(), bl.SVI(), bl.Laplace(), bl.MAP(), bl.EM())
NAMES = tuple(type(method).__name__ for method in METHODS)
OPENING = """# Catalogue

Every lecture is a module of `bayeslab.models` with `model`, a small `example()` and real or simulated `data()`. The
table says which methods plan a fit of its example; the star is the one that `fit` takes by itself. NUTS, SVI, Laplace
and MAP sum over discrete sites first. `EM` applies where there are sites to average over; continuous ones it takes by
name, as in `bl.EM(collapse=("w",))`. `make catalogue` writes this page.
"""


def main() -> None:
    table = [f"| model | {' | '.join(NAMES)} |", "|---|" + "---|" * len(NAMES)]
    described, refused = [], []
    for lecture in LECTURES:
        name = lecture.__name__.rpartition(".")[2]
        reasons = verdicts(lecture)
        own = default(lecture)
        marks = ["" if reasons[method] else "★" if method == own else "✓" for method in NAMES]
        table.append(f"| `{name}` | {' | '.join(marks)} |")
        described.append(
            f"- `{name}`: {first_line(lecture)} Data: {first_line(getattr(lecture, 'data', lecture.example))}"
        )
        refused += [f"- `{name}`, {method}: {reason}" for method, reason in reasons.items() if reason]
        print(table[-1], flush=True)
    parts = [OPENING, *table, "\n## Models\n", *described, "\n## Why not\n", *refused]
    PAGE.write_text("\n".join(parts) + "\n")


def verdicts(lecture: ModuleType) -> dict[str, str]:
    """Why each method does not apply, empty where it does."""
    reasons = {}
    with precision_scope():
        analysis = Analysis(bl.bind(lecture.model, lecture.example()))
        for name, method in zip(NAMES, METHODS, strict=True):
            try:
                plan(analysis, method)
            except ValueError as error:
                reasons[name] = str(error)
            else:
                reasons[name] = ""
    return reasons


def default(lecture: ModuleType) -> str:
    with precision_scope():
        return type(default_method(Analysis(bl.bind(lecture.model, lecture.example()))).method).__name__


if __name__ == "__main__":
    main()
