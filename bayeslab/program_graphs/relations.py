"""Which sites of a program use the values of which others, found by following data through the traced program."""

from typing import NamedTuple

from bayeslab.elimination.terms import terms
from bayeslab.programs.missing.names import whole_site
from bayeslab.programs.program import Bound, Plate
from bayeslab.programs.tracing.provenance import DataFlow, trace_data_flow


class RelatedSite(NamedTuple):
    """A site in a graph. role: as of `Site`, or "missing in part". plates: without their dimensions, which are 0."""

    role: str
    family: str
    plates: tuple[Plate, ...]


class Relations(NamedTuple):
    """The sites of a program by name, and pairs (site, site that uses its value)."""

    sites: dict[str, RelatedSite]
    edges: tuple[tuple[str, str], ...]


def relations_of(bound: Bound) -> Relations:
    """The relations of a program. Parts of a site that is missing in part are one site."""
    sites: dict[str, RelatedSite] = {}
    for name, site in bound.sites.items():
        plates = tuple(Plate(plate.name, plate.size, 0) for plate in site.plates)
        whole, role = whole_site(name), site.role
        if role == "factor" and site.family != "Unit":
            role = "observed"
        if (whole in sites and sites[whole].role != role) or not _is_complete(bound, name):
            role = "missing in part"
        sites[whole] = RelatedSite(role, "" if role == "factor" else site.family, plates)
    flow = trace_data_flow(bound, bound.latent_shapes)
    edges = [(parent, whole_site(name)) for name in bound.sites for parent in _parents(bound, flow, name)]
    edges = [(parent, child) for parent, child in edges if parent != child or _meets_itself(bound, flow, child)]
    return Relations(sites, tuple(dict.fromkeys(edges)))


def _is_complete(bound: Bound, name: str) -> bool:
    return name not in bound.present or bool(bound.present[name].all())


def _parents(bound: Bound, flow: DataFlow, name: str) -> list[str]:
    """The sites whose values reach the density of a site, or the value of one that is computed; itself among them."""
    if bound.sites[name].role == "deterministic":
        reached = sorted(terms(bound).computed[name])
    else:
        facts = [fact for fact in flow.of("density") if fact.site == name]
        reached = [each for fact in facts for kind in ("latent", "observed") for each in fact.reached_by(kind)]
    order = [whole_site(each) for each in bound.sites]
    return sorted({whole_site(each) for each in reached}, key=order.index)


def _meets_itself(bound: Bound, flow: DataFlow, site: str) -> bool:
    """Whether the parameters of a site use values of the same site, as in a scan."""
    for fact in flow.of("parameter"):
        if whole_site(fact.site) == site:
            reached = {whole_site(each) for kind in ("latent", "observed") for each in fact.reached_by(kind)}
            if site in reached:
                return True
    return False
