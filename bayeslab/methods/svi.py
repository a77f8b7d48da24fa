"""Stochastic variational inference with any NumPyro guide."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.infer
import optax
import optax.contrib
from jax import Array
from numpyro.handlers import seed, substitute
from numpyro.infer import Trace_ELBO, autoguide
from numpyro.infer.util import log_density

from bayeslab.methods.guides.automatic import (
    AnnealedGuide,
    Automatic,
    DrawnOnce,
    guide_record,
    mean_field_normal,
    suited_to_size,
)
from bayeslab.methods.guides.optimizers import adam_optimizer, as_optax
from bayeslab.methods.guides.user import UserGuide, draws_batches, outside_reason, refuse_other_sites
from bayeslab.methods.minibatches.batches import SubsampledPlate, random_batch
from bayeslab.methods.minibatches.guides import (
    BatchGuide,
    batched_plates,
    evaluate_scaled,
    split_by_plates,
)
from bayeslab.methods.setting_checks import require_names, require_positive
from bayeslab.methods.wrappers.collapsed import collapsed_sampler, without_discrete_sites
from bayeslab.methods.wrappers.compressed import row_replacement
from bayeslab.programs import unconstrained
from bayeslab.programs.program import Bound, Values, abstract_bound
from bayeslab.sampling.protocols import Draws, Method, Sampler
from bayeslab.transforms.analysis import Analysis
from bayeslab.verification.optimum import JUMP_REASON, has_jumps

STEPS_PER_SVI_FIT = 5000
"""The usual number of optimiser steps until it has converged, roughly."""


@dataclass(frozen=True)
class SVI(Method):
    """Maximise the evidence lower bound over a guide, and draw from it.

    guide: `mean_field_normal()`, `full_rank_normal()`, `low_rank_normal()`, `normalising_flow()`; a class of
    `numpyro.infer.autoguide` or a partial of one; an `AutoGuideList` or `AutoSemiDAIS` that you have built; or a guide
    of your own, a program with the latent sites of the model, which may name any arguments and observed sites of the
    model as its arguments.
    What the program or the guide has as `numpyro.param` is learned along with the bound.
    Of plates that the program subsamples, each step takes a batch, counted as often as the plate is larger (Hoffman et
    al. 2013, arXiv:1206.7055), unless sites are integrated out. Sites of rows are independent Normals in guides made
    here; a guide of your own subsamples the same plates. Draws and their log densities are of all rows.
    optimizer: of optax or `numpyro.optim`, by default Adam. Its steps are scaled down fivefold whenever the bound,
    averaged over `window` steps, has not grown for four windows; at the fourth time the fit has converged and stops.
    num_steps: the most steps that are made; `tree.attrs["converged"]` says whether they were enough.
    num_particles: draws that estimate the bound and its gradient in a step.
    A guide with all its mass on a point has no bound: `MAP` and `Laplace` are that.
    collapse: continuous sites to integrate out, such as ("w",), as discrete ones always are; the bound is then that of
    the other sites, hence closer. They are drawn given each draw of the others.
    """

    guide: Any = field(default_factory=mean_field_normal)
    optimizer: Any = None
    num_steps: int = 50_000
    num_particles: int = 8
    window: int = 200
    num_samples: int = 1000
    collapse: tuple[str, ...] = ()

    num_chains = 1
    thinning = 1
    learns = True

    @property
    def moves_coordinates(self) -> bool:
        """Whether the guide is made here, for the missing elements alone where sites are missing in part."""
        return isinstance(guide_record(self.guide), Automatic)

    def __post_init__(self) -> None:
        require_positive(self, "num_steps", "num_particles", "window", "num_samples")
        require_names(self, "collapse")

    @property
    def num_warmup(self) -> int:
        return self.num_steps

    def plan(self, analysis: Analysis) -> Sampler:
        marginal_bound = without_discrete_sites(analysis, self)
        guide = guide_record(self.guide)
        if set(marginal_bound.learned) == set(marginal_bound.latent):
            raise ValueError(f"SVI draws no site beside {list(marginal_bound.learned)}, which are learned; use MAP()")
        plates = batched_plates(marginal_bound)
        if isinstance(guide, Automatic):
            size = sum(prod(shape) for _, shape in split_by_plates(marginal_bound, plates)[0])
            guide = suited_to_size(guide, size)
        else:
            refuse_other_sites(guide, marginal_bound)
            plates = plates if draws_batches(guide, marginal_bound, plates) else ()
        adam = adam_optimizer(getattr(guide, "learning_rate", 0.02), getattr(guide, "max_norm", np.inf))
        optimizer = adam if self.optimizer is None else as_optax(self.optimizer)
        wanted = False if plates else None
        summary = row_replacement(marginal_bound, analysis, STEPS_PER_SVI_FIT * self.num_particles, wanted)
        structure = summary.structure(marginal_bound)
        sampler = GuideSampler(guide, optimizer, self.num_particles, self.window, structure, plates)
        _numpyro_svi(sampler)
        return collapsed_sampler(summary.around(sampler), marginal_bound, analysis.bound)


class GuideState(NamedTuple):
    """The parameters of a guide and the state of their optimisation. scale: of the steps, by the plateau rule."""

    params: Any
    optimizer: Any
    scale: Any
    key: Array


@dataclass(frozen=True)
class GuideSampler(Sampler):
    """A guide and the optimisation of its parameters.

    plates: those of which a step takes a batch.
    """

    guide: Any
    optimizer: optax.GradientTransformation
    num_particles: int
    window: int
    structure: Any
    plates: tuple[SubsampledPlate, ...]

    def start(self, key: Array, bound: Bound) -> GuideState:
        key, init_key = jax.random.split(key)
        engine = _numpyro_svi(self)
        state = engine.svi.init(init_key, bound, bound)
        params = engine.svi.optim.get_params(state.optim_state)
        return GuideState(params, self.optimizer.init(params), self._plateau.init(params), key)

    def adapt(self, state: GuideState, bound: Bound) -> tuple[GuideState, Draws]:
        has_converged = state.scale.scale <= _MIN_STEP_SCALE
        new, elbo = jax.lax.cond(has_converged, lambda s: (s, jnp.nan), lambda s: self._step(s, bound), state)
        return new, Draws({}, {}, {"elbo": elbo, "converged": new.scale.scale <= _MIN_STEP_SCALE})

    def advance(self, state: GuideState, bound: Bound) -> tuple[GuideState, Draws]:
        key, draw_key = jax.random.split(state.key)
        engine, params = _numpyro_svi(self), self.parameters(state)
        guide = substitute(seed(engine.guide, draw_key), data=params)
        log_q, sites = log_density(guide, (bound, bound), {}, {})
        drawn = {name: sites[name]["value"] for name in bound.latent if name not in bound.learned}
        samples, log_p = engine.evaluate(bound, drawn | {name: params[name] for name in bound.learned})
        return state._replace(key=key), Draws(samples, {"lp": log_p, "log_q": log_q})

    def convergence_verdict(self, state: GuideState, bound: Bound, samples: dict[str, Any]) -> tuple[None, str] | None:
        """Whether the log joint jumps between draws of an automatic guide, as gradients of the bound do not see, and
        whether a guide of the user's draws what the program does not allow."""
        if not isinstance(self.guide, Automatic):
            drawn = {name: jnp.asarray(samples[name]) for name in bound.latent if name not in bound.learned}
            return (None, why) if (why := outside_reason(bound, drawn)) else None
        number = min(NUM_DRAWS_SEARCHED_FOR_JUMPS, len(samples[bound.latent[0]]))
        draws = [{name: jnp.asarray(samples[name][draw]) for name in bound.latent} for draw in range(number)]
        flat = [_flat_position(bound, values) for values in draws]
        return (None, JUMP_REASON) if has_jumps(unconstrained.flat_log_posterior, bound, np.stack(flat)) else None

    def parameters(self, state: GuideState) -> Values:
        """The parameters of the guide, and what is learned of the program, as they are there."""
        return _numpyro_svi(self).svi.constrain_fn(state.params)

    @property
    def _plateau(self) -> optax.GradientTransformationExtraArgs:
        """The rule that scales steps down when the bound no longer grows."""
        return optax.contrib.reduce_on_plateau(
            factor=_PLATEAU_FACTOR, patience=_PLATEAU_PATIENCE, accumulation_size=self.window, rtol=0.0, atol=1e-3
        )

    def _step(self, state: GuideState, bound: Bound) -> tuple[GuideState, Array]:
        """The state after one step of the optimiser, and the bound before it; a step whose bound or gradient is not
        finite is left out."""
        engine, (key, loss_key) = _numpyro_svi(self), jax.random.split(state.key)
        batch = random_batch(jax.random.fold_in(loss_key, 0), bound, self.plates) if self.plates else bound

        def loss(params: Any) -> Array:
            constrained = engine.svi.constrain_fn(params)
            return engine.svi.loss.loss(loss_key, constrained, engine.svi.model, engine.svi.guide, batch, bound)

        value, gradient = jax.value_and_grad(loss)(state.params)
        updates, optimizer = self.optimizer.update(gradient, state.optimizer, state.params)
        updates, scale = self._plateau.update(updates, state.scale, state.params, value=value)
        updated = GuideState(optax.apply_updates(state.params, updates), optimizer, scale, key)
        finite = jnp.isfinite(value) & jnp.isfinite(optax.tree.norm(gradient))
        kept = jax.tree.map(partial(jnp.where, finite), updated, state._replace(key=key))
        return kept, -value


