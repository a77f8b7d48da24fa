"""Few rows in place of many: rows of data with the same number, mean and covariance.

Let the sites of a row be jointly Normal given those that all rows share, and let these say the same of every row. With
the latent sites of the row integrated out its log density is a quadratic function of its data, the same one for all
rows, so the sum over rows depends on their number, their mean and their covariance alone. Of p numbers, p + 1 rows can
have any mean and covariance: the program is run on those, each counted as often as there are more of the others. What
an elimination or an expectation costs then does not depend on the number of rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.interpreters.partial_eval import dce_jaxpr

from bayeslab.elimination.conditional import Rule, without
from bayeslab.elimination.cubature import simplex
from bayeslab.elimination.terms import Prior, Term, terms
from bayeslab.programs.program import Bound, Site, Values, abstract_bound, compilation_signature
from bayeslab.programs.tracing.compilation import evaluate_all
from bayeslab.verification.points.likely_points import in_double_precision
from bayeslab.verification.points.probe_points import Point, generic_points, prior_scale_points

MIN_ROWS_PER_REPRESENTATIVE = 4
"""Rows for which a representative one stands, at least, for their search to be worth it."""
TOLERANCE = 1e-9
"""Largest difference between the log density of the rows and that of their representatives, relative to both."""


class RepresentativeRows(NamedTuple):
    """The elements of a plate that fewer ones represent.

    plate: its name. size: how many elements it has. number: how many represent them.
    observed: the observed sites in it, each with the axis that the plate has in its values.
    latent: the latent sites in it, all of which are integrated out.
    """

    plate: str
    size: int
    number: int
    observed: tuple[tuple[str, int], ...]
    latent: tuple[str, ...]

    @property
    def terms(self) -> tuple[str, ...]:
        """The names of the observed sites whose rows are replaced."""
        return tuple(name for name, _ in self.observed)

    def described(self, bound: Bound, priors: dict[str, Prior]) -> str:
        return f"{self.number} rows with the same mean and covariance"

    def in_place_of_rows(self, bound: Bound) -> Bound:
        """The program with the representative rows as its data."""
        columns = [jnp.moveaxis(bound.observed[name], axis, 0).reshape(self.size, -1) for name, axis in self.observed]
        shapes = [jnp.moveaxis(bound.observed[name], axis, 0).shape[1:] for name, axis in self.observed]
        rows = _rows_with_moments(jnp.concatenate(columns, axis=1))
        parts = jnp.split(rows, np.cumsum([column.shape[1] for column in columns])[:-1], axis=1)
        observed = {
            name: jnp.moveaxis(part.reshape(self.number, *shape), 0, axis)
            for (name, axis), part, shape in zip(self.observed, parts, shapes, strict=True)
        }
        batches = bound.batches | {self.plate: jnp.arange(self.number)}
        return replace(bound, observed=bound.observed | observed, batches=batches)

    def counted(self, log_joint_terms: tuple[Term, ...]) -> tuple[Term, ...]:
        """The terms, with those of the rows counted as often as there are more rows than representatives.

        log_joint_terms: with the latent sites of the rows integrated out, or averaged over.
        """
        return _counted(self, log_joint_terms)

    def holds(self, term: Term) -> bool:
        """Whether a term is of the rows."""
        return not {*self.latent, *self.terms}.isdisjoint(term.holds or {term.name})

    def log_densities(self, bound: Bound, values: Values, rules: tuple[Rule, ...]) -> tuple[Array, Array]:
        """The log density of all rows of a program, and that of their representatives; both are not a number, or the
        same up to rounding.

        rules: that integrate the latent sites of the rows out. values: of the other sites.
        """
        few = self.in_place_of_rows(bound)
        direct = sum((term.density(bound, values).sum() for term in self.integrated(bound, rules)), jnp.zeros(()))
        times = self.size / self.number
        return direct, sum(
            (times * term.density(few, values).sum() for term in self.integrated(few, rules)), jnp.zeros(())
        )

    def integrated(self, bound: Bound, rules: tuple[Rule, ...]) -> list[Term]:
        """The terms of the rows with their latent sites integrated out. bound: the plain one, with any rows."""
        log_joint_terms = terms(bound).terms
        for rule in rules:
            log_joint_terms = without(rule, log_joint_terms)
        return [term for term in log_joint_terms if self.holds(term)]


@lru_cache(maxsize=256)
def _counted(rows: RepresentativeRows, log_joint_terms: tuple[Term, ...]) -> tuple[Term, ...]:
    """The same terms for the same arguments, so that what is compiled for them is compiled once."""
    times = rows.size / rows.number

    def counted(term: Term) -> Term:
        return Term(
            f"all rows of {term.name}",
            term.depends,
            lambda bound, values: times * term.density(bound, values),
            None,
            term.cost,
            holds=term.holds or frozenset({term.name}),
            kinks=term.kinks,
        )

    return tuple(counted(term) if rows.holds(term) else term for term in log_joint_terms)


def _rows_with_moments(rows: Array) -> Array:
    """Rows (column + 1, column) with the mean and the covariance of many rows (row, column)."""
    mean = rows.mean(0)
    factor = jnp.linalg.qr(rows - mean, mode="r") / np.sqrt(len(rows))  # of each column all digits are kept
    return mean + jnp.asarray(simplex(rows.shape[1]), rows.dtype) @ factor


def representative_rows(bound: Bound, rules: Sequence[Rule]) -> RepresentativeRows | None:
    """The plate whose elements fewer ones represent, proven on the data of the fit; None where there is none.

    rules: by which sites are integrated out.
    """
    candidates = (_candidate(bound, plate, rules) for plate in _common_plates(bound, rules))
    return next((rows for rows in candidates if rows is not None and _verified(bound, rows, tuple(rules))), None)


def _common_plates(bound: Bound, rules: Sequence[Rule]) -> list[str]:
    """The plates of all sites that are integrated out, if these are Normal."""
    if not rules or not all(rule.family.joint for rule in rules) or bound.imputed or bound.batches:
        return []
    sites = [bound.sites[name] for rule in rules for name in rule.sites]
    return [plate.name for plate in sites[0].plates if all(_axis(site, plate.name) is not None for site in sites)]


def _axis(site: Site, plate: str) -> int | None:
    """The axis that a plate has in the values of a site; None where the site is not in it."""
    dims = [each.dim for each in site.plates if each.name == plate]
    return len(site.shape) - site.event_dim + dims[0] if dims else None


def _candidate(bound: Bound, plate: str, rules: Sequence[Rule]) -> RepresentativeRows | None:
    """A plate with nothing in it but complete real data and sites that are integrated out, and many elements."""
    eliminated = {name for rule in rules for name in rule.sites}
    members = {name: axis for name, site in bound.sites.items() if (axis := _axis(site, plate)) is not None}
    observed = {name: axis for name, axis in members.items() if bound.sites[name].role == "observed"}
    if not observed.keys() <= bound.observed.keys():
        return None
    hidden = {*bound.present, *bound.guarded, *bound.computed}
    if not observed or {*members} & {*bound.latent} != eliminated or not hidden.isdisjoint(observed):
        return None
    if any(not jnp.issubdtype(bound.observed[name].dtype, jnp.floating) for name in observed):
        return None
    sizes = {bound.observed[name].shape[axis] for name, axis in observed.items()}
    if len(sizes) != 1:
        return None
    [size] = sizes
    number = 1 + sum(prod(bound.observed[name].shape) // size for name in observed)
    if size < MIN_ROWS_PER_REPRESENTATIVE * number:
        return None
    return RepresentativeRows(plate, size, number, tuple(observed.items()), tuple(sorted(eliminated)))


def _verified(bound: Bound, rows: RepresentativeRows, rules: tuple[Rule, ...]) -> bool:
    """Whether representative rows say what all rows say, at points with other data and with those of the fit."""
    with jax.enable_x64(True):
        bound = in_double_precision(bound.plain)
        try:
            if _reads_positions(compilation_signature(bound), rows, rules):
                return False
        except (TypeError, ValueError):  # the program cannot be run on fewer rows: it has more data of each row
            return False
        points = [*generic_points(bound), *prior_scale_points(bound)]
        return all(evaluate_all([_difference(rows, rules)], point)[0] <= TOLERANCE for point in points)


@lru_cache(maxsize=64)
def _reads_positions(signature: Any, rows: RepresentativeRows, rules: tuple[Rule, ...]) -> bool:
    """Whether what a program of one structure says of rows depends on their positions in the plate, but for their
    data."""
    few = jax.eval_shape(rows.in_place_of_rows, abstract_bound(signature))
    others = {name: value for name, value in few.latent_shapes.items() if name not in rows.latent}

    def densities(positions: Array, few: Bound, others: Values) -> list[Array]:
        moved = replace(few, batches=few.batches | {rows.plate: positions})
        return [term.density(moved, others) for term in rows.integrated(moved, rules)]

    traced = jax.make_jaxpr(densities)(few.batches[rows.plate], few, others)
    return dce_jaxpr(traced.jaxpr, [True] * len(traced.jaxpr.outvars))[1][0]


@lru_cache(maxsize=64)
def _difference(rows: RepresentativeRows, rules: tuple[Rule, ...]) -> Callable[[Point], Array]:
    """A function of a point: the relative difference of the log density of representatives from that of the rows;
    infinite where one of them is not a number."""

    def relative(point: Point) -> Array:
        direct, counted = rows.log_densities(*point, rules)
        error = jnp.abs(direct - counted) / (jnp.abs(direct) + jnp.abs(counted))
        return jnp.where(jnp.isfinite(error), error, jnp.inf)

    return relative
