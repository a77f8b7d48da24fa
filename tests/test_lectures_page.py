"""The page that says where everything in the lectures is: it has all of it, and what it names exists."""

import json
import operator
import re
from pathlib import Path

import bayeslab as bl
from bayeslab.models import LECTURES
from errata import LECTURES as ERRATA

ROOT = Path(__file__).parents[1]

MODELS = """dirichlet_multinomial normal_known_variance normal_known_mean inverse_gamma normal_gamma normal_wishart
linear_regression structure structure_admixture lda hmm gp_regression beta_binomial normal_normal allele_frequency
linear_gaussian least_squares ridge james_stein polynomial_regression locally_weighted_regression bayesian_lasso
spike_slab group_lasso sparse_additive kernel_ridge kernel_logistic logistic_regression softmax_regression
poisson_regression glm gaussian_discriminant naive_bayes_bernoulli naive_bayes_multinomial naive_bayes_gaussian
perceptron svm gmm kmeans ppca factor_analysis ica vae linear_dynamical_system markov_chain nonlinear_state_space crf
memm bayes_net markov_random_field gaussian_bayes_net gaussian_markov_net rbm bayesian_neural_network mdp_model
linear_dynamics_model lqg"""
ALGORITHMS = """mle map newton_laplace gradient_descent coordinate_ascent conjugate_gradient em generalised_em cavi sgvi
amortised_vi inverse_cdf_sampling rejection_sampling importance_sampling sampling_importance_resampling gibbs
metropolis_hastings markov_chain_theory burn_in_thinning forward_backward viterbi baum_welch kalman_filter
particle_filter variable_elimination belief_propagation max_product contrastive_divergence reinforce"""
WITHOUT_POSTERIOR = {*(f"M{number}" for number in range(32, 40)), "K8", "C7", "C8", "B1", "B2", "B4"}
"""Errata of bounds and of boosting, which the page names in a sentence."""


def tables() -> dict[str, list[list[str]]]:
    """The rows of every table of the page, by the heading of its first column."""
    found: dict[str, list[list[str]]] = {}
    for line in (ROOT / "docs" / "lectures.md").read_text().splitlines():
        if line.startswith("|") and not line.startswith("|---"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if cells[1] == "lecture":
                rows = found.setdefault(cells[0], [])
            else:
                rows.append(cells)
    return found


def test_everything_in_the_lectures_has_its_place() -> None:
    assert {row[0] for row in tables()["model"]} == set(MODELS.split())
    assert {row[0] for row in tables()["algorithm"]} == set(ALGORITHMS.split())


def test_what_the_page_names_exists() -> None:
    modules = {lecture.__name__.rpartition(".")[2] for lecture in LECTURES}
    for row in tables()["model"]:
        assert set(re.findall("`(.*?)`", row[2])) <= modules, row[0]
    for row in [*tables()["algorithm"], *tables()["subject"]]:
        names = [re.sub(r"\(.*\)", "", name) for name in re.findall("`(.*?)`", row[2])]
        for name in names:
            settings = {"num_warmup", "thinning"}
            assert name in modules | settings or operator.attrgetter(name)(bl), row[0]
    for row in (row for rows in tables().values() for row in rows):
        for notebook in re.findall(r"\((notebooks/.*?)\)", row[3]):
            assert (ROOT / notebook).exists(), row[0]


IN_OTHER_WORDS = {
    "sgvi": "score function",
    "reinforce": "score function",
    "inverse_cdf_sampling": "inverse",
    "expfam_conjugacy": "statistics",
    "sufficient_statistics": "statistics",
    "cross_validation": "loo",
}
"""What notebooks call that which no module or function is named after."""


def test_notebooks_have_what_the_page_looks_for_in_them() -> None:
    texts = {path.name: read_notebook(path) for path in (ROOT / "notebooks").glob("*.ipynb")}
    for row in (row for rows in tables().values() for row in rows):
        names = [re.sub(r"\(.*\)", "", name).rpartition(".")[2] for name in re.findall("`(.*?)`", row[2])]
        words = [*names, IN_OTHER_WORDS.get(row[0], row[0])]
        for notebook in re.findall(r"\(notebooks/(.*?)\)", row[3]):
            assert any(word in texts[notebook] for word in words), (row[0], notebook)


def read_notebook(path: Path) -> str:
    """The text of the cells of a notebook."""
    return "\n".join("".join(cell["source"]) for cell in json.loads(path.read_text())["cells"])


def test_the_page_says_what_is_wrong_in_print() -> None:
    known = {erratum.label for chapters in ERRATA.values() for errata in chapters.values() for erratum in errata}
    links = re.findall(r"\[(\w+)\]\(errata\.md#(\w+)\)", (ROOT / "docs" / "lectures.md").read_text())
    assert all(label.lower() == target for label, target in links)
    cells = {cell for rows in tables().values() for row in rows for cell in row[4].split(", ") if cell}
    named = {re.fullmatch(r"\[(\w+)\]\(errata\.md#\w+\)", cell)[1] for cell in cells}  # type: ignore[index]
    assert named <= known
    assert known - named <= WITHOUT_POSTERIOR