_flat_position = jax.jit(unconstrained.flat_position)
NUM_DRAWS_SEARCHED_FOR_JUMPS = 3
"""The number of draws between which the log joint is searched for jumps."""
_PLATEAU_FACTOR = 0.2
"""What steps are multiplied with on a plateau of the bound."""
_PLATEAU_PATIENCE = 4
"""The number of windows without growth of the bound that make a plateau."""
_MIN_STEP_SCALE = 1.01 * _PLATEAU_FACTOR**4
"""The scale of steps at which the fit has converged: that after the fourth plateau, rounding apart."""


class _NumPyroSVI(NamedTuple):
    """NumPyro's SVI for a guide.

    guide: a function of a Bound, which may have a batch of the rows, and of the Bound with all rows. evaluate: (bound,
    values that the guide draws) -> values of the sites, and their log joint in the space of the guide.
    """

    guide: Callable[[Bound, Bound], Any]
    svi: numpyro.infer.SVI
    evaluate: Callable[[Bound, Values], tuple[Values, Array]]


@lru_cache(maxsize=64)
def _numpyro_svi(sampler: GuideSampler) -> _NumPyroSVI:
    """NumPyro's SVI for a sampler, the same object for equal samplers, since guides are stateful; it is set up on
    concrete values."""
    run = partial(evaluate_scaled, sampler.plates)
    if isinstance(sampler.guide, Automatic):
        guide = _auto_guide(sampler.guide, abstract_bound(sampler.structure), sampler.plates)
        program = partial(unconstrained.unconstrained_program, batch_ndim=sampler.guide.batch_ndim)
        model = partial(_without_all_rows, program, run)
        evaluate_sites: Callable[[Bound, Values], tuple[Values, Array]] = _evaluate_unconstrained
    else:
        guide, evaluate_sites = UserGuide(sampler.guide), _evaluate_constrained
        model = partial(_without_all_rows, _learning_program, run)
    loss = Trace_ELBO(num_particles=sampler.num_particles)
    guide = DrawnOnce(guide)
    return _NumPyroSVI(guide, numpyro.infer.SVI(model, guide, sampler.optimizer, loss), evaluate_sites)


