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
from bayeslab.models import gaussian_hmm, gaussian_mixture, normal_gamma, structure_admixture

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


RUNS: dict[str, Callable[[], DataTree]] = {
    "Exact": partial(fitted, normal_gamma, bl.Exact(num_samples=20)),
    "NUTS": partial(fitted, normal_gamma, bl.NUTS(**SMALL)),
    "NUTS, states recovered": partial(fitted, gaussian_hmm, bl.NUTS(**SMALL)),
    "MCMC": partial(fitted, normal_gamma, bl.MCMC(BarkerMH, **SMALL)),
    "Gibbs": partial(fitted, gaussian_mixture, bl.Gibbs(**SMALL)),
    "Gibbs, counts": partial(fitted, structure_admixture, bl.Gibbs(**SMALL, counts=True)),
    "EM": partial(fitted, gaussian_mixture, bl.EM()),
    "MAP": partial(fitted, normal_gamma, bl.MAP()),
    "MeanField": partial(fitted, gaussian_mixture, bl.MeanField(num_samples=20)),
    "SVI": partial(fitted, normal_gamma, bl.SVI(num_samples=20)),
    "Laplace": partial(fitted, normal_gamma, bl.Laplace(num_samples=20)),
    "a distribution as an argument": given_a_prior,
    "predict": predicted,
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
    print(json.dumps({name: digest(RUNS[name]()) for name in sys.argv[1:]}))
