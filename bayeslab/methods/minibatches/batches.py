"""Batches of the plates that a program subsamples."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from numpyro.handlers import substitute, trace

from bayeslab.programs.program import Bound, abstract_bound, compilation_signature, init_inside_support
from bayeslab.verification.findings import Finding, find_conditionals

NUM_RANDOM_BATCHES = 2
"""Batches for which rules have to hold, beside that of the first elements, which may be in an order."""


class SubsampledPlate(NamedTuple):
    """A plate with `size` elements, of which the program draws `batch`."""

    plate: str
    size: int
    batch: int


def subsampled_plates(bound: Bound) -> tuple[SubsampledPlate, ...]:
    """The plates that the program subsamples."""
    return _traced_subsampled_plates(compilation_signature(bound.plain))


@lru_cache(maxsize=64)
def _traced_subsampled_plates(shapes: tuple) -> tuple[SubsampledPlate, ...]:
    """The plates that a program with this structure subsamples."""
    bound = abstract_bound(shapes)
    sizes_by_plate: dict[str, tuple[int, int]] = {}

    def run(bound: Bound) -> None:
        source = bound.source
        model = substitute(bound.unconditioned(jax.random.PRNGKey(0), source), substitute_fn=init_inside_support)
        trace(model).get_trace(**bound.inputs)
        sizes_by_plate.update(source.batch_sizes)

    with jax.enable_x64(shapes[0]):
        jax.eval_shape(run, bound)
    return tuple(SubsampledPlate(name, *sizes) for name, sizes in sizes_by_plate.items())


def batch_bound(bound: Bound, indices: Mapping[str, Array]) -> Bound:
    """The program with some elements of its subsampled plates, each of which counts once."""

    def chosen(name: str, value: Array) -> Array:
        site = bound.sites[name]
        for plate in site.plates:
            if plate.name in indices:
                value = jnp.take(value, indices[plate.name], len(site.shape) - site.event_dim + plate.dim)
        return value

    observed = {name: chosen(name, value) for name, value in bound.observed.items()}
    present = {name: chosen(name, value) for name, value in bound.present.items()}
    return replace(bound, observed=observed, present=present, batches=dict(indices))


def random_batch(key: Array, bound: Bound, plates: tuple[SubsampledPlate, ...]) -> Bound:
    """The program with a batch of each subsampled plate, drawn with replacement."""
    keys = jax.random.split(key, len(plates))
    chosen = (jax.random.randint(k, (p.batch,), 0, p.size) for k, p in zip(keys, plates, strict=True))
    return batch_bound(bound, {plate.plate: indices for plate, indices in zip(plates, chosen, strict=True)})


def findings_of_batches(bound: Bound, plates: tuple[SubsampledPlate, ...]) -> tuple[Bound, list[Finding]]:
    """The batch of the first elements, and for every latent site the rule that eliminates it in any batch, or why there
    is none."""
    first = batch_bound(bound, {plate.plate: jnp.arange(plate.batch) for plate in plates})
    others = [random_batch(jax.random.PRNGKey(number), bound, plates) for number in range(NUM_RANDOM_BATCHES)]
    by_batch = [find_conditionals(batch) for batch in (first, *others)]
    return first, [_of_all_batches(findings) for findings in zip(*by_batch, strict=True)]


def _of_all_batches(findings: Sequence[Finding]) -> Finding:
    """What is found for a site in some batches as one finding, for others as well.

    Axes are joint that are in one of them. No precisions are taken to be alike: those of classes with as many rows
    in a batch, or of elements with the same noise in it, are others in the next one.
    """
    rules = [finding.rule for finding in findings if finding.rule is not None]
    if len(rules) < len(findings):
        return next(finding for finding in findings if finding.rule is None)
    coupled = tuple(sorted({axis for rule in rules for axis in rule.coupled}))
    return findings[0]._replace(rule=rules[0]._replace(coupled=coupled, same_precision=False))


def multiplicity(plates: tuple[SubsampledPlate, ...], names: Iterable[str]) -> float:
    """The number of elements of all rows that each element of a site in a batch stands for.

    names: the plates that the site is in.
    """
    sizes = {plate.plate: plate.size / plate.batch for plate in plates}
    return prod(sizes.get(name, 1.0) for name in names)
