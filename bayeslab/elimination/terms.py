"""The log joint of a program as a sum of terms, one a site, sliced from a single trace.

Planning looks at every latent site with its children. Tracing the program for each of them would cost time that grows
with the square of the number of sites; here it is traced once, and a term is the part of the trace that leads to it.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jax.interpreters.partial_eval import dce_jaxpr
from numpyro.distributions import Distribution, ExpandedDistribution, Independent, MaskedDistribution
from numpyro.handlers import block, seed, substitute, trace
from numpyro.ops.provenance import track_deps_jaxpr

from bayeslab.distributions.markov.log_likelihoods import FactoredLogLikelihood, LogLikelihood, Rows
from bayeslab.programs.program import Bound, Plate, Values, abstract_bound, compilation_signature
from bayeslab.programs.site_density import site_log_density
from bayeslab.programs.tracing.analyticity import EquationPath, Kink
from bayeslab.programs.tracing.analyticity import trace_dependencies as reached_by
from bayeslab.programs.tracing.branches import branch_indicators
from bayeslab.programs.tracing.compilation import prune_trace
from bayeslab.programs.tracing.loops.loop_distribution import distribute_loops
from bayeslab.programs.wrapped_distributions import innermost_distribution

TraceSlice = Callable[..., list[Array]]
"""Some outputs of a traced program, as a function of (bound, values)."""


class EnumeratedTerm(NamedTuple):
    """A term at every choice of a discrete site that it is elementwise in, for less than one choice after the other.

    statistics: (bound, values) -> (choice, ..., *batch), shared by many elements; `batch_ndim` axes are the batch.
    broadcast: (bound, values, statistics) -> the density at every choice, of the shape of the site and the choices. It
    is linear in the statistics, so what is averaged over other sites is the statistics.
    row_layout: values -> the rows that multiply statistics (choice, column), where a chain takes them laid out.
    """

    site: str
    statistics: Callable[[Bound, Values], Array]
    broadcast: Callable[[Bound, Values, Array], Array]
    batch_ndim: int
    row_layout: Callable[[Values], Rows | None] = lambda values: None

    def density(self, bound: Bound, values: Values) -> Array:
        """The term at every choice, (*site, K)."""
        return self.broadcast(bound, values, self.statistics(bound, values))

    def log_likelihoods(self, bound: Bound, values: Values) -> LogLikelihood:
        """The term at every choice, kept as a product of two matrices where the rows are laid out."""
        rows = self.row_layout(values)
        return (
            self.density(bound, values) if rows is None else FactoredLogLikelihood(rows, self.statistics(bound, values))
        )

    def mean(self, bound: Bound, values: Values, moments: Any) -> Array:
        """The expectation of the term over the site, (*batch): probabilities of all elements are added up first.

        moments: the probabilities of choices (*site, K), or of a site that is a path, its distribution.
        """
        statistics = self.statistics(bound, values)
        weights = None if isinstance(moments, Array) or self.row_layout(values) is None else moments.expected_rows()
        if weights is None:
            probs = moments if isinstance(moments, Array) else moments.marginals()
            [weights] = jax.linear_transpose(partial(self.broadcast, bound, values), statistics)(probs)
        weights = weights.sum(tuple(range(weights.ndim - statistics.ndim)))
        weighted = jnp.where(weights == 0, 0.0, weights * statistics)
        return weighted.sum(tuple(range(weighted.ndim - self.batch_ndim)))


class Term(NamedTuple):
    """A part of the log joint.

    name: of the site whose density it is, or what it is the evidence of.
    depends: the latent sites that reach it.
    density: (bound, values) -> log density, an array whose sum is the term: the batch of the site, then the parts of
    its events that are independent.
    batch_ndim: how many axes are the batch; None for all.
    cost: numbers that its computation reads and writes, roughly.
    reader: (site, bound, values) -> the conditional of a site under this term alone and a value of it, for terms that
    know it without differentiation.
    holds: sites whose densities are in it, where it is more than that of the site it is named after.
    kinks: operations that lead to it and are not analytic in latent sites, see `Terms.kinks`.
    """

    name: str
    depends: frozenset[str]
    density: Callable[[Bound, Values], Array]
    batch_ndim: int | None
    cost: int = 0
    reader: Callable[[str, Bound, Values], tuple[Distribution, Array]] | None = None
    holds: frozenset[str] = frozenset()
    choices: EnumeratedTerm | None = None
    kinks: frozenset[EquationPath] = frozenset()


class Prior(NamedTuple):
    """A latent site as the program draws it.

    kind: the type of its distribution, without what plates and masks add.
    depends: the latent sites that reach its parameters.
    distribution: (bound, values) -> the NumPyro distribution.
    choices: the values of a site with finitely many, (K,); None where there are more, or they are not known in advance.
    num_labels: how many values its elements have, where these are 0, 1, ...; those of a path are not independent.
    support: of its elements, in words.
    scale_depends: the latent sites that reach its scale, if it has one; none where the site is masked or weighted.
    """

    name: str
    shape: tuple[int, ...]
    event_dim: int
    plates: tuple[Plate, ...]
    kind: type[Distribution]
    depends: frozenset[str]
    distribution: Callable[[Bound, Values], Distribution]
    choices: np.ndarray | None
    discrete: bool
    num_labels: int | None = None
    support: str = ""
    scale_depends: frozenset[str] = frozenset()


class Terms(NamedTuple):
    """The log joint of a program, taken apart.

    priors: of the latent sites in program order. terms: of all sites, observed ones and factors included.
    computed: for every deterministic site the latent sites that reach it.
    kinks: the operations of the program that are not analytic in a continuous latent site that reaches them.
    branches: (some of these, bound, values) -> which branch each takes, arrays.
    """

    priors: dict[str, Prior]
    terms: tuple[Term, ...]
    computed: dict[str, frozenset[str]]
    kinks: dict[EquationPath, Kink]
    branches: Callable[[Sequence[Kink], Bound, Values], list[Array]]


def terms(bound: Bound) -> Terms:
    """The terms of a program, with everything that depends on its structure alone."""
    return terms_of(compilation_signature(bound))


@lru_cache(maxsize=64)
def terms_of(shapes: tuple) -> Terms:
    """The terms of a program of one structure."""
    bound = abstract_bound(shapes)
    latent = bound.latent_shapes
    records: dict[str, dict[str, Any]] = {}
    batch: dict[str, int] = {}

    def run(bound: Bound, latent: Values) -> tuple[dict[str, Array], dict[str, list[Any]], dict[str, Any]]:
        model = substitute(seed(bound.program, jax.random.PRNGKey(0)), data=latent)
        sites = trace(model).get_trace()
        densities, parameters = {}, {}
        computed = {name: site["value"] for name, site in sites.items() if site["type"] == "deterministic"}
        for name, site in sites.items():
            if site["type"] != "sample":
                continue
            densities[name] = site_log_density(site)
            batch[name] = len(site["fn"].batch_shape)
            if name in latent:
                leaves, tree = jax.tree.flatten(site["fn"])
                parameters[name] = leaves
                limit = dict(bound.limits).get(name)
                choices = _enumerate_support(site["fn"]) if limit is None else np.arange(limit + 1)
                shared = choices is not None and site["scale"] is None and _is_repeated(site["fn"])
                records[name] = {
                    "tree": tree,
                    "fn": innermost_distribution(site["fn"]),
                    "choices": choices,
                    "shared": shared,
                }
                records[name]["scale"] = _scale_leaves(site, leaves)
                records[name]["labels"] = _num_labels(innermost_distribution(site["fn"]), choices)
        return densities, parameters, computed

    with jax.enable_x64(shapes[0]), block():
        traced, shape = jax.make_jaxpr(run, return_shape=True)(bound, latent)
    outputs = jax.tree.unflatten(jax.tree.structure(shape), range(len(traced.out_avals)))
    unreached = [frozenset[str]()] * len(jax.tree.leaves(bound))
    at_once = distribute_loops(traced)
    reached = track_deps_jaxpr(traced.jaxpr, [*unreached, *(frozenset({name}) for name in sorted(latent))])
    reached = [names & _sites_of_output(traced, index, latent) for index, names in enumerate(reached)]
    continuous = [(name,) if jnp.issubdtype(latent[name].dtype, jnp.floating) else () for name in sorted(latent)]
    paths, kinks = reached_by(traced, [*(() for _ in unreached), *continuous])
    priors = {}
    for name in bound.latent:
        indices, site, record = outputs[1][name], bound.sites[name], records[name]
        depends = frozenset().union(*(reached[index] for index in indices))
        rebuild = _rebuild_distribution(_slice_trace(at_once, indices, latent)[0], record["tree"])
        description = (name, site.shape, site.event_dim, site.plates, type(record["fn"]), depends, rebuild)
        priors[name] = Prior(
            *description,
            record["choices"],
            site.is_discrete,
            record["labels"],
            site.support,
            frozenset().union(*(reached[indices[place]] for place in record["scale"])),
        )
    all_terms = []
    for name, index in outputs[0].items():
        slice_, cost = _slice_trace(at_once, [index], latent)
        shared = name in records and records[name]["shared"]
        choices = _enumerated_prior(priors[name], batch[name]) if shared else None
        arguments = (name, reached[index], _density(slice_, reached[index]), batch[name], cost)
        all_terms.append(Term(*arguments, choices=choices, kinks=paths[index].kinks))
    computed = {
        name: frozenset().union(*(reached[index] for index in jax.tree.leaves(indices)))
        for name, indices in outputs[2].items()
    }

    def branches_taken(selected: Sequence[Kink], bound: Bound, values: Values) -> list[Array]:
        latent_values = {n: jnp.asarray(values.get(n, jnp.zeros(s.shape)), s.dtype) for n, s in latent.items()}
        return branch_indicators(traced, selected, jax.tree.leaves((bound, latent_values)))

    return Terms(priors, tuple(all_terms), computed, kinks, branches_taken)


def sum_of_terms(log_joint_terms: Sequence[Term], bound: Bound, values: Values) -> Array:
    """The sum of some terms, scalar."""
    return sum((term.density(bound, values).sum() for term in log_joint_terms), jnp.zeros(()))


def _is_repeated(fn: Distribution) -> bool:
    """Whether a distribution is one of single elements repeated in plates, and nothing else."""
    if not isinstance(fn, ExpandedDistribution) or isinstance(fn.base_dist, MaskedDistribution | Independent):
        return False
    return fn.base_dist.event_dim == 0


def _scale_leaves(site: dict[str, Any], leaves: Sequence[Any]) -> list[int]:
    """The places of the scale among the leaves of a site's distribution; none where it is masked or weighted."""
    fn = site["fn"]
    while isinstance(fn, ExpandedDistribution | Independent):
        fn = fn.base_dist
    scale = getattr(fn, "scale_tril", getattr(fn, "scale", None))
    if site["scale"] is not None or isinstance(fn, MaskedDistribution) or scale is None:
        return []
    return [place for place, leaf in enumerate(leaves) if leaf is scale]


