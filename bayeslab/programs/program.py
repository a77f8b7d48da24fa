"""Programs: plain NumPyro functions, and what binding one to data yields."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import Unit, constraints
from numpyro.handlers import block, condition, seed, substitute, trace
from numpyro.infer.initialization import init_to_uniform
from numpyro.infer.util import log_density

from bayeslab.programs.arguments import Argument, StaticValue, rebuild_argument
from bayeslab.programs.handlers.listed_values import ListedValuesHandler
from bayeslab.programs.handlers.sites import LEARNED_FROM, Shape, SiteHandler, Unconditioned
from bayeslab.programs.handlers.subsampling import SubsamplingHandler, UnscaledJacobians, Unweighted
from bayeslab.programs.missing.imputation import ImputationHandler
from bayeslab.programs.missing.missing_data import ObservationHandler, element_mask
from bayeslab.programs.missing.names import given_part, whole_site
from bayeslab.programs.tracing.closed_over_arrays import read_arrays_anew
from bayeslab.programs.wrapped_distributions import describe_constraint, innermost_distribution

Program = Callable[..., Any]
Data = Mapping[str, Any]
Values = dict[str, Array]


class Transform(Protocol):
    """Another way to run a program, with the same joint density of the sites that are left. A JAX pytree.

    statistics: what replaces rows, None where nothing does.
    """

    @property
    def statistics(self) -> Any: ...

    def with_statistics(self, statistics: Any) -> "Transform": ...

    def run(self, bound: "Bound") -> Any:
        """What the program returns. bound: the program and its data without a transform."""
        ...


@runtime_checkable
class DerivedProgram(Protocol):
    """A program that is made from another one, `model`."""

    @property
    def model(self) -> Program: ...

    def transformed(self, bound: "Bound") -> "Bound":
        """The Bound of this program. bound: the Bound of `model`, on the same data."""
        ...


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["arrays", "observed", "present", "transform", "batches", "gaps"],
    meta_fields=[
        "function",
        "settings",
        "guarded",
        "computed",
        "limits",
        "imputed",
        "unused",
        "captured",
        "listed",
        "unmasked",
        "unweighted",
    ],
)
@dataclass(frozen=True)
class Bound:
    """A program and its data, as a JAX pytree: arrays are leaves, the function and its settings are structure.

    So whatever is compiled as a function of a Bound is compiled once for a program, its settings
    and the shapes of its data, and can be mapped over data sets.

    function: the program as the lecture or the user wrote it.
    settings: its arguments, numeric arrays taken out.
    arrays: those arrays, hyperparameters included; the entries of a nested argument are named "argument.entry".
    observed: values of its observed sites. present: of those with missing entries only, which are present.
    guarded: observed sites whose support depends on latent sites, so that it must be checked at every point.
    computed: observed sites whose values the program computes from latent sites, so that their densities are factors.
    limits: latent counts without a bound, and the largest values that they are summed over to.
    transform: what runs the program for inference in place of the function, with sites integrated out for example.
    batches: which elements of its subsampled plates are drawn, instead of all; the data are those of the batch.
    imputed: latent sites of which some elements are given; these are values of an observed site, `given_part(name)`.
    gaps: for those of them whose latent part holds the missing elements only, their places in the flat site.
    unused: numpyro.params on which nothing depends, as those of a module whose weights have priors.
    captured: the global variables and the like that the function reads, as they were when it met its data.
    listed: latent sites that are computed from their place in the list of their values, and how many these are.
    unmasked: latent sites without the masks of the program, which hide elements that nothing else depends on.
    unweighted: whether every site counts once, whatever `handlers.scale` says, as it does where data are predicted.
    """

    function: Program
    settings: tuple[Argument, ...]
    arrays: Values
    observed: Values
    present: Values
    guarded: tuple[str, ...] = ()
    computed: tuple[str, ...] = ()
    limits: tuple[tuple[str, int], ...] = ()
    transform: "Transform | None" = None
    batches: Values = field(default_factory=dict)
    imputed: tuple[str, ...] = ()
    gaps: Values = field(default_factory=dict)
    unused: tuple[str, ...] = ()
    captured: tuple[tuple[str, StaticValue], ...] = ()
    listed: tuple[tuple[str, int], ...] = ()
    unmasked: tuple[str, ...] = ()
    unweighted: bool = False

    @property
    def source(self) -> SubsamplingHandler:
        """The function in handlers: sites have the shapes of what is observed, plates are drawn whole or in batches."""
        return self.source_with({name: np.shape(value) for name, value in self.observed.items()})

    def source_with(self, shapes: Mapping[str, Shape]) -> SubsamplingHandler:
        """The `source` for values of some shapes of observed sites."""
        shapes = {whole_site(n): s for n, s in shapes.items()} | dict(shapes)
        given = {name: self.present[given_part(name)] for name in self.imputed}
        sites = SiteHandler(self.function, shapes, self.unused, {*self.unmasked} - {*given})
        run = ListedValuesHandler(sites, dict(self.listed)) if self.listed else sites
        run = ImputationHandler(run, given, self.gaps, self.unmasked) if given else run
        return SubsamplingHandler(run, sites, self.batches)

    def unconditioned(self, key: Array, source: SubsamplingHandler | None = None) -> Unconditioned:
        """The `source` with observed sites drawn like all others, but for those that are computed."""
        return Unconditioned(seed(self.source if source is None else source, key), self.computed)

    @property
    def inputs(self) -> dict[str, Any]:
        """Every argument of the program, by name."""
        return {argument.name: rebuild_argument(argument, self.arrays) for argument in self.settings}

    def program(self) -> Any:
        """Run the program with its observed sites conditioned and its missing entries masked."""
        if self.transform is not None:
            return self.transform.run(self.plain)
        weights = Unweighted() if self.unweighted else UnscaledJacobians()
        with weights, ObservationHandler(self.present, self.guarded), condition(data=self.observed):
            return self.source(**self.inputs)

    @property
    def plain(self) -> "Bound":
        """The Bound without its transform: the program as it was written."""
        return replace(self, transform=None)

    @property
    def latent_shapes(self) -> dict[str, jax.ShapeDtypeStruct]:
        """The shape and the type of every latent site."""
        return {name: jax.ShapeDtypeStruct(self.sites[name].shape, self.sites[name].dtype) for name in self.latent}

    def prior_draw(self, key: Array, values: Values | None = None) -> dict[str, Any]:
        """The sample sites of one run, observed sites drawn like all others. values: of sites that are not drawn.

        Raises NotImplementedError where a site has no sampler, as improper priors have none.
        """
        run = trace(substitute(self.unconditioned(key), data=values or {})).get_trace(**self.inputs)
        return {name: site for name, site in run.items() if is_random(site)}

    def log_joint(self, latent: Values) -> Array:
        """log p(latent, observed), scalar, in the space the sites are written in."""
        return log_density(self.program, (), {}, latent)[0]

    @property
    def sites(self) -> "dict[str, Site]":
        """What tracing on shapes says of every site, by name in program order."""
        return _trace_sites(compilation_signature(self))

    @property
    def latent(self) -> tuple[str, ...]:
        """Names of the unobserved sample sites, in program order."""
        return tuple(name for name, site in self.sites.items() if site.role == "latent")

    @property
    def learned(self) -> tuple[str, ...]:
        """The latent sites that are a `numpyro.param`, of which a point is learned."""
        return tuple(name for name in self.latent if self.sites[name].learned)

    @property
    def moving(self) -> tuple[str, ...]:
        """The latent sites whose support may depend on other sites."""
        return tuple(name for name in self.latent if self.sites[name].moves)


class Plate(NamedTuple):
    """A plate of a site. dim: its batch dimension, counted from the right: -1 is the innermost."""

    name: str
    size: int
    dim: int


class Site(NamedTuple):
    """A site of a program, without its value.

    role: "latent", "observed", "deterministic" or "factor", which observed sites are whose values are computed.
    plates: from the outermost dimension inwards.
    event_dims: names of the event dimensions, where the program gives them.
    moves: whether its support has arrays in it, so that it, and unconstrained coordinates, may depend on other sites.
    learned: whether it is a `numpyro.param`. scanned: whether it is drawn in the body of a scan. weighted: whether
    `handlers.scale` weights it. masked: whether a mask may hide elements of it.
    """

    name: str
    role: str
    family: str
    shape: tuple[int, ...]
    dtype: Any
    event_dim: int
    plates: tuple[Plate, ...]
    event_dims: tuple[str, ...]
    support: str
    is_discrete: bool
    improper: bool
    moves: bool
    learned: bool = False
    scanned: bool = False
    weighted: bool = False
    masked: bool = False

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The shape without the axes of the event."""
        return self.shape[: len(self.shape) - self.event_dim]


