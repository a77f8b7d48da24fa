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
from bayeslab.elimination.terms import Choices, Prior, Term
from bayeslab.programs.program import Bound, Values, unwrapped
from bayeslab.transforms.site_statistics import Frame, count, deviations, framed, probes_like, statistics

LARGEST = 200
"""Statistics of one label, at most."""
SMALLEST = 1e-12
"""Share of the largest coefficient below which a column is left out."""
SUMS = 6
"""Of rows, that tell whether columns are in proportion."""


class Table(NamedTuple):
    """centres, scales: of every site at one label. coefficients: (*row, column).

    shares: of the products of statistics in every column (product, column); None where every product has its own.
    laid: the coefficients again, in the form that suits a label that is a chain.
    """

    centres: tuple[Array, ...]
    scales: tuple[Array, ...]
    coefficients: Array
    shares: Array | None = None
    laid: Rows | None = None


class Labelled(NamedTuple):
    """A term that a table of row statistics replaces.

    axes: of every site, the one that labels pick from.
    columns: the products of statistics that are there, as places in the array of all, those together whose coefficients
    are in proportion in all rows, the largest first; None for all, one by one.
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

    def table(self, of: Sequence[Term], priors: dict[str, Prior], bound: Bound, values: Values) -> Table:
        """values: likely ones of all sites."""
        [term] = [term for term in of if term.name == self.replaced]
        frames = [self._frame(i, of, priors, bound, values) for i in range(len(self.rules))]
        sizes = [len(frame.probes) for frame in frames]

        def rows(index: Array) -> Array:
            """Densities of all rows where every label has the same parameters."""
            places = jnp.unravel_index(index, sizes)
            given = {self.label: jnp.zeros(priors[self.label].shape, int)}
            for rule, axis, frame, place in zip(self.rules, self.axes, frames, places, strict=True):
                shape = priors[rule.site].shape
                given[rule.site] = jnp.broadcast_to(jnp.expand_dims(frame.probes[place], axis), shape)
            return by_row(term, priors[self.label], term.density(bound, values | given))

        found = jax.lax.map(rows, jnp.arange(prod(sizes)))
        found = found.reshape(*sizes, *found.shape[1:])
        for frame in frames:
            found = jnp.moveaxis(jnp.tensordot(frame.reader, found, 1), 0, len(frames) - 1)
        flat = jnp.moveaxis(found.reshape(-1, *found.shape[len(frames) :]), 0, -1)
        table = Table(tuple(f.centre for f in frames), tuple(f.scale for f in frames), flat)
        if self.columns is None:
            return table
        kept, shares = _joined(flat, self.columns)
        label = unwrapped(priors[self.label].distribution(bound, values))
        laid = label.laid(kept) if isinstance(label, MarkovChain) else None
        return table._replace(coefficients=kept, shares=shares, laid=laid)

    def term(self, priors: dict[str, Prior]) -> Term:
        """What replaces the term; it looks for its table among the values."""
        label = priors[self.label]
        size = label.num_labels
        assert size is not None

        def of_labels(bound: Bound, values: Values) -> Array:
            return self.products(priors, values[self.name], values)  # type: ignore[arg-type]

        def spread(bound: Bound, values: Values, products: Array) -> Array:
            table: Any = values[self.name]
            return table.coefficients @ products.T

        def laid(values: Any) -> Rows | None:
            return values[self.name].laid

        choices = Choices(self.label, of_labels, spread, 0, laid)

        def density(bound: Bound, values: Values) -> Array:
            each = choices.density(bound, values)
            chosen = jax.nn.one_hot(values[self.label], size, dtype=each.dtype)
            return (each * chosen).sum(-1)

        batch_ndim, cost = len(label.shape) - label.event_dim, prod(label.shape) * size
        return Term(self.name, frozenset(self.sites), density, batch_ndim, cost, choices=choices)

    def products(self, priors: dict[str, Prior], table: Table, values: Values) -> Array:
        """T of the module's formula, (label, column)."""
        total = None
        for i, (rule, axis) in enumerate(zip(self.rules, self.axes, strict=True)):
            inner, prior = at_label(rule, priors[rule.site], axis)
            read = partial(statistics, inner, prior, table.centres[i], table.scales[i])
            here = jax.vmap(read)(jnp.moveaxis(values[rule.site], axis, 0))
            total = here if total is None else (total[:, :, None] * here[:, None, :]).reshape(len(here), -1)
        assert total is not None
        return total if table.shares is None else total @ table.shares

    def size(self, bound: Bound, priors: dict[str, Prior]) -> int:
        """How many statistics a label has."""
        if self.columns is not None:
            return len(self.columns)
        return prod(count(*at_label(r, priors[r.site], axis)) for r, axis in zip(self.rules, self.axes, strict=True))

    def described(self, bound: Bound, priors: dict[str, Prior]) -> str:
        sites = ", ".join(rule.site for rule in self.rules)
        return f"{self.size(bound, priors)} statistics of {sites} at each label '{self.label}'"

    def _frame(self, i: int, of: Sequence[Term], priors: dict[str, Prior], bound: Bound, values: Values) -> Frame:
        rule, axis = self.rules[i], self.axes[i]
        inner, prior = at_label(rule, priors[rule.site], axis)
        near = jnp.moveaxis(values[rule.site], axis, 0)
        if rule.family.joint:
            q = conditional(rule, of, bound, values, values[rule.site]).distribution
            spread = jnp.moveaxis(deviations(q), axis, 0)
            centre, scale = near.mean(0), jnp.sqrt((spread**2).mean(0) + near.var(0))
            steps, reader = probes_like(centre, prior.shape, inner.coupled)
            return Frame(centre, scale, centre + scale * steps, reader)
        support = priors[rule.site].distribution(bound, values).support
        return framed(inner, prior, near.mean(0), support)


