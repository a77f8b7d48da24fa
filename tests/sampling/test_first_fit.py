"""What the first fit of a process has to wait for, counted: code that it compiles, and a module it does not load."""

import os
import subprocess
import sys

PROGRAM = """
import sys
import jax

compiled = []

def listen(event, seconds, **facts):
    if event.endswith("backend_compile_duration"):
        compiled.append(facts["fun_name"])

jax.monitoring.register_event_duration_secs_listener(listen)
import jax.numpy as jnp, numpy as np, numpyro, numpyro.distributions as dist
import bayeslab as bl

def model():
    precision = numpyro.sample("precision", dist.Gamma(2.0, 2.0))
    with numpyro.plate("group", 5):
        mean = numpyro.sample("mean", dist.Normal(0.0, 1 / jnp.sqrt(precision)))
        numpyro.sample("y", dist.StudentT(4.0, mean, 1.0))

tree = bl.fit(0, model, {"y": np.arange(5.0)}, progress=False)
assert tree.attrs["method"] == "NUTS"
assert "jit(start)" in compiled
print("blackjax" in sys.modules)
print([name for name in ("add", "log", "multiply", "reshape", "sqrt", "true_divide") if f"jit({name})" in compiled])
"""


def test_a_first_fit_waits_for_nothing_that_it_has_no_use_for() -> None:
    """BlackJAX takes half a second to load, and code for one operation 30 ms to compile."""
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=dict(os.environ), check=True
    )
    assert result.stdout.split() == ["False", "[]"]
