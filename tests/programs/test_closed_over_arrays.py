"""Programs that name NumPy arrays run in NumPyro and here, in both precisions, in any order."""

import gc
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer.util import log_density

import bayeslab as bl
from bayeslab.programs.program import precision_scope
from bayeslab.programs.tracing.closed_over_arrays import read_arrays_anew


def regression(offset: np.ndarray, x: np.ndarray, group: np.ndarray):
    """A program that closes over its covariates: integers, floats and codes."""

    def model(y=None):
        slope = numpyro.sample("slope", dist.Normal(0.0, jnp.ones(2)).to_event(1))
        with numpyro.plate("row", 4):
            numpyro.sample("y", dist.Normal(offset * jnp.arange(4) + slope[group] * x, 0.5), obs=y)

    return model


@pytest.mark.parametrize("order", [(np.float32, np.float64), (np.float64, np.float32), (np.float32, None, np.float64)])
def test_a_program_that_names_arrays_fits_in_both_precisions_beside_numpyro(order: tuple) -> None:
    """The mean of two conjugate slopes, in the order of precisions given; None is the density that NumPyro computes."""
    offset, x, group = np.array([1, -1, 1, -1]), np.array([0.5, -1.0, 1.5, 2.0]), np.array([0, 1, 0, 1])
    model, y = regression(offset, x, group), np.array([0.2, 0.4, 1.0, -2.0])
    codes = np.eye(2)[group] * x[:, None]
    mean = np.linalg.solve(np.eye(2) + codes.T @ codes / 0.25, codes.T @ (y - offset * np.arange(4)) / 0.25)
    held = []
    for dtype in order:
        if dtype is None:
            with jax.enable_x64(False):
                density = jax.jit(lambda slope: log_density(model, (), {"y": y}, {"slope": slope})[0])
                assert np.isfinite(density(jnp.zeros(2)))
            held.append(density)
        else:
            tree = bl.fit(0, model, {"y": y}, bl.Exact(num_samples=4000), dtype=dtype, progress=False)
            error = 5 * tree.posterior["slope"].std().item() / np.sqrt(4000)
            np.testing.assert_allclose(tree.posterior["slope"].mean(("chain", "draw")), mean, atol=error)


def test_arrays_are_constants_of_the_precision_in_use() -> None:
    """Functions compiled in 32 bits do not change what the same array is in 64, nor the other way round."""
    array, held = np.array([1, 3]), []
    with precision_scope():
        read_arrays_anew()
    for wide in (False, True, False, True):
        with jax.enable_x64(wide):
            held.append(jax.jit(lambda number: number + array))
            total = held[-1](jnp.arange(2))
            assert total.dtype == (np.int64 if wide else np.int32)
            assert total.tolist() == [1, 4]


def test_arrays_are_stored_once_and_forgotten_with_what_used_them() -> None:
    with precision_scope():
        array = np.array([1.0, 2.0])
        assert len(jax.make_jaxpr(lambda number: number + array * number + array)(jnp.arange(2.0)).consts) == 1
        for value in range(50):
            other = np.full(2, float(value))
            doubled = jax.make_jaxpr(partial(jnp.multiply, other))(2.0)
            assert jax.core.eval_jaxpr(doubled.jaxpr, doubled.consts, 2.0)[0].tolist() == [2 * value, 2 * value]
            del other, doubled
        gc.collect()
        array[0] = 100.0
        assert jax.jit(lambda number: number + array)(jnp.zeros(2)).tolist() == [100.0, 2.0]


def test_an_array_of_words_is_refused_as_before() -> None:
    with precision_scope(), pytest.raises(TypeError, match="Error interpreting"):
        jax.jit(lambda: jnp.asarray(np.array(["a"])) + 1)()
