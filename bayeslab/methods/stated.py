"""Independent draws from a posterior known in closed form."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from numpyro.handlers import seed
from numpyro.infer.util import log_density

from bayeslab.methods.setting_checks import require_positive
from bayeslab.programs.arguments import signature
from bayeslab.programs.program import Bound, Program
from bayeslab.programs.tracing.captured_values import captured_values
from bayeslab.sampling.protocols import Draws, Method, Sampler
from bayeslab.transforms.analysis import Analysis


@dataclass(frozen=True)
class Stated(Method):
    """Draw from a stated posterior, for example `Stated(normal_gamma.posterior)`, and give the log evidence.

    posterior: a program with the latent sites of the model, which names inputs and observed sites of the model as
    its arguments. That it is the posterior is proven at every fit: log p(latent, observed) - log p(latent | observed)
    must be the same at every point, and is the log evidence.
    """

    posterior: Program
    num_samples: int = 1000

    num_warmup = 0
    num_chains = 1
    thinning = 1

    def __post_init__(self) -> None:
        require_positive(self, "num_samples")
        if not callable(self.posterior):
            raise TypeError("Stated needs the posterior as a program, for example Stated(normal_gamma.posterior)")

    def plan(self, analysis: Analysis) -> "StatedSampler":
        bound = analysis.bound
        values = bound.inputs | bound.observed
        if unknown := [name for name in signature(self.posterior).parameters if name not in values]:
            raise ValueError(f"the posterior asks for {unknown}, which the model does not have; it has {list(values)}")
        if bound.present:
            raise ValueError(
                f"entries {sorted(bound.present)} have missing values, for which the stated posterior does not hold; "
                "use NUTS()"
            )
        sampler = StatedSampler(self.posterior)
        _prove(sampler, bound)
        return sampler


@dataclass(frozen=True)
class StatedSampler(Sampler):
    """Independent draws from a posterior program, with both log densities of each."""

    posterior: Program

    warmup_draws = True

    def start(self, key: Array, bound: Bound) -> Array:
        return key

    def advance(self, key: Array, bound: Bound) -> tuple[Array, Draws]:
        key, draw_key = jax.random.split(key)
        log_q, sites = log_density(seed(self._program, draw_key), (bound,), {}, {})
        latent = {name: sites[name]["value"] for name in bound.latent}
        log_p, run = log_density(bound.program, (), {}, latent)
        computed = {name: site["value"] for name, site in run.items() if site["type"] == "deterministic"}
        return key, Draws(latent | computed, {"lp": log_p, "log_q": log_q, "log_evidence": log_p - log_q})

    def _program(self, bound: Bound) -> Any:
        """The posterior program, called with the inputs and observed values that it names."""
        values = bound.inputs | bound.observed
        return self.posterior(**{name: values[name] for name in signature(self.posterior).parameters})


def _prove(sampler: StatedSampler, bound: Bound) -> None:
    """Raises ValueError unless log joint minus log posterior is constant, relative to the size of the two."""
    stats = _law(sampler, bound, captured_values(sampler.posterior))
    gap = float(jnp.ptp(stats["log_evidence"]))
    size = float(jnp.abs(stats["lp"]).max() + jnp.abs(stats["log_q"]).max() + 1.0)
    if not gap <= size * float(jnp.sqrt(jnp.finfo(stats["lp"].dtype).eps)):
        raise ValueError(
            f"the stated posterior is not the posterior of this program: log p(latent, observed) minus "
            f"log p(latent | observed) varies by {gap:.3g} between draws"
        )


@partial(jax.jit, static_argnames=("sampler", "captured"))
def _law(sampler: StatedSampler, bound: Bound, captured: tuple) -> dict[str, Array]:
    """The log joint, the log posterior and their difference, by names as in `stats`, at a few draws (draw,).

    captured: what the posterior reads from outside, so that other values are seen.
    """
    return jax.vmap(lambda key: sampler.advance(key, bound)[1].stats)(jax.random.split(jax.random.PRNGKey(0), 4))
