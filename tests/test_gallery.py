"""The README and the gallery have every model once."""

import re
from pathlib import Path

from bayeslab.models import LECTURES

ROOT = Path(__file__).parents[1]
MODELS = sorted(lecture.__name__.rpartition(".")[2] for lecture in LECTURES)


def test_the_readme_has_a_row_for_every_model() -> None:
    assert sorted(re.findall(r"^\| `(\w+)`", (ROOT / "README.md").read_text(), re.MULTILINE)) == MODELS


def test_the_gallery_names_every_model_and_shows_every_picture() -> None:
    text = (ROOT / "docs" / "gallery.md").read_text()
    listed = re.findall(r"^Models: (.*?)\.$", text, re.MULTILINE | re.DOTALL)
    assert sorted(name for names in listed for name in re.findall(r"`(\w+)`", names)) == MODELS
    pictures = {path.name for path in (ROOT / "docs" / "figures" / "gallery").iterdir()}
    assert set(re.findall(r"\(figures/gallery/(.*?)\)", text)) == pictures
