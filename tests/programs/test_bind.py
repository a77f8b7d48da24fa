"""What users may give as program and data, and what they are told when it does not fit."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
import xarray as xr
from numpyro.contrib.control_flow import scan
from numpyro.handlers import mask, scale, scope

from bayeslab import MarkovChain, bind, explain, fit
from bayeslab.models import linear_regression, markov_chain, normal_gamma, normal_wishart
from bayeslab.programs.program import Bound, precision_scope


def poisson(n: int, rate: float = 1.0) -> None:
    mu = numpyro.sample("mu", dist.Gamma(2.0, rate))
    with numpyro.plate("row", n):
        numpyro.sample("y", dist.Poisson(mu))


def categories(n: int, k: int = 3) -> None:
    p = numpyro.sample("p", dist.Dirichlet(jnp.ones(k)))
    with numpyro.plate("row", n):
        numpyro.sample("y", dist.Categorical(p))


def written(x: Any, y: Any = None) -> None:
    w = numpyro.sample("w", dist.Normal(0.0, 1.0))
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(w * x, 1.0), obs=y)


def groups(group: Any, spread: float = 1.0) -> None:
    with numpyro.plate("group", int(group.max()) + 1):
        a = numpyro.sample("a", dist.Normal(0.0, spread))
    with numpyro.plate("row", len(group)):
        numpyro.sample("y", dist.Normal(a[group], 1.0))


def nested(priors: dict[str, Any], n: int) -> None:
    mu = numpyro.sample("mu", dist.Normal(priors["mean"], priors["scale"]))
    with numpyro.plate("row", n):
        numpyro.sample("y", dist.Normal(mu, 1.0))


def scaled(x: Any) -> None:
    top = numpyro.sample("top", dist.Exponential(1.0))
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Uniform(0.0, top))


def centred(y: Any) -> None:
    mu = numpyro.sample("mu", dist.Normal(jnp.mean(y), 1.0))
    with numpyro.plate("row", len(y)):
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)


def multinomial(n: int) -> None:
    p = numpyro.sample("p", dist.Dirichlet(jnp.ones(3)))
    with numpyro.plate("row", n):
        numpyro.sample("y", dist.Multinomial(10, p))


def branching(n: int) -> None:
    tau = numpyro.sample("tau", dist.Gamma(1.0, 1.0))
    with numpyro.plate("row", n):
        numpyro.sample("y", dist.Normal(0.0, 1.0 if tau > 1 else 2.0))


def iid(y: Any = None) -> None:
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)


def lagged(n: int, first: Any, values: Any = None) -> None:
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0) if first else dist.Dirichlet(jnp.ones((2, 2))).to_event(1))

    def step(before: Any, value: Any) -> tuple[Any, None]:
        law = dist.Normal(slope * before, 1.0) if first else dist.Categorical(slope[before])
        return numpyro.sample("y", law, obs=value), None

    scan(step, first, values, n)


def tempered(heat: float) -> None:
    with scale(scale=heat):
        z = numpyro.sample("z", MarkovChain(np.full(2, 0.5), np.full((2, 2), 0.5), 3))
    numpyro.sample("y", dist.Normal(z * 1.0, 1.0).to_event(1))


ONES = np.ones(3)
LINE = linear_regression.example()
NORMAL = normal_gamma.example()
WISHART = normal_wishart.example()

WRONG: dict[str, tuple[Callable[..., Any], Any, str]] = {
    "names nothing": (
        poisson,
        {"n": 3, "slopes": ONES},
        r"'slopes' is neither an argument .*'rate'.*nor a sample site .*'y'",
    ),
    "nearly named": (poisson, {"n": 3, "rats": 1.0}, "Did you mean 'rate'"),
    "missing argument": (poisson, {"y": ONES}, "lack argument 'n' of 'poisson'"),
    "broadcasts": (poisson, {"n": 3, "y": np.ones((3, 2))}, r"shape \(3, 2\), but site 'y' .* shape \(3,\)"),
    "wrong length": (poisson, {"n": 3, "y": np.ones(4)}, r"shape \(4,\), but site 'y' .* shape \(3,\)"),
    "negative count": (poisson, {"n": 3, "y": np.array([0, 1, -2])}, r"\(2,\) is -2, .*support.*Poisson.*nonnegative"),
    "missing code": (poisson, {"n": 3, "y": np.array([0, -9, 1])}, r"'y' at position \(1,\) is -9"),
    "category 7 of 3": (categories, {"n": 2, "y": np.array([0, 7])}, r"\(1,\) is 7.*integer interval 0 to 2"),
    "fractional category": (
        categories,
        {"n": 2, "y": np.array([0.0, 1.5])},
        r"\(1,\) is 1.5, but site 'y' takes integers",
    ),
    "text": (poisson, {"n": 2, "y": np.array(["a", "b"])}, "'y' must hold numbers"),
    "NaN covariate": (
        linear_regression.model,
        LINE | {"x": np.full((10, 2), np.nan)},
        r"'x' has a missing entry .NaN. at position \(0, 0\)",
    ),
    "NaN hyperparameter": (poisson, {"n": 3, "rate": np.nan}, r"'rate' has a missing entry .NaN. at position \(\)"),
    "NaN that is used": (centred, {"y": np.array([1.0, np.nan])}, r"'y' has a missing entry .NaN. at position \(1,\)"),
    "masked covariate": (
        written,
        {"x": np.ma.masked_array(ONES, [0, 1, 0]), "y": ONES},
        r"'x' has a missing entry .*\(1,\)",
    ),
    "negative rate": (
        poisson,
        {"n": 3, "rate": -1.0},
        "'rate' of the Gamma at site 'mu' must be positive, but is -1.0.*'rate'",
    ),
    "negative precision": (
        linear_regression.model,
        LINE | {"b": -1},
        "'rate' of the Gamma at site 'tau' must be positive",
    ),
    "not positive definite": (normal_wishart.model, WISHART | {"scale": -np.eye(2)}, "site 'precision' must be"),
    "lengths of other rows": (
        markov_chain.model,
        {"num_sequences": 2, "num_steps": 3, "num_states": 2, "lengths": np.array([3, 2, 1])},
        r"do not fit together .*\(2,\), \(3,\).* lengths \(3,\)",
    ),
    "empty": (poisson, {"n": 0, "y": np.zeros(0)}, "data are empty: a plate of 'poisson'"),
    "all missing": (poisson, {"n": 3, "y": np.full(3, np.nan)}, "'y' has no value: all 3 are missing"),
    "infinite value": (normal_gamma.model, NORMAL | {"y": NORMAL["y"] * np.inf}, "outside the support"),
    "scaled chain": (tempered, {"heat": 2.0, "y": ONES}, "scale multiplies the density of the latent chain 'z'"),
    "part of a count": (
        multinomial,
        {"n": 1, "y": np.array([[5.0, np.nan, 5.0]])},
        r"partly missing event at position \(0,\)",
    ),
    "wrong total": (multinomial, {"n": 1, "y": np.array([[5, 5, 5]])}, "outside the support"),
    "decides on a random variable": (branching, {"n": 2}, "decides in Python on the value of a random variable"),
}


@pytest.mark.parametrize("case", WRONG)
def test_bad_input_gets_one_sentence(case: str) -> None:
    program, data, words = WRONG[case]
    with precision_scope(), pytest.raises(ValueError, match=words) as error:
        bind(program, data)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("data", [[1.0, 2.0], 3, "y"])
def test_data_must_be_a_mapping(data: Any) -> None:
    with pytest.raises(TypeError, match="data must be a dict"):
        bind(poisson, data)


def bound(program: Callable[..., Any], data: Any) -> Bound:
    with precision_scope():
        return bind(program, data)


@pytest.mark.parametrize("n", [3, np.int64(3), np.array(3), jnp.array(3), np.uint8(3)])
def test_a_size_may_be_any_kind_of_integer(n: Any) -> None:
    assert bound(poisson, {"n": n}).sites["y"].shape == (3,)


@pytest.mark.parametrize("rate", [2, 2.0, np.float32(2), np.int32(2), jnp.array(2.0), np.array(2)])
def test_a_float_parameter_is_data_whatever_the_number(rate: Any) -> None:
    found = bound(poisson, {"n": 3, "rate": rate})
    assert float(found.arrays["rate"]) == 2.0
    assert found.arrays["rate"].dtype == np.float64


def test_equal_structure_means_equal_trees() -> None:
    one, two = (jax.tree.structure(bound(poisson, {"n": 3, "rate": r, "y": ONES})) for r in (1, 2.5))
    assert one == two
    assert one != jax.tree.structure(bound(poisson, {"n": 4, "y": np.ones(4)}))


def test_partials_are_unwrapped_and_data_win() -> None:
    fixed = partial(partial(poisson, 3), rate=5.0)
    assert float(bound(fixed, {}).arrays["rate"]) == 5.0
    assert float(bound(fixed, {"rate": 7.0}).arrays["rate"]) == 7.0
    one, two = (jax.tree.structure(bound(partial(poisson, n=3), {})) for _ in range(2))
    assert one == two


def test_lambdas_and_handlers_are_programs() -> None:
    assert bound(lambda n: poisson(n, 2.0), {"n": 3, "y": ONES}).latent == ("mu",)
    with precision_scope():
        whole, half = bind(poisson, {"n": 3, "y": ONES}), bind(scale(poisson, scale=0.5), {"n": 3, "y": ONES})
        at = {"mu": jnp.array(1.3)}
        np.testing.assert_allclose(2 * half.log_joint(at), whole.log_joint(at))


def test_nested_arguments_are_arrays_and_structure() -> None:
    found = bound(nested, {"priors": {"mean": 1, "scale": np.array(2.0)}, "n": 2})
    assert list(found.arrays) == ["priors.scale"]
    assert found.inputs["priors"]["mean"] == 1


@pytest.mark.parametrize("fields", [("rate", "concentration"), ("concentration", "rate")])
def test_distributions_in_arguments_are_arrays_by_the_names_of_their_fields(
    fields: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def program(priors: dict[str, Any], n: int) -> None:
        rate = numpyro.sample("rate", priors["rate"])
        with numpyro.plate("row", n):
            numpyro.sample("y", dist.Poisson(rate))

    monkeypatch.setattr(dist.Gamma, "gather_pytree_data_fields", lambda: fields)  # NumPyro's differs between processes
    found = bound(program, {"priors": {"rate": dist.Gamma(2.0, 3.0)}, "n": 3, "y": ONES})
    assert {name: float(value) for name, value in found.arrays.items()} == {
        "priors.rate.concentration": 2.0,
        "priors.rate.rate": 3.0,
    }
    assert list(found.arrays) == sorted(found.arrays)
    prior = found.inputs["priors"]["rate"]
    assert type(prior) is dist.Gamma
    assert (float(prior.concentration), float(prior.rate)) == (2.0, 3.0)


def test_a_value_that_moves_with_a_latent_site_is_a_factor() -> None:
    def residuals(y: Any) -> None:
        mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
        numpyro.sample("e", dist.Normal(jnp.zeros(len(y)), 1.0).to_event(1), obs=y - mu)

    found = bound(residuals, {"y": ONES})
    assert (found.latent, found.computed, dict(found.observed)) == (("mu",), ("e",), {})
    assert bound(residuals, {"y": ONES, "e": ONES}).latent == ("mu",)


def test_names_with_a_slash_get_a_dot() -> None:
    """A result cannot hold a name with a slash."""
    assert bound(scope(poisson, prefix="a"), {"n": 3, "a/y": ONES}).latent == ("a.mu",)
    assert bound(scope(poisson, prefix="a", divider="."), {"n": 3, "a.y": ONES}).latent == ("a.mu",)


def test_a_row_that_is_masked_bounds_nothing() -> None:
    def uniform(y: Any, used: Any) -> None:
        top = numpyro.sample("top", dist.Uniform(0.0, 10.0))
        with numpyro.plate("row", len(y)), mask(mask=used):
            numpyro.sample("y", dist.Uniform(0.0, top), obs=y)

    data = {"y": np.array([1.0, 2.0, 3.5]), "used": np.array([True, True, False])}
    with precision_scope():
        log_joint = jax.jit(bind(uniform, data).log_joint)
        np.testing.assert_allclose(log_joint({"top": 2.5}), -np.log(10.0) - 2 * np.log(2.5))
        assert log_joint({"top": 1.5}) == -np.inf


def test_arrays_whose_values_shape_the_program_become_structure() -> None:
    found = bound(groups, {"group": np.array([0, 2, 1]), "spread": 2.0})
    assert found.sites["a"].shape == (3,)
    assert list(found.arrays) == ["spread"]
    assert "the program needs its values" in str(explain(groups, {"group": np.array([0, 2, 1])}))


def test_a_program_with_obs_has_the_same_density_as_one_without() -> None:
    x, y = np.array([1.0, 2.0]), np.array([0.5, 1.5])
    with precision_scope():
        at = {"w": jnp.array(0.3)}
        expected = bind(lambda x: written(x), {"x": x, "y": y}).log_joint(at)
        np.testing.assert_allclose(bind(written, {"x": x, "y": y}).log_joint(at), expected)


def test_missing_entries_of_obs_are_masked() -> None:
    x, y = np.array([1.0, 2.0, 3.0]), np.array([0.5, np.nan, 1.5])
    with precision_scope():
        at = {"w": jnp.array(0.3)}
        expected = bind(written, {"x": x[[0, 2]], "y": y[[0, 2]]}).log_joint(at)
        np.testing.assert_allclose(bind(written, {"x": x, "y": y}).log_joint(at), expected)


@pytest.mark.parametrize("first", [1.0, 0])
def test_nothing_depends_on_the_last_steps_of_a_scan(first: float) -> None:
    """So these may be missing."""
    y = np.array([1.0, 0.0, 1.0, np.nan, np.nan])
    with precision_scope():
        at = {"slope": jnp.array(0.7) if first else jnp.array([[0.3, 0.7], [0.6, 0.4]])}
        found, known = (bind(lagged, {"n": n, "first": first, "y": y[:n]}) for n in (5, 3))
        np.testing.assert_allclose(found.log_joint(at), known.log_joint(at))


MISSING_COUNTS = {
    "float": np.array([2.0, np.nan, 1.0]),
    "masked": np.ma.masked_array([2, -9, 1], [False, True, False]),
    "pandas": pd.Series([2, None, 1], dtype="Int64"),
    "xarray": xr.DataArray([2.0, np.nan, 1.0], dims="row"),
}


@pytest.mark.parametrize("kind", MISSING_COUNTS)
def test_missing_integers_are_masked(kind: str) -> None:
    with precision_scope():
        found = bind(poisson, {"n": 3, "y": MISSING_COUNTS[kind]})
        at = {"mu": jnp.array(1.3)}
        np.testing.assert_array_equal(found.present["y"], [True, False, True])
        np.testing.assert_allclose(found.log_joint(at), bind(poisson, {"n": 2, "y": [2, 1]}).log_joint(at))


def test_a_partly_missing_normal_event_is_integrated_out() -> None:
    """log p(y1, y3) of a row whose second entry is missing is the marginal of the Normal."""
    mean, root = np.array([1.0, -1.0, 0.5]), np.array([[1.0, 0, 0], [0.6, 0.8, 0], [-0.3, 0.2, 0.7]])
    y = np.array([[0.2, np.nan, 1.0], [0.4, 0.1, 0.3], [np.nan, np.nan, np.nan]])

    def model(mean: Any, covariance: Any) -> None:
        with numpyro.plate("row", 3):
            numpyro.sample("y", dist.MultivariateNormal(mean, covariance))

    with precision_scope():
        found = bind(model, {"mean": mean, "covariance": root @ root.T, "y": y}).log_joint({})
        parts = np.ix_([0, 2], [0, 2])
        first = dist.MultivariateNormal(mean[[0, 2]], (root @ root.T)[parts]).log_prob(y[0, [0, 2]])
        second = dist.MultivariateNormal(mean, root @ root.T).log_prob(y[1])
    np.testing.assert_allclose(found, first + second, rtol=1e-12)


def test_support_that_moves_with_a_latent_site_is_checked_at_every_point() -> None:
    """Without NumPyro's validation, Uniform(0, top) has density 1 / top above top as well."""
    with precision_scope():
        found = bind(scaled, {"x": ONES, "y": np.array([0.1, 0.9, 0.4])})
        assert found.guarded == ("y",)
        log_joint = jax.jit(found.log_joint)
        assert log_joint({"top": jnp.array(0.8)}) == -np.inf
        assert np.isfinite(log_joint({"top": jnp.array(0.95)}))


