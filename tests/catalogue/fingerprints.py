"""Prints what methods give for one seed as digests of their arrays, in the order of the names given."""

import hashlib
import json
import sys
from collections.abc import Callable
from functools import partial

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import BarkerMH
from xarray import DataTree

import bayeslab as bl
from bayeslab.models import (
    gaussian_hmm,
    gaussian_mixture,
    gp_regression,
    hmm,
    lda,
    linear_dynamical_system,
    linear_regression,
    normal_gamma,
    normal_wishart,
    structure_admixture,
    structure_correlated,
)

SMALL = {"num_warmup": 20, "num_samples": 20, "num_chains": 2}


def fitted(lecture, method) -> DataTree:
    return bl.fit(5, lecture.model, lecture.example(), method, progress=False)


def predicted() -> DataTree:
    return bl.predict(6, normal_gamma.model, normal_gamma.example(), fitted(normal_gamma, bl.Exact(num_samples=20)))


def ranked() -> DataTree:
    return bl.sbc(7, normal_gamma.model, normal_gamma.example(), bl.Gibbs(**SMALL), 10, progress=False)


def under_any(prior: dist.Distribution, n: int) -> None:
    rate = numpyro.sample("rate", prior)
    with numpyro.plate("row", n):
        numpyro.sample("y", dist.Poisson(rate))


def given_a_prior() -> DataTree:
    data = {"prior": dist.LogNormal(0.0, 1.0), "n": 3, "y": np.array([1.0, 0.0, 2.0])}
    return bl.fit(8, under_any, data, bl.NUTS(**SMALL), progress=False)


def slope(x: np.ndarray, batch: int) -> None:
    a = numpyro.sample("a", dist.Normal(0.0, 3.0))
    tau = numpyro.sample("tau", dist.Gamma(2.0, 1.0))
    with numpyro.plate("row", len(x), subsample_size=batch):
        at = numpyro.subsample(x, event_dim=0)
        numpyro.sample("y", dist.Normal(a * at, 1 / tau**0.5))


def from_batches() -> DataTree:
    x = np.linspace(-1, 1, 40)
    method = bl.MeanField(num_steps=60, num_samples=10, num_starts=2)
    return bl.fit(9, slope, {"x": x, "batch": 8, "y": 2 * x}, method, progress=False)


def continued() -> DataTree:
    return bl.fit(
        5,
        normal_gamma.model,
        normal_gamma.example(),
        bl.NUTS(**SMALL),
        previous=fitted(normal_gamma, bl.NUTS(**SMALL)),
        progress=False,
    )


def recovered() -> DataTree:
    data = gaussian_mixture.example()
    tree = bl.fit(3, bl.collapse(gaussian_mixture.model, "z"), data, bl.NUTS(**SMALL), progress=False)
    return bl.recover(4, gaussian_mixture.model, data, tree)


def in_single_precision() -> DataTree:
    data = normal_gamma.example()
    return bl.fit(5, normal_gamma.model, data, bl.NUTS(**SMALL), dtype=np.float32, progress=False)


def without_a_method() -> DataTree:
    return bl.fit(5, hmm.model, hmm.example(), progress=False)


def predicted_process() -> DataTree:
    data = gp_regression.example()
    tree = bl.fit(5, gp_regression.model, data, bl.Exact(num_samples=10), progress=False)
    return DataTree.from_dict({"at": bl.process_at(gp_regression.model, data, tree, {"x": data["x"] + 0.1})})


def with_concentrations(method) -> DataTree:
    data = structure_admixture.example() | {"alpha": 2.0, "concentration": 2.0}
    return bl.fit(5, structure_admixture.model, data, method, progress=False)


def completed_states() -> DataTree:
    data = gaussian_hmm.example()
    tree = fitted(gaussian_hmm, bl.Gibbs(**SMALL))
    return bl.states.forecast(2, gaussian_hmm.model, data, tree, {"num_steps": data["num_steps"] + 3})


LONG = {"num_warmup": 20, "num_samples": 10, "num_chains": 2}
BATCHES = bl.mixed_membership.MeanField(num_steps=20, num_starts=1, batches=2)
NUMBERS = {"num_steps": 30, "num_starts": 2}

