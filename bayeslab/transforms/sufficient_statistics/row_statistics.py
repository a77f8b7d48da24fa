"""Sufficient statistics of rows whose parameters are picked by a label: mixtures, hidden chains, allocations.

Let a row y_i with label z_i depend on sites x_1, ..., x_g through their elements at z_i alone, and in the same way for
every label. If its log density is multilinear in statistics of these elements,

    log p(y_i | z_i = k, x) = sum over s of A[i, s] T_s(x_1[k], ..., x_g[k]),

then the row is its coefficients A[i]. For all labels at once the density is a product of two small matrices, and so is
its gradient, where the program would pick the parameters of every row and take every density apart.
"""

from collections.abc import Sequence
from functools import partial
from itertools import product
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bayeslab.distributions import MarkovChain
from bayeslab.distributions.markov.log_likelihoods import Rows
from bayeslab.elimination.conditional import Rule, conditional
from bayeslab.elimination.terms import EnumeratedTerm, Prior, Term, terms
from bayeslab.programs.program import Bound, Values
from bayeslab.programs.wrapped_distributions import innermost_distribution
from bayeslab.transforms.sufficient_statistics.site_statistics import (
    Frame,
    conditional_deviations,
    num_statistics,
    probes_in_dtype,
    random_frame,
    statistics_vector,
)

MAX_STATISTICS_PER_LABEL = 200
"""Statistics of one label, at most."""
MIN_COLUMN_SHARE = 1e-12
"""Share of the largest contribution below which a column is left out."""
NUM_WEIGHTED_SUMS = 6
"""Weighted sums of rows that tell whether columns are in proportion."""


class RowTable(NamedTuple):
    """Statistics of the rows of a term.

    centres, scales: of every site at one label. coefficients: (*row, column).
    shares: of the products of statistics in every column (product, column); None where every product has its own.
    laid: the coefficients again, laid out for a label that is a Markov chain.
    """

    centres: tuple[Array, ...]
    scales: tuple[Array, ...]
    coefficients: Array
    shares: Array | None = None
    laid: Rows | None = None


