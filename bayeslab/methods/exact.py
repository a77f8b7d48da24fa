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
from bayeslab.proof import prove, widened
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

    Continuous sites go first, the last drawn before the others; where that leads nowhere, other orders are tried.
    Raises ValueError with the reasons where no order is found.
    """
    with jax.enable_x64(True):
        wide = widened(bound)
        last_first = bound.latent[::-1]
        names = [name for name in last_first if not bound.sites[name].is_discrete]
        names += [name for name in last_first if bound.sites[name].is_discrete]
        search = _Search(wide, {}, 4 * len(names))
        rules = search.order(terms(wide).terms, names)
    if rules is None:
        reasons = "; ".join(f"site '{name}': {reason}" for name, reason in search.reasons.items())
        raise ValueError(f"Exact cannot eliminate all sites ({reasons}); use Gibbs() or NUTS()")
    return rules


@dataclass
class _Search:
    """reasons: why a site could not be eliminated when it was last tried. proofs: how many may still be made."""

    bound: Bound
    reasons: dict[str, str]
    proofs: int

    def order(self, of: Sequence[Term], names: list[str]) -> list[Rule] | None:
        if not names:
            return []
        for name in names:
            if self.proofs == 0:
                return None
            self.proofs -= 1
            [found] = prove(self.bound, of, [name])
            if found.rule is None:
                self.reasons[name] = found.reason
                continue
            rest = self.order(without(found.rule, of), [other for other in names if other != name])
            if rest is not None:
                return [found.rule, *rest]
        return None


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
