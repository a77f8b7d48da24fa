"""Pictures of programs: sites, what they depend on, and plates, for Graphviz."""

import re
import shutil
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any

from bayeslab.program_graphs.relations import Relations, relations_of
from bayeslab.programs.binding import bind
from bayeslab.programs.program import Data, Plate, Program, precision_scope

if TYPE_CHECKING:
    from graphviz import Digraph
    from networkx import DiGraph

STYLES = {
    "latent": {"shape": "ellipse", "style": "filled", "fillcolor": "white"},
    "observed": {"shape": "ellipse", "style": "filled", "fillcolor": "gray80"},
    "missing in part": {"shape": "ellipse", "style": "filled", "fillcolor": "white;0.5:gray80"},
    "deterministic": {"shape": "ellipse", "style": "dashed"},
    "factor": {"shape": "square", "style": "filled", "fillcolor": "black", "width": "0.15", "fixedsize": "true"},
}
"""How sites are drawn, by their role."""


def graph(model: Program, data: Data) -> "ProgramGraph":
    """The directed graph of any program with its data: a picture in a notebook, text as `.source`.

    An arrow leads from a site to those whose distributions use its value, whatever was computed on the way; sites whose
    elements depend on earlier ones, as in a scan, have a loop. Observed sites are grey, those with missing entries half
    grey, deterministic ones dashed; factors are black squares whose lines have no arrows. Plates are boxes; one that
    overlaps with another is drawn once inside of it and once beside it, with the same name and size. Sites that
    `bl.collapse` integrates out are drawn as the program has them.
    `graph(...).to_networkx()` is the same as a networkx graph. Raises what `bl.bind` raises for wrong data.
    """
    with precision_scope():
        return ProgramGraph(relations_of(bind(model, data).plain))


@dataclass(frozen=True)
class ProgramGraph:
    """The graph of a program. A picture needs the program `dot` of Graphviz; without it notebooks show the text."""

    relations: Relations

    @property
    def source(self) -> str:
        """The graph in the language of Graphviz."""
        return str(self.digraph.source)

    @cached_property
    def digraph(self) -> "Digraph":
        """The graph of the package graphviz, for its layouts, formats and files."""
        from graphviz import Digraph

        font = {"fontname": "Helvetica", "fontsize": "11"}
        drawn = Digraph(graph_attr={"rankdir": "TB", **font}, node_attr=font)
        _draw_plates(drawn, self.relations, ())
        for parent, child in self.relations.edges:
            is_factor = self.relations.sites[child].role == "factor"
            drawn.edge(_quoted(parent), _quoted(child), **({"dir": "none"} if is_factor else {}))
        return drawn

    def to_networkx(self) -> "DiGraph":
        """A networkx graph: nodes with attributes role, family and plates, edges from a site to those that use it."""
        from networkx import DiGraph

        graph = DiGraph()
        for name, site in self.relations.sites.items():
            plates = {plate.name: plate.size for plate in site.plates}
            graph.add_node(name, role=site.role, family=site.family, plates=plates)
        graph.add_edges_from(self.relations.edges)
        return graph

    def to_html(self) -> str:
        """A picture as SVG where Graphviz is installed, else the text that it would draw, to be unfolded."""
        if shutil.which("dot") is None:
            text = escape(self.source)
            return f"<details><summary>graph (a picture needs Graphviz)</summary><pre>{text}</pre></details>"
        svg = self.digraph.pipe(format="svg", encoding="utf-8")
        return re.sub(r"^.*?(?=<svg\b)", "", svg, flags=re.DOTALL)  # a declaration of XML has no place within HTML

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """A picture where Graphviz is installed, else text."""
        bundle = {"text/plain": self.source}
        if shutil.which("dot") is not None:
            bundle["image/svg+xml"] = self.digraph.pipe(format="svg", encoding="utf-8")
        return bundle


def _draw_plates(drawn: "Digraph", relations: Relations, inside: tuple[Plate, ...]) -> None:
    """Draw what is in some nested plates: sites that are in no more, and the boxes of further plates."""
    from graphviz import nohtml

    paths = {name: _path(relations, site.plates) for name, site in relations.sites.items()}
    for name, path in paths.items():
        if path == inside:
            site = relations.sites[name]
            text = f"{name}\\n{site.family}" if site.family else name
            label = {"xlabel": nohtml(name), "label": ""} if site.role == "factor" else {"label": text}
            drawn.node(_quoted(name), **label, **STYLES[site.role])
    depth = len(inside)
    for plate in dict.fromkeys(path[depth] for path in paths.values() if path[:depth] == inside and len(path) > depth):
        nested = (*inside, plate)
        with drawn.subgraph(name="cluster " + ", ".join(f"{each.name} {each.size}" for each in nested)) as box:
            box.attr(label=f"{plate.name} {plate.size}", labeljust="r", labelloc="b", style="rounded")
            _draw_plates(box, relations, nested)


def _path(relations: Relations, plates: tuple[Plate, ...]) -> tuple[Plate, ...]:
    """The boxes around a site from the outermost: plates with more sites are around those with fewer."""
    sites = relations.sites.values()
    number = {plate: sum(plate in site.plates for site in sites) for plate in plates}
    return tuple(sorted(plates, key=lambda plate: (-number[plate], plate.name)))


def _quoted(name: str) -> str:
    """A name in which the package graphviz sees no port, which follows a colon, and no HTML in angle brackets."""
    return name.translate(str.maketrans(":<>", "___"))
