"""Functions of arrays that are the same along some axes are the functions, with less work."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayeslab as bl
from bayeslab.elimination.sweep import draw_block
from bayeslab.elimination.terms import terms
from bayeslab.models import factor_analysis, ppca
from bayeslab.programs.program import precision_scope
from bayeslab.programs.tracing.flat_program import flatten
from bayeslab.programs.tracing.repeated_axes import evaluate_at_choices, evaluate_repeated, gradient_and_changes
from bayeslab.programs.tracing.repeated_operations import Repeated
from bayeslab.transforms.analysis import Analysis

A, B = np.random.default_rng(0).normal(size=(2, 3, 4))
C = np.random.default_rng(1).normal(size=(3, 4, 5))
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "elementwise": lambda x: jnp.where(x > 0, x * A, jnp.exp(-x)) / (2.0 + B**2),
    "sums": lambda x: (x.sum(), x.sum(0), (x * A[:1]).sum(1), x.max(0), x.min(1)),
    "product over rows": lambda x: x.T @ A,
    "product over columns": lambda x: x @ A.T,
    "product of two": lambda x: x.T @ (2 * x),
    "product of two that differ": lambda x: x @ jnp.broadcast_to(x[:1], (3, 4)).T,
    "batched product": lambda x: jnp.einsum("ij,ijk->ik", x, C),
    "batched product with itself": lambda x: jnp.einsum("ij,ik->ijk", x, x).sum(0),
    "new axes": lambda x: x[:, None, :] + C.transpose(0, 2, 1),
    "axes joined": lambda x: x.reshape(12),
    "axes joined and split": lambda x: x.reshape(12).reshape(2, 6) @ np.ones((6, 1)),
    "transposed": lambda x: x.T.reshape(4, 3, 1),
    "concatenated": lambda x: (jnp.concatenate([x, A]), jnp.concatenate([x, A], axis=1), jnp.concatenate([x, 2 * x])),
    "parts": lambda x: (x[1:] - x[:-1], x[::2, 1], jnp.split(x, 2, axis=1)[1]),
    "gathered": lambda x: x[jnp.array([2, 0, 0])] * A,
    "written": lambda x: jnp.asarray(B).at[1:].set(x[1:]),
    "sorted": lambda x: jnp.sort(x, axis=1),
    "running sum": lambda x: jnp.cumsum(x, axis=0),
    "loop": lambda x: jax.lax.scan(lambda total, row: (total + row, total * row), jnp.zeros(4), x),
    "call": lambda x: jax.jit(lambda y: y @ y.T)(x),
    "custom derivative": lambda x: jax.nn.relu(x - 0.1) + jax.nn.softplus(x),
    "numbers that are known": lambda x: x * -jnp.asarray(np.float64(2.0)) + jax.lax.neg(np.asarray(0.5)),
    "no use of it": lambda x: jnp.asarray(A) + 1,
    "numbers": lambda x: (x.astype(np.float32), x**2, x ** jnp.arange(4), x.shape[0] * 1.0),
}
INDEXED: dict[str, Callable[[Any], Any]] = {
    "table": lambda i: jnp.asarray(A)[i],
    "table, negative": lambda i: jnp.asarray(A)[i - 3],
    "number of a list": lambda i: jnp.asarray(A[0])[i] * A,
    "own table of each": lambda i: jnp.take_along_axis(jnp.asarray(C), i[..., None], axis=2)[..., 0],
    "own table of each row": lambda i: jax.vmap(lambda table, at: table[at])(jnp.asarray(C), i),
    "one table of all": lambda i: jnp.take_along_axis(jnp.broadcast_to(C[:1, :1], C.shape), i[..., None], axis=2),
    "pair": lambda i: jnp.asarray(A)[i, 2 - i],
    "diagonal": lambda i: jax.lax.gather(
        jnp.asarray(A),
        jnp.broadcast_to(i[..., None], (*i.shape, 2)),
        jax.lax.GatherDimensionNumbers(offset_dims=(), collapsed_slice_dims=(0, 1), start_index_map=(0, 1)),
        slice_sizes=(1, 1),
    ),
    "row, and own place": lambda i: jnp.asarray(C)[jnp.arange(3)[:, None], i],
    "out of range": lambda i: jnp.asarray(A[0]).at[i + 2].get(mode="fill", fill_value=-1.0),
    "gradient": lambda i: jax.grad(lambda table: jnp.sin(table[i] * A).sum())(jnp.asarray(A[0])),
    "of what is chosen": lambda i: (i * jnp.asarray(A))[jnp.array([2, 0, 0])],
}
"""Functions of integers 0, 1 and 2."""
SHAPES = [(3, 4), (1, 4), (3, 1), (1, 1)]


@pytest.fixture(autouse=True)
def _double_precision() -> Iterator[None]:
    with precision_scope():
        yield


@pytest.mark.parametrize("entry_shape", SHAPES, ids=str)
def test_is_the_function(entry_shape: tuple[int, int]) -> None:
    """With each of the axes repeated, or none, of numbers that are known while tracing and of others."""
    random = np.random.default_rng(2)
    _check(FUNCTIONS, random.normal(size=entry_shape))
    _check(INDEXED, random.integers(3, size=entry_shape))


def _check(functions: dict[str, Callable[[Any], Any]], entry: np.ndarray) -> None:
    whole = jnp.asarray(np.broadcast_to(entry, (3, 4)))
    for name, function in functions.items():
        of_unknown = jax.jit(lambda e, f=function: evaluate_repeated(f, Repeated((e,), (3, 4))))(entry)
        of_known = evaluate_repeated(function, Repeated((entry,), (3, 4)))
        of_whole = evaluate_repeated(function, Repeated((np.asarray(whole),), (3, 4)))
        for found in (of_unknown, of_known, of_whole):
            jax.tree.map(
                lambda own, right, name=name: np.testing.assert_allclose(own, right, 1e-6, 1e-12, err_msg=name),
                found,
                jax.tree.map(jnp.asarray, function(whole)),
            )
            types = jax.tree.map(lambda own, right: own.dtype == jnp.asarray(right).dtype, found, function(whole))
            assert all(jax.tree.leaves(types)), name


def test_values_at_choices() -> None:
    """Every position at each choice, and one look into a table for each, however many rows there are."""
    table, y, choices = jnp.asarray(A[0]), np.random.default_rng(4).normal(size=500), np.array([0, 2, 3])

    def density(x: Any) -> Any:
        return -0.5 * (y - table[x]) ** 2

    right = jax.vmap(lambda choice: density(jnp.full(500, choice)))(choices)
    np.testing.assert_allclose(evaluate_at_choices(density, choices, (500,)), right)
    program = flatten(jax.make_jaxpr(lambda: evaluate_at_choices(density, choices, (500,)))())
    sizes = [int(np.prod(shape)) for each in program.operations if each.name == "gather" for shape in each.shapes]
    assert sizes == [3]


def test_changes_of_a_gradient() -> None:
    """The columns of a Hessian, for rows that move together."""
    x, w = jnp.asarray(A), jnp.asarray(C[0, :, :2])

    def density(z: Any) -> Any:
        return -0.5 * ((z @ w - x[:, :2]) ** 2).sum() - 0.5 * (z**2).sum()

    directions = Repeated((np.eye(4)[:, None],), (4, 3, 4))
    slope, changes = gradient_and_changes(jax.grad(density), x, directions)
    np.testing.assert_allclose(slope, jax.grad(density)(x))
    np.testing.assert_allclose(changes, np.broadcast_to((-(w @ w.T) - np.eye(4))[:, None], (4, 3, 4)), atol=1e-12)


@pytest.mark.parametrize("module", [ppca, factor_analysis], ids=["ppca", "factor_analysis"])
def test_no_direction_for_every_number_of_the_data(module: Any) -> None:
    """No array of a draw has axes of directions, rows and features at once."""
    rows, features, factors = 40, 7, 3
    y = np.random.default_rng(3).normal(size=(rows, features))
    data = {"num_rows": rows, "num_features": features, "num_factors": factors, "y": y}
    bound = bl.bind(module.model, data)
    sampler: Any = bl.Gibbs().plan(Analysis(bound))
    values = sampler.start(jax.random.PRNGKey(0), bound).values

    def draw(values: Any, block: Any) -> Any:
        return draw_block(jax.random.PRNGKey(1), block, terms(bound).terms, bound, values)[0]

    for block in sampler.blocks:
        program = flatten(jax.make_jaxpr(lambda values, block=block: draw(values, block))(values))
        largest = max(int(np.prod(shape)) for operation in program.operations for shape in operation.shapes)
        assert largest < factors * rows * features, [rule.sites for rule in block]