class LabelledTerm(NamedTuple):
    """A term that a table of row statistics replaces.

    axes: of every site, the axis that labels pick from.
    columns: the products of statistics that are there, by their indices among all of them; those whose coefficients are
    in proportion in all rows stand together, the largest first. None for all, one by one.
    """

    replaced: str
    label: str
    rules: tuple[Rule, ...]
    axes: tuple[int, ...]
    columns: tuple[tuple[int, ...], ...] | None = None

    @property
    def terms(self) -> tuple[str, ...]:
        return (self.replaced,)

    @property
    def sites(self) -> tuple[str, ...]:
        return (self.label, *(rule.site for rule in self.rules))

    @property
    def name(self) -> str:
        return f"statistics of rows of {self.replaced}"

    def table(
        self, log_joint_terms: Sequence[Term], priors: dict[str, Prior], bound: Bound, values: Values
    ) -> RowTable:
        """The statistics of all rows. values: likely ones of all sites."""
        [term] = [term for term in log_joint_terms if term.name == self.replaced]
        frames = [self._frame(i, log_joint_terms, priors, bound, values) for i in range(len(self.rules))]
        sizes = [len(frame.probes) for frame in frames]

        def rows(index: Array) -> Array:
            """Densities of all rows where every label has the same parameters."""
            indices = jnp.unravel_index(index, sizes)
            probe_values = {self.label: jnp.zeros(priors[self.label].shape, int)}
            for rule, axis, frame, place in zip(self.rules, self.axes, frames, indices, strict=True):
                shape = priors[rule.site].shape
                probe_values[rule.site] = jnp.broadcast_to(jnp.expand_dims(frame.probes[place], axis), shape)
            return sum_by_row(term, priors[self.label], term.density(bound, values | probe_values))

        densities = jax.lax.map(rows, jnp.arange(prod(sizes)))
        densities = densities.reshape(*sizes, *densities.shape[1:])
        for frame in frames:
            densities = jnp.moveaxis(jnp.tensordot(frame.reader, densities, 1), 0, len(frames) - 1)
        flat = jnp.moveaxis(densities.reshape(-1, *densities.shape[len(frames) :]), 0, -1)
        table = RowTable(tuple(f.centre for f in frames), tuple(f.scale for f in frames), flat)
        if self.columns is None:
            return table
        merged, shares = _merge_columns(flat, self.columns)
        label = innermost_distribution(priors[self.label].distribution(bound, values))
        laid = label.laid(merged) if isinstance(label, MarkovChain) else None
        return table._replace(coefficients=merged, shares=shares, laid=laid)

    def term(self, priors: dict[str, Prior]) -> Term:
        """The term that takes the place of the rows; it looks for its table among the values."""
        label = priors[self.label]
        size = label.num_labels
        assert size is not None

        def of_labels(bound: Bound, values: Values) -> Array:
            return self.products(priors, values[self.name], values)  # type: ignore[arg-type]

        def broadcast(bound: Bound, values: Values, products: Array) -> Array:
            table: Any = values[self.name]
            return table.coefficients @ products.T

        def row_layout(values: Any) -> Rows | None:
            return values[self.name].laid

        choices = EnumeratedTerm(self.label, of_labels, broadcast, 0, row_layout)

        def density(bound: Bound, values: Values) -> Array:
            each = choices.density(bound, values)
            chosen = jax.nn.one_hot(values[self.label], size, dtype=each.dtype)
            return (each * chosen).sum(-1)

        batch_ndim, cost = len(label.shape) - label.event_dim, prod(label.shape) * size
        return Term(self.name, frozenset(self.sites), density, batch_ndim, cost, choices=choices)

    def products(self, priors: dict[str, Prior], table: RowTable, values: Values) -> Array:
        """Products T (label, column) of the statistics of sites, as in the formula of this module."""
        total = None
        for i, (rule, axis) in enumerate(zip(self.rules, self.axes, strict=True)):
            inner, prior = slice_at_label(rule, priors[rule.site], axis)
            read = partial(statistics_vector, inner, prior, table.centres[i], table.scales[i])
            at_labels = jax.vmap(read)(jnp.moveaxis(values[rule.site], axis, 0))
            total = (
                at_labels if total is None else (total[:, :, None] * at_labels[:, None, :]).reshape(len(at_labels), -1)
            )
        assert total is not None
        return total if table.shares is None else total @ table.shares

    def size(self, bound: Bound, priors: dict[str, Prior]) -> int:
        """How many statistics a label has."""
        if self.columns is not None:
            return len(self.columns)
        return prod(
            num_statistics(*slice_at_label(r, priors[r.site], axis))
            for r, axis in zip(self.rules, self.axes, strict=True)
        )

    def described(self, bound: Bound, priors: dict[str, Prior]) -> str:
        sites = ", ".join(rule.site for rule in self.rules)
        return f"{self.size(bound, priors)} statistics of {sites} at each label '{self.label}'"

    def _frame(
        self, i: int, log_joint_terms: Sequence[Term], priors: dict[str, Prior], bound: Bound, values: Values
    ) -> Frame:
        rule, axis = self.rules[i], self.axes[i]
        inner, prior = slice_at_label(rule, priors[rule.site], axis)
        by_label = jnp.moveaxis(values[rule.site], axis, 0)
        if rule.family.joint:
            q = conditional(rule, log_joint_terms, bound, values, values[rule.site]).distribution
            conditional_scales = jnp.moveaxis(conditional_deviations(q), axis, 0)
            centre, scale = by_label.mean(0), jnp.sqrt((conditional_scales**2).mean(0) + by_label.var(0))
            steps, reader = probes_in_dtype(centre, prior.shape, inner.coupled)
            return Frame(centre, scale, centre + scale * steps, reader)
        support = priors[rule.site].distribution(bound, values).support
        return random_frame(inner, prior, by_label.mean(0), support)


def _merge_columns(coefficients: Array, columns: Sequence[Sequence[int]]) -> tuple[Array, Array]:
    """One column in place of several that are in proportion, and the share of it that every product has."""
    first = coefficients[..., np.array([group[0] for group in columns])]
    indices = np.array([index for group in columns for index in group])
    group_index = np.repeat(np.arange(len(columns)), [len(group) for group in columns])
    rows = tuple(range(first.ndim - 1))
    size = (first * first).sum(rows)[group_index]
    share = (coefficients[..., indices] * first[..., group_index]).sum(rows) / jnp.where(size > 0, size, 1.0)
    return first, jnp.zeros((coefficients.shape[-1], len(columns)), first.dtype).at[indices, group_index].set(share)


def sum_by_row(term: Term, label: Prior, part: Array) -> Array:
    """A term added up for every row, in the shape of the label."""
    return part.sum(tuple(range(len(label.shape), part.ndim)))


def slice_at_label(rule: Rule, prior: Prior, axis: int) -> tuple[Rule, Prior]:
    """The rule and the prior of one element along an axis."""
    shape = prior.shape[:axis] + prior.shape[axis + 1 :]
    coupled = tuple(other - (other > axis) for other in rule.coupled)
    return rule._replace(coupled=coupled), prior._replace(shape=shape)


