"""Missing elements that are moved by themselves: their Jacobian within plates, and rules beside missing labels."""

from collections.abc import Callable
from typing import Any

import arviz_stats
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.flatten_util import ravel_pytree
from scipy import stats

import bayeslab as bl
from bayeslab.methods.wrappers.imputed import gaps_of
from bayeslab.programs import unconstrained
from bayeslab.programs.missing.gaps import without_given_elements
from bayeslab.programs.program import precision_scope

RNG = np.random.default_rng(0)
NAN = np.nan


def squares(d: Any, y: Any) -> None:
    with numpyro.plate("row", len(y)):
        value = numpyro.sample("d", dist.Gamma(2.0, 1.0), obs=d)
        numpyro.sample("y", dist.Normal(value**2, 1.0), obs=y)


def weighted(d: Any) -> None:
    rate = numpyro.sample("rate", dist.Gamma(3.0, 1.0))
    with numpyro.plate("row", 4), numpyro.handlers.scale(scale=np.arange(1.0, 5.0)):
        value = numpyro.sample("d", dist.Gamma(2.0, rate), obs=d)
        numpyro.sample("y", dist.Normal(value**2, 1.0), obs=np.ones(4))


def in_two_plates(d: Any) -> None:
    with numpyro.plate("column", 2, dim=-1), numpyro.plate("row", 4, dim=-2):
        value = numpyro.sample("d", dist.LogNormal(0.0, 1.0), obs=d)
        numpyro.sample("y", dist.Normal(value**2, 1.0), obs=np.ones((4, 2)))


def shares(d: Any) -> None:
    with numpyro.plate("row", 4):
        value = numpyro.sample("d", dist.Dirichlet(jnp.ones(3)), obs=d)
        numpyro.sample("y", dist.Normal(value[..., 0], 1.0), obs=np.ones(4))


def masked(d: Any) -> None:
    with numpyro.plate("row", 4), numpyro.handlers.mask(mask=np.array([True, True, False, True])):
        value = numpyro.sample("d", dist.Gamma(2.0, 1.0), obs=d)
        numpyro.sample("y", dist.Normal(value**2, 1.0), obs=np.ones(4))


def masked_without_a_plate(d: Any) -> None:
    with numpyro.handlers.mask(mask=np.array([True, True, False, True])):
        value = numpyro.sample("d", dist.Gamma(2.0 * np.ones(4), 1.0), obs=d)
        numpyro.sample("y", dist.Normal(value**2, 1.0), obs=np.ones(4))


def with_missing_rows(d: np.ndarray, *places: Any) -> np.ndarray:
    for place in places:
        d[place] = NAN
    return d


CASES: dict[str, tuple[Callable[..., None], np.ndarray]] = {
    "one, weighted": (weighted, with_missing_rows(np.ones(4), 2)),
    "two, weighted": (weighted, with_missing_rows(np.ones(4), 1, 3)),
    "three in two plates": (in_two_plates, with_missing_rows(np.ones((4, 2)), (1, 0), (2, 0), (3, 1))),
    "a column of two plates": (in_two_plates, with_missing_rows(np.ones((4, 2)), (slice(None), 0))),
    "one, masked": (masked, with_missing_rows(np.ones(4), 1)),
    "two, masked": (masked, with_missing_rows(np.ones(4), 1, 3)),
    "two, masked without a plate": (masked_without_a_plate, with_missing_rows(np.ones(4), 0, 1)),
    "shares": (shares, with_missing_rows(RNG.dirichlet(np.ones(3), 4), 1, 3)),
}


@pytest.mark.parametrize("case", CASES)
def test_the_density_of_positions_has_one_jacobian(case: str) -> None:
    """That of the values by their positions, by differentiation."""
    program, d = CASES[case]
    with precision_scope():
        bound = bl.bind(program, {"d": d})
        form = without_given_elements(bound, gaps_of(bound, ()))
        position = unconstrained.random_position(jax.random.PRNGKey(1), form)
        flat, unravel = ravel_pytree(position)

        def values(flat: Any) -> Any:
            found = unconstrained.constrain(form, unravel(flat))
            free = {name: found[name][..., :-1] if program is shares else found[name] for name in form.latent}
            return ravel_pytree(free)[0]

        latent = {name: unconstrained.constrain(form, position)[name] for name in form.latent}
        jacobian = np.linalg.slogdet(jax.jacfwd(values)(flat))[1]
        density = unconstrained.log_posterior(form, position)
        np.testing.assert_allclose(density - form.log_joint(latent), jacobian, rtol=1e-10)


def test_missing_bounded_covariates_have_their_posterior() -> None:
    """Against quadrature: two of four, in a plate, which ended in shapes that do not fit; one had E[d] = 1.18."""
    y, grid = np.array([1.0, 1.0, 0.5, 0.0]), np.linspace(1e-4, 12, 20001)
    for missing in ([2], [1, 2]):
        d = with_missing_rows(np.array([0.3, 0.5, 0.7, 0.2]), *missing)
        method = bl.NUTS(num_warmup=500, num_samples=1500, num_chains=2, target_accept_prob=0.95)
        tree = bl.fit(0, squares, {"y": y, "d": d}, method, progress=False)
        for place in missing:
            mass = grid * np.exp(-grid - 0.5 * (y[place] - grid**2) ** 2)
            draws = tree.posterior["d"][..., place]
            error = float(draws.mean()) - (grid * mass).sum() / mass.sum()
            assert abs(error) < 5 * float(draws.std()) / np.sqrt(float(arviz_stats.ess(tree)["d"][place]))


def earnings(sex: Any, schooling: Any, earned: Any) -> None:
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    with numpyro.plate("row", len(sex)):
        is_woman = numpyro.sample("sex", dist.Bernoulli(0.4), obs=sex)
        years = numpyro.sample("schooling", dist.Normal(1.0 * is_woman, 1.0), obs=schooling)
        numpyro.sample("earned", dist.Normal(slope * years + is_woman, 0.5), obs=earned)


def test_a_row_may_lack_a_label_and_a_number() -> None:
    """Against sums over the labels, the number integrated out in closed form, on a grid of slopes."""
    sex, years = np.array([0.0, 1.0, NAN, 1.0]), np.array([0.1, 0.9, NAN, -0.3])
    earned, slopes = np.array([0.2, 1.8, 0.4, 1.1]), np.linspace(-4, 4, 4001)
    log_mass = stats.norm.logpdf(slopes)
    for place in (0, 1, 3):
        log_mass += stats.norm.logpdf(earned[place], slopes * years[place] + sex[place], 0.5)
    both = [
        share * stats.norm.pdf(earned[2], slopes * label + label, np.hypot(slopes, 0.5))
        for label, share in ((0, 0.6), (1, 0.4))
    ]
    mass = np.exp(log_mass) * sum(both)
    right = (slopes * mass).sum() / mass.sum()
    data = {"sex": sex, "schooling": years, "earned": earned}
    tree = bl.fit(0, earnings, data, bl.NUTS(num_warmup=300, num_samples=1000, num_chains=2), progress=False)
    draws = tree.posterior["slope"]
    assert abs(float(draws.mean()) - right) < 4 * float(draws.std()) / np.sqrt(float(arviz_stats.ess(tree)["slope"]))