def _enumerated_prior(prior: Prior, batch_ndim: int) -> EnumeratedTerm:
    """The prior of an enumerated site at every choice, computed once for all elements that share it."""
    assert prior.choices is not None
    choices = prior.choices.reshape(-1, *(1,) * batch_ndim)

    def statistics(bound: Bound, values: Values) -> Array:
        element = prior.distribution(bound, values).base_dist
        log_probs = element.log_prob(choices.reshape(-1, *(1,) * len(element.batch_shape)))
        return log_probs.reshape(len(choices), *(1,) * (choices.ndim - log_probs.ndim), *log_probs.shape[1:])

    def broadcast(bound: Bound, values: Values, statistics: Array) -> Array:
        return jnp.broadcast_to(jnp.moveaxis(statistics, 0, -1), (*prior.shape, len(choices)))

    return EnumeratedTerm(prior.name, statistics, broadcast, batch_ndim)


def _sites_of_output(traced: ClosedJaxpr, output: int, latent: dict[str, jax.ShapeDtypeStruct]) -> frozenset[str]:
    """The latent sites that an output needs: a carry of a scan that only passes by is none."""
    part, _ = prune_trace(traced, [output])  # so that little code is looked at again
    used = dce_jaxpr(part.jaxpr, [True])[1][-len(latent) :] if latent else []
    return frozenset(name for name, needed in zip(sorted(latent), used, strict=True) if needed)


