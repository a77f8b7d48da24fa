"""CPU milliseconds of the computations of hidden Markov models, by one library; `hidden_markov.py` starts it.

python recursions.py bayeslab|dynamax|hmmlearn float32|float64
"""

import json
import sys
import time

import numpy as np

CALLS = 7
GAUSSIAN = {"gaussian, T = 100,000": 100_000, "gaussian, T = 1,000,000": 1_000_000}
PLANE, SYMBOLS = "3 features, T = 100,000", "200 x 500 symbols"


def fastest(call) -> float:
    """CPU milliseconds."""
    call()
    times = []
    for _ in range(CALLS):
        began = time.process_time()
        call()
        times.append(time.process_time() - began)
    return 1e3 * min(times)


def problem(dtype):
    """Parameters with four states, and series drawn without them: times do not depend on the values."""
    rng = np.random.default_rng(0)
    start, moves = np.ones(4) / 4, rng.dirichlet(2 * np.ones(4), 4)
    mean, sd = np.array([-2.0, -0.5, 0.5, 2.0]), np.array([0.5, 1.0, 1.5, 1.0])
    series = {name: rng.normal(size=size).astype(dtype) for name, size in GAUSSIAN.items()}
    root = rng.normal(size=(4, 3, 3))
    plane = rng.normal(size=(4, 3)), root @ root.mT + np.eye(3), rng.normal(size=(100_000, 3)).astype(dtype)
    symbols = rng.dirichlet(np.ones(8)), rng.dirichlet(np.ones(8), 8), rng.dirichlet(np.ones(30), 8)
    return (start, moves, mean, sd), series, plane, (*symbols, rng.integers(0, 30, (200, 500)))


def bayeslab(dtype):
    import jax
    import jax.numpy as jnp

    from bayeslab import MarkovChain
    from bayeslab.distributions import FactoredLogLikelihood

    def on(device_call, *arguments):
        return lambda: jax.block_until_ready(device_call(*arguments))

    def cells(evidence_of, expected, start, moves, parameters, data):
        """evidence_of: (parameters, data) -> (*sequence, step, state), an array or a product. expected: statistics of
        every state, from the derivative with respect to an array (row, state), or parameters of a product, and data."""

        def chain(start, moves, evidence):
            return MarkovChain(start, moves, evidence.shape[-2], validate_args=False)

        def log_marginal(start, moves, parameters, data):
            evidence = evidence_of(parameters, data)
            return chain(start, moves, evidence).log_marginal(evidence).sum()

        def em(start, moves, parameters, data):
            evidence = evidence_of(parameters, data)
            product = isinstance(evidence, FactoredLogLikelihood)

            def value(start, moves, given):
                chosen = evidence.with_parameters(given) if product else given
                return chain(start, moves, chosen).log_marginal(chosen).sum()

            given = evidence.parameters if product else evidence
            value, (first, counts, visits) = jax.value_and_grad(value, argnums=(0, 1, 2))(start, moves, given)
            joint = counts * moves
            flat = visits.reshape(-1, visits.shape[-1])
            return value, first * start, joint / joint.sum(-1, keepdims=True), expected(flat, data)

        def smoothed(start, moves, parameters, data):
            evidence = evidence_of(parameters, data)
            return chain(start, moves, evidence).smoothed(evidence)

        def path(start, moves, parameters, data):
            evidence = evidence_of(parameters, data)
            return chain(start, moves, evidence).most_probable_path(evidence)

        calls = {
            "log likelihood": log_marginal,
            "gradient": jax.value_and_grad(log_marginal, argnums=(0, 1, 2)),
            "smoothing": smoothed,
            "Viterbi": path,
            "EM iteration": em,
        }
        arguments = jax.tree.map(jnp.asarray, (start, moves, parameters, data))
        return {name: fastest(on(jax.jit(call), *arguments)) for name, call in calls.items()}

    (start, moves, mean, sd), series, (means, covariances, points), (first, rows, symbols, text) = problem(dtype)
    start, moves, mean, sd, first, rows, symbols = (
        np.asarray(x, dtype) for x in (start, moves, mean, sd, first, rows, symbols)
    )

    def normal(parameters, rows):
        """rows: (1, x, x^2), laid out once for a series, before the clock starts."""
        mean, sd = parameters
        constant = -0.5 * (mean / sd) ** 2 - jnp.log(sd) - 0.5 * np.log(2 * np.pi)
        return rows.with_parameters(jnp.stack([constant, mean / sd**2, -0.5 / sd**2], -1))

    def laid(rows):
        return jax.jit(FactoredLogLikelihood.of)(rows, np.zeros((4, rows.shape[-1]), dtype))

    def of_product(sums, _):
        return sums

    def counted(states, x):
        return jax.ops.segment_sum(states, x.ravel(), 30)

    upper = np.triu_indices(3)

    def products(x):
        """What the log density of a multivariate Normal is linear in: 1, x_i and x_i x_j."""
        return np.concatenate([np.ones_like(x[:, :1]), x, x[:, upper[0]] * x[:, upper[1]]], 1)

    def multivariate(parameters, rows):
        means, covariances = parameters
        precision = jnp.linalg.inv(covariances)
        linear = jnp.einsum("kij,kj->ki", precision, means)
        constant = -0.5 * (jnp.linalg.slogdet(2 * np.pi * covariances)[1] + (means * linear).sum(-1))
        quadratic = -precision[:, *upper] * np.where(upper[0] == upper[1], 0.5, 1.0).astype(dtype)
        return rows.with_parameters(jnp.concatenate([constant[:, None], linear, quadratic], 1))

    result = {}
    for name, x in series.items():
        result[name] = cells(
            normal, of_product, start, moves, (mean, sd), laid(np.stack([np.ones_like(x), x, x**2], -1))
        )
    both = means.astype(dtype), covariances.astype(dtype)
    result[PLANE] = cells(multivariate, of_product, start, moves, both, laid(products(points)))

    def picked(p, x):
        return jax.lax.optimization_barrier(jnp.log(p)).T[x]  # or the log is taken of every entry picked

    return result | {SYMBOLS: cells(picked, counted, first, rows, symbols, text)}