def _joined(coefficients: Array, columns: Sequence[Sequence[int]]) -> tuple[Array, Array]:
    """One column in place of several that are in proportion; what share of it is every product's."""
    first = coefficients[..., np.array([group[0] for group in columns])]
    places = np.array([place for group in columns for place in group])
    of = np.repeat(np.arange(len(columns)), [len(group) for group in columns])
    rows = tuple(range(first.ndim - 1))
    size = (first * first).sum(rows)[of]
    share = (coefficients[..., places] * first[..., of]).sum(rows) / jnp.where(size > 0, size, 1.0)
    return first, jnp.zeros((coefficients.shape[-1], len(columns)), first.dtype).at[places, of].set(share)


def by_row(term: Term, label: Prior, part: Array) -> Array:
    """A term added up for every row, in the shape of the label."""
    return part.sum(tuple(range(len(label.shape), part.ndim)))


def at_label(rule: Rule, prior: Prior, axis: int) -> tuple[Rule, Prior]:
    """The same for one element along an axis."""
    shape = prior.shape[:axis] + prior.shape[axis + 1 :]
    coupled = tuple(other - (other > axis) for other in rule.coupled)
    return rule._replace(coupled=coupled), prior._replace(shape=shape)


def candidates(of: Sequence[Term], priors: dict[str, Prior], rules: dict[str, Rule]) -> list[Labelled]:
    """Terms that may be replaced, from shapes alone; `columns` is not known yet."""
    found = []
    for term in of:
        labels = [n for n in term.depends if n in rules and priors[n].num_labels is not None]
        others = [n for n in priors if n in term.depends and n not in labels]
        if len(labels) != 1 or not others or any(n not in rules for n in others):
            continue
        label = priors[labels[0]]
        lead = (len(label.shape), len(label.shape) - label.event_dim)
        if not label.shape or label.num_labels is None or term.name == label.name or term.batch_ndim not in lead:
            continue
        axes = [_axes(rules[n], priors[n], label.num_labels) for n in others]
        for chosen in product(*axes):
            one = Labelled(term.name, label.name, tuple(rules[n] for n in others), chosen)
            counts = [count(*at_label(rules[n], priors[n], axis)) for n, axis in zip(others, chosen, strict=True)]
            if all(counts) and prod(counts) <= LARGEST:
                found.append(one)
    return found


def _axes(rule: Rule, prior: Prior, choices: int) -> list[int]:
    """Axes of independent elements, as many as there are labels."""
    batch = range(len(prior.shape) - prior.event_dim)
    return [axis for axis in batch if prior.shape[axis] == choices and axis not in rule.coupled]


def residual(
    one: Labelled,
    table: Table,
    of: Sequence[Term],
    priors: dict[str, Prior],
    bound: Bound,
    values: Values,
    other: Values,
) -> Array:
    """The largest difference between the term and its replacement, relative to the size of rows, at two points and a
    mixture of them. values: likely ones, of which the table is made. other: more of them."""
    [term] = [term for term in of if term.name == one.replaced]
    new = one.term(priors)
    shape = priors[one.label].shape
    labels = jnp.asarray(np.random.default_rng(0).integers(0, priors[one.label].num_labels, (3, *shape)))
    worst = jnp.zeros(())
    for label, at in zip(labels, (values, other, values | {one.rules[0].site: other[one.rules[0].site]}), strict=True):
        given: Any = at | {one.label: label}
        true = by_row(term, priors[one.label], term.density(bound, given))
        if true.shape != shape:
            return jnp.array(jnp.inf)  # a row has several labels, or a label several rows
        error = jnp.abs(true - new.density(bound, given | {one.name: table}))
        worst = jnp.maximum(worst, error.max() / jnp.abs(true).max())
    return worst


class Sums(NamedTuple):
    """What columns contribute, relative to the one that does most.

    largest: of every product of statistics, (product,). sums: of rows with generic weights, (sum, product); those of
    columns in proportion are so too. rows: how many there are.
    """

    largest: Array
    sums: Array
    rows: Array


def sums_of_columns(one: Labelled, table: Table, priors: dict[str, Prior], values: Values) -> Sums:
    flat = table.coefficients.reshape(-1, table.coefficients.shape[-1])
    largest = jnp.abs(one.products(priors, table, values)).max(0)
    size = jnp.abs(flat).max(0) * largest
    weight = jnp.cos(jnp.arange(1.0, len(flat) + 1)[:, None] * jnp.sqrt(jnp.arange(2.0, 2.0 + SUMS)))
    sums = weight.T @ flat * largest
    return Sums(size / size.max(), sums / jnp.linalg.norm(sums, axis=0).max(), (flat != 0).any(1).sum())


def columns_of(found: Sequence[Sums]) -> tuple[tuple[int, ...], ...]:
    """The products that contribute, see `Labelled`; from their sums at several points.

    Columns of few rows may be in proportion by chance, and not with other data.
    """
    largest = np.max([np.asarray(one.largest) for one in found], axis=0)
    enough = min(int(one.rows) for one in found) > 4 * SUMS
    groups: list[list[int]] = []
    for place in np.argsort(-largest, kind="stable").tolist():
        if largest[place] <= SMALLEST:
            break
        alike = (g for g in groups if enough and all(_parallel(one.sums[:, place], one.sums[:, g[0]]) for one in found))
        group = next(alike, None)
        if group is None:
            groups.append([place])
        else:
            group.append(place)
    return tuple(sorted(tuple(group) for group in groups))


def _parallel(one: Any, other: Any) -> bool:
    size = other @ other
    away = one - other * (one @ other / size if size > 0 else 0.0)
    return bool(np.linalg.norm(away) <= SMALLEST)