def _density(slice_: TraceSlice, needed: frozenset[str]) -> Callable[[Bound, Values], Array]:
    """The only output of a slice. needed: the sites that it depends on; raises KeyError where one has no value."""
    return lambda bound, values: slice_(bound, {name: values[name] for name in needed})[0]


def _rebuild_distribution(slice_: TraceSlice, tree: Any) -> Callable[[Bound, Values], Distribution]:
    """The distribution that the outputs of a slice are the leaves of, as a function of (bound, values)."""
    return lambda bound, values: jax.tree.unflatten(tree, slice_(bound, values))


def _slice_trace(
    traced: ClosedJaxpr, outputs: Sequence[int], latent: dict[str, jax.ShapeDtypeStruct]
) -> tuple[TraceSlice, int]:
    """Some outputs of a trace as a function of those inputs that they need, which alone need values; its cost."""
    part, needed = prune_trace(traced, outputs)
    run = jaxpr_as_fun(ClosedJaxpr(part.jaxpr.replace(invars=[part.jaxpr.invars[i] for i in needed]), part.consts))
    num_leaves = len(traced.in_avals) - len(latent)
    leaf_indices = [index for index in needed if index < num_leaves]
    sites = [sorted(latent.items())[index - num_leaves] for index in needed if index >= num_leaves]

    def sliced(bound: Bound, values: Values) -> list[Array]:
        leaves = jax.tree.leaves(bound) if leaf_indices else []
        chosen = [jnp.asarray(values.get(name, jnp.zeros(site.shape)), site.dtype) for name, site in sites]
        return run(*(leaves[index] for index in leaf_indices), *chosen)

    return sliced, sum(max(_num_elements(v) for v in (*e.invars, *e.outvars)) for e in part.jaxpr.eqns)


def _num_elements(variable: Any) -> int:
    return int(np.prod(getattr(variable.aval, "shape", ())))


def _num_labels(fn: Distribution, choices: np.ndarray | None) -> int | None:
    """How many values the elements of a site have, where these are 0, 1, ...; else None."""
    if choices is None:
        return getattr(fn, "num_states", None)
    return len(choices) if choices.tolist() == [*range(len(choices))] else None


def _enumerate_support(fn: Distribution) -> np.ndarray | None:
    """The values of a distribution, (K,), where they are finitely many and known without data; else None."""
    if not fn.support.is_discrete or not fn.has_enumerate_support:
        return None
    try:
        with jax.ensure_compile_time_eval():
            values = innermost_distribution(fn).enumerate_support(expand=False)
    except (NotImplementedError, jax.errors.TracerArrayConversionError, jax.errors.ConcretizationTypeError):
        return None
    return None if isinstance(values, jax.core.Tracer) else np.asarray(values).reshape(-1)
