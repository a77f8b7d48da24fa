"""Data along a line, for Gaussian processes."""

import numpy as np

RANDOM = np.random.default_rng(4)
LINE = np.sort(RANDOM.uniform(0, 5, 12))
PLANE = RANDOM.normal(size=(12, 2))
Y = np.sin(2 * LINE) + 0.2 * RANDOM.normal(size=12)
NEW = np.linspace(-1.0, 6.0, 9)
