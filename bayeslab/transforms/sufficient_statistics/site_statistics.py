"""Statistics of one site: its probes, how coefficients are read from them, and the conditional that these give."""

from functools import lru_cache
from math import prod
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import Distribution, biject_to
from numpyro.distributions.constraints import Constraint

from bayeslab.distributions import JointNormal
from bayeslab.elimination.conditional import Rule
from bayeslab.elimination.terms import Prior


class Frame(NamedTuple):
    """The probes of a site around a likely value, and the matrix that reads coefficients from densities at them.

    centre: the likely value, (*site). scale: standard deviations of Normal sites, else ones, (*site).
    probes: (probe, *site). reader: (statistic, probe).
    """

    centre: Array
    scale: Array
    probes: Array
    reader: Array


class Table(NamedTuple):
    """Sufficient statistics of a group of terms.

    centres, scales: of every site. coefficients: an axis for every site, as long as its statistics.
    """

    centres: tuple[Array, ...]
    scales: tuple[Array, ...]
    coefficients: Array


def num_statistics(rule: Rule, prior: Prior) -> int:
    """How many statistics a site has, the leading 1 included; 0 where its family has none."""
    size = prod(prior.shape)
    if not rule.family.joint:
        shape = jax.ShapeDtypeStruct(prior.shape, jnp.result_type(float))
        statistics = rule.family.statistics
        if statistics is None:
            return 0
        return 1 + sum(prod(leaf.shape) for leaf in jax.tree.leaves(jax.eval_shape(statistics, shape)))
    block = prod(prior.shape[axis] for axis in rule.coupled)
    return 1 + size + size * (block + 1) // 2


def normal_frame(rule: Rule, prior: Prior, q: Distribution) -> Frame:
    """The probes of a Normal site. q: a conditional of it."""
    scale = conditional_deviations(q)
    steps, reader = probes_in_dtype(q.mean, prior.shape, rule.coupled)
    return Frame(q.mean, scale, q.mean + scale * steps, reader)


