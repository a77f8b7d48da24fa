"""Markov chain Monte Carlo with any NumPyro kernel."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.infer
from jax import Array
from numpyro.handlers import seed
from numpyro.infer.ensemble import EnsembleSampler
from numpyro.infer.hmc_util import euclidean_kinetic_energy
from numpyro.infer.mcmc import MCMCKernel
from numpyro.infer.util import constrain_fn

from bayeslab.elimination.discrete.mixture_components import component_sites
from bayeslab.methods.moves.concavity import has_fixed_priors, is_concave, num_coordinates
from bayeslab.methods.moves.initial_positions import likely_position
from bayeslab.methods.moves.label_exchange import LabelExchangeSampler
from bayeslab.methods.moves.noncentered import NoncenteredSampler, noncentered_sites
from bayeslab.methods.setting_checks import require_count, require_flags, require_names, require_positive
from bayeslab.methods.wrappers.collapsed import collapsed_sampler, without_discrete_sites
from bayeslab.methods.wrappers.compressed import row_or_precision_replacement
from bayeslab.programs.program import Bound, Values, compilation_signature, evaluate
from bayeslab.programs.unconstrained import constrain, flat_log_posterior, log_posterior, unconstrained_shapes
from bayeslab.sampling.protocols import Draws, Method, Sampler, State
from bayeslab.transforms.analysis import Analysis
from bayeslab.transforms.exchangeable_labels import nearly_exchangeable_labels

GRADIENTS_PER_NUTS_DRAW = 15
"""Gradients that NUTS takes for a draw, roughly."""
CHAINS_TO_PLAN_FOR = 4
"""Chains of a fit that pay together for a search of statistics. A constant, so that a chain is the same one in a fit
with any number of them."""
MAX_DENSE_MASS_DIMENSIONS = 50
"""The largest number of dimensions for which a dense mass matrix is worth its cost (measured on 25 published
posteriors)."""
MAX_DENSE_MASS_DIMENSIONS_OF_WALKS = 128
"""The same where a site is a random walk: no coordinate of single elements undoes what its steps have in common (a walk
of 60 steps under a Poisson has six times the effective draws, by half of the steps)."""
MAX_PRECONDITIONED_DIMENSIONS = 1000
"""The largest number of dimensions for which the curvature at the mode is computed and decomposed."""


@dataclass(frozen=True)
class MCMC(Method):
    """Run the NumPyro kernel that `kernel(model)` builds, for example `MCMC(numpyro.infer.BarkerMH)`.

    kernel: builds a kernel for a NumPyro model; a class or a function, not a lambda, so that a second fit finds
    the compiled program again.
    thinning: keep one draw in so many.
    """

    kernel: Callable[[Callable[..., Any]], MCMCKernel]
    num_warmup: int = 1000
    num_samples: int = 1000
    num_chains: int = 4
    thinning: int = 1

    moves_coordinates = True

    def __post_init__(self) -> None:
        require_positive(self, "num_samples", "num_chains", "thinning")
        require_count(self, "num_warmup")
        if not callable(self.kernel):
            raise TypeError(
                "kernel of MCMC must be a class such as numpyro.infer.BarkerMH, or a function from a model to a "
                f"kernel, not {self.kernel!r}"
            )
        build = self.kernel.func if isinstance(self.kernel, partial) else self.kernel
        if isinstance(build, type) and issubclass(build, EnsembleSampler):
            raise TypeError(f"{build.__name__} moves chains together, but MCMC runs each on its own; use Slice()")

    def plan(self, analysis: Analysis) -> "KernelSampler":
        return KernelSampler(self.kernel, compilation_signature(analysis.bound), self.num_warmup)


@dataclass(frozen=True)
class NUTS(Method):
    """The no-U-turn sampler (Hoffman and Gelman 2014, JMLR 15).

    Discrete sites are summed over, and drawn from their conditionals after every draw of the others.
    thinning: keep one draw in so many.
    dense_mass: adapt a full mass matrix, True or False. By default chains move around a Normal approximation at the
    mode where the log posterior is concave, as in generalised linear models with fixed priors (see
    `bayeslab.methods.moves.preconditioned`), and elsewhere adapt a full matrix for up to fifty dimensions, or 128 with
    a random walk.
    target_accept_prob: of the step size adaptation; raise it towards 1 where transitions diverge.
    max_tree_depth: a trajectory has at most 2 to this power steps.
    statistics: compute with sufficient statistics in place of rows (`compress`), True or False; by
    default where there are any and the fit is long enough to pay for the seconds that it takes to find them. Unless
    False, precisions of Normal sites in `collapse` that others only multiply are kept, too.
    collapse: continuous sites to integrate out as well, such as ("w",); they are drawn back like discrete ones.
    noncentered: move sites whose prior has an unknown scale in partly standard coordinates
    (`bayeslab.methods.moves.noncentered`), True or False; by default where there are such sites.
    """

    num_warmup: int = 1000
    num_samples: int = 1000
    num_chains: int = 4
    thinning: int = 1
    dense_mass: bool | None = None
    target_accept_prob: float = 0.8
    max_tree_depth: int = 10
    statistics: bool | None = None
    collapse: tuple[str, ...] = ()
    noncentered: bool | None = None

    moves_coordinates = True

    def __post_init__(self) -> None:
        require_positive(self, "num_samples", "num_chains", "thinning", "max_tree_depth")
        require_names(self, "collapse")
        require_count(self, "num_warmup")
        require_flags(self, "dense_mass", "statistics", "noncentered")
        if not 0 < self.target_accept_prob < 1:
            raise ValueError(f"target_accept_prob must be between 0 and 1, but is {self.target_accept_prob}")

    def plan(self, analysis: Analysis) -> Sampler:
        marginal_bound = without_discrete_sites(analysis, self)
        num_evaluations = (
            CHAINS_TO_PLAN_FOR * (self.num_warmup + self.num_samples * self.thinning) * GRADIENTS_PER_NUTS_DRAW
        )
        summary = row_or_precision_replacement(marginal_bound, analysis, num_evaluations, self.statistics)
        structure = summary.structure(marginal_bound)
        if self.dense_mass is None and self.num_warmup and is_preconditioning_worthwhile(marginal_bound):
            from bayeslab.methods.moves.preconditioned import PreconditionedSampler  # loads BlackJAX

            settings = (self.num_warmup, self.target_accept_prob, self.max_tree_depth)
            return summary.around(PreconditionedSampler(structure, *settings))
        dense = (
            is_dense_mass_worthwhile(marginal_bound, marginal_bound.latent)
            if self.dense_mass is None
            else self.dense_mass
        )
        kernel = NUTSKernel(dense, self.target_accept_prob, self.max_tree_depth)
        # tables hold priors in the coordinates of the program, and components of a mixture have no common scale to find
        scaled = () if self.noncentered is False or summary.groups else noncentered_sites(marginal_bound)
        as_written = self.noncentered is None and not component_sites(analysis.bound.plain).isdisjoint(scaled)
        sites = () if as_written else scaled
        sampler: Sampler = (
            NoncenteredSampler(kernel, sites, structure, self.num_warmup)
            if sites
            else _exchanging_labels(KernelSampler(kernel, structure, self.num_warmup), marginal_bound, analysis.bound)
        )
        return collapsed_sampler(summary.around(sampler), marginal_bound, analysis.bound)


def _exchanging_labels(sampler: "KernelSampler", marginal_bound: Bound, bound: Bound) -> Sampler:
    """The sampler, with exchanges of labels between draws where modes differ by the order of components and a prior
    prefers one.

    marginal_bound: the program that is sampled, without the discrete sites of `bound`.
    """
    if marginal_bound is bound or bound.moving:
        return sampler
    without = set(bound.latent) - set(marginal_bound.latent)
    exchanges = tuple(exchange.without(without) for exchange in nearly_exchangeable_labels(bound.plain))
    exchanges = tuple(exchange for exchange in exchanges if exchange.moves or exchange.swaps)
    return LabelExchangeSampler(sampler, exchanges) if exchanges else sampler


def is_preconditioning_worthwhile(bound: Bound) -> bool:
    """Whether coordinates that have the curvature at the mode as unit are worth their cost: the log posterior is
    concave, and a gradient costs no less than the change of coordinates."""
    if bound.transform is not None or bound.moving or not has_fixed_priors(bound):
        return False
    size = num_coordinates(bound)
    if size > MAX_DENSE_MASS_DIMENSIONS and (size > MAX_PRECONDITIONED_DIMENSIONS or _flops(bound) < size**2):
        return False
    return is_concave(bound)


def _flops(bound: Bound) -> float:
    """Operations on numbers that the log posterior takes."""
    lowered = jax.jit(flat_log_posterior).lower(bound, jnp.zeros(num_coordinates(bound)))
    return float((lowered.cost_analysis() or {}).get("flops", 0.0))


def is_dense_mass_worthwhile(bound: Bound, names: Iterable[str]) -> bool:
    """Whether a dense mass matrix over some sites is worth its cost."""
    sites = [bound.sites[name] for name in names]
    has_walk = any(site.family == "GaussianRandomWalk" for site in sites)
    limit = MAX_DENSE_MASS_DIMENSIONS_OF_WALKS if has_walk else MAX_DENSE_MASS_DIMENSIONS
    return sum(prod(site.shape) for site in sites) <= limit


@dataclass(frozen=True)
class NUTSKernel:
    """A function that builds NUTS for a NumPyro model.

    It is a record, as bound methods and lambdas are equal only to themselves, and would be compiled again.

    moving: whether supports of its sites may depend on others of them.
    """

    dense_mass: bool
    target_accept_prob: float
    max_tree_depth: int
    moving: bool = False

    def __call__(self, model: Callable[..., Any]) -> MCMCKernel:
        return (ReplayedNUTS if self.moving else numpyro.infer.NUTS)(
            model,
            kinetic_fn=_guarded_kinetic_energy,
            dense_mass=self.dense_mass,
            target_accept_prob=self.target_accept_prob,
            max_tree_depth=self.max_tree_depth,
            init_strategy=numpyro.infer.init_to_uniform(radius=1.0),
        )

    def stats(self, state: Any) -> dict[str, Array]:
        """What the kernel says of a draw, and whether its trajectory was as long as it may be."""
        stats = kernel_stats(state)
        return stats | {"reached_max_tree_depth": stats["n_steps"] >= 2**self.max_tree_depth - 1}


def nuts_block_kernel(bound: Bound, names: Iterable[str]) -> NUTSKernel:
    """The NUTS kernel for a block of sites of a program whose other sites something else draws."""
    names = set(names)
    return NUTSKernel(is_dense_mass_worthwhile(bound, names), 0.8, 10, moving=not names.isdisjoint(bound.moving))


class ReplayedNUTS(numpyro.infer.NUTS):
    """NUTS that runs the program to turn positions into values: as a block of Gibbs sampling, that of NumPyro keeps the
    coordinates of its start."""

    def get_constrain_fn(
        self, model_args: Any = (), model_kwargs: Any = None, *, return_deterministic: bool = False
    ) -> Callable[[Values], Values]:
        model = seed(self._model, jax.random.PRNGKey(0))  # sites of other blocks, where they are not conditioned on
        return lambda z: constrain_fn(model, model_args, model_kwargs or {}, z, return_deterministic)


def _guarded_kinetic_energy(mass: Array, momentum: Array) -> Array:
    """The kinetic energy, infinite where it overflows.

    Where a trajectory explodes, a dense mass matrix can overflow to minus infinity, which would be accepted.
    """
    energy = euclidean_kinetic_energy(mass, momentum)
    return jnp.where(energy >= 0, energy, jnp.inf)


@dataclass(frozen=True)
class KernelSampler(Sampler):
    """A NumPyro kernel as a sampler.

    build: makes a kernel for a model; hashable, and equal for equal kernels.
    structure: of the Bound, for which the sampler is compiled.
    """

    build: Callable[[Callable[..., Any]], MCMCKernel]
    structure: Any
    num_warmup: int

    warmup_draws = True

    def start(self, key: Array, bound: Any) -> State:
        position = None
        if isinstance(self.build, NUTSKernel) and not bound.moving:
            key, position_key = jax.random.split(key)
            shapes = dict(unconstrained_shapes(bound))
            position = likely_position(position_key, shapes, partial(log_posterior, bound))
        return self.build(evaluate).init(key, self.num_warmup, position, (bound,), {})

    def advance(self, state: State, bound: Any) -> tuple[State, Draws]:
        kernel = self._initialised_kernel(bound)
        state = kernel.sample(state, (bound,), {})
        position, stats = getattr(state, kernel.sample_field), kernel_stats(state)
        if isinstance(self.build, NUTSKernel):
            stats = self.build.stats(state)
        if bound.moving:  # kernels keep the coordinates of their start, unless they see that a bound is not a number
            return state, Draws(constrain(bound, position), stats)
        return state, Draws(kernel.postprocess_fn((bound,), {})(position), stats)

    def _initialised_kernel(self, bound: Any) -> MCMCKernel:
        """A kernel that has seen an `init` on this Bound: some keep its arrays, not only its structure, in closures.

        The state of that `init` is never used, so it costs nothing in compiled code.
        """
        kernel = self.build(evaluate)
        kernel.init(jax.random.PRNGKey(0), self.num_warmup, None, (bound,), {})
        return kernel


def kernel_stats(state: Any) -> dict[str, Array]:
    """What a kernel says of a draw, by the names that ArviZ knows; `lp` is a density in the unconstrained space."""
    stats = {new: getattr(state, old) for old, new in _ARVIZ_NAMES.items() if hasattr(state, old)}
    if "potential_energy" in stats:
        stats["lp"] = -stats.pop("potential_energy")
    if "n_steps" in stats:
        stats["tree_depth"] = jnp.floor(jnp.log2(jnp.maximum(stats["n_steps"], 1))).astype(int) + 1
    if hasattr(getattr(state, "adapt_state", None), "step_size"):
        stats["step_size"] = state.adapt_state.step_size
    return stats


_ARVIZ_NAMES = {
    "diverging": "diverging",
    "accept_prob": "acceptance_rate",
    "num_steps": "n_steps",
    "energy": "energy",
    "potential_energy": "potential_energy",
}
"""Fields of the states of NumPyro's kernels, and the names that ArviZ has for them."""
