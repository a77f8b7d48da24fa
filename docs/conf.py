"""Settings of Sphinx: `sphinx-build -W -b html docs docs/_build`."""

import importlib.metadata
import re
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from errata.page import page  # noqa: E402

shutil.copytree(
    HERE.parent / "notebooks",
    HERE / "notebooks",
    dirs_exist_ok=True,
    ignore=shutil.ignore_patterns(".ipynb_checkpoints"),
)  # Sphinx reads nothing outside its own folder
shutil.copy(HERE.parent / "benchmarks" / "README.md", HERE / "benchmarks.md")
(HERE / "errata.md").write_text(page())

project = "bayeslab"
author = "the bayeslab authors"
release = importlib.metadata.version("bayeslab")
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx-mathjax-offline"]  # formulas are set without a network
exclude_patterns = ["_build", "**/.ipynb_checkpoints"]
html_theme = "furo"
html_title = f"bayeslab {release}"
html_static_path = ["_static"]
html_css_files = ["wide.css"]
html_show_copyright = False
nb_execution_mode = "off"  # notebooks are committed executed
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
autodoc_typehints = "none"
autodoc_member_order = "bysource"

ARGUMENT = re.compile(r"^([a-z_]+(?:, [a-z_]+)*): (.*)$")


def layout(app: object, kind: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Docstrings are plain text: a line for each argument becomes a list item, "Returns" and "Raises" paragraphs, and a
    table of Markdown one of reStructuredText."""
    shown: list[str] = []
    indent, in_table = "", False
    for written in lines:
        line = plain(written)
        if line.startswith("|"):
            shown += [] if in_table else ["", ".. list-table::", "   :header-rows: 1", ""]
            in_table = True
            if not set(written) <= set("|-: "):
                first, *others = (cell.strip() for cell in line.strip("| ").split(" | "))
                shown += [f"   * - {first}", *(f"     - {cell}" for cell in others)]
            continue
        shown += [""] if in_table else []
        in_table = False
        if found := ARGUMENT.match(line):
            shown += ["", f"* **{found[1]}**: {found[2]}"]
            indent = "  "
        elif not line or re.match(r"(Returns|Raises|Interrupted) ", line):
            shown += ["", line]
            indent = ""
        else:
            shown.append(indent + line.strip())
    lines[:] = shown


def plain(line: str) -> str:
    """A line of plain text, with what reStructuredText would take for a link, emphasis or a substitution escaped."""
    parts = re.split(r"(``.*?``|`.*?`)", line)
    for place in range(0, len(parts), 2):  # the others are code
        parts[place] = re.sub(r"(?<=\w)_(?!\w)", r"\\_", parts[place].replace("*", r"\*"))
        parts[place] = re.sub(r"(?<=\S)\|", r"\|", parts[place])  # a bar within a word
    return "".join(parts)


def setup(app: object) -> None:
    app.connect("autodoc-process-docstring", layout)
