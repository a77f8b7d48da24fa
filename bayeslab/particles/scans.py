"""The scan of a program, taken out of it: what it starts with, and its body as a function of one step.

A state-space model is a program with a `numpyro.contrib.control_flow.scan`. Its body draws the state and the observed
values of one step, given what is carried from the step before; that is all a particle filter needs, so the body is
run for one particle at a time, and mapped over particles.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from numpyro.handlers import block, condition, seed, substitute, trace
from numpyro.infer.util import compute_log_probs
from numpyro.primitives import Messenger

from bayeslab.programs.missing.missing_data import ObservationHandler
from bayeslab.programs.program import Bound, Values, is_random
from bayeslab.programs.site_density import site_log_density
from bayeslab.programs.tracing.loops.reversed_scans import is_scan

Guide = Callable[[Any, Any, Values], Any]
"""A NumPyro program (carry, element, values) that draws the latent sites of one step.

carry, element: what the body of the scan is given. values: of the observed sites of this step and of all sites before
the scan, by name.
"""


class ScanFound(Exception):
    """A program has come to its scan. arguments: body, start, elements, length, whether it runs backwards."""

    def __init__(self, arguments: tuple[Any, ...]):
        self.arguments = arguments
        super().__init__()


class ScanFinder(Messenger):
    """A handler, around all others, that ends the run where the program comes to a scan."""

    def process_message(self, msg: dict[str, Any]) -> None:
        if is_scan(msg):
            raise ScanFound(tuple(msg["args"]))


class StepInputs(NamedTuple):
    """What the steps of a scan are given besides what is carried, stacked over steps or of one of them.

    element: of the scan. observed: values of its observed sites. present: which of their entries are present.
    """

    element: Any
    observed: Values
    present: Values


class OpenScan(NamedTuple):
    """A program up to its scan.

    sites: those before it, as they were traced. start: what the first step is given.
    steps: what every step is given, stacked.
    """

    sites: dict[str, Any]
    body: Callable[[Any, Any], Any]
    start: Any
    steps: StepInputs
    length: int
    backwards: bool


class Weighed(NamedTuple):
    """One step at values of its latent sites: what it carries on, and its log densities, of these sites and of all
    others given them. sites: as they were traced."""

    carry: Any
    log_prior: Array
    log_likelihood: Array
    sites: dict[str, Any]


def open_scan(key: Array, bound: Bound, values: Values) -> OpenScan:
    """The program up to its scan. values: of latent sites before it; the others are drawn.

    Raises ValueError where there is no scan.
    """
    program = substitute(seed(bound.program, key), data=values)
    with block(), ScanFinder(), trace() as sites:
        try:
            program()
        except ScanFound as raised:
            body, start, elements, length, backwards = raised.arguments
        else:
            raise ValueError(_without_scan(bound))
    if length is None:
        length = jnp.shape(jax.tree.leaves(elements)[0])[0]
    scanned = [name for name in bound.observed if name not in sites]
    observed = {name: bound.observed[name] for name in scanned}
    present = {name: bound.present[name] for name in scanned if name in bound.present}
    return OpenScan(dict(sites), body, start, StepInputs(elements, observed, present), length, backwards)


def _without_scan(bound: Bound) -> str:
    """Why particles cannot follow a program, and what they can follow in its place."""
    latent = [f"'{name}'" for name in bound.latent]
    listed = ", ".join(latent if len(latent) < 4 else [*latent[:3], "..."])
    return (
        "particles follow the steps of a numpyro.contrib.control_flow.scan, and the program has none: write what moves "
        f"from step to step among {listed} as scan(step, start, elements), where step(carry, element) draws the state "
        "of a step, then what is observed of it, and returns what it carries on and None; or use NUTS() or Gibbs()"
    )


def log_densities(scan: OpenScan) -> Values:
    """The log density of every site before the scan, at its value there."""
    return {name: site_log_density(site).sum() for name, site in scan.sites.items() if site["type"] == "sample"}


def weigh(bound: Bound, scan: OpenScan, carry: Any, inputs: StepInputs, values: Values) -> Weighed:
    """One step at values of its latent sites."""
    carries = []

    def run() -> None:
        carries.append(_body(bound, scan, inputs)(carry, inputs.element)[0])

    with block():
        log_probs, sites = compute_log_probs(run, (), {}, values)
    zero = jnp.zeros(())
    log_prior = sum((log_probs[name] for name in log_probs if name in values), zero)
    log_likelihood = sum((log_probs[name] for name in log_probs if name not in values), zero)
    return Weighed(carries[0], log_prior, log_likelihood, sites)


class StepKeys(NamedTuple):
    """Keys of one step of one particle: those of its latent sites (site, 2), so that none is split for every particle,
    and that of whatever else needs one."""

    sites: Array
    others: Array

    @classmethod
    def of(cls, key: Array) -> "StepKeys":
        """One key for all."""
        return cls(jnp.zeros((0, 2), key.dtype), key)


class KeyForEachSite(Messenger):
    """A handler that gives the latent sites of a program one key each, from the first to the last; whatever else asks
    for a key finds none here."""

    def __init__(self, fn: Callable[..., Any], keys: Array) -> None:
        self.left = list(keys)
        super().__init__(fn)

    def process_message(self, msg: dict[str, Any]) -> None:
        asks = msg["type"] == "sample" and msg["kwargs"]["rng_key"] is None and msg["value"] is None
        if asks and self.left:
            msg["kwargs"]["rng_key"] = self.left.pop(0)


def propose(
    keys: StepKeys, bound: Bound, scan: OpenScan, carry: Any, inputs: StepInputs, guide: Guide | None
) -> Values:
    """A draw of the latent sites of one step, from the guide or, for want of one, from their prior given what is
    carried."""
    program = _body(bound, scan, inputs) if guide is None else guide
    given = () if guide is None else (_known(scan, inputs),)
    with block():
        keyed = seed(KeyForEachSite(program, keys.sites), keys.others)
        return drawn_values(trace(keyed).get_trace(carry, inputs.element, *given))


def log_weight(
    bound: Bound, scan: OpenScan, carry: Any, inputs: StepInputs, values: Values, guide: Guide | None
) -> tuple[Any, Array]:
    """What one step carries on, and the log importance weight of its values, which `propose` drew."""
    weighed = weigh(bound, scan, carry, inputs, values)
    if guide is None:
        return weighed.carry, weighed.log_likelihood
    with block():
        log_probs, _ = compute_log_probs(guide, (carry, inputs.element, _known(scan, inputs)), {}, values)
    log_q = sum(log_probs.values(), jnp.zeros(()))
    return weighed.carry, weighed.log_prior + weighed.log_likelihood - log_q


def drawn_values(sites: dict[str, Any]) -> Values:
    """The values of the latent sites of a trace."""
    return {n: jnp.asarray(s["value"]) for n, s in sites.items() if is_random(s) and not s["is_observed"]}


def _known(scan: OpenScan, inputs: StepInputs) -> Values:
    """What a guide is told: the values of all sites before the scan, and of the observed ones of its step."""
    return {name: site["value"] for name, site in scan.sites.items() if is_random(site)} | inputs.observed


def _body(bound: Bound, scan: OpenScan, inputs: StepInputs) -> Callable[[Any, Any], Any]:
    """The body of the scan with the observed values of one step."""

    def body(carry: Any, element: Any) -> Any:
        with ObservationHandler(inputs.present, bound.guarded), condition(data=inputs.observed):
            return scan.body(carry, element)

    return body
