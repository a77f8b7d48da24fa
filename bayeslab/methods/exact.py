"""Independent draws from the exact posterior of any program whose sites can be eliminated one after the other."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from numpyro.distributions import Distribution

from bayeslab.compress import Group, compressed, compressible, tabulated
from bayeslab.draws import Draws
from bayeslab.elimination import Rule, conditional, without
from bayeslab.methods.settings import require_positive
from bayeslab.program import Bound, Values, structure
from bayeslab.proof import Found, find_all, prove, widened
from bayeslab.sweep import computed, settled, somewhere
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
        rules, found = order(bound), find_all(bound)
        alone = tuple(one.rule for one in found if one.rule is not None)
        return ExactSampler(tuple(rules), alone, compressible(bound, found), structure(bound))


def order(bound: Bound) -> list[Rule]:
    """Rules that eliminate all sites, each proven under the terms that those before it leave.

    Continuous sites go first, the last drawn before the others; where that leads nowhere, other orders are tried. A
    site without a conditional in closed form does not get one as others go, so that is where an order ends.
    Raises ValueError with the reasons where no order is found.
    """
    with jax.enable_x64(True):
        wide = widened(bound)
        last_first = bound.latent[::-1]
        names = [name for name in last_first if not bound.sites[name].is_discrete]
        names += [name for name in last_first if bound.sites[name].is_discrete]
        alone = {found.site: found for found in find_all(wide)}
        closed = all(found.rule is not None for found in alone.values())
        search = _Search(wide, alone, {n: one.reason for n, one in alone.items() if one.rule is None}, 4 * len(names))
        rules = search.order(terms(wide).terms, names, ()) if closed else None
    if rules is None:
        reasons = "; ".join(f"site '{name}': {reason}" for name, reason in search.reasons.items())
        raise ValueError(f"Exact cannot eliminate all sites ({reasons}); use Gibbs() or NUTS()")
    return rules


@dataclass
class _Search:
    """alone: what is found for every site given all others.

    reasons: why a site could not be eliminated when it was last tried. proofs: how many may still be made.
    """

    bound: Bound
    alone: dict[str, Found]
    reasons: dict[str, str]
    proofs: int

    def order(self, of: tuple[Term, ...], names: list[str], gone: tuple[str, ...]) -> list[Rule] | None:
        if not names:
            return []
        for name in names:
            if self.proofs == 0:
                return None
            self.proofs -= 1
            [found] = prove(self.bound, of, [name]) if gone else [self.alone[name]]
            if found.rule is None:
                without_them = " and ".join(f"'{other}'" for other in gone)
                self.reasons[name] = f"{found.reason} once {without_them} {'are' if len(gone) > 1 else 'is'} eliminated"
                return None
            rest = self.order(without(found.rule, of), [other for other in names if other != name], (*gone, name))
            if rest is not None:
                return [found.rule, *rest]
        return None


class Remaining(NamedTuple):
    """What all draws share, and how many were made.

    last: the distribution of the site that was eliminated last, which depends on the data alone.
    """

    key: Array
    made: Array
    last: Distribution
    tables: dict[str, Any]
    log_evidence: Array


@dataclass(frozen=True)
class ExactSampler:
    """rules: in the order of elimination. alone: of every site given all others, where terms are compressed."""

    rules: tuple[Rule, ...]
    alone: tuple[Rule, ...]
    groups: tuple[Group, ...]
    structure: Any

    def start(self, key: Array, bound: Bound) -> Remaining:
        tables: dict[str, Any] = {}
        if self.groups:
            values = settled(jax.random.PRNGKey(5), self.alone, bound, somewhere(jax.random.PRNGKey(6), bound))
            tables = tabulated(self.groups, bound, values)
        rule, of = self.rules[-1], self._stages(bound)[-1]
        last = conditional(rule, of, bound, tables)
        rest = (term.density(bound, tables).sum() for term in of if not term.depends)
        log_evidence = sum(rest, last.log_evidence.sum())
        return Remaining(key, jnp.zeros((), int), last.distribution, tables, log_evidence)

    def advance(self, state: Remaining, bound: Bound) -> tuple[Remaining, Draws]:
        return state._replace(made=state.made + 1), self.draw(state, bound, jnp.zeros((), int))

    adapt = advance

    def draw(self, state: Remaining, bound: Bound, ahead: Array) -> Draws:
        """One of the draws to come: independent of all others, so that many are made at once."""
        keys = jax.random.split(jax.random.fold_in(state.key, state.made + ahead), len(self.rules))
        values: Values = {}
        log_q = jnp.zeros(())
        for rule, of, now in zip(self.rules[::-1], self._stages(bound)[::-1], keys, strict=True):
            last = rule is self.rules[-1]
            q = state.last if last else conditional(rule, of, bound, values | state.tables).distribution
            values[rule.site] = q.sample(now).astype(bound.sites[rule.site].dtype)
            log_q += q.log_prob(values[rule.site]).sum()
        stats = {"lp": state.log_evidence + log_q, "log_q": log_q, "log_evidence": state.log_evidence}
        return Draws(values | computed(bound, values), stats)

    def _stages(self, bound: Bound) -> list[tuple[Term, ...]]:
        """The terms before each elimination."""
        stages = [compressed(self.groups, bound)]
        for rule in self.rules[:-1]:
            stages.append(without(rule, stages[-1]))
        return stages
