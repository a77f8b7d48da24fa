"""Series for state-space models: the Nile, a simulated track, simulated returns."""

from typing import Any

import numpy as np
import xarray as xr

from bayeslab.datasets.arguments import as_integer, axis_lengths


def nile() -> xr.DataArray:
    """Annual flow (year,) of the Nile at Aswan, 1871 to 1970, in 10^8 cubic metres.

    G. W. Cobb (1978), The problem of the Nile: conditional solution to a changepoint problem, Biometrika 65, 243-251.
    """
    flow = [
        1120, 1160, 963, 1210, 1160, 1160, 813, 1230, 1370, 1140, 995, 935, 1110, 994, 1020, 960, 1180, 799, 958, 1140,
        1100, 1210, 1150, 1250, 1260, 1220, 1030, 1100, 774, 840, 874, 694, 940, 833, 701, 916, 692, 1020, 1050, 969,
        831, 726, 456, 824, 702, 1120, 1100, 832, 764, 821, 768, 845, 864, 862, 698, 845, 744, 796, 1040, 759,
        781, 865, 845, 944, 984, 897, 822, 1010, 771, 676, 649, 846, 812, 742, 801, 1040, 860, 874, 848, 890,
        744, 749, 838, 1050, 918, 986, 797, 923, 975, 815, 1020, 906, 901, 1170, 912, 746, 919, 718, 714, 740,
    ]  # fmt: skip
    return xr.DataArray(np.array(flow, float), {"year": np.arange(1871, 1971)})


def simulated_track(num_steps: int, *, seed: int = 0) -> dict[str, Any]:
    """The data of `bayeslab.models.linear_dynamical_system`: a ship by radar, which is silent for the third quarter.

    A state is a position and a velocity, to the east and to the north, in km and km a minute; y (step, direction) are
    measured positions, one a minute. Velocities change by N(0, 0.02^2) a minute, measurements are off by N(0, 0.3^2).
    Raises ValueError for a number below 1 and a seed below 0, TypeError for what is no integer.
    """
    (num_steps,) = axis_lengths(num_steps=num_steps)
    rng = np.random.default_rng(as_integer("seed", seed, 0))
    matrix = np.eye(4) + np.eye(4, k=2)
    # White noise in the acceleration, integrated over a minute.
    covariance = 0.02**2 * np.kron([[1 / 3, 1 / 2], [1 / 2, 1]], np.eye(2))
    z = rng.multivariate_normal([0.0, 0.0, 0.3, 0.1], covariance)
    y = np.empty((num_steps, 2))
    for step in range(num_steps):
        y[step] = z[:2] + rng.normal(0.0, 0.3, 2)
        z = matrix @ z + rng.multivariate_normal(np.zeros(4), covariance)
    y[num_steps // 2 : 3 * num_steps // 4] = np.nan
    return {
        "num_steps": num_steps,
        "mu1": np.zeros(4),
        "sigma1": np.diag([25.0, 25.0, 0.25, 0.25]),
        "a": matrix,
        "q": covariance,
        "c": np.eye(2, 4),
        "r": 0.3**2 * np.eye(2),
        "y": xr.DataArray(y, {"step": np.arange(num_steps), "direction": ["east", "north"]}),
    }


def simulated_returns(num_steps: int, *, seed: int = 0) -> dict[str, Any]:
    """The data of `bayeslab.models.nonlinear_state_space`: returns y (step,) whose volatility comes in clusters.

    The log of their variance has mean 0 and standard deviation 0.72, and is correlated with that of the step before by
    0.95.
    Raises ValueError for a number below 1 and a seed below 0, TypeError for what is no integer.
    """
    (num_steps,) = axis_lengths(num_steps=num_steps)
    rng = np.random.default_rng(as_integer("seed", seed, 0))
    phi, sd = 0.95, 0.72
    z = rng.normal(0.0, sd)
    y = np.empty(num_steps)
    for step in range(num_steps):
        z = phi * z + rng.normal(0.0, sd * np.sqrt(1 - phi**2))
        y[step] = rng.normal(0.0, np.exp(z / 2))
    return {"num_steps": num_steps, "y": y}
