"""Epochs of a variational autoencoder beside the same in NumPyro, on one core, compilation excluded.

    python benchmarks/autoencoder.py --rounds 5

1,797 handwritten digits of 64 pixels, batches of 128 rows; see README.md.
"""

import time
from collections.abc import Callable

import numpy as np

from race import arguments, pin
from tables import goals, note, spread, table

BATCH, EPOCHS = 128, 20
PARTICLES = (1, 8)


def main() -> None:
    options = arguments(__doc__).parse_args()
    pin(options.core)  # before JAX counts the cores
    runners: dict[str, Callable[[], float]] = {}
    for particles in PARTICLES:
        runners[f"bayeslab, draws of a row: {particles}"] = ours(particles)
        runners[f"NumPyro, draws of a row: {particles}"] = plain(particles)
    costs: dict[str, list[float]] = {name: [] for name in runners}
    for _ in range(options.rounds):
        for name, run in runners.items():
            costs[name].append(run() / EPOCHS * 1e3)
            note(f"{name:30}{costs[name][-1]:8.2f} ms an epoch")
    table(["", "CPU ms an epoch"], [(name, spread(values)) for name, values in costs.items()])
    values = list(costs.values())
    ratios = [np.divide(*values[place : place + 2]) for place in (0, 2)]
    words = [f"bayeslab to NumPyro, draws of a row: {particles}" for particles in PARTICLES]
    goals([(name, ratio, "at most 1") for name, ratio in zip(words, ratios, strict=True)])


def ours(particles: int) -> Callable[[], float]:
    """The difference of two runs of the runner, so that starts, the last bound and draws count no more than there."""
    import jax

    import bayeslab as bl
    from bayeslab.models import vae
    from bayeslab.programs.program import precision_scope
    from bayeslab.sampling.runner import ChainStarts, drive
    from bayeslab.transforms.analysis import Analysis

    data = vae.data() | {"batch": BATCH}
    bound = bl.bind(vae.model, data)
    steps = EPOCHS * -(-len(data["y"]) // BATCH)

    def seconds(epochs: int) -> Callable[[], float]:
        method = bl.SVI(guide=vae.guide, num_steps=epochs * steps, num_samples=1, num_particles=particles)
        with precision_scope():
            sampler = method.plan(Analysis(bound))

        def run() -> float:
            with precision_scope():
                began = time.process_time()
                jax.block_until_ready(drive(ChainStarts(jax.random.PRNGKey(0)), method, sampler, bound).draws)
                return time.process_time() - began

        run()  # compiles
        return run

    short, long = seconds(1), seconds(2)
    return lambda: long() - short()


def plain(particles: int) -> Callable[[], float]:
    """All steps in one compiled loop."""
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    import optax
    from flax import linen
    from numpyro.contrib.module import flax_module
    from numpyro.infer import SVI, Trace_ELBO

    from bayeslab.datasets import handwritten_digits
    from bayeslab.programs.program import precision_scope

    with precision_scope():
        y = jnp.asarray(np.asarray(handwritten_digits()))
    noise, factors = 0.2, 4

    def network(outputs: int) -> linen.Sequential:
        double = {"param_dtype": jnp.float64}
        return linen.Sequential([linen.Dense(64, **double), linen.tanh, linen.Dense(outputs, **double)])

    def model() -> None:
        decoder = flax_module("decoder", network(y.shape[1]), input_shape=(factors,))
        with numpyro.plate("row", len(y), subsample_size=BATCH) as rows:
            z = numpyro.sample("z", dist.Normal(jnp.zeros(factors), 1.0).to_event(1))
            numpyro.sample("y", dist.Normal(decoder(z), noise).to_event(1), obs=y[rows])

    def guide() -> None:
        encoder = flax_module("encoder", network(2 * factors), input_shape=y.shape[1:])
        with numpyro.plate("row", len(y), subsample_size=BATCH) as rows:
            mean, log_scale = jnp.split(encoder(y[rows]), 2, axis=-1)
            numpyro.sample("z", dist.Normal(mean, jnp.exp(log_scale)).to_event(1))

    svi = SVI(model, guide, optax.adam(1e-2), Trace_ELBO(num_particles=particles))
    steps = EPOCHS * -(-len(y) // BATCH)
    loop = jax.jit(lambda state: jax.lax.scan(lambda now, _: svi.update(now), state, length=steps))
    with precision_scope():
        state = svi.init(jax.random.PRNGKey(0))

    def run() -> float:
        with precision_scope():
            began = time.process_time()
            jax.block_until_ready(loop(state))
            return time.process_time() - began

    run()  # compiles
    return run


if __name__ == "__main__":
    main()
