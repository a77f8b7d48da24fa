"""The graph of a program in the HTML of explain(): a picture where Graphviz is installed, else text."""

from pathlib import Path

import numpyro
import numpyro.distributions as dist
import pytest

import bayeslab as bl

DOT = """#!/bin/sh
cat > "$0.source"
printf '<?xml version="1.0"?>\\n<!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN" "http://elsewhere">\\n<svg><g/></svg>\\n'
"""


def program() -> None:
    mu = numpyro.sample("<b>", dist.Normal(0.0, 1.0))
    numpyro.factor("<i>", -mu)
    numpyro.sample("y", dist.Normal(mu, 1.0))


@pytest.mark.parametrize("installed", [True, False])
def test_graph_of_explain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: bool) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin" if installed else str(tmp_path))
    if installed:
        (tmp_path / "dot").write_text(DOT)
        (tmp_path / "dot").chmod(0o755)
    html = bl.explain(program, {"y": 1.0})._repr_html_()
    assert ("<svg><g/></svg>" in html) == installed
    assert ("_b_ -&gt; y" in html) != installed
    assert "elsewhere" not in html
    assert "<?xml" not in html
    assert "<i>" not in html
    if installed:
        assert "_b_ -> y" in (tmp_path / "dot.source").read_text()