def test_a_frame_gives_columns_by_name() -> None:
    frame = pd.DataFrame({"x": [1.0, 2.0], "y": [0.1, 0.2]})
    found = bound(written, frame)
    np.testing.assert_array_equal(found.arrays["x"], [1.0, 2.0])


def test_categories_become_codes_with_their_labels() -> None:
    frame = pd.DataFrame({"y": pd.Categorical(["b", "a", None], categories=["a", "b", "c"])})
    found = bound(partial(categories, 3), frame)
    np.testing.assert_array_equal(np.asarray(found.observed["y"])[:2], [1, 0])
    np.testing.assert_array_equal(found.present["y"], [True, True, False])
    tree = fit(0, partial(categories, 3), frame, progress=False)
    assert tree["observed_data"]["y"].attrs["categories"] == ["a", "b", "c"]


def test_global_settings_change_nothing() -> None:
    """Results are the same inside and outside a user's own choice of precision, and the choice stays."""
    data = {"n": 3, "y": ONES}
    outside = bound(poisson, data).log_joint
    with jax.enable_x64(True):
        inside = bind(poisson, data).log_joint({"mu": jnp.array(0.7)})
        assert jax.config.jax_enable_x64
    with precision_scope():
        np.testing.assert_array_equal(outside({"mu": jnp.array(0.7)}), inside)
    assert not jax.config.jax_enable_x64


@pytest.mark.parametrize("event", [False, True])
def test_values_that_a_mask_leaves_out_may_be_anything(event: bool) -> None:
    """A code for what is unknown, such as -9, as people put it beside a mask."""

    def model(known: Any, y: Any) -> None:
        p = numpyro.sample("p", dist.Beta(2.0, 2.0))
        fn = dist.Bernoulli(p * jnp.ones(y.shape)).mask(known)
        numpyro.sample("y", fn.to_event(1) if event else fn, obs=y)

    y = np.array([1, 0, -9, 1, -9])
    known = y >= 0
    with precision_scope():
        bound = bind(model, {"known": known, "y": y})
        rows = bind(model, {"known": known[known], "y": y[known]})
        at = {"p": jnp.array(0.3)}
        np.testing.assert_allclose(bound.log_joint(at), rows.log_joint(at), rtol=1e-12)
    known[2] = True
    with pytest.raises(ValueError, match=r"'y' at position \(2,\) is -9, which is outside the support"):
        bind(model, {"known": known, "y": y})