def labelled_candidates(
    log_joint_terms: Sequence[Term], priors: dict[str, Prior], rules: dict[str, Rule]
) -> list[LabelledTerm]:
    """Terms that may be replaced, from shapes alone; `columns` is not known yet."""
    labelled_terms = []
    for term in log_joint_terms:
        labels = [n for n in term.depends if n in rules and priors[n].num_labels is not None]
        others = [n for n in priors if n in term.depends and n not in labels]
        if len(labels) != 1 or not others or any(n not in rules for n in others):
            continue
        label = priors[labels[0]]
        batch_ndims = (len(label.shape), len(label.shape) - label.event_dim)
        if not label.shape or label.num_labels is None or term.name == label.name or term.batch_ndim not in batch_ndims:
            continue
        axes = [_label_axes(rules[n], priors[n], label.num_labels) for n in others]
        for chosen in product(*axes):
            candidate = LabelledTerm(term.name, label.name, tuple(rules[n] for n in others), chosen)
            counts = [
                num_statistics(*slice_at_label(rules[n], priors[n], axis))
                for n, axis in zip(others, chosen, strict=True)
            ]
            if all(counts) and prod(counts) <= MAX_STATISTICS_PER_LABEL:
                labelled_terms.append(candidate)
    return labelled_terms


def _label_axes(rule: Rule, prior: Prior, choices: int) -> list[int]:
    """Axes of a site on which its elements are independent, and as many as there are labels."""
    batch = range(len(prior.shape) - prior.event_dim)
    return [axis for axis in batch if prior.shape[axis] == choices and axis not in rule.coupled]


def labelled_residual(
    labelled_term: LabelledTerm,
    table: RowTable,
    bound: Bound,
    values: Values,
    other_values: Values,
) -> Array:
    """The largest difference between the term and its replacement, relative to the size of rows.

    It is taken at two points and a mixture of them.
    values: likely ones, of which the table is made. other_values: those of a second point.
    """
    priors, log_joint_terms, *_ = terms(bound)
    [term] = [term for term in log_joint_terms if term.name == labelled_term.replaced]
    new = labelled_term.term(priors)
    shape = priors[labelled_term.label].shape
    labels = jnp.asarray(np.random.default_rng(0).integers(0, priors[labelled_term.label].num_labels, (3, *shape)))
    worst = jnp.zeros(())
    for label, point in zip(
        labels,
        (values, other_values, values | {labelled_term.rules[0].site: other_values[labelled_term.rules[0].site]}),
        strict=True,
    ):
        all_values: Any = point | {labelled_term.label: label}
        true = sum_by_row(term, priors[labelled_term.label], term.density(bound, all_values))
        if true.shape != shape:
            return jnp.array(jnp.inf)  # a row has several labels, or a label several rows
        error = jnp.abs(true - new.density(bound, all_values | {labelled_term.name: table}))
        worst = jnp.maximum(worst, error.max() / jnp.abs(true).max())
    return worst


class ColumnSums(NamedTuple):
    """What columns contribute, relative to the one that contributes most.

    largest: the contribution of every product of statistics, (product,).
    sums: sums of rows with generic weights, (sum, product); those of columns in proportion are so too.
    rows: how many rows there are.
    """

    largest: Array
    sums: Array
    rows: Array


def column_sums(labelled_term: LabelledTerm, table: RowTable, priors: dict[str, Prior], values: Values) -> ColumnSums:
    """The contributions of the columns of a table, at likely values."""
    flat = table.coefficients.reshape(-1, table.coefficients.shape[-1])
    largest = jnp.abs(labelled_term.products(priors, table, values)).max(0)
    size = jnp.abs(flat).max(0) * largest
    weight = jnp.cos(jnp.arange(1.0, len(flat) + 1)[:, None] * jnp.sqrt(jnp.arange(2.0, 2.0 + NUM_WEIGHTED_SUMS)))
    sums = weight.T @ flat * largest
    return ColumnSums(size / size.max(), sums / jnp.linalg.norm(sums, axis=0).max(), (flat != 0).any(1).sum())


def proportional_columns(sums_at_points: Sequence[ColumnSums]) -> tuple[tuple[int, ...], ...]:
    """The products that contribute, see `LabelledTerm`; from their sums at several points.

    Columns of few rows may be in proportion by chance, and not with other data.
    """
    largest = np.max([np.asarray(sums.largest) for sums in sums_at_points], axis=0)
    has_enough_rows = min(int(sums.rows) for sums in sums_at_points) > 4 * NUM_WEIGHTED_SUMS
    groups: list[list[int]] = []
    for column in np.argsort(-largest, kind="stable").tolist():
        if largest[column] <= MIN_COLUMN_SHARE:
            break
        alike = (
            g
            for g in groups
            if has_enough_rows
            and all(_are_proportional(sums.sums[:, column], sums.sums[:, g[0]]) for sums in sums_at_points)
        )
        group = next(alike, None)
        if group is None:
            groups.append([column])
        else:
            group.append(column)
    return tuple(sorted(tuple(group) for group in groups))


def _are_proportional(first: Any, second: Any) -> bool:
    """Whether two columns of sums are in proportion."""
    size = second @ second
    away = first - second * (first @ second / size if size > 0 else 0.0)
    return bool(np.linalg.norm(away) <= MIN_COLUMN_SHARE)