def evaluate(bound: Bound) -> Any:
    """Run a program with its data: the one model of every kernel and guide, which never closes over data."""
    return bound.program()


@contextmanager
def precision_scope(dtype: Any = jnp.float64) -> Iterator[None]:
    """The scope in which a public verb, and every thread it starts, computes.

    Products of matrices in single precision have all of its digits: on a GPU they would have three by default.
    """
    if np.dtype(dtype) not in (np.float64, np.float32):
        raise ValueError(f"dtype must be float64 or float32, not {np.dtype(dtype)}")
    read_arrays_anew()
    with jax.enable_x64(np.dtype(dtype) == np.float64), jax.default_matmul_precision("highest"):
        yield


def compilation_signature(bound: Any) -> tuple:
    """What compiled code depends on: whether 64 bits are in use, the tree, and the shapes and types of its leaves."""
    leaves, tree = jax.tree.flatten(bound)
    shapes = tuple((np.shape(leaf), np.dtype(leaf.dtype)) for leaf in leaves)
    return jax.config.jax_enable_x64 or any(dtype.itemsize == 8 for _, dtype in shapes), tree, shapes


def abstract_bound(shapes: tuple) -> Any:
    """A Bound (or another pytree) whose leaves are shapes without values. shapes: its `compilation_signature`."""
    _, tree, leaves = shapes
    return jax.tree.unflatten(tree, [jax.ShapeDtypeStruct(*leaf) for leaf in leaves])


