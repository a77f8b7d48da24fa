"""Whiteboard notes: graphical models, discrete and Gaussian."""

import itertools

import numpy as np

from errata.erratum import Erratum, Shown


def collider() -> Shown:
    a, c = np.array([0.7, 0.3]), np.array([0.4, 0.6])
    b = np.array([[0.05, 0.6], [0.5, 0.9]])  # p(B = 1 | A, C)
    joint = np.einsum("a,c,acb->abc", a, c, np.stack([1 - b, b], -1))
    printed = a * (b @ c)
    right = a * b[:, 1]
    return Shown(
        "$p(A = 1 \\mid B = 1, C = 1)$ in a graph $A \\to B \\leftarrow C$",
        printed=float(printed[1] / printed.sum()),
        right=float(right[1] / right.sum()),
        truth=float(joint[1, 1, 1] / joint[:, 1, 1].sum()),
        by="the table of all three variables",
    )


def messages() -> Shown:
    a = np.array([0.6, 0.4])
    ab, bc, cd, de = (np.array([[1 - p, p], [1 - q, q]]) for p, q in [(0.2, 0.7), (0.4, 0.9), (0.3, 0.5), (0.1, 0.8)])
    joint = np.einsum("a,ab,bc,cd,de->abcde", a, ab, bc, cd, de)
    message = a @ ab @ bc
    return Shown(
        "$p(c = 1)$ in a chain $a \\to b \\to c \\to d \\to e$",
        printed=float(message[1] * (cd @ de @ joint.sum((0, 1, 2, 3)))[1]),
        right=float(message[1]),
        truth=float(joint[:, :, 1].sum()),
        by="enumeration",
    )


def largest_product() -> Shown:
    generator = np.random.default_rng(0)
    own, edges = generator.uniform(0.2, 2, (4, 2)), generator.uniform(0.2, 2, (3, 2, 2))  # of b, a, c, d; b with others
    a, c, d = ((own[node] * edges[node - 1]).max(1) for node in (1, 2, 3))
    products = [
        own[range(4), states].prod() * edges[range(3), states[0], states[1:]].prod()
        for states in map(np.array, itertools.product(range(2), repeat=4))
    ]
    return Shown(
        "largest product of the factors of a star with centre $b$ and leaves $a$, $c$, $d$, the maximum in either form"
        " over $a$ and $b$",
        printed=float((a * c * d).max()),
        right=float((own[0] * a * c * d).max()),
        truth=float(max(products)),
        by="enumeration",
    )


def conditional_mean() -> Shown:
    mean, x = np.array([5.0, 1.0, 2.0]), np.array([0.0, 1.5, 1.0])
    precision = np.array([[2.0, -0.8, 0.5], [-0.8, 1.5, 0.2], [0.5, 0.2, 1.0]])
    covariance = np.linalg.inv(precision)
    gain = np.linalg.solve(covariance[1:, 1:], covariance[1:, 0])
    weights = precision[0, 1:] / precision[0, 0]
    return Shown(
        "mean of $x_1$ given $x_2 = 1.5$ and $x_3 = 1$, $\\mu = (5, 1, 2)$",
        printed=float(weights @ x[1:]),
        right=float(mean[0] - weights @ (x[1:] - mean[1:])),
        truth=float(mean[0] + gain @ (x[1:] - mean[1:])),
        by="conditioning on the covariance",
    )


def centred_parents() -> Shown:
    generator = np.random.default_rng(0)
    mean, weight = np.array([1.0, 2.0]), np.array([[0.0, 0.0], [0.5, 0.0]])
    noise = generator.normal(size=(100_000, 2))
    x = mean + np.linalg.solve(np.eye(2) - weight, noise.T).T
    return Shown(
        "mean of $x_2$ in the network $x - \\mu = W (x - \\mu) + \\varepsilon$ with $\\mu = (1, 2)$, $w_{21} = 0.5$",
        printed=float(mean[1] + weight[1, 0] * mean[0]),
        right=float(mean[1]),
        truth=float(x[:, 1].mean()),
        by="simulation",
        tolerance=0.015,
    )


ERRATA = (
    Erratum(
        "W17",
        "graphical models",
        r"$p(x_i \mid \text{rest}) \propto p(x_i \mid \text{parents})\, p(\text{child} \mid x_i)$",
        r"$p(x_i \mid \text{rest}) \propto p(x_i \mid \text{parents}) \prod_{\text{children}} p(\text{child} \mid x_i,"
        r" \text{its other parents})$",
        "The blanket has the other parents of the children too.",
        collider,
    ),
    Erratum(
        "W18",
        "belief propagation",
        r"$p(e) = \sum_d p(e \mid d)\, m_{b \to c}(c)$;"
        r" $p(c) = m_{b \to c}(c) \sum_d p(d \mid c) \sum_e p(e)\, p(e \mid d)$",
        r"$p(e) = \sum_d p(e \mid d)\, m_{c \to d}(d)$;"
        r" $p(c) = m_{b \to c}(c) \sum_d p(d \mid c) \sum_e p(e \mid d)$, where both sums are one",
        shown=messages,
    ),
    Erratum(
        "W19",
        "max-product",
        r"$\max_a \varphi_a \varphi_{ab}\, m_{c \to b}\, m_{d \to b}$",
        r"$\max_{a, b} \varphi_a \varphi_b \varphi_{ab}\, m_{c \to b}\, m_{d \to b}$",
        shown=largest_product,
    ),
    Erratum(
        "W33",
        "conditional random fields",
        r"$\Delta_l$ sums over $y_{1:t-1}$ in one line and over $y_0$ too in the next",
        r"$y_0$ is fixed: $\alpha_1(i) = \varphi_1(y_0, i, x)$",
    ),
    Erratum(
        "W34",
        "Gaussian networks",
        r"$x_i \mid \text{rest} \sim N\left(\sum_{j \ne i} \frac{\lambda_{ij}}{\lambda_{ii}} x_j,"
        r" \lambda_{ii}^{-1}\right)$",
        r"$x_i \mid \text{rest} \sim N\left(\mu_i - \sum_{j \ne i} \frac{\lambda_{ij}}{\lambda_{ii}} (x_j - \mu_j),"
        r" \lambda_{ii}^{-1}\right)$",
        "The sign is wrong, and the means are missing.",
        conditional_mean,
    ),
    Erratum(
        "W35",
        "Gaussian networks",
        r"$x_i \mid x_{pa} \sim N(\mu_i + w_i^\top x_{pa}, \sigma_i^2)$",
        r"$x_i \mid x_{pa} \sim N(\mu_i + w_i^\top (x_{pa} - \mu_{pa}), \sigma_i^2)$, as in"
        r" $x - \mu = W (x - \mu) + S \varepsilon$",
        r"The two forms stand side by side, but only in the second is $\mu_i$ the mean of $x_i$.",
        centred_parents,
    ),
)
