"""collapse(): programs with sites integrated out.

The sites disappear; the densities of their children are masked, so that names, shapes and predictions survive; one
factor, the local evidence, takes their place. The result is a program: it binds, explains and runs like any other.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import jax
from jax import Array
from numpyro.handlers import block

from bayeslab.elimination.conditional import Rule, conditional, elimination_stages, without
from bayeslab.elimination.replacement import run_with_terms
from bayeslab.elimination.sweep import draw_block
from bayeslab.elimination.terms import Term
from bayeslab.programs.arguments import parameters
from bayeslab.programs.binding import bind, suggestion
from bayeslab.programs.program import Bound, Program, Values
from bayeslab.programs.validation import listed_sites
from bayeslab.transforms.analysis import Analysis
from bayeslab.transforms.sufficient_statistics.representative_rows import RepresentativeRows
from bayeslab.transforms.sufficient_statistics.tables import Statistics, bound_parts
from bayeslab.transforms.transformed_program import TransformedProgram


def collapse(model: Program, *sites: str) -> "Collapsed":
    """The program with some latent sites integrated out; `recover` draws them afterwards.

    sites: names, in any order: the order of elimination is found when the program meets its data. Each elimination is
    then proven on these data, with every fit.
    The result has the arguments of `model` and its other sites. Equal arguments give equal programs, and a collapsed
    program can be collapsed again. It can also be called as a plain NumPyro program, with concrete arguments.
    Raises ValueError for no site and for a site that is named twice; where it is bound, for a site that is unknown,
    observed, or cannot be integrated out, with the reason.
    """
    if not callable(model):
        raise TypeError(f"collapse takes a program and names of its sites, not {type(model).__name__}")
    for site in sites:
        if not isinstance(site, str):
            raise TypeError(f"collapse takes names of sites, not {site!r}")
    if not sites:
        raise ValueError("collapse needs the name of a site to integrate out")
    if isinstance(model, Collapsed):
        return collapse(model.model, *model.sites, *sites)
    for site in sites:
        if sites.count(site) > 1:
            raise ValueError(f"collapse names site '{site}' twice")
    return Collapsed(model, sites)


@dataclass(frozen=True)
class Collapsed(TransformedProgram):
    """A program whose `sites` are integrated out where it meets its data."""

    sites: tuple[str, ...]

    @property
    def __name__(self) -> str:
        return f"{self.model_name} without {', '.join(self.sites)}"

    def transformed(self, plain: Bound) -> Bound:
        """The Bound of this program from that of the model."""
        return marginal(plain, self.sites)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        arguments = self.__signature__.bind(*args, **kwargs).arguments
        if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(arguments)):
            raise ValueError(
                f"'{self.__name__}' must be called with concrete arguments, because every elimination is proven on "
                "them; inside compiled code use bind(program, data).program"
            )
        with block(), jax.ensure_compile_time_eval():
            bound = self.transformed(
                bind(self.model, {n: v for n, v in arguments.items() if n in parameters(self.model)})
            )
        return bound.program()


def elimination_rules(bound: Bound) -> tuple[Rule, ...]:
    """The rules by which sites of a program are integrated out, in the order of elimination; empty where none is."""
    return bound.transform.rules if isinstance(bound.transform, Marginal) else ()


def marginal(bound: Bound, sites: Sequence[str], analysis: Analysis | None = None) -> Bound:
    """The Bound with some of its latent sites integrated out, besides those that are already.

    analysis: of the plain program, where there is one already.

    Raises ValueError for a site that is not latent, and with the reasons where the sites cannot be eliminated.
    """
    eliminated_before = tuple(name for rule in elimination_rules(bound) for name in rule.sites)
    plain = bound.plain
    for site in sites:
        _require_latent(site, eliminated_before, plain)
    if not sites:
        return bound
    names = (*eliminated_before, *sites)
    try:
        rules = (Analysis(plain) if analysis is None else analysis).order(names)
    except ValueError as reasons:
        raise ValueError(f"{listed_sites(names)} cannot be integrated out: {reasons}") from None
    return replace(plain, transform=Marginal(rules, None if bound.transform is None else bound.transform.statistics))


def with_representatives(bound: Bound, rows: RepresentativeRows) -> Bound:
    """A Bound with sites integrated out, its rows replaced by those that represent them."""
    assert isinstance(bound.transform, Marginal)
    return replace(rows.in_place_of_rows(bound), transform=replace(bound.transform, rows=rows))


def draw_eliminated(key: Array, bound: Bound, values: Values) -> Values:
    """Values of all latent sites, with those that are integrated out drawn from their conditionals.

    values: those of the other sites.
    """
    rules = elimination_rules(bound)
    plain, log_joint_terms, tables = bound_parts(bound)
    all_values, _ = draw_block(key, rules, log_joint_terms, plain, values | tables)
    return {name: all_values[name] for name in plain.latent}


def modes_of_eliminated(key: Array, bound: Bound, values: Values) -> Values:
    """Values of all latent sites, with those that are integrated out at the modes of their conditionals.

    key: not used. values: those of the other sites.
    """
    values, _ = at_modes_of_eliminated(bound, values)
    return {name: values[name] for name in bound.plain.latent}


def at_modes_of_eliminated(bound: Bound, values: Values) -> tuple[Values, list[tuple[Rule, Any, Array]]]:
    """Values of all sites, as `modes_of_eliminated`, and by elimination, the last one first, its rule, the conditional
    given the sites that are eliminated later, and the mode of that."""
    rules, conditionals = elimination_rules(bound), []
    plain, log_joint_terms, tables = bound_parts(bound)
    values = values | tables
    for rule, stage in zip(rules[::-1], elimination_stages(rules, log_joint_terms)[::-1], strict=True):
        mode = rule.family.mode
        q = conditional(rule, stage, plain, values).distribution
        conditionals.append((rule, q, q.mean if mode is None else mode(q)))
        for name, value in rule.named(conditionals[-1][2]).items():
            site = plain.sites[name]
            values[name] = value.reshape(site.shape).astype(site.dtype)
    return values, conditionals


@partial(jax.tree_util.register_dataclass, data_fields=["statistics"], meta_fields=["rules", "rows"])
@dataclass(frozen=True)
class Marginal:
    """Sites integrated out: a transform of a Bound.

    rules: in the order of elimination. rows: those that represent all rows in the data of this Bound, if they do.
    """

    rules: tuple[Rule, ...]
    statistics: Statistics | None = None
    rows: RepresentativeRows | None = None

    @property
    def sites(self) -> tuple[str, ...]:
        return tuple(name for rule in self.rules for name in rule.sites)

    def with_statistics(self, statistics: Statistics) -> "Marginal":
        return replace(self, statistics=statistics)

    def counted(self, log_joint_terms: tuple[Term, ...]) -> tuple[Term, ...]:
        """Terms after the eliminations, or averaged over these sites, with rows counted as often as they stand for
        others."""
        return log_joint_terms if self.rows is None else self.rows.counted(log_joint_terms)

    def terms(self, bound: Bound) -> tuple[Term, ...]:
        """The terms of the log joint after the eliminations. bound: the plain one."""
        log_joint_terms = bound_parts(replace(bound, transform=self.statistics)).terms
        for rule in self.rules:
            log_joint_terms = without(rule, log_joint_terms)
        log_joint_terms = self.counted(log_joint_terms)
        return tuple(_traced_once(term) if term.holds else term for term in log_joint_terms)

    def run(self, bound: Bound) -> Any:
        tables = {} if self.statistics is None else self.statistics.tables
        return run_with_terms(self.terms(bound), bound, tables, self.sites)


@lru_cache(maxsize=256)
def _traced_once(term: Term) -> Term:
    """The term with a density that JAX traces, and differentiates, once for all programs that contain it."""
    return term._replace(density=jax.jit(term.density))


def _require_latent(site: str, before: Sequence[str], bound: Bound) -> None:
    if site in before:
        raise ValueError(f"site '{site}' is integrated out already")
    if site in bound.observed:
        raise ValueError(f"site '{site}' is observed, so there is nothing to integrate out; leave it out of the data")
    if site not in bound.latent:
        known = bound.sites.get(site)
        what = f"is {known.role}, not a latent site" if known else "is no site of the program"
        raise ValueError(f"'{site}' {what}; the latent sites are {list(bound.latent)}.{suggestion(site, bound.latent)}")
