"""fit(): bind the data, plan, drive the sampler, return a DataTree."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh
from numpy.typing import ArrayLike

from bayeslab.diagnostics.impossible_data import (
    forgotten_arguments,
    is_prior_alone,
    refuse_impossible,
    refuse_nothing_observed,
)
from bayeslab.diagnostics.pareto_tail import largest_size, pareto_tail
from bayeslab.diagnostics.prior_conflict import describe_prior_conflict
from bayeslab.diagnostics.separation import describe_separation
from bayeslab.distributions.processor import on_cpu
from bayeslab.planning import plan
from bayeslab.programs.binding import bind
from bayeslab.programs.data import Entry, read_entries
from bayeslab.programs.program import (
    Bound,
    Data,
    Program,
    precision_scope,
    raw_key,
)
from bayeslab.programs.tracing.derivatives import missing_derivatives_explained
from bayeslab.results.datatree import constant_data, observed_data, package_versions, to_datatree
from bayeslab.results.joining import with_chain_numbers
from bayeslab.results.program_digest import program_digest, program_name
from bayeslab.results.settings_digest import settings_digest
from bayeslab.sampling.checkpoints import draw_with_checkpoints, read_checkpoint
from bayeslab.sampling.continuation import (
    append_result,
    require_chain_number,
    restored_state,
    settings_text,
    state_arrays,
)
from bayeslab.sampling.initial_values import checked_start
from bayeslab.sampling.meshes import checked_mesh, placement_on
from bayeslab.sampling.placement import Placement
from bayeslab.sampling.progress import ProgressReport, progress_bar, whole_fit_report
from bayeslab.sampling.protocols import Method, Sampler, State, require_method
from bayeslab.sampling.runner import ChainStarts, Run, drive
from bayeslab.transforms.analysis import Analysis
from bayeslab.transforms.augment import Augmented
from bayeslab.transforms.draw_checks import check_draws, require_identity
from bayeslab.transforms.improper_scales import refuse_improper_scale
from bayeslab.verification.propriety import refuse_improper, refuse_separated

if TYPE_CHECKING:
    from xarray import DataTree

MAX_NUMBERS_DRAWN_ON_CPU, MAX_NUMBERS_CHECKED_ON_CPU = 10_000, 10_000_000
"""Largest number of elements of data whose posterior in closed form is drawn from on a CPU, and of those with which a
program is planned, and draws of any method are checked, on a CPU: each takes a few short evaluations, most of them one
after another."""


def fit(
    key: Array | int,
    model: Program,
    data: Data,
    method: Method | None = None,
    *,
    previous: "DataTree | None" = None,
    start: Mapping[str, ArrayLike] | None = None,
    checkpoint: str | PathLike[str] | None = None,
    first_chain: int = 0,
    progress: bool = True,
    dtype: Any = jnp.float64,
    mesh: Mesh | None = None,
) -> "DataTree":
    """Draw from p(latent | observed) with `method`.

    method: by default the one that `explain` names: Exact where all sites can be eliminated; NUTS with jointly Normal
    sites integrated out where their scales are unknown; Gibbs where every site has a conditional in closed form or one
    is discrete; else NUTS.

    data: arguments of `model` by name and values of observed sites by site name; NaN in those is a missing entry.
    previous: a result of the same model, data and method, also from a file, to go on from: the result has its
    draws and `method.num_samples` more, the same ones that an uninterrupted run makes. Optimisers go on with their
    optimisation and draw anew.
    start: values of sites that all chains begin with, in place of a start of the method's own; for methods that keep
    origins as counts (`bayeslab.mixed_membership.methods`), of weights and components.
    checkpoint: a netCDF file that gets the draws about every minute. The same call after the process was killed goes
    on from it and ends with the draws of an uninterrupted run; once it is complete the call returns what it holds.
    first_chain: number of the first chain, for jobs with chains of their own: chain 3 of a key is the same chain in
    any of them, and in one fit of all chains. `join` puts their results together.
    progress: show a progress bar.
    dtype: compute in jnp.float64 or jnp.float32, whatever JAX is set to.
    mesh: devices, such as jax.make_mesh((2, 2), ("chain", "row")). An axis is named "chain", which spreads chains, or
    starts of an optimiser, or as a plate, whose elements it spreads. Draws are those of one device up to rounding. With
    several processes each makes the same call on the same data and gets the same result; the first shows progress and
    writes the checkpoint.
    Returns a DataTree with groups posterior, sample_stats, observed_data, constant_data, sampler_state and, for
    optimisers, history; settings, seconds and versions are in its attrs.
    Interrupted from the keyboard it returns the draws that all chains have, and `attrs["interrupted"]` is 1.
    Raises ValueError or TypeError, with one sentence, for bad data and where the method does not apply.
    """
    if previous is not None and (start is not None or checkpoint is not None):
        other = "start" if start is not None else "checkpoint"
        raise ValueError(f"previous goes on from where it stopped; give that or {other}, not both")
    if method is not None:
        require_method(method)
    mesh = None if mesh is None else checked_mesh(mesh)
    with precision_scope(dtype):
        bound = bind(model if method is None else method.program_of(model), data)
        entries = read_entries(data)
        if method is None:
            refuse_nothing_observed(bound)
        random = raw_key(key)
        is_small = mesh is None and _num_elements(bound) <= MAX_NUMBERS_DRAWN_ON_CPU
        with on_cpu(_is_checked_on_cpu(bound, mesh)), missing_derivatives_explained(bound):
            refuse_improper(bound, entries)
            analysis = Analysis(bound)
            refuse_improper_scale(analysis)
            method, sampler, _ = plan(analysis, method, mesh)
            if not method.finds_maximum:  # and says itself that there is none
                refuse_separated(_without_auxiliaries(bound, data))
    with precision_scope(dtype), on_cpu(is_small and sampler.independent):
        placement = placement_on(mesh, method, sampler, bound)
        processes = placement.processes
        if processes.several:
            processes.require_same(_fit_texts(model, method, random, bound))
        if previous is not None and not sampler.continues:
            name = type(method).__name__
            raise ValueError(
                f"{name} draws a whole population at once, which no draws follow; fit with more num_samples"
            )
        values = None if start is None else checked_start(method, sampler, bound, start)
        require_chain_number(first_chain, method, previous)
        portion = _PortionOfDraws(model, random, method, sampler, bound, entries, values, placement, first_chain)
        shown = progress and processes.is_first
        with processes.watched(), progress_bar(type(method).__name__, shown) as report:
            if checkpoint is None:
                return portion(method.num_samples, previous, report)
            path, previous_result = Path(checkpoint), portion.there(Path(checkpoint))
            at_once = not sampler.warmup_draws

            def make_part(number: int, tree: "DataTree | None") -> "DataTree":
                return portion(
                    number, tree, None if report is None or at_once else whole_fit_report(report, method, number, tree)
                )

            return draw_with_checkpoints(path, method, previous_result, at_once, make_part, processes)


def _without_auxiliaries(bound: Bound, data: Data) -> Bound:
    """The program that was augmented: given auxiliary variables, densities of separated classes fall on both sides.

    Where the data may hold auxiliary variables, of which the program knows nothing, it is the one that was given.
    """
    if not isinstance(bound.function, Augmented) or any(name.rpartition("_")[0] in bound.sites for name in data):
        return bound
    return bind(bound.function.model, data)


def _num_elements(bound: Bound) -> int:
    """The number of elements of the data."""
    return sum(leaf.size for leaf in jax.tree.leaves(bound))


def _is_checked_on_cpu(bound: Bound, mesh: Mesh | None) -> bool:
    """Whether a program is planned, and its draws are checked, on a CPU beside an accelerator."""
    return mesh is None and _num_elements(bound) <= MAX_NUMBERS_CHECKED_ON_CPU


class _PortionOfDraws(NamedTuple):
    """Makes results of some more draws after an earlier result. values: those that chains start with. placement: of
    data and chains on devices. first_chain: its number."""

    model: Program
    key: Array
    method: Method
    sampler: Sampler
    bound: Bound
    entries: dict[str, Entry]
    values: dict[str, np.ndarray] | None
    placement: Placement
    first_chain: int

    @property
    def chains(self) -> range:
        """The numbers of the chains."""
        return range(self.first_chain, self.first_chain + self.method.num_chains)

    def there(self, path: Path) -> "DataTree | None":
        """The result that a file holds, None if it is not of this fit."""
        tree = read_checkpoint(path, program_name(self.model), _key_text(self.key), self.chains)
        if tree is not None:
            restored_state(tree, self.method, self.sampler, self.bound)
        return tree

    def __call__(self, number: int, previous: "DataTree | None", report: ProgressReport | None) -> "DataTree":
        """The result with so many draws more than the previous one."""
        method, sampler, bound = self.method, self.sampler, self.bound
        if number != method.num_samples:
            method = replace(method, num_samples=number)  # type: ignore[type-var]
        state = None if previous is None else restored_state(previous, method, sampler, bound)
        starts = ChainStarts(self.key, state, self.values, self.first_chain)
        with missing_derivatives_explained(bound):
            run = drive(starts, method, sampler, bound, self.placement, report)

        def drive_on(state: State) -> Run:
            return drive(starts._replace(previous=state, values=None), method, sampler, bound, self.placement)

        run, verdict = _judge_optimum(drive_on, sampler, run)
        with on_cpu(_is_checked_on_cpu(bound, self.placement.mesh)):
            refuse_impossible(run, bound)
            _check_draws(sampler, bound, run)
        groups: dict[str, Mapping[str, Array | np.ndarray]] = {
            "posterior": run.draws.samples,
            "sample_stats": run.draws.stats,
            "history": run.history,
            "observed_data": observed_data(bound),
            "constant_data": constant_data(bound),
            "sampler_state": state_arrays(run.state),
            "weighted_posterior": sampler.weighted_draws(run.state, run.data),
        }
        moments = sampler.moments(run.state, bound)
        groups["posterior_mean"] = {name: mean for name, (mean, _) in moments.items()}
        groups["posterior_sd"] = {name: sd for name, (_, sd) in moments.items()}
        tree = to_datatree(groups, bound, self.entries)
        tree.attrs = _attributes(self.model, method, self.key, run) | verdict
        tree.attrs |= {name: float(value) for name, value in sampler.run_summary(run.state, run.data).items()}
        if number > 1 and (
            conflict_text := describe_prior_conflict(bound, run.draws.samples)
        ):  # a point estimate may be at an end
            tree.attrs["prior_conflict"] = conflict_text
        if np.any(run.draws.stats.get("diverging", False)) and (
            separation_text := describe_separation(bound, run.draws.samples)
        ):
            tree.attrs["separation"] = separation_text
        if is_prior_alone(bound) and (forgotten := forgotten_arguments(bound)):
            tree.attrs["nothing_observed"] = forgotten
        if bound.limits:
            tree.attrs["summed_up_to"] = ", ".join(f"{name}: {limit}" for name, limit in bound.limits)
        if previous is not None:
            return append_result(previous, tree, sampler)
        return with_chain_numbers(tree, self.chains)


def _judge_optimum(drive_on: Callable[[State], Run], sampler: Sampler, run: Run) -> tuple[Run, dict[str, Any]]:
    """The run, and whether an optimisation ended at a maximum, where the sampler can tell.

    drive_on: goes on from a state: draws are made again where the maximum is a little beside the end.
    Raises ValueError where the sampler refuses.
    """
    state = jax.tree.map(lambda leaf: leaf[0], run.state)
    if run.interrupted or not run.history:
        return run, {}
    samples = {name: values[0] for name, values in run.draws.samples.items()}
    if (ending := sampler.convergence_verdict(state, run.data, samples)) is None:
        return run, {}
    optimum, why = ending
    if optimum is not None:
        new_run = drive_on(jax.tree.map(lambda leaf: np.asarray(leaf)[None], optimum))
        run = run._replace(draws=new_run.draws, state=new_run.state)
    return run, {"converged": int(not why)} | ({"why_not_converged": why} if why else {})


def _check_draws(sampler: Sampler, bound: Bound, run: Run) -> None:
    """Raises FalseConditional where a conditional that the draws rest on does not hold at them."""
    if "excess" in run.draws.stats:
        require_identity(run.draws.stats.pop("excess"))
    sampler.check_draws(bound, run.draws)
    check_draws(*sampler.form_of_conditionals(bound, run.draws.samples), sampler.conditionals, run.data)


def _attributes(model: Program, method: Method, key: Array, run: Run) -> dict[str, Any]:
    """Settings, clock and summary of a run, as text and numbers that files can hold."""
    attributes: dict[str, Any] = {
        "model": program_name(model),
        "model_sha256": program_digest(model),
        "method": type(method).__name__,
        "settings": settings_text(method),
        "key": _key_text(key),
        "compile_seconds": run.compile_seconds,
        "sampling_seconds": run.sampling_seconds,
        "interrupted": int(run.interrupted),
    }
    stats = run.draws.stats
    if "n_steps" in stats:
        attributes["num_gradients"] = int(stats["n_steps"].sum()) * method.thinning
    if "log_evidence" in stats:
        attributes["log_evidence"] = float(stats["log_evidence"].mean())
    elif "log_q" in stats:
        attributes |= _approximation_quality(np.asarray(stats["lp"]), np.asarray(stats["log_q"]))
    if "evidence_bound" in stats:
        error = float(np.mean(stats.get("evidence_bound_se", 0.0)))
        attributes |= {"elbo": float(stats["evidence_bound"].mean()), "elbo_se": error}
    if "converged" in run.history:
        attributes |= _convergence_attributes(run.history)
    return attributes | package_versions()


def _fit_texts(model: Program, method: Method, key: Array, bound: Bound) -> dict[str, str]:
    """What a fit depends on, as texts by what they are about."""
    bytes_of = (np.ascontiguousarray(leaf).view(np.uint8) for leaf in jax.tree.leaves(bound))  # without a copy
    digests = [sha256(each).hexdigest() for each in bytes_of]
    return {
        "versions of packages": str(package_versions()),
        "programs": f"{program_name(model)} {program_digest(model)}",
        "methods": f"{settings_text(method)} {method.num_samples}",
        "keys": _key_text(key),
        "data": f"{settings_digest(bound)} {digests}",
    }


def _key_text(key: Array) -> str:
    """The words of a random key as text."""
    return " ".join(str(int(word)) for word in np.asarray(key))


def _convergence_attributes(history: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Whether every optimisation has converged; of many starts, which was the best, and whether that one has."""
    converged = np.nanmax(history["converged"], axis=1)
    if converged.ndim == 1:
        return {"converged": int(np.all(converged))}
    [values] = [history[name][0] for name in ("elbo", "log_joint") if name in history]
    best = int(np.argmax(np.nanmax(np.where(np.isfinite(values), values, -np.inf), axis=0)))
    return {"best_start": best, "converged": int(converged[0, best])}


def _approximation_quality(log_p: np.ndarray, log_q: np.ndarray) -> dict[str, float]:
    """Evidence lower bound of an approximation, its standard error, and k-hat of its importance ratios."""
    ratios = (log_p - log_q).reshape(-1)
    has_error = ratios.size > 1 and np.isfinite(ratios).all()
    error = float(ratios.std(ddof=1) / np.sqrt(ratios.size)) if has_error else np.nan
    return {"elbo": float(ratios.mean()), "elbo_se": error, "k_hat": pareto_tail(ratios, largest_size(log_p))[0]}