def random_frame(rule: Rule, prior: Prior, centre: Array, support: Constraint) -> Frame:
    """The probes of a site that is not Normal. centre: a likely value of it."""
    transform = biject_to(support)
    middle = transform.inv(centre)
    size = num_statistics(rule, prior)
    noise = np.random.default_rng(0).normal(size=(size + size // 4 + 4, *middle.shape))
    probes = transform(middle + 0.7 * noise)
    ones = jnp.ones(prior.shape)
    values = jax.vmap(lambda x: statistics_vector(rule, prior, ones, ones, x))(probes)
    largest = jnp.abs(values).max(0)
    return Frame(centre, ones, probes, jnp.linalg.pinv(values / largest) / largest[:, None])


def conditional_deviations(q: Distribution) -> Array:
    """The standard deviation of every element given the others."""
    return q.conditional_scale if isinstance(q, JointNormal) else q.scale


def probes_in_dtype(x: Array, shape: tuple[int, ...], coupled: tuple[int, ...]) -> tuple[Array, Array]:
    """`quadratic_probes` in the precision of an array."""
    steps, reader = quadratic_probes(shape, coupled)
    return jnp.array(steps, x.dtype), jnp.array(reader, x.dtype)


@lru_cache(maxsize=64)
def quadratic_probes(shape: tuple[int, ...], coupled: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Steps (probe, *shape) that tell all quadratic functions of blocks apart, and the inverse of their statistics."""
    size = prod(shape)
    unit = np.eye(size)
    index = _block_indices(shape, coupled)
    pairs = [unit[i] + unit[j] for block in index for k, i in enumerate(block) for j in block[:k]]
    steps = np.concatenate([np.zeros((1, size)), unit, -unit, np.array(pairs).reshape(-1, size)])
    first, second = _product_indices(shape, coupled)
    values = np.concatenate([np.ones((len(steps), 1)), steps, steps[:, first] * steps[:, second]], axis=1)
    return steps.reshape(-1, *shape), np.linalg.inv(values)


def _block_indices(shape: tuple[int, ...], coupled: tuple[int, ...]) -> np.ndarray:
    """Indices into the flat array (block, element), a row for every block of elements that are joint."""
    apart = [axis for axis in range(len(shape)) if axis not in coupled]
    block = prod(shape[axis] for axis in coupled)
    return np.arange(prod(shape), dtype=np.int32).reshape(shape).transpose(*apart, *coupled).reshape(-1, block)


def _product_indices(shape: tuple[int, ...], coupled: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Flat indices of the two factors of every product, block by block, the lower triangle row by row."""
    index = _block_indices(shape, coupled)
    rows, columns = np.tril_indices(index.shape[1])
    return index[:, rows].ravel(), index[:, columns].ravel()


def statistics_vector(rule: Rule, prior: Prior, centre: Array, scale: Array, x: Array) -> Array:
    """The statistics of a value, with a leading 1."""
    if rule.family.joint:
        u = ((x - centre) / scale).ravel()
        first, second = _product_indices(prior.shape, rule.coupled)
        return jnp.concatenate([jnp.ones(1), u, u[first] * u[second]])
    leaves = jax.tree.leaves(rule.family.statistics(x))  # type: ignore[misc]
    return jnp.concatenate([jnp.ones(1), *(jnp.ravel(leaf) for leaf in leaves)])


def weighted_statistics(coefficients: Array, rule: Rule, prior: Prior, centre: Array, scale: Array, x: Array) -> Array:
    """Coefficients (..., statistic) times the statistics of a value.

    Products are taken as whole matrices, so that their gradient is a product too, and not a scatter.
    """
    if not rule.family.joint:
        return coefficients @ statistics_vector(rule, prior, centre, scale, x)
    size = prod(prior.shape)
    u = ((x - centre) / scale).ravel()
    constant, linear, products = jnp.split(coefficients, [1, 1 + size], axis=-1)
    index, entry, weight = _block_matrix_entries(prior.shape, rule.coupled)
    blocks = u.reshape(index.shape) if (index.ravel() == np.arange(size)).all() else u[index]
    outer = (blocks[:, :, None] * blocks[:, None, :]).ravel()
    return constant[..., 0] + linear @ u + (products[..., entry] * jnp.array(weight, u.dtype)) @ outer


@lru_cache(maxsize=64)
def _block_matrix_entries(
    shape: tuple[int, ...], coupled: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Flat indices of blocks; for every entry of their matrices of products, its coefficient and the share of it."""
    index = _block_indices(shape, coupled)
    count, block = index.shape
    rows, columns = np.tril_indices(block)
    positions = np.zeros((block, block), int)
    positions[rows, columns] = positions[columns, rows] = np.arange(len(rows))
    entries = (np.arange(count)[:, None, None] * len(rows) + positions).ravel()
    return index, entries.astype(np.int32), np.tile(np.where(np.eye(block) == 1, 1.0, 0.5).ravel(), count)


def precision_direction(rule: Rule, index: int, prior: Prior, table: Table) -> tuple[Array, Array]:
    """How far the coefficients of products are from multiples of one vector, and that vector, which curves downwards.

    index: of the site among those of the table.
    """
    matrix = jnp.moveaxis(table.coefficients, index, 0).reshape(table.coefficients.shape[index], -1)
    matrix = matrix[1 + prod(prior.shape) :]
    largest = matrix[:, jnp.argmax((matrix**2).sum(0))]
    remainder = matrix - jnp.outer(largest, largest @ matrix / (largest @ largest))
    first, second = _product_indices(prior.shape, rule.coupled)
    sign = jnp.sign(jnp.where(first == second, largest, 0.0).sum())
    return jnp.abs(remainder).max() / jnp.abs(matrix).max(), -sign * largest


def build_normal(
    rule: Rule, shape: tuple[int, ...], centre: Array, scale: Array, eta: Array, matrix: Array | None
) -> tuple[Distribution, Array]:
    """The Normal conditional with given coefficients of u and of its products, x = centre + scale u; and its mean.

    eta: the coefficients. matrix: what the coefficients of products are a positive multiple of, if they are.
    """
    size = prod(shape)
    linear, products = eta[:size], eta[size:]
    if not rule.coupled:
        curvature = -2 * products
        mean = centre + scale * (linear / curvature).reshape(shape)
        return dist.Normal(mean, scale / jnp.sqrt(curvature).reshape(shape)), mean
    index = _block_indices(shape, rule.coupled)
    count, block = index.shape
    rows, columns = np.tril_indices(block)
    multiple = jnp.ones(()) if matrix is None else matrix @ products / (matrix @ matrix)
    matrix = products if matrix is None else matrix
    half = jnp.zeros((count, block, block)).at[:, rows, columns].set(-matrix.reshape(count, -1))
    factor = jnp.linalg.cholesky(half + half.mT)
    inverse = None if matrix is products else _triangular_inverse(factor)
    if inverse is None:
        mean = jax.scipy.linalg.cho_solve((factor, True), linear[index][..., None])[..., 0]
    else:
        mean = (linear[index][..., None, :] @ inverse.mT @ inverse)[..., 0, :] / multiple
    block_scale = scale.ravel()[index]
    batch_shape = tuple(n for axis, n in enumerate(shape) if axis not in rule.coupled)
    joint = JointNormal(
        (centre.ravel()[index] + block_scale * mean).reshape(*batch_shape, block),
        (factor / block_scale[..., None]).reshape(*batch_shape, block, block),
        rule.coupled,
        shape,
        multiple,
        None if inverse is None else (inverse * block_scale[..., None, :]).reshape(*batch_shape, block, block),
    )
    return joint, joint.mean


def _triangular_inverse(factor: Array) -> Array:
    """The inverses of lower triangular matrices, by forward substitution."""
    identity = jnp.broadcast_to(jnp.eye(factor.shape[-1], dtype=factor.dtype), factor.shape)
    return jax.scipy.linalg.solve_triangular(factor, identity, lower=True)
