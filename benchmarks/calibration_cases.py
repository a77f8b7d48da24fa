"""The models that `calibration.py` calibrates: their data, what is ranked, and by how many draws."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

import bayeslab as bl
from bayeslab.models import (
    allele_frequency,
    bayesian_lasso,
    bayesian_lasso_scale_mixture,
    bayesian_neural_network,
    dirichlet_multinomial,
    dirichlet_process_mixture,
    factor_analysis,
    gaussian_discriminant,
    glm,
    gp_regression,
    gp_regression_unknown_kernel,
    group_lasso,
    hmm,
    ica,
    inverse_gamma,
    james_stein,
    kernel_ridge,
    kmeans,
    lda,
    least_squares,
    linear_gaussian,
    linear_regression,
    linear_regression_known_noise,
    locally_weighted_regression,
    logistic_regression,
    mixed_glm,
    mixed_regression,
    naive_bayes_bernoulli,
    naive_bayes_gaussian,
    naive_bayes_multinomial,
    noisy_ica,
    normal_gamma,
    normal_known_mean,
    normal_known_variance,
    normal_normal,
    normal_wishart,
    ordered_regression,
    perceptron,
    poisson_regression,
    ppca,
    quadratic_discriminant,
    ridge,
    softmax_regression,
    sparse_additive,
    spike_slab,
    structure,
    structure_admixture,
)

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "catalogue"))

from hierarchies import HIERARCHIES, Hierarchy

METHODS = {
    "Exact": (1000, bl.Exact(99)),
    "Gibbs": (1000, bl.Gibbs(100, 39, 1, thinning=10)),
    "NUTS": (1000, bl.NUTS(200, 39, 1, thinning=10)),
    "MeanField": (500, bl.MeanField(num_samples=99)),
    "Laplace": (500, bl.Laplace(num_samples=99)),
    "SVI": (200, bl.SVI(num_samples=99)),
}
APPROXIMATIONS = ("MeanField", "Laplace", "SVI")
LABELLED = {"NUTS": (200, bl.NUTS(200, 39, 1, thinning=5))}
"""Of programs with labels, where a step is dear. Their approximations keep to one order of components, and fail."""

Quantity = Callable[[dict[str, Any]], Any]


class Case(NamedTuple):
    """lecture: the module of one, or an entry of the catalogue of hierarchical models.
    quantities, sites: what does not depend on what components are called; all sites where there are none.
    methods: in place of those for all lectures. near: for improper priors, the method whose draws given the data are
    the true values (`bl.sbc(given=...)`).
    """

    lecture: ModuleType | Hierarchy
    data: dict[str, Any] = {}
    quantities: dict[str, Quantity] = {}
    sites: tuple[str, ...] = ()
    methods: dict[str, tuple[int, Any]] = {}
    near: Any = None

    @property
    def name(self) -> str:
        return self.lecture.name if isinstance(self.lecture, Hierarchy) else self.lecture.__name__.rpartition(".")[2]

    @property
    def program(self) -> Any:
        return self.lecture.program if isinstance(self.lecture, Hierarchy) else self.lecture.model

    @property
    def example(self) -> dict[str, Any]:
        """The data of the example, with those of the case."""
        own = self.lecture.data if isinstance(self.lecture, Hierarchy) else self.lecture.example()
        return own | self.data


def pairs(weights: Any) -> Any:
    return (weights @ weights.T)[np.triu_indices(len(weights), 1)]


def products(loadings: Any) -> Any:
    """Products of rows (row, factor), each with itself too, which rotations leave as they are."""
    return (loadings @ loadings.T)[np.triu_indices(len(loadings))]


FACTORS = {
    "products of loadings": lambda values: products(values["w"]),
    "first row without noise": lambda values: values["w"] @ values["z"][0] + values["mu"],
}
BY_FACTORS = {
    "NUTS": (1000, bl.NUTS(200, 39, 1, thinning=5, collapse=("z",))),
    "Gibbs": (1000, bl.Gibbs(300, 39, 1, thinning=30)),
    "MeanField": (1000, bl.MeanField(num_samples=99)),
}
IMPROPER = bl.NUTS(1000, 1000, 1, thinning=5)
HIERARCHICAL = {
    "Gibbs": (1000, bl.Gibbs(1000, 39, 1, thinning=50)),
    "NUTS": (1000, bl.NUTS(300, 39, 1, thinning=10)),
}
"""For hierarchical models with unknown scales: Gibbs sampling, slow to move where groups are alike, with many sweeps a
draw, and the method that `fit` takes, with a longer warm-up."""
BY_EFFECTS = {
    "NUTS": (1000, bl.NUTS(300, 39, 1, thinning=10, collapse=("w", "site_effect"), target_accept_prob=0.95)),
}
"""The same where effects can be integrated out."""
CALIBRATED_HIERARCHIES = ("components", "schools", "growth_curves_sensible", "nested", "slopes", "tanks", "counts")
"""Those with priors from which data can be drawn: vague ones have data of any size."""


CASES = [
    Case(dirichlet_multinomial),
    Case(normal_known_variance),
    Case(normal_known_mean),
    Case(inverse_gamma),
    Case(normal_gamma),
    Case(normal_wishart, {"n0": 8.0, "kappa0": 1.0}),
    Case(linear_regression_known_noise),
    Case(linear_regression),
    Case(logistic_regression),
    Case(softmax_regression),
    Case(poisson_regression),
    Case(least_squares, near=bl.Exact(1000)),
    Case(ridge, near=bl.Exact(1000)),
    Case(james_stein, near=IMPROPER),
    Case(locally_weighted_regression),
    Case(bayesian_lasso),
    Case(bayesian_lasso_scale_mixture),
    Case(spike_slab),
    Case(group_lasso),
    Case(sparse_additive),
    Case(kernel_ridge),
    Case(glm, {"tau0": 0.5}),
    Case(ordered_regression),
    Case(perceptron),
    Case(mixed_regression, methods=BY_EFFECTS),
    Case(mixed_glm),
    Case(gaussian_discriminant, {"n0": 8.0, "kappa0": 1.0}),
    Case(quadratic_discriminant, {"n0": 8.0, "kappa0": 1.0}),
    Case(naive_bayes_bernoulli),
    Case(naive_bayes_multinomial),
    Case(naive_bayes_gaussian),
    Case(normal_normal),
    Case(allele_frequency),
    Case(linear_gaussian),
    Case(
        kmeans,
        {},
        {
            "sums of squares": lambda values: (values["mu"] ** 2).sum(0),
            "same component": lambda values: 1.0 * (values["z"][0] == values["z"][1:]),
        },
    ),
    Case(ppca, {}, FACTORS, ("tau", "mu"), BY_FACTORS),
    Case(factor_analysis, {}, FACTORS, ("tau", "mu"), BY_FACTORS),
    Case(
        ica,
        {},
        {"products of weights": lambda values: products(values["w"].T)},
        methods={"NUTS": (1000, bl.NUTS(200, 39, 1, thinning=5))},
    ),
    Case(
        noisy_ica,
        {},
        {
            "products of mixing": lambda values: products(values["a"]),
            "first row without noise": lambda values: values["a"] @ values["s"][0],
        },
        ("tau",),
        {"NUTS": (1000, bl.NUTS(200, 39, 1, thinning=5)), "Gibbs": (1000, bl.Gibbs(300, 39, 1, thinning=30))},
    ),
    Case(
        bayesian_neural_network,
        {},
        {
            "products of first weights": lambda values: (values["w_1"][0] * values["w_2"][:, 0]).sum(),
            "squares": lambda values: (values["w_2"] ** 2).sum(),
        },
        ("b_2",),
    ),
    Case(
        dirichlet_process_mixture,
        {},
        {
            "occupied components": lambda values: 1.0 * (values["z"][:, None] == np.arange(4)).any(0).sum(),
            "same component": lambda values: 1.0 * (values["z"][0] == values["z"][1:]),
            "mean of first row": lambda values: values["mu"][values["z"][0]],
        },
        ("alpha",),
        {"Gibbs": (1000, bl.Gibbs(300, 39, 1, thinning=30))},
    ),
    Case(gp_regression),
    Case(
        gp_regression_unknown_kernel,
        methods={
            "Gibbs": (500, bl.Gibbs(500, 39, 1, thinning=50)),
            "NUTS": (1000, bl.NUTS(200, 39, 1, thinning=5, collapse=("f",))),
        },
    ),
    Case(
        hmm,
        {},
        {
            "emissions": lambda values: (values["emission"] ** 2).sum(),
            "stays": lambda values: values["moves"].trace(),
            "same state": lambda values: 1.0 * (values["z"][..., 0] == values["z"][..., -1]),
        },
    ),
    Case(
        structure,
        {},
        {
            "frequencies squared": lambda values: (values["frequencies"] ** 2).sum(),
            "together": lambda values: 1.0 * (values["z"][0] == values["z"][1:]),
        },
    ),
    Case(
        structure_admixture,
        {},
        {
            "expected alleles": lambda values: values["ancestry"] @ values["frequencies"][:, 0],
            "shared ancestry": lambda values: pairs(values["ancestry"]),
        },
    ),
    Case(
        lda,
        {"alpha": None, "concentration": None},
        {
            "shared topics": lambda values: pairs(values["shares"]),
            "words of documents": lambda values: values["shares"] @ values["topics"],
        },
        ("alpha", "concentration"),
    ),
]
OWN_METHODS = {
    "tanks": {"Gibbs": (300, bl.Gibbs(3000, 39, 1, thinning=300))},
    "slopes": {"NUTS": (1000, bl.NUTS(300, 39, 1, thinning=10, collapse=("mean_a", "mean_b", "a", "b")))},
}
"""Of hierarchical models. Ranks of the spread of tanks depend on the start with as few sweeps as others have. Slopes
have their Normal sites integrated out, as `fit` does it: in all coordinates NUTS needs longer to get around."""
CASES += [Case(HIERARCHIES[n], methods=HIERARCHICAL | OWN_METHODS.get(n, {})) for n in CALIBRATED_HIERARCHIES]
