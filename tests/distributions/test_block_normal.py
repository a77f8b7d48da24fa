"""The sparse factorisation of a joint precision against dense algebra."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

from bayeslab.distributions.block_normal import BlockNormal, Blocks, factorise
from bayeslab.distributions.precision_structure import PrecisionStructure, Sparsity, elimination_cost, elimination_steps
from quick_cases import quick_ones

SITES = dict[str, tuple[tuple[int, ...], tuple[int, ...]]]
"""Array -> its shape and its coupled axes."""
MEETINGS = dict[tuple[str, str], tuple[tuple[int, int], ...]]
"""Arrays that meet -> their ties."""

STRUCTURES: dict[str, tuple[SITES, MEETINGS]] = {
    "one number": ({"x": ((), ())}, {}),
    "one array": ({"x": ((4,), ())}, {}),
    "apart": ({"x": ((3,), ()), "y": ((2, 2), (0, 1))}, {}),
    "groups around a mean": ({"mu": ((), ()), "a": ((5,), ())}, {("mu", "a"): ()}),
    "curves": (
        {"mean_a": ((), ()), "mean_b": ((), ()), "a": ((6,), ()), "b": ((6,), ())},
        {("mean_a", "a"): (), ("mean_b", "b"): (), ("a", "b"): ((0, 0),)},
    ),
    "nested": (
        {"mu": ((), ()), "a": ((4,), ()), "b": ((3, 4), ())},
        {("mu", "a"): (), ("a", "b"): ((0, 1),)},
    ),
    "crossed": (
        {"mu": ((), ()), "a": ((4,), ()), "b": ((3,), ())},
        {("mu", "a"): (), ("mu", "b"): (), ("a", "b"): ()},
    ),
    "crossed with an axis of one": (
        {"mu": ((), ()), "a": ((4, 1), ()), "b": ((3,), ())},
        {("mu", "a"): (), ("mu", "b"): (), ("a", "b"): ()},
    ),
    "interaction": (
        {"a": ((4,), ()), "b": ((3,), ()), "c": ((4, 3), ())},
        {("a", "b"): (), ("a", "c"): ((0, 0),), ("b", "c"): ((0, 1),)},
    ),
    "regression with groups": (
        {"w": ((3,), (0,)), "mu": ((), ()), "a": ((5,), ())},
        {("w", "a"): (), ("mu", "a"): ()},
    ),
    "pairs": ({"mean": ((2,), (0,)), "pair": ((5, 2), (1,))}, {("mean", "pair"): ()}),
    "pairs in three levels": (
        {"m": ((3,), ()), "c": ((4, 3), (1,)), "d": ((4,), ())},
        {("m", "c"): ((0, 1),), ("c", "d"): ((0, 0),)},
    ),
    "chain": (
        {f"x{step}": ((2,), (0,)) for step in range(5)},
        {(f"x{step}", f"x{step + 1}"): () for step in range(4)},
    ),
    "loop": (
        dict.fromkeys("abcde", ((), ())),
        dict.fromkeys((("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"), ("a", "e")), ()),
    ),
    "ties are lost": (
        {"a": ((4,), ()), "b": ((4,), ()), "c": ((4,), ()), "d": ((), ())},
        {("a", "b"): ((0, 0),), ("b", "c"): ((0, 0),), ("a", "c"): (), ("c", "d"): ()},
    ),
    "equal sizes": (
        {"a": ((3, 3), ()), "b": ((3,), ()), "c": ((3,), ())},
        {("a", "b"): ((1, 0),), ("a", "c"): ((0, 0),), ("b", "c"): ()},
    ),
    "transposed": ({"a": ((2, 3), ()), "b": ((3, 2), (1,))}, {("a", "b"): ((0, 1), (1, 0))}),
    "levels of two plates": (
        {"mu": ((3,), ()), "a": ((4, 3), ()), "b": ((2, 4, 3), ()), "w": ((2,), (0,))},
        {("mu", "a"): ((0, 1),), ("a", "b"): ((0, 1), (1, 2)), ("b", "w"): ((0, 0),)},
    ),
}
QUICK = ("one array", "curves", "crossed", "interaction", "pairs in three levels", "chain", "loop", "ties are lost")


def structure_of(case: str) -> PrecisionStructure:
    sites, meetings = STRUCTURES[case]
    names = tuple(sites)
    shapes, coupled = zip(*sites.values(), strict=True)
    ties = tuple((names.index(one), names.index(other), tied) for (one, other), tied in meetings.items())
    return PrecisionStructure(names, shapes, coupled, ties)


def dense_precision(structure: PrecisionStructure) -> np.ndarray:
    """A random positive definite matrix (size, size) with the zeros of a structure, found element by element."""
    places = [(index, at) for index, shape in enumerate(structure.shapes) for at in np.ndindex(shape)]
    sparsity = Sparsity(structure)

    def meet(one: tuple[int, tuple[int, ...]], other: tuple[int, tuple[int, ...]]) -> bool:
        (index, at), (second, there) = one, other
        if index != second and (min(index, second), max(index, second)) not in sparsity.ties:
            return False
        return all(at[axis] == there[tied] for axis, tied in sparsity.ties_from(index, second))

    rng = np.random.default_rng(len(places))
    matrix = rng.normal(size=(len(places), len(places)))
    matrix = (matrix + matrix.T) * [[meet(one, other) for other in places] for one in places]
    return matrix + np.diag(1 + np.abs(matrix).sum(1))


def blocks_of(structure: PrecisionStructure, dense: np.ndarray) -> Blocks:
    """Its blocks: axes of the first array, then those of the second that have no tie."""
    sparsity, blocks = Sparsity(structure), {}
    starts = np.cumsum((0, *structure.sizes))
    pairs = [(index, index) for index in range(len(structure.names))] + [(one, two) for one, two, _ in structure.ties]
    for first, second in pairs:
        shape, other_shape = structure.shapes[first], structure.shapes[second]
        part = dense[starts[first] : starts[first + 1], starts[second] : starts[second + 1]]
        part = part.reshape((*shape, *other_shape))
        tied = {axis: own for own, axis in sparsity.ties_from(first, second)}
        free = [axis for axis in range(len(other_shape)) if axis not in tied]
        block = np.zeros((*shape, *(other_shape[axis] for axis in free)))
        for at in np.ndindex(block.shape):
            there = dict(zip(free, at[len(shape) :], strict=True)) | {axis: at[own] for axis, own in tied.items()}
            block[at] = part[(*at[: len(shape)], *(there[axis] for axis in range(len(other_shape))))]
        blocks[first, second] = jnp.asarray(block)
    return blocks


@pytest.fixture(params=quick_ones(STRUCTURES, *QUICK))
def both(request: pytest.FixtureRequest) -> tuple[BlockNormal, np.ndarray]:
    """A Normal by blocks, and its dense precision."""
    with jax.enable_x64(True):
        structure = structure_of(request.param)
        dense = dense_precision(structure)
        return jax.jit(factorise, static_argnums=0)(structure, blocks_of(structure, dense)), dense


def in_double_precision(call: Callable[[], jax.Array]) -> np.ndarray:
    with jax.enable_x64(True):
        return np.asarray(jax.jit(call)())


def test_all_operations_are_those_of_the_dense_precision(both: tuple[BlockNormal, np.ndarray]) -> None:
    """Means by solving, densities of several values, covariance from unit noise, and conditional deviations."""
    normal, dense = both
    rng = np.random.default_rng(1)
    size = len(dense)
    linear, value = rng.normal(size=size), rng.normal(size=(3, 2, size))
    mean = np.linalg.solve(dense, linear)
    np.testing.assert_allclose(in_double_precision(lambda: normal.solve(jnp.asarray(linear))), mean, rtol=1e-9)
    log_density = multivariate_normal(mean, np.linalg.inv(dense)).logpdf(value)
    moved = in_double_precision(lambda: normal.moved(jnp.asarray(mean)).log_prob(jnp.asarray(value)))
    np.testing.assert_allclose(moved, log_density, rtol=1e-9)
    columns = in_double_precision(lambda: normal.from_noise(jnp.eye(size)))
    halves = in_double_precision(lambda: normal.whiten(jnp.asarray(linear)))
    np.testing.assert_allclose(halves @ halves, linear @ mean, rtol=1e-9)
    np.testing.assert_allclose(columns.T @ columns, np.linalg.inv(dense), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(normal.conditional_scale, 1 / np.sqrt(np.diag(dense)), rtol=1e-12)


def test_a_precision_that_is_not_positive_definite_gives_no_number() -> None:
    structure = structure_of("groups around a mean")
    with jax.enable_x64(True):
        blocks = blocks_of(structure, dense_precision(structure))
        blocks[0, 0] = blocks[0, 0] * 0 - 1
        assert jnp.isnan(factorise(structure, blocks).log_prob(jnp.zeros(structure.size)))


def two_effects(groups: int) -> PrecisionStructure:
    """Groups with two effects each around common means and a regression."""
    shapes = ((3,), (), (), (groups,), (groups,))
    ties = ((0, 3, ()), (0, 4, ()), (1, 3, ()), (2, 4, ()), (3, 4, ((0, 0),)))
    return PrecisionStructure(("w", "m", "n", "a", "b"), shapes, ((0,), (), (), (), ()), ties)


def classes_in_schools(groups: int) -> PrecisionStructure:
    """A mean, which costs least to eliminate and would couple all schools, schools, and two classes in each."""
    ties = ((0, 1, ()), (1, 2, ((0, 1),)))
    return PrecisionStructure(("mu", "a", "b"), ((), (groups,), (2, groups)), ((), (), ()), ties)


@pytest.mark.parametrize("number", [100, 1000])
def test_elimination_is_linear_in_the_number_of_groups(number: int) -> None:
    """Ten times as many groups cost ten times as much."""
    assert elimination_cost(two_effects(10 * number)) < 10.5 * elimination_cost(two_effects(number))


@pytest.mark.parametrize("schools", [3, 8, 100])
def test_groups_go_before_what_is_above_them(schools: int) -> None:
    """However few they are, schools are never coupled, which they would be if their mean went first."""
    steps = elimination_steps(classes_in_schools(schools))
    assert [step.coupled for step in steps] == [(), (), ()]
    assert elimination_cost(classes_in_schools(schools)) < 30 * schools


def test_elimination_of_a_chain_is_linear_in_its_length() -> None:
    """Arrays of different sizes in a row go from one end to the other, not the largest first."""

    def chain(length: int) -> PrecisionStructure:
        shapes = tuple((1 + step % 2,) for step in range(length))
        ties = tuple((step, step + 1, ()) for step in range(length - 1))
        return PrecisionStructure(tuple(map(str, range(length))), shapes, ((0,),) * length, ties)

    assert elimination_cost(chain(400)) < 2.1 * elimination_cost(chain(200))