def dynamax(dtype):
    import jax
    import jax.numpy as jnp
    from dynamax.hidden_markov_model import CategoricalHMM, GaussianHMM

    def cells(model, parameters, data, batch):
        parameters = jax.tree.map(lambda x: jnp.asarray(x, dtype) if hasattr(x, "dtype") else x, parameters)
        each = jax.vmap if batch else (lambda f: f)

        def log_marginal(parameters, data):
            return each(lambda x: model.marginal_log_prob(parameters, x))(data).sum()

        def em(parameters, data):
            statistics, _ = jax.vmap(lambda x: model.e_step(parameters, x))(data if batch else data[None])
            return model.m_step(
                parameters, properties, statistics, model.initialize_m_step_state(parameters, properties)
            )

        properties = model.initialize(jax.random.PRNGKey(0))[1]
        calls = {
            "log likelihood": log_marginal,
            "gradient": jax.value_and_grad(log_marginal),
            "smoothing": lambda p, data: each(lambda x: model.smoother(p, x).smoothed_probs)(data),
            "Viterbi": lambda p, data: each(lambda x: model.most_likely_states(p, x))(data),
            "EM iteration": em,
        }
        found = {}
        for name, call in calls.items():
            run, given = jax.jit(call), jnp.asarray(data)
            found[name] = fastest(lambda run=run, given=given: jax.block_until_ready(run(parameters, given)))
        return found

    (start, moves, mean, sd), series, (means, covariances, points), (first, rows, symbols, text) = problem(dtype)
    result, scalar, plane = {}, GaussianHMM(4, 1), GaussianHMM(4, 3)
    for name, x in series.items():
        given = {"initial_probs": start, "transition_matrix": moves, "emission_means": mean[:, None]}
        parameters = scalar.initialize(**given, emission_covariances=(sd**2)[:, None, None])[0]
        result[name] = cells(scalar, parameters, x[:, None], False)
    given = {"initial_probs": start, "transition_matrix": moves, "emission_means": means}
    parameters = plane.initialize(**given, emission_covariances=covariances)[0]
    result[PLANE] = cells(plane, parameters, points, False)
    model = CategoricalHMM(8, 1, 30)
    given = {"initial_probs": first, "transition_matrix": rows, "emission_probs": symbols[:, None]}
    return result | {SYMBOLS: cells(model, model.initialize(**given)[0], text[..., None], True)}


def hmmlearn(dtype):
    from hmmlearn.hmm import CategoricalHMM, GaussianHMM

    def cells(model, data, lengths=None):
        def em():
            model.n_iter = 1
            return model.fit(data, lengths)

        return {
            "log likelihood": fastest(lambda: model.score(data, lengths)),
            "smoothing": fastest(lambda: model.predict_proba(data, lengths)),
            "Viterbi": fastest(lambda: model.predict(data, lengths)),
            "EM iteration": fastest(em),
        }

    (start, moves, mean, sd), series, (means, covariances, points), (first, rows, symbols, text) = problem(dtype)
    settings = {"implementation": "scaling", "init_params": "", "tol": 0.0}
    result = {}
    model = GaussianHMM(4, "diag", **settings)
    model.startprob_, model.transmat_, model.means_, model.covars_ = start, moves, mean[:, None], (sd**2)[:, None]
    for name, x in series.items():
        result[name] = cells(model, x[:, None])
    model = GaussianHMM(4, "full", **settings)
    model.startprob_, model.transmat_, model.means_, model.covars_ = start, moves, means, covariances
    result[PLANE] = cells(model, points)
    model = CategoricalHMM(8, **settings)
    model.startprob_, model.transmat_, model.emissionprob_, model.n_features = first, rows, symbols, 30
    return result | {SYMBOLS: cells(model, text.reshape(-1, 1), [500] * 200)}


LIBRARIES = {"bayeslab": bayeslab, "dynamax": dynamax, "hmmlearn": hmmlearn}

if __name__ == "__main__":
    library, dtype = sys.argv[1:]
    print(json.dumps(LIBRARIES[library](dtype)))