def _auto_guide(record: Automatic, bound: Bound, plates: tuple[SubsampledPlate, ...]) -> Callable[[Bound, Bound], Any]:
    """The guide that a record describes, over the unconstrained sites of a program; sites inside of the plates of which
    steps take batches have independent Normals."""
    shared, local = split_by_plates(bound, plates)
    sites = partial(unconstrained.sites_only_program, shared, record.batch_ndim)
    guide = record.build(sites, **dict(record.settings))
    if shared:
        with numpyro.handlers.block():
            seed(guide, jax.random.PRNGKey(0))()
    of_shared = AnnealedGuide(guide) if isinstance(guide, autoguide.AutoDAIS) else partial(_on_sites_alone, guide)
    return BatchGuide(of_shared if shared else None, local, plates)


def _on_sites_alone(guide: Callable[[], Any], _: Bound) -> Any:
    """A draw of a guide that does not need to know the program."""
    return guide()


def _without_all_rows(program: Callable[..., Any], run: Callable[[Bound], Any], bound: Bound, _: Bound) -> Any:
    """A program of a Bound, which may have a batch of the rows, called as its guide is, which is told of all rows."""
    return program(bound, run)


def _learning_program(bound: Bound, run: Callable[[Bound], Any]) -> Any:
    """The program of a Bound, with what it learns as `numpyro.param` again. run: what runs the program."""
    values = {}
    for name, (position, transform) in unconstrained.learned_starts(jax.random.PRNGKey(0), bound).items():
        values[name] = numpyro.param(name, transform(position), constraint=transform.codomain)
    with numpyro.handlers.block(hide=list(values)), numpyro.handlers.condition(data=values):
        return run(bound)


def _evaluate_unconstrained(bound: Bound, position: Values) -> tuple[Values, Array]:
    """Values of the sites at an unconstrained position, and the log posterior there, Jacobian included."""
    return unconstrained.constrain(bound, position), unconstrained.log_posterior_of_drawn(bound, position)


def _evaluate_constrained(bound: Bound, latent: Values) -> tuple[Values, Array]:
    """Values of latent and deterministic sites, and the log joint."""
    log_p, sites = log_density(bound.program, (), {}, latent)
    computed = {name: site["value"] for name, site in sites.items() if site["type"] == "deterministic"}
    return latent | computed, log_p
