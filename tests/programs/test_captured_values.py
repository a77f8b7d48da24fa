"""What a program reads from outside of its arguments is as it is at the time of the fit, and not at an earlier one."""

from collections.abc import Callable
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from scipy import stats

import bayeslab as bl
from bayeslab.methods.stated import Stated
from bayeslab.models import normal_gamma
from bayeslab.programs.binding import bind
from bayeslab.programs.program import precision_scope
from bayeslab.programs.tracing.captured_values import captured_values

Y = np.array([1.0, 3.0, -2.0])
FACTORS: Any = np.array([1.0, 2.0, 3.0])
SETTINGS = {"factors": FACTORS}
FRAME = pd.DataFrame({"factors": [1.0, 2.0, 3.0]})
HOLDER = SimpleNamespace(inner=SimpleNamespace(factors=[1.0, 2.0, 3.0]))
CONSTANTS = ModuleType("constants")
PRIOR = partial(dist.Normal, 0.0)
SCALE: Any = 2
NUM_RUNS = [0]


def draw_y(b: Any, factors: Any, y: Any) -> None:
    with numpyro.plate("row", 3):
        numpyro.sample("y", dist.Normal(b * jnp.asarray(factors), 1.0), obs=y)


def reads_array(y: Any) -> None:
    NUM_RUNS[0] += 1  # what every run changes is not what it depends on
    draw_y(numpyro.sample("b", dist.Normal(0.0, 10.0)), FACTORS, y)


def reads_containers(y: Any) -> None:
    b = numpyro.sample("b", dist.Normal(0.0, 10.0))
    draw_y(b, SETTINGS["factors"] + FRAME["factors"].to_numpy() + np.array(HOLDER.inner.factors), y)


def reads_module(y: Any) -> None:
    draw_y(numpyro.sample("b", PRIOR(SCALE)), CONSTANTS.factors, y)


def helper() -> Any:
    return jax.jit(lambda: inner_helper())()


def inner_helper(shift: Any = np.zeros(3)) -> Any:  # noqa: B008 - an array that a test changes in place
    return jnp.asarray(FACTORS) + shift


def calls_helpers(y: Any) -> None:
    draw_y(numpyro.sample("b", dist.Normal(0.0, 10.0)), helper(), y)


class Model:
    def __init__(self) -> None:
        self.factors = np.array([1.0, 2.0, 3.0])

    def mean(self) -> Any:
        return self.factors * FACTORS

    def __call__(self, y: Any) -> None:
        draw_y(numpyro.sample("b", dist.Normal(0.0, 10.0)), self.mean(), y)


@pytest.fixture(autouse=True)
def fresh_globals(monkeypatch: pytest.MonkeyPatch) -> None:
    here = "test_captured_values"
    monkeypatch.setattr(f"{here}.FACTORS", np.array([1.0, 2.0, 3.0]))
    monkeypatch.setattr(f"{here}.SETTINGS", {"factors": np.array([1.0, 2.0, 3.0])})
    monkeypatch.setattr(f"{here}.FRAME", pd.DataFrame({"factors": [1.0, 2.0, 3.0]}))
    monkeypatch.setattr(f"{here}.HOLDER", SimpleNamespace(inner=SimpleNamespace(factors=[1.0, 2.0, 3.0])))
    monkeypatch.setattr(f"{here}.CONSTANTS.factors", np.array([1.0, 2.0, 3.0]), raising=False)
    monkeypatch.setattr(f"{here}.inner_helper", lambda: jnp.asarray(FACTORS))


def set_global(name: str, value: Any) -> None:
    globals()[name] = value


def flip_element(array: np.ndarray) -> None:
    array[1] = -array[1]


MODEL = Model()
CHANGES: dict[str, tuple[Callable[..., None], Callable[[], None]]] = {
    "another array": (reads_array, lambda: set_global("FACTORS", -FACTORS)),
    "elements of an array": (reads_array, lambda: flip_element(FACTORS)),
    "a list for an array": (reads_array, lambda: set_global("FACTORS", [3.0, 2.0, 1.0])),
    "an array of JAX": (reads_array, lambda: set_global("FACTORS", jnp.array([3.0, 2.0, 1.0]))),
    "entry of a dict": (reads_containers, lambda: SETTINGS.update(factors=np.ones(3))),
    "column of a frame": (reads_containers, lambda: FRAME.__setitem__("factors", [0.0, 1.0, 5.0])),
    "attribute of an attribute": (reads_containers, lambda: HOLDER.inner.factors.append(HOLDER.inner.factors.pop(0))),
    "attribute of a module": (reads_module, lambda: setattr(CONSTANTS, "factors", np.ones(3))),
    "partial": (reads_module, lambda: set_global("PRIOR", partial(dist.Normal, 1.0))),
    "what helpers read": (calls_helpers, lambda: set_global("FACTORS", -FACTORS)),
    "a helper of a helper": (calls_helpers, lambda: set_global("inner_helper", lambda: jnp.ones(3))),
    "attribute of the program": (MODEL, lambda: flip_element(MODEL.factors)),
    "what methods read": (MODEL.__call__, lambda: set_global("FACTORS", -FACTORS)),
}


