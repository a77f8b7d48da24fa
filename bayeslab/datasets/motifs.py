"""Aligned DNA motifs for the models `dirichlet_multinomial` and `weight_matrix`."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from bayeslab.datasets.arguments import checked_labels

LETTERS = "ACTG"
"""The letters of DNA, in the order of the lecture."""


def motif_data(sequences: Mapping[str, str]) -> dict[str, Any]:
    """The data of the motif models: sizes, prior counts of one for each letter, and the letters.

    sequences: motifs of one length in the letters A, C, T, G, by name.
    Returns num_motifs, num_positions, alpha (letter,) and y (motif, position) of codes 0 to 3, with
    the names, the positions counted from 1 and the letters as coordinates.
    Raises ValueError for no motif, unequal lengths or another letter, TypeError for what is no text by name.
    """
    if not isinstance(sequences, Mapping):
        raise TypeError(f"motifs are a mapping from names to text, not {type(sequences).__name__}.")
    for name, sequence in sequences.items():
        if not isinstance(sequence, str):
            raise TypeError(f"motif {name!r} is a {type(sequence).__name__}; expected text of the letters A, C, T, G.")
    if not sequences:
        raise ValueError("there is no motif: give at least one sequence.")
    first, length = next((name, len(sequence)) for name, sequence in sequences.items())
    for name, sequence in sequences.items():
        if len(sequence) != length:
            raise ValueError(f"motif {name!r} has {len(sequence)} letters but {first!r} has {length}: align them.")
        if strange := set(sequence) - set(LETTERS):
            letter = min(strange, key=sequence.index)
            position = sequence.index(letter) + 1
            raise ValueError(f"motif {name!r} has {letter!r} at position {position}: use A, C, T and G only.")
    if length == 0:
        raise ValueError(f"motif {first!r} is empty: give sequences of at least one letter.")

    codes = np.array([[LETTERS.index(letter) for letter in sequence] for sequence in sequences.values()])
    axes = {"motif": checked_labels("a motif", sequences), "position": np.arange(1, length + 1)}
    return {
        "num_motifs": len(sequences),
        "num_positions": length,
        "alpha": xr.DataArray(np.ones(len(LETTERS)), {"letter": list(LETTERS)}),
        "y": xr.DataArray(codes, axes),
    }


def rox1_sites() -> dict[str, str]:
    """Eight binding sites of the yeast repressor ROX1, named after the gene each one regulates.

    P. D'haeseleer (2006), What are DNA sequence motifs?, Nature Biotechnology 24, 423-425, figure 1.
    """
    return {
        "HEM13 1": "CCCATTGTTCTC",
        "HEM13 2": "TTTCTGGTTCTC",
        "HEM13 3": "TCAATTGTTTAG",
        "ANB1 1": "CTCATTGTTGTC",
        "ANB1 2": "TCCATTGTTCTC",
        "ANB1 3": "CCTATTGTTCTC",
        "ANB1 4": "TCCATTGTTCGT",
        "ROX1": "CCAATTGTTTTG",
    }