RUNS: dict[str, Callable[[], DataTree]] = {
    "Exact": partial(fitted, normal_gamma, bl.Exact(num_samples=20)),
    "Exact, a joint Normal": partial(fitted, linear_regression, bl.Exact(num_samples=20)),
    "Exact, matrices": partial(fitted, normal_wishart, bl.Exact(num_samples=20)),
    "Exact, states of a linear system": partial(fitted, linear_dynamical_system, bl.Exact(num_samples=5)),
    "NUTS": partial(fitted, normal_gamma, bl.NUTS(**SMALL)),
    "NUTS, states recovered": partial(fitted, gaussian_hmm, bl.NUTS(**SMALL)),
    "NUTS, weights integrated out": partial(fitted, linear_regression, bl.NUTS(**SMALL, collapse=("w",))),
    "NUTS, continued": continued,
    "NUTS, single precision": in_single_precision,
    "MCMC": partial(fitted, normal_gamma, bl.MCMC(BarkerMH, **SMALL)),
    "Gibbs": partial(fitted, gaussian_mixture, bl.Gibbs(**SMALL)),
    "Gibbs, chains of states": partial(fitted, hmm, bl.Gibbs(**SMALL)),
    "Gibbs, with NUTS": partial(fitted, structure_correlated, bl.Gibbs(**SMALL)),
    "Gibbs, jointly": partial(fitted, normal_gamma, bl.Gibbs(**SMALL, joint=(("tau", "mu"),))),
    "Gibbs, counts": partial(fitted, structure_admixture, bl.mixed_membership.Gibbs(**SMALL)),
    "Gibbs, counts, with NUTS": partial(fitted, structure_correlated, bl.mixed_membership.Gibbs(**LONG)),
    "Gibbs, counts of topics": partial(fitted, lda, bl.mixed_membership.Gibbs(**LONG)),
    "EM": partial(fitted, gaussian_mixture, bl.EM()),
    "EM, counts": partial(with_concentrations, bl.mixed_membership.EM(num_starts=3)),
    "MAP": partial(fitted, normal_gamma, bl.MAP()),
    "MAP, labels summed over": partial(fitted, gaussian_mixture, bl.MAP(num_starts=2)),
    "MAP, counts": partial(with_concentrations, bl.mixed_membership.MAP(num_starts=2)),
    "MAP, counts of topics": partial(fitted, lda, bl.mixed_membership.MAP(num_steps=30, basis="softmax")),
    "MeanField": partial(fitted, gaussian_mixture, bl.MeanField(num_samples=20)),
    "MeanField, jointly": partial(fitted, normal_gamma, bl.MeanField(num_samples=20, joint=(("tau", "mu"),))),
    "MeanField, subsampled": from_batches,
    "MeanField, counts": partial(fitted, structure_admixture, bl.mixed_membership.MeanField(**NUMBERS, num_samples=5)),
    "MeanField, counts in batches": partial(fitted, lda, BATCHES),
    "SVI": partial(fitted, normal_gamma, bl.SVI(num_samples=20)),
    "SVI, full rank": partial(fitted, gaussian_mixture, bl.SVI(bl.full_rank_normal(), num_steps=300, num_samples=20)),
    "Laplace": partial(fitted, normal_gamma, bl.Laplace(num_samples=20)),
    "Laplace, weights summed out": partial(fitted, linear_regression, bl.Laplace(num_samples=20, collapse=("w",))),
    "no method": without_a_method,
    "a distribution as an argument": given_a_prior,
    "recover": recovered,
    "predict": predicted,
    "process": predicted_process,
    "forecast": completed_states,
    "sbc": ranked,
}


def digest(tree: DataTree) -> str:
    found = hashlib.sha256()
    for group in sorted(tree.children):
        for name, array in sorted(tree[group].data_vars.items()):
            found.update(f"{group} {name} {array.dtype} {array.dims} {array.shape}".encode() + array.values.tobytes())
    return found.hexdigest()


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    print(json.dumps({name: digest(RUNS[name]()) for name in sys.argv[1:] or RUNS}))
