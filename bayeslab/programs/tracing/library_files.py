"""Files of JAX, NumPyro and bayeslab: whose functions are analytic, and which code is of a library."""

import os
from pathlib import Path as FilePath

import jax
import numpyro

PACKAGE_FOLDERS = {
    name: os.path.dirname(module.__file__ or "") + os.sep for name, module in (("jax", jax), ("numpyro", numpyro))
}


PUBLIC_JAX_FILES = (
    PACKAGE_FOLDERS["jax"] + "_src/numpy/lax_numpy.py",
    PACKAGE_FOLDERS["jax"] + "_src/nn/functions.py",
)


_ANALYTIC_PROCESS_FILES = (
    *("distribution.py", "dense.py", "low_rank.py", "hilbert_space.py", "inducing_points.py", "periodic.py"),
    *("cholesky.py", "moments.py", "state_space"),
)
"""Files of Gaussian processes that are analytic. Kernels are not among them: they are functions of programs."""


_BAYESLAB_FOLDER = str(FilePath(__file__).parents[2]) + os.sep


_LECTURES_FOLDER = _BAYESLAB_FOLDER + "models" + os.sep
"""The folder of lectures in an installed package; lectures are programs like those of users."""


ANALYTIC_FILES = (
    *(
        PACKAGE_FOLDERS["jax"] + file
        for file in ("_src/scipy/special.py", "_src/ops/special.py", "_src/lax/special.py")
    ),
    _BAYESLAB_FOLDER + "distributions" + os.sep,
    *(_BAYESLAB_FOLDER + os.path.join("gaussian_processes", name) for name in _ANALYTIC_PROCESS_FILES),
)
"""Files in which every function is analytic inside of its domain, though it is computed in pieces."""

BENT_FILE = _BAYESLAB_FOLDER + os.path.join("distributions", "mixing", "hinge.py")
"""A file among them with a function that has a bend."""


ANALYTIC_FUNCTIONS = {
    (PACKAGE_FOLDERS["jax"] + "_src/lax/other.py", ("logaddexp", "logaddexp2")),
    (
        PACKAGE_FOLDERS["jax"] + "_src/nn/functions.py",
        ("softplus", "log_sigmoid", "softmax", "_softmax", "log_softmax", "logmeanexp", "log1mexp", "silu", "gelu"),
    ),
    (PACKAGE_FOLDERS["jax"] + "_src/numpy/ufuncs.py", ("sinc", "logaddexp", "logaddexp2")),
    (
        PACKAGE_FOLDERS["jax"] + "_src/numpy/linalg.py",
        ("slogdet", "det", "inv", "solve", "_slogdet_lu", "_det", "pinv"),
    ),
    (
        PACKAGE_FOLDERS["numpyro"] + "distributions/util.py",
        ("clamp_probs", "binary_cross_entropy_with_logits", "logmatmulexp", "_to_probs_bernoulli", "log1mexp"),
    ),
    (PACKAGE_FOLDERS["numpyro"] + "distributions/discrete.py", ("log_prob", "_to_logits_bernoulli", "_log_probs")),
    (PACKAGE_FOLDERS["numpyro"] + "distributions/mixtures.py", ("log_prob",)),
    (PACKAGE_FOLDERS["numpyro"] + "distributions/directional.py", ("log_prob",)),
    (PACKAGE_FOLDERS["numpyro"] + "distributions/transforms.py", ("_clipped_expit", "log_abs_det_jacobian")),
}
"""Analytic functions of other files: those written with absolute values, and guards against rounding."""


def is_analytic_function(file: str, function: str) -> bool:
    if file.startswith(ANALYTIC_FILES):
        return file != BENT_FILE
    return any(file == smooth_file and function in functions for smooth_file, functions in ANALYTIC_FUNCTIONS)


def is_jax_file(file: str) -> bool:
    return file.startswith(PACKAGE_FOLDERS["jax"])


def is_library_file(file: str) -> bool:
    """Whether a file is of JAX, NumPyro, tinygp or bayeslab, lectures apart."""
    is_library = file.startswith((*PACKAGE_FOLDERS.values(), _BAYESLAB_FOLDER)) and not file.startswith(
        _LECTURES_FOLDER
    )
    return is_library or f"{os.sep}tinygp{os.sep}" in file