@jax.jit
def log_joint(bound: Any, b: Any) -> Any:
    return bound.log_joint({"b": b})


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiled log joint after the change is that of the program as it runs now."""
    program, change = CHANGES[name]
    for each in ("FACTORS", "PRIOR", "inner_helper"):  # undone after the test
        monkeypatch.setattr(f"test_captured_values.{each}", globals()[each])
    with precision_scope():
        before = log_joint(bind(program, {"y": Y}), 0.7)
        change()
        bound = bind(program, {"y": Y})
        now = log_joint(bound, 0.7)
        np.testing.assert_allclose(now, bound.log_joint({"b": jnp.asarray(0.7)}), rtol=1e-12)
        assert abs(now - before) > 0.01


def test_nonlocal_variables_are_seen() -> None:
    factors = np.array([1.0, 2.0, 3.0])

    def program(y: Any) -> None:
        draw_y(numpyro.sample("b", dist.Normal(0.0, 10.0)), factors, y)

    with precision_scope():
        before = log_joint(bind(program, {"y": Y}), 0.7)
        factors = np.array([0.0, 1.0, 2.0])
        expected = stats.norm.logpdf(0.7, 0, 10) + stats.norm.logpdf(Y, 0.7 * factors, 1).sum()
        np.testing.assert_allclose(log_joint(bind(program, {"y": Y}), 0.7), expected, rtol=1e-12)
        assert abs(before - expected) > 0.01


def test_functions_given_as_arguments_and_methods_are_read_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def mean_of(b: Any) -> Any:
        return b * FACTORS

    def program(y: Any, mean: Callable[..., Any]) -> None:
        b = numpyro.sample("b", dist.Normal(0.0, 10.0))
        with numpyro.plate("row", 3):
            numpyro.sample("y", dist.Normal(mean(b), 1.0), obs=y)

    def stated(y: Any) -> None:
        precision = FACTORS @ FACTORS + 0.01
        numpyro.sample("b", dist.Normal(FACTORS @ y / precision, precision**-0.5))

    monkeypatch.setattr("test_captured_values.FACTORS", FACTORS)
    data = {"y": Y, "mean": mean_of}
    for _ in range(2):  # the second posterior is stated for the second factors, or refused
        tree = bl.fit(0, program, data, Stated(stated, 2000), progress=False)
        mean = Y @ FACTORS / (FACTORS @ FACTORS + 0.01)
        assert abs(float(tree.posterior["b"].mean()) - mean) < 5 * (FACTORS @ FACTORS) ** -0.5 / 2000**0.5
        set_global("FACTORS", -FACTORS)


def test_nothing_is_compiled_again_without_a_change() -> None:
    """Arrays with the same content, as a cell that runs again makes them, and counters of runs are no change."""
    with precision_scope():
        log_joint(bind(reads_array, {"y": Y}), 0.7)
        compiled, runs = log_joint._cache_size(), NUM_RUNS[0]
        set_global("FACTORS", FACTORS.copy())
        log_joint(bind(reads_array, {"y": Y}), 0.7)
        assert log_joint._cache_size() == compiled
        assert NUM_RUNS[0] > runs
        set_global("FACTORS", FACTORS.astype(np.float32))
        log_joint(bind(reads_array, {"y": Y}), 0.7)
        assert log_joint._cache_size() == compiled + 1


def test_a_fit_sees_it_and_an_earlier_fit_cannot_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("test_captured_values.FACTORS", FACTORS)
    for _ in range(2):
        tree = bl.fit(0, reads_array, {"y": Y}, bl.Exact(2000), progress=False)
        mean = Y @ FACTORS / (FACTORS @ FACTORS + 0.01)
        sd = (FACTORS @ FACTORS + 0.01) ** -0.5
        assert abs(float(tree.posterior["b"].mean()) - mean) < 5 * sd / 2000**0.5
        set_global("FACTORS", -FACTORS)
    with pytest.raises(ValueError, match="data"):
        bl.fit(0, reads_array, {"y": Y}, bl.Exact(2000), previous=tree, progress=False)


def test_modules_of_installed_packages_are_not_read() -> None:
    """They may load their parts when these are first used, which would look like a change."""
    names = {name for name, _ in captured_values(reads_module)}
    assert "CONSTANTS.factors" in names
    assert not any(name.startswith(("jnp.", "dist.", "numpyro.")) for name in names)


def test_explain_names_the_arrays_that_are_read_from_outside() -> None:
    assert "'FACTORS': read from outside of the arguments" in str(bl.explain(reads_array, {"y": Y}))
    assert "outside" not in str(bl.explain(normal_gamma.model, normal_gamma.example()))
