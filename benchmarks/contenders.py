"""Draws of the samplers that live in bayeslab's own environment; the scripts start it, once for each sampler."""

import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import jax
import numpy as np
import numpyro

import diagonal_mixture
import hidden_chain
from plain_numpy import POSTERIORS
from problems import NUM_CHAINS, NUM_INDEPENDENT, NUM_SAMPLES, NUM_WARMUP, SHORT_WARMUP
from worker import Answer, serve


def bayeslab_fit(problem: str, data: dict[str, Any]) -> Callable[[int], Answer]:
    """The whole call of `bl.fit`: checks, sampling and the DataTree."""
    import bayeslab as bl

    def run(seed: int) -> Answer:
        began = time.process_time()
        tree = bl.fit(seed, model(problem), data, bl.NUTS(NUM_WARMUP, NUM_SAMPLES, NUM_CHAINS), progress=False)
        seconds = time.process_time() - began
        return seconds, {name: draws.values for name, draws in tree["posterior"].items()}

    return run


def bayeslab_nuts(problem: str, data: dict[str, Any], **settings: bool) -> Callable[[int], Answer]:
    import bayeslab as bl

    return driven(model(problem), data, bl.NUTS(NUM_WARMUP, NUM_SAMPLES, NUM_CHAINS, **settings))


def bayeslab_gibbs(problem: str, data: dict[str, Any]) -> Callable[[int], Answer]:
    import bayeslab as bl

    return driven(model(problem), data, bl.Gibbs(SHORT_WARMUP, NUM_SAMPLES, NUM_CHAINS))


def bayeslab_polya_gamma(problem: str, data: dict[str, Any]) -> Callable[[int], Answer]:
    """Gibbs sampling of coefficients and Polya-Gamma variables, of which the coefficients are kept."""
    import bayeslab as bl

    run = driven(bl.augment(model(problem)), data, bl.Gibbs(SHORT_WARMUP, NUM_SAMPLES, NUM_CHAINS))

    def coefficients(seed: int) -> Answer:
        seconds, draws = run(seed)
        return seconds, {"w": draws["w"]}

    return coefficients


def polya_gamma_by_hand(problem: str, data: dict[str, Any]) -> Callable[[int], Answer]:
    """The same in NumPy, with variates of the package polyagamma."""
    from polyagamma import random_polyagamma

    x, y = data["x"], data["y"]
    size, offset = x.shape[1], x.T @ (y - 0.5)

    def run(seed: int) -> Answer:
        rng, began = np.random.default_rng(seed), time.process_time()
        draws = np.empty((NUM_CHAINS, NUM_SAMPLES, size))
        for chain in draws:
            w = np.zeros(size)
            for step in range(SHORT_WARMUP + NUM_SAMPLES):
                omega = random_polyagamma(1.0, x @ w, random_state=rng)
                root = np.linalg.cholesky(np.eye(size) + (x.T * omega) @ x)
                w = np.linalg.solve(root.T, np.linalg.solve(root, offset) + rng.normal(size=size))
                if step >= SHORT_WARMUP:
                    chain[step - SHORT_WARMUP] = w
        return time.process_time() - began, {"w": draws}

    return run


def bayeslab_exact(problem: str, data: dict[str, Any]) -> Callable[[int], Answer]:
    import bayeslab as bl

    return driven(model(problem), data, bl.Exact(NUM_INDEPENDENT))


def driven(program: Callable[..., None], data: dict[str, Any], method: Any = None) -> Callable[[int], Answer]:
    """What `bl.fit` does between its checks and the DataTree."""
    import bayeslab as bl
    from bayeslab.planning import plan
    from bayeslab.programs.program import precision_scope
    from bayeslab.sampling.runner import ChainStarts, drive
    from bayeslab.transforms.analysis import Analysis

    with precision_scope(np.float64):
        bound = bl.bind(program, data)
        method, sampler, _ = plan(Analysis(bound), method)

    def run(seed: int) -> Answer:
        with precision_scope(np.float64):
            key = jax.random.PRNGKey(seed)
            began = time.process_time()
            draws = drive(ChainStarts(key), method, sampler, bound).draws.samples
            return time.process_time() - began, draws

    return run


def numpyro_run(problem: str, data: dict[str, Any]) -> Callable[[int], Answer]:
    """A later call of `run` on the same `numpyro.infer.MCMC`, as its documentation advises."""
    numpyro.enable_x64()
    arguments, program = conditioned(model(problem), data)
    kernel = numpyro.infer.NUTS(program)
    mcmc = numpyro.infer.MCMC(
        kernel,
        num_warmup=NUM_WARMUP,
        num_samples=NUM_SAMPLES,
        num_chains=NUM_CHAINS,
        chain_method="sequential",
        progress_bar=False,
    )

    def run(seed: int) -> Answer:
        began = time.process_time()
        mcmc.run(jax.random.PRNGKey(seed), **arguments)
        draws = jax.block_until_ready(mcmc.get_samples(group_by_chain=True))
        return time.process_time() - began, draws

    return run


def numpyro_jit(problem: str, data: dict[str, Any]) -> Callable[[int], Answer]:
    """NumPyro's kernel with its defaults, all chains in turn, in one compiled function of key and data."""
    return _jitted(model(problem), data, dense_mass=False)


def numpyro_jit_dense(problem: str, data: dict[str, Any]) -> Callable[[int], Answer]:
    """The same with a dense mass matrix, which is not NumPyro's default."""
    return _jitted(model(problem), data, dense_mass=True)


