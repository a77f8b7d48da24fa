"""Running a program with some terms of its log joint replaced by others."""

from collections.abc import Collection, Mapping
from typing import Any

import jax.numpy as jnp
import numpyro
from numpyro.distributions import biject_to
from numpyro.primitives import Messenger

from bayeslab.elimination.terms import Term, terms
from bayeslab.programs.handlers.sites import wrap_bodies
from bayeslab.programs.program import Bound, is_random
from bayeslab.programs.wrapped_distributions import elementwise_constraint


def run_with_terms(
    new_terms: Collection[Term], bound: Bound, tables: Mapping[str, Any], removed: Collection[str] = ()
) -> Any:
    """What a program returns, run so that its log joint is the sum of other terms: its own ones, and factors.

    Sites whose density is not among them stay, with a masked density, so that names and shapes survive.
    new_terms: the terms. tables: what they look for among the values besides sites.
    removed: latent sites on which they do not depend; these disappear, with what is computed from them.
    """
    log_joint = terms(bound)
    new_names = {term.name for term in new_terms}
    computed = {name for name, sites in log_joint.computed.items() if not sites.isdisjoint(removed)}
    run = _MaskAndHide({term.name for term in log_joint.terms} - new_names, set(removed), computed)
    with run:
        result = bound.program()
    old_names = {term.name for term in log_joint.terms}
    for term in new_terms:
        if term.name not in old_names:
            numpyro.factor(term.name, term.density(bound, run.values | dict(tables)))
    return result


class _MaskAndHide(Messenger):
    """Masks the densities of some sites, hides others from everybody else, and keeps the values of all."""

    def __init__(self, masked: set[str], gone: set[str], computed: set[str]):
        self.masked, self.gone, self.computed = masked, gone, computed
        self.values: dict[str, Any] = {}
        super().__init__(None)

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "deterministic" and msg["name"] in self.computed:
            msg["stop"] = True
        if msg["type"] == "control_flow":
            wrap_bodies(msg, lambda body, _: _Hide(body, self.gone))
        if msg["type"] != "sample":
            return
        if msg["name"] in self.gone:
            msg["value"], msg["stop"] = _placeholder_value(msg["fn"]), True
        elif msg["name"] in self.masked and not is_random(msg):
            msg["stop"] = True
        elif msg["name"] in self.masked:
            msg["fn"] = msg["fn"].mask(False)

    def postprocess_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] in ("sample", "deterministic"):  # the latter are sites too, in other coordinates
            self.values[msg["name"]] = msg["value"]


class _Hide(Messenger):
    """Hides some sites from everybody else, in the body of a scan."""

    def __init__(self, fn: Any, gone: set[str]):
        self.gone = gone
        super().__init__(fn)

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "sample" and msg["name"] in self.gone:
            msg["value"], msg["stop"] = _placeholder_value(msg["fn"]), True


def _placeholder_value(fn: Any) -> Any:
    """A value inside the support, on which nothing depends but the shapes of what follows."""
    support = fn.support
    if not support.is_discrete:
        transform = biject_to(support)
        return transform(jnp.zeros(transform.inverse_shape(fn.shape())))
    return jnp.full(fn.shape(), getattr(elementwise_constraint(support), "lower_bound", 0), int)
