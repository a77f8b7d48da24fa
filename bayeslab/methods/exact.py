"""Independent draws from the exact posterior of any program whose sites can be eliminated one after the other."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
from jax import Array
from numpyro.distributions import Distribution
from numpyro.infer.util import log_density

from bayeslab.draws import Draws
from bayeslab.elimination import Rule, conditional, without
from bayeslab.methods.settings import require_positive
from bayeslab.program import Bound, Values, structure
from bayeslab.proof import Found, prove, widened
from bayeslab.terms import Term, terms


@dataclass(frozen=True)
class Exact:
    """Eliminate every site in turn, and draw them back in the opposite order.

    What remains when all sites are gone is the log evidence of the data, in `tree.attrs["log_evidence"]`. The order is
    found, last drawn first where that works. Every elimination is proven on the data of the fit.
    """

    num_samples: int = 1000

    num_warmup = 0
    num_chains = 1
    thinning = 1

    def __post_init__(self) -> None:
        require_positive(self, "num_samples")

    def plan(self, bound: Bound) -> "ExactSampler":
        if not bound.latent:
            raise ValueError("every site of the program is observed: there is nothing to infer")
        for name in bound.latent:
            if bound.sites[name].improper:
                raise ValueError(
                    f"site '{name}' has an improper prior, so the data have no evidence; use Gibbs() or NUTS()"
                )
        return ExactSampler(tuple(order(bound)), structure(bound))


def order(bound: Bound) -> list[Rule]:
    """Rules that eliminate all sites, each proven under the terms that those before it leave.

    Raises ValueError with the reasons where no site of those left can be eliminated.
    """
    with jax.enable_x64(True):
        wide = widened(bound)
        of: Sequence[Term] = terms(wide).terms
        left, rules = list(bound.latent), []
        while left:
            found = _first(wide, of, left[::-1])
            rules.append(found)
            of = without(found, of)
            left.remove(found.site)
    return rules


def _first(bound: Bound, of: Sequence[Term], names: list[str]) -> Rule:
    refused: list[Found] = []
    for name in names:
        [found] = prove(bound, of, [name])
        if found.rule is not None:
            return found.rule
        refused.append(found)
    reasons = "; ".join(f"site '{found.site}': {found.reason}" for found in refused)
    raise ValueError(f"Exact cannot eliminate all sites ({reasons}); use Gibbs() or NUTS()")


class Remaining(NamedTuple):
    """The key, and the distribution of the site that was eliminated last, which depends on the data alone."""

    key: Array
    last: Distribution


@dataclass(frozen=True)
class ExactSampler:
    """rules: in the order of elimination."""

    rules: tuple[Rule, ...]
    structure: Any

    def start(self, key: Array, bound: Bound) -> Remaining:
        return Remaining(key, conditional(self.rules[-1], self._stages(bound)[-1], bound, {}).distribution)

    def advance(self, state: Remaining, bound: Bound) -> tuple[Remaining, Draws]:
        key, *keys = jax.random.split(state.key, 1 + len(self.rules))
        values: Values = {}
        log_q = 0.0
        for rule, of, now in zip(self.rules[::-1], self._stages(bound)[::-1], keys, strict=True):
            last = rule is self.rules[-1]
            q = state.last if last else conditional(rule, of, bound, values).distribution
            values[rule.site] = q.sample(now).astype(bound.sites[rule.site].dtype)
            log_q += q.log_prob(values[rule.site]).sum()
        log_p, run = log_density(bound.program, (), {}, values)
        computed = {name: site["value"] for name, site in run.items() if site["type"] == "deterministic"}
        stats = {"lp": log_p, "log_q": log_q, "log_evidence": log_p - log_q}
        return Remaining(key, state.last), Draws(values | computed, stats)

    adapt = advance

    def _stages(self, bound: Bound) -> list[Sequence[Term]]:
        """The terms before each elimination."""
        stages: list[Sequence[Term]] = [terms(bound).terms]
        for rule in self.rules[:-1]:
            stages.append(without(rule, stages[-1]))
        return stages