def numpyro_mixture(problem: str, data: dict[str, Any], dense_mass: bool) -> Callable[[int], Answer]:
    """The same for the program that has a mixture density in place of labels."""
    return _jitted(diagonal_mixture.without_labels, data, dense_mass)


def numpyro_chain(problem: str, data: dict[str, Any], log_marginal: Callable[..., Any]) -> Callable[[int], Answer]:
    """The same for a chain whose states are summed over by a function."""
    return _compiled({"y": data["y"]}, partial(hidden_chain.without_states, log_marginal), dense_mass=False)


def _jitted(lecture: Callable[..., None], data: dict[str, Any], dense_mass: bool) -> Callable[[int], Answer]:
    return _compiled(*conditioned(lecture, data), dense_mass)


def _compiled(arguments: dict[str, Any], program: Callable[..., None], dense_mass: bool) -> Callable[[int], Answer]:
    numpyro.enable_x64()

    @jax.jit
    def sample(key: jax.Array, arguments: dict[str, Any]) -> dict[str, jax.Array]:
        def chain(key: jax.Array) -> dict[str, jax.Array]:
            kernel = numpyro.infer.NUTS(program, dense_mass=dense_mass)
            state = kernel.init(key, NUM_WARMUP, None, (), arguments)
            constrain = kernel.postprocess_fn((), arguments)

            def step(state: Any, _: None) -> tuple[Any, dict[str, jax.Array]]:
                state = kernel.sample(state, (), arguments)
                return state, constrain(state.z)

            return jax.lax.scan(step, state, None, NUM_WARMUP + NUM_SAMPLES)[1]

        draws = jax.lax.map(chain, jax.random.split(key, NUM_CHAINS))
        return {name: value[:, NUM_WARMUP:] for name, value in draws.items()}

    def run(seed: int) -> Answer:
        began = time.process_time()
        draws = jax.block_until_ready(sample(jax.random.PRNGKey(seed), arguments))
        return time.process_time() - began, draws

    return run


def numpy_exact(problem: str, data: dict[str, Any]) -> Callable[[int], Answer]:
    """Independent draws by hand, everything from the data on."""
    arrays = {name: value for name, value in data.items() if isinstance(value, np.ndarray)}

    def run(seed: int) -> Answer:
        began = time.process_time()
        draws = POSTERIORS[problem](np.random.default_rng(seed), **arrays, size=NUM_INDEPENDENT)
        return time.process_time() - began, {name: value[None] for name, value in draws.items()}

    return run


def model(problem: str) -> Callable[..., None]:
    if problem == "diagonal_mixture":
        return diagonal_mixture.with_labels
    if problem == "hidden_chain":
        return hidden_chain.with_states
    return import_module(f"bayeslab.models.{LECTURES.get(problem, problem)}").model


def conditioned(lecture: Callable[..., None], data: dict[str, Any]) -> tuple[dict[str, Any], Callable[..., Any]]:
    """The arguments of the lecture model, and the model given y, which is an argument as well."""
    sizes = {name: value for name, value in data.items() if not isinstance(value, np.ndarray)}
    arrays = {name: value for name, value in data.items() if isinstance(value, np.ndarray)}

    def program(y: Any, **arguments: Any) -> None:
        with numpyro.handlers.condition(data={"y": y}):
            lecture(**arguments, **sizes)

    return arrays, program


def given(problem: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    return arrays | SETTINGS[problem](len(arrays["y"]))


LECTURES = {"tumours": "logistic_regression", "simulated_classes": "logistic_regression"}
"""Problem -> the lecture that its program is of, where that has another name."""

SETTINGS = {
    "tumours": lambda rows: {},
    "simulated_classes": lambda rows: {},
    "linear_regression": lambda rows: {},
    "normal_gamma": lambda rows: {"num_rows": rows},
    "normal_wishart": lambda rows: {"num_rows": rows, "n0": 7.0},
    "diagonal_mixture": lambda rows: {"num_rows": rows},
    "hidden_chain": lambda steps: {"num_steps": steps},
}
"""Problem -> the arguments of its model that are no arrays."""

CONTENDERS = {
    "bayeslab": bayeslab_nuts,
    "bayeslab, statistics": partial(bayeslab_nuts, statistics=True),
    "bayeslab, statistics, diagonal": partial(bayeslab_nuts, statistics=True, dense_mass=False),
    "bayeslab, NUTS": bayeslab_nuts,
    "bayeslab, Gibbs": bayeslab_gibbs,
    "bayeslab, Polya-Gamma": bayeslab_polya_gamma,
    "polyagamma, by hand": polya_gamma_by_hand,
    "bayeslab, Exact": bayeslab_exact,
    "NumPy, exact posterior": numpy_exact,
    "bayeslab, whole fit": bayeslab_fit,
    "NumPyro MCMC.run": numpyro_run,
    "NumPyro, one jit": numpyro_jit,
    "NumPyro, one jit, dense": numpyro_jit_dense,
    "NumPyro, enumeration": numpyro_jit,
    "NumPyro, density": partial(numpyro_mixture, dense_mass=False),
    "NumPyro, scan": partial(numpyro_chain, log_marginal=hidden_chain.by_scan),
    "NumPyro, dynamax": partial(numpyro_chain, log_marginal=hidden_chain.by_dynamax),
    "NumPyro, density, dense": partial(numpyro_mixture, dense_mass=True),
}

if __name__ == "__main__":
    serve(lambda name, problem, arrays: CONTENDERS[name](problem, given(problem, arrays)))
