"""A watch over draws: rules are tested again where a sampler went, so that no false conditional leaves the library.

Verification looks at points; draws go where the posterior is. Every conditional that draws rest on is held against the
log joint at a sample of them, in double precision: it must give the difference between the value that was drawn and
others near it. Statistics that replaced rows are held against the rows.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bayeslab.elimination.conditional import Rule, elimination_stages
from bayeslab.elimination.terms import Term, terms
from bayeslab.programs.program import Bound, Values
from bayeslab.programs.tracing.compilation import evaluate_all
from bayeslab.transforms.sufficient_statistics.representative_rows import RepresentativeRows
from bayeslab.transforms.sufficient_statistics.tables import bound_parts
from bayeslab.verification.identity import NUM_NEAR_PROBES, excess_over_rounding, identity_check, probe_noise
from bayeslab.verification.points.likely_points import in_double_precision

MAX_CHECKED_DRAWS = 16
"""Draws at which rules are tested, of all chains together."""

Conditionals = tuple[tuple[tuple[Term, ...], Rule], ...]
"""Rules, each with the terms of the log joint under which it holds."""

SHARE_OF_LIMIT = 0.8
"""Share of the largest value of a count up to which draws may come."""


class FalseConditional(ValueError):
    """A conditional that was found and proven does not hold at a draw: the draws are not of the posterior."""


def conditionals_of_blocks(bound: Bound, blocks: Sequence[Sequence[Rule]]) -> Conditionals:
    """The rules of sites that are drawn in blocks, where those of a block are eliminated one after the other."""
    log_joint_terms = terms(bound.plain).terms
    return tuple(
        pair for block in blocks for pair in zip(elimination_stages(block, log_joint_terms), block, strict=True)
    )


def check_draws(
    bound: Bound,
    draws: Mapping[str, Array | np.ndarray],
    get_conditionals: Callable[[Bound], Conditionals],
    data: Any = None,
) -> None:
    """Raises FalseConditional where a rule does not hold at a draw, or statistics are not those of the rows.

    draws: by site, (chain, draw, *site). get_conditionals: from the Bound in double precision to what its draws rest
    on. data: what the sampler was given in place of the Bound.
    Where draws lack a latent site, nothing is looked at.
    """
    plain = bound.plain
    if not all(name in draws for name in plain.latent):
        return
    require_within_limits(plain, draws)
    with jax.enable_x64(True):
        widened_bound = in_double_precision(plain)
        values = _draws_to_check(widened_bound, draws)
        noise, rules = probe_noise(widened_bound), get_conditionals(widened_bound)
        for point in values if rules else ():
            verdicts = evaluate_all(
                [identity_check(log_joint_terms, rule) for log_joint_terms, rule in rules],
                (widened_bound, point, noise, NUM_NEAR_PROBES),
            )
            for (_, rule), verdict in zip(rules, verdicts, strict=True):
                if verdict.excess > 0 or not verdict.possible:
                    raise _false_conditional(rule.site, f"its conditional ({rule.family.name})", float(verdict.excess))
        statistics = None if getattr(data, "transform", None) is None else data.transform.statistics
        if statistics is not None and statistics.groups:
            eps = max(float(jnp.finfo(leaf.dtype).eps) for leaf in jax.tree.leaves(data) if leaf.dtype.kind == "f")
            _check_statistics(widened_bound, in_double_precision(data), values, eps)
        transform: Any = getattr(getattr(data, "inner", data), "transform", None)
        if isinstance(rows := getattr(transform, "rows", None), RepresentativeRows):
            eps = max(float(jnp.finfo(leaf.dtype).eps) for leaf in jax.tree.leaves(data) if leaf.dtype.kind == "f")
            _check_representatives(widened_bound, _densities_of_rows(rows, transform.rules), values, eps)


def require_within_limits(bound: Bound, draws: Mapping[str, Array | np.ndarray]) -> None:
    """Raises FalseConditional where draws of a count come near the value up to which it was summed over."""
    for name, limit in bound.limits:
        largest = int(np.max(np.asarray(draws[name]), initial=0))
        if largest > SHARE_OF_LIMIT * limit:
            raise FalseConditional(
                f"site '{name}': draws reach {largest}, and its values were summed over up to {limit} only, so the "
                "draws may not be of the posterior; give it a prior with a bound, as a DiscreteUniform, or a closer one"
            )


def require_identity(excess: Array | np.ndarray) -> None:
    """Raises FalseConditional where log joint - log posterior is not the log evidence at an exact draw.

    excess: by how many nats more than rounding leaves.
    """
    if np.isposinf(excess).any():
        raise ValueError(
            "too much of the evidence is rounding in this precision, so draws are not of the posterior; fit in double "
            "precision, or with a larger scale"
        )
    if (largest := float(np.max(excess, initial=0.0))) > 0:
        raise _false_conditional("", "the exact posterior", largest)


def _false_conditional(site: str, what: str, nats: float) -> FalseConditional:
    where = f"site '{site}': " if site else ""
    return FalseConditional(
        f"{where}{what} differs from the log joint by {nats:.3g} nats more than rounding at a draw, so the draws are "
        "not of the posterior; use NUTS(), which needs no conditional, and please report the program"
    )


def _draws_to_check(bound: Bound, draws: Mapping[str, Array | np.ndarray]) -> list[Values]:
    """Values of all latent sites at a few draws, spread evenly over all chains."""
    flat = {n: np.asarray(draws[n]).reshape(-1, *bound.sites[n].shape) for n in bound.latent}
    number = len(next(iter(flat.values())))
    indices = np.unique(np.linspace(0, number - 1, min(MAX_CHECKED_DRAWS, number)).astype(int))
    dtypes = {name: bound.sites[name].dtype for name in bound.latent}
    return [{name: jnp.asarray(value[index], dtypes[name]) for name, value in flat.items()} for index in indices]


def _check_statistics(bound: Bound, data: Bound, values: Sequence[Values], eps: float) -> None:
    """Raises FalseConditional unless tables differ from the log joint by the same number at every draw."""
    totals = [evaluate_all([_totals], (bound, data, point))[0] for point in values]
    rows, tables, sizes = (np.array(column) for column in zip(*totals, strict=True))
    violation = (rows - rows[0]) - (tables - tables[0])
    excess = np.max(excess_over_rounding(violation, sizes + sizes[0], eps))
    if excess > 0:
        raise _false_conditional("", "what sufficient statistics say", float(excess))


def _check_representatives(
    bound: Bound, densities: Callable[[tuple[Bound, Values]], tuple[Array, Array]], values: Sequence[Values], eps: float
) -> None:
    """Raises FalseConditional unless rows that represent others have the log density of these at every draw."""
    totals = np.array([evaluate_all([densities], (bound, point))[0] for point in values])
    excess = np.max(excess_over_rounding(totals[:, 0] - totals[:, 1], np.abs(totals).sum(1), eps))
    if not excess <= 0:
        raise _false_conditional("", "what rows say that represent others", float(excess))


@lru_cache(maxsize=64)
def _densities_of_rows(
    rows: RepresentativeRows, rules: tuple[Rule, ...]
) -> Callable[[tuple[Bound, Values]], tuple[Array, Array]]:
    """A function of a Bound and values: the log density of its rows, and that of their representatives."""
    return lambda point: rows.log_densities(*point, rules)


def _totals(argument: tuple[Bound, Bound, Values]) -> tuple[Array, Array, Array]:
    """The log joint from rows, that from tables, and the sum of the sizes of the former."""
    bound, data, values = argument
    parts = [term.density(bound, values) for term in terms(bound).terms]
    plain, log_joint_terms, tables = bound_parts(data)
    others = sum((term.density(plain, values | tables).sum() for term in log_joint_terms), jnp.zeros(()))
    return (
        sum((part.sum() for part in parts), jnp.zeros(())),
        others,
        sum((jnp.abs(part).sum() for part in parts), jnp.zeros(())),
    )