def raw_key(key: Array | int) -> Array:
    """A key as plain integers, so that the state of a sampler holds nothing but arrays.

    Raises TypeError for what is neither a key nor an integer.
    """
    if isinstance(key, int | np.integer) and not isinstance(key, bool):
        if not -(2**63) <= key < 2**63:
            raise ValueError(f"key must fit into 64 bits, but is {key}")
        return jax.random.key_data(jax.random.key(int(key)))
    if isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and key.shape == ():
        return jax.random.key_data(key)
    if isinstance(key, jax.Array) and key.dtype == jnp.uint32 and key.ndim == 1:
        return key
    raise TypeError(f"key must be an int or a JAX random key such as jax.random.key(0), not {key!r}")


def is_random(site: Mapping[str, Any]) -> bool:
    """Whether a traced site is a random variable, and not a factor."""
    return site["type"] == "sample" and not isinstance(innermost_distribution(site["fn"]), Unit)


def init_inside_support(site: Mapping[str, Any] | None = None, radius: Any = 1.0) -> Any:
    """Initialise a site inside its support, whatever its prior: vague priors draw zeros and infinities, improper
    ones draw nothing. Discrete sites and directions are drawn, those that have a value keep it."""
    if site is not None and site["type"] == "sample":
        is_direction = innermost_distribution(site["fn"]).support is constraints.sphere
        if is_direction or site["value"] is not None:
            return None
    return init_to_uniform(site, radius=radius)


@lru_cache(maxsize=256)
def _trace_sites(shapes: tuple) -> dict[str, Site]:
    all_sites: dict[str, Site] = {}

    def run(bound: Bound) -> dict[str, Any]:
        model = substitute(seed(bound.program, jax.random.PRNGKey(0)), substitute_fn=init_inside_support)
        values = {}
        for name, site in trace(model).get_trace().items():
            if site["type"] in ("sample", "deterministic"):
                values[name] = site["value"]
                all_sites[name] = _describe_site(site, name in bound.computed)
        return values

    with jax.enable_x64(shapes[0]), block():
        jax.eval_shape(run, abstract_bound(shapes))
    return all_sites


def _describe_site(site: dict[str, Any], computed: bool) -> Site:
    frames = sorted(site.get("cond_indep_stack", ()), key=lambda frame: frame.dim)
    plates = tuple(Plate(frame.name, frame.size, frame.dim) for frame in frames)
    fn = site.get("fn") if site["type"] == "sample" else None
    value = jnp.asarray(site["value"])
    if fn is None:
        role, family, event_dim, support, discrete, moves = "deterministic", "", 0, "", False, False
    else:
        is_unit = isinstance(innermost_distribution(fn), Unit)
        role = "factor" if computed or is_unit else "observed" if site["is_observed"] else "latent"
        kind = "Unit" if is_unit else type(innermost_distribution(fn)).__name__
        family = kind.removesuffix("Probs").removesuffix("Logits")
        event_dim, discrete, support = fn.event_dim, fn.support.is_discrete, describe_constraint(fn.support)
        moves = any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(fn.support))
    event_dims = tuple((site.get("infer") or {}).get("event_dims", ()))
    return Site(
        site["name"],
        role,
        family,
        value.shape,
        value.dtype,
        event_dim,
        plates,
        event_dims,
        support,
        bool(discrete),
        family == "ImproperUniform",
        moves,
        LEARNED_FROM in (site.get("infer") or {}),
        bool(site.get("_control_flow_done")),
        site.get("scale") is not None,
        fn is not None and element_mask(fn) is not True,
    )
