"""Every Python block of the README and the guide runs, those of a page one after the other in a folder of their own."""

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "how_to").glob("*.md"))
    if BLOCK.search(path.read_text())
)
DEVICES = {"docs/population_structure.md": 8, "docs/topics.md": 8}
"""Devices that a page spreads individuals over."""
LONG = {
    "docs/calibration_explained.md",
    "docs/decisions.md",
    "docs/elimination.md",
    "docs/gaussian_processes.md",
    "docs/getting_started.md",
    "docs/graphical_models.md",
    "docs/hidden_markov_models.md",
    "docs/hierarchies.md",
    "docs/how_to/accelerators.md",
    "docs/how_to/big_data.md",
    "docs/how_to/discrete_sites.md",
    "docs/how_to/many_devices.md",
    "docs/how_to/missing_values.md",
    "docs/how_to/own_model.md",
    "docs/how_to/own_family.md",
    "docs/how_to/prediction.md",
    "docs/how_to/saving.md",
    "docs/how_to/tables.md",
    "docs/methods.md",
    "docs/model_comparison.md",
    "docs/particles.md",
    "docs/population_structure.md",
    "docs/topics.md",
}
"""Pages that take long: `make slow` runs them. Quick tests fit by what is on them; the README is the first page."""


def script(page: str) -> str:
    """The blocks of a page as a program whose lines have the numbers that they have on the page."""
    text = (ROOT / page).read_text()
    lines = [""] * (text.count("\n") + 1)
    for block in BLOCK.finditer(text):
        first = text[: block.start(1)].count("\n")
        for number, line in enumerate(block[1].splitlines()):
            lines[first + number] = line
    return "\n".join(lines)


def test_every_picture_says_what_it_shows() -> None:
    """In words, for those who do not see it; names of files are none."""
    for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        text = path.read_text()
        for words, file in re.findall(r"!\[([^\]]*)\]\(([^)]*)\)", text):
            assert len(words.split()) > 3, f"{path.name}: {file}"
        assert "<img" not in text, f"{path.name} has a picture as HTML; write it as ![what it shows](file)"
        for directive in re.findall(r"\{(?:figure|image)\}[^`]*", text):
            assert ":alt:" in directive, path.name


def test_every_picture_of_a_notebook_says_what_it_shows() -> None:
    """The site takes the words from the metadata of the cell, where `nbconvert --execute` leaves them."""
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        for number, cell in enumerate(json.loads(path.read_text())["cells"]):
            kinds = {kind for output in cell.get("outputs", []) for kind in output.get("data", {})}
            if any(kind.startswith("image/") for kind in kinds):
                words = cell["metadata"].get("mystnb", {}).get("image", {}).get("alt", "")
                assert len(words) >= 40, f'{path.name}, cell {number} has no "mystnb": {{"image": {{"alt": ...}}}}'


TOGETHER = [page for page in PAGES if page not in LONG and "XLA_FLAGS" not in script(page)]
"""Pages that run in this process, where they share what is compiled."""


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("page", TOGETHER)
def test_blocks_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "page.py"
    file.write_text(script(page))
    try:
        runpy.run_path(str(file), run_name="__main__")
    finally:
        plt.close("all")


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[pytest.mark.slow] * (page in LONG or page in TOGETHER)) for page in PAGES]
)
def test_blocks_run_in_a_process_of_their_own(page: str, tmp_path: Path) -> None:
    flags = os.environ.get("XLA_FLAGS", "")
    if page in DEVICES:
        flags += f" --xla_force_host_platform_device_count={DEVICES[page]}"
    environment = os.environ | {"XLA_FLAGS": flags, "MPLBACKEND": "agg"}
    file = tmp_path / "page.py"
    file.write_text(script(page))
    done = subprocess.run([sys.executable, file.name], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
