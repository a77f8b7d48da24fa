"""The blog on learning theory."""

import numpy as np

from errata.erratum import Erratum, Shown


def shattering() -> Shown:
    points = np.array([[1.0, 0.0, 0.0], [1.0, 1.0, 0.2], [1.0, 0.3, 1.0]])  # the first column is the constant
    generator = np.random.default_rng(0)
    u, v = generator.normal(size=(2, 20_000, 3))
    right = u**2 - v**2
    printed = right[:, [0, 0, 2]]

    def labellings(coefficients: np.ndarray) -> float:
        return float(len(np.unique(coefficients @ points.T >= 0, axis=0)))

    return Shown(
        "number of labellings of three points in the plane, over 20 000 random $u$ and $v$",
        printed=labellings(printed),
        right=labellings(right),
        truth=2.0**3,
        by="the VC dimension of half planes, 3",
    )


ERRATA = (
    Erratum(
        "B1",
        "VC dimension",
        r"$h_{u,v}(x) = 1\{(u_0^2 - v_0^2) + (u_0^2 - v_0^2) x_1 + \dots + (u_n^2 - v_n^2) x_n \ge 0\}$",
        r"$h_{u,v}(x) = 1\{(u_0^2 - v_0^2) + (u_1^2 - v_1^2) x_1 + \dots + (u_n^2 - v_n^2) x_n \ge 0\}$",
        shown=shattering,
    ),
    Erratum(
        "B2",
        "throughout",
        r"Formulas once more as plain text, without $\ge$, $\le$, $\sqrt{\ }$, $\sum$ and fractions",
        "The copy in TeX",
    ),
    Erratum(
        "B3",
        "model selection",
        "The part held out to choose a model is the test set",
        "It is the validation set",
    ),
    Erratum(
        "B4",
        "VC dimension",
        "The VC dimension is the number of parameters",
        r"It is the capacity of the class: $2n + 2$ parameters can define the same class as $n + 1$",
    ),
)
