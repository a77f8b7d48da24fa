"""A watch over draws: the law is asked again where a sampler went, so that no false conditional leaves the library.

Proofs look at points; draws go where the posterior is. Every conditional that draws rest on is held against the log
joint at a sample of them, in double precision: it must give the difference between the value that was drawn and others
near it. Statistics that replaced rows are held against the rows.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bayeslab.elimination.conditional import Rule, stages
from bayeslab.elimination.terms import Term, terms
from bayeslab.programs.program import Bound, Values
from bayeslab.programs.tracing.compilation import evaluated
from bayeslab.transforms.tables import pieces
from bayeslab.verification.identity import beyond_rounding, law, noise_for
from bayeslab.verification.likely_points import widened

DRAWS = 16
"""At which a law is asked, of all chains together."""

Conditionals = tuple[tuple[tuple[Term, ...], Rule], ...]
"""Rules, each with the terms of the log joint under which it holds."""


class FalseConditional(ValueError):
    """A conditional that was found and proven does not hold at a draw: the draws are not of the posterior."""


def conditionals(bound: Bound, blocks: Sequence[Sequence[Rule]]) -> Conditionals:
    """Of sites that are drawn in blocks, those of a block eliminated one after the other."""
    of = terms(bound.plain).terms
    return tuple(pair for block in blocks for pair in zip(stages(block, of), block, strict=True))


def watch(
    bound: Bound, asked: Callable[[Bound], Conditionals], draws: Mapping[str, Array | np.ndarray], data: Any = None
) -> None:
    """Raises FalseConditional where a rule does not hold at a draw, or statistics are not those of the rows.

    asked: from the Bound in double precision to what its draws rest on.
    draws: by site, (chain, draw, *site). data: what the sampler was given in place of the Bound.
    Where draws lack a latent site, nothing is looked at.
    """
    plain = bound.plain
    if not all(name in draws for name in plain.latent):
        return
    with jax.enable_x64(True):
        wide = widened(plain)
        values = _sample(wide, draws)
        drawn, rules = noise_for(wide), asked(wide)
        for each in values if rules else ():
            verdicts = evaluated([law(of, rule) for of, rule in rules], (wide, each, drawn, True))
            for (_, rule), verdict in zip(rules, verdicts, strict=True):
                if verdict.excess > 0 or not verdict.possible:
                    raise _false(rule.site, f"its conditional ({rule.family.name})", float(verdict.excess))
        statistics = None if getattr(data, "transform", None) is None else data.transform.statistics
        if statistics is not None and statistics.groups:
            eps = max(float(jnp.finfo(leaf.dtype).eps) for leaf in jax.tree.leaves(data) if leaf.dtype.kind == "f")
            _watch_statistics(wide, widened(data), values, eps)


def require_identity(excess: Array | np.ndarray) -> None:
    """Raises FalseConditional where log joint - log posterior is not the log evidence at an exact draw.

    excess: by how many nats more than rounding leaves.
    """
    if (largest := float(np.max(excess, initial=0.0))) > 0:
        raise _false("", "the exact posterior", largest)


def _false(site: str, what: str, nats: float) -> FalseConditional:
    where = f"site '{site}': " if site else ""
    return FalseConditional(
        f"{where}{what} differs from the log joint by {nats:.3g} nats more than rounding at a draw, so the draws are "
        "not of the posterior; use NUTS(), which needs no conditional, and please report the program"
    )


def _sample(bound: Bound, draws: Mapping[str, Array | np.ndarray]) -> list[Values]:
    """Values of all latent sites at a few draws, spread evenly over all chains."""
    flat = {n: np.asarray(draws[n]).reshape(-1, *bound.sites[n].shape) for n in bound.latent}
    number = len(next(iter(flat.values())))
    places = np.unique(np.linspace(0, number - 1, min(DRAWS, number)).astype(int))
    kinds = {name: bound.sites[name].dtype for name in bound.latent}
    return [{name: jnp.asarray(value[place], kinds[name]) for name, value in flat.items()} for place in places]


def _watch_statistics(bound: Bound, data: Bound, values: Sequence[Values], eps: float) -> None:
    """What tables say of a program must differ from its log joint by the same number at every draw."""
    found = [evaluated([_both], (bound, data, each))[0] for each in values]
    rows, tables, sizes = (np.array(each) for each in zip(*found, strict=True))
    violation = (rows - rows[0]) - (tables - tables[0])
    excess = np.max(beyond_rounding(violation, sizes + sizes[0], eps))
    if excess > 0:
        raise _false("", "what sufficient statistics say", float(excess))


def _both(given: tuple[Bound, Bound, Values]) -> tuple[Array, Array, Array]:
    bound, data, values = given
    parts = [term.density(bound, values) for term in terms(bound).terms]
    plain, of, tables = pieces(data)
    others = sum((term.density(plain, values | tables).sum() for term in of), jnp.zeros(()))
    return (
        sum((part.sum() for part in parts), jnp.zeros(())),
        others,
        sum((jnp.abs(part).sum() for part in parts), jnp.zeros(())),
    )
