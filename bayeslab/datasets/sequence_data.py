"""Sequences of unequal lengths as the data of a hidden Markov model, and sequences simulated from one."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from bayeslab.datasets.arguments import as_integer, as_share, axis_lengths, checked_labels, short_repr
from bayeslab.programs.data import values_and_presence

LOADED_DIE_PROBABILITIES = (0.1, 0.1, 0.1, 0.1, 0.1, 0.5)
"""The probabilities of the faces of the loaded die of Durbin et al. (1998), from one to six."""


def sequences(arrays: Mapping[str, ArrayLike] | Sequence[ArrayLike]) -> dict[str, Any]:
    """The data of a model of sequences: num_sequences, num_steps, lengths (sequence,) and y, padded to one length.

    arrays: sequences (step,) or (step, feature), by name or in order; numbers, NaN or masked where they are missing.
    y (sequence, step[, feature]) is labelled, and NaN where an entry is missing, as after the end of each sequence.
    Raises ValueError for no sequence, an empty one, unequal numbers of features and what is infinite, TypeError for no
    numbers.
    """
    is_array = isinstance(arrays, np.ndarray) and arrays.ndim > 0
    if not (is_array or isinstance(arrays, Mapping | Sequence)) or isinstance(arrays, str | bytes):
        raise TypeError(f"sequences are arrays by name or in a list, not {type(arrays).__name__}.")
    named = dict(arrays) if isinstance(arrays, Mapping) else dict(enumerate(arrays))
    if not named:
        raise ValueError("there is no sequence: give at least one.")
    masked = {name: _masked_sequence(name, values) for name, values in named.items()}
    first, features = next((name, values.shape[1:]) for name, values in masked.items())
    for name, values in masked.items():
        if values.shape[1:] != features:
            raise ValueError(
                f"sequence {name!r} has {_features(values.shape[1:])}, but {first!r} has {_features(features)}."
            )

    lengths = np.array([len(values) for values in masked.values()])
    y = np.ma.masked_all((len(masked), int(lengths.max()), *features), np.result_type(*masked.values()))
    for row, values in enumerate(masked.values()):
        y[row, : len(values)] = values
    filled = np.ma.filled(y.astype(float), np.nan) if np.ma.is_masked(y) else y.data
    dims = ["sequence", "step", "feature"][: y.ndim]
    axes = {"sequence": checked_labels("a sequence", masked), "step": np.arange(y.shape[1])}
    return {
        "num_sequences": len(masked),
        "num_steps": y.shape[1],
        "lengths": xr.DataArray(lengths, dims="sequence"),
        "y": xr.DataArray(filled, axes, dims),
    }


def dishonest_casino(
    num_steps: int,
    num_sequences: int = 1,
    *,
    seed: int = 0,
    stay: tuple[float, float] = (0.95, 0.9),
    loaded: Sequence[float] = LOADED_DIE_PROBABILITIES,
) -> xr.Dataset:
    """Simulated throws y (sequence, step), 0 for one to 5 for six, of a fair die (state 0) or a loaded one (state z).

    stay: probabilities that the fair and the loaded die are kept for the next throw; the fair one is the first.
    loaded: probabilities of the faces of the loaded die.
    R. Durbin, S. Eddy, A. Krogh and G. Mitchison (1998), Biological Sequence Analysis, section 3.2.
    Raises ValueError for numbers below 1, probabilities that are none and seeds below 0, TypeError for no integers.
    """
    num_steps, num_sequences = as_integer("num_steps", num_steps), as_integer("num_sequences", num_sequences)
    if num_steps < 1 or num_sequences < 1:
        raise ValueError(
            f"there must be a sequence and a step, but num_sequences is {num_sequences} and num_steps {num_steps}."
        )
    axis_lengths(num_sequences=num_sequences, num_steps=num_steps)
    faces = np.array([np.full(6, 1 / 6), _probabilities("loaded", loaded, 6)])
    if not np.isclose(faces[1].sum(), 1):
        raise ValueError(f"loaded is {short_repr(loaded)}; expected probabilities of six faces that sum to one.")
    stay_fair, stay_loaded = _probabilities("stay", stay, 2)
    transition_probs = np.array([[stay_fair, 1 - stay_fair], [1 - stay_loaded, stay_loaded]])
    rng = np.random.default_rng(as_integer("seed", seed, 0))
    z = np.zeros((num_sequences, num_steps), int)
    for step in range(1, num_steps):
        z[:, step] = rng.random(num_sequences) < transition_probs[z[:, step - 1], 1]
    below = faces.cumsum(1)[z]
    y = (rng.random((*z.shape, 1)) * below[..., -1:] >= below).sum(-1)
    axes = {"sequence": np.arange(num_sequences), "step": np.arange(num_steps)}
    return xr.Dataset({"z": (("sequence", "step"), z), "y": (("sequence", "step"), y)}, coords=axes)


def rib_and_rob(num_words: int, *, seed: int = 0, error_rate: float = 3 / 32) -> dict[str, xr.DataArray]:
    """Simulated words for `crf` and `memm`: x (sequence, step, feature) and labels y (sequence, step), three letters.

    A word is "rib", with the labels 0, 1, 4, or "rob", with 2, 3, 4. Each letter, but for a share error_rate, is what
    its label stands for; the others are any of the four letters. x has a column for every letter, 1 where it is.
    The first letters of both words are the same: only later ones tell the label of the first (J. Lafferty, A. McCallum
    and F. Pereira 2001, Conditional random fields, section 5.1, with other words of noise).
    Raises ValueError for a number below 1, an error_rate beyond 0 and 1 and seeds below 0, TypeError for no integers.
    """
    (num_words,), error_rate = axis_lengths(num_words=num_words), as_share("error_rate", error_rate)
    rng = np.random.default_rng(as_integer("seed", seed, 0))
    letters = "biro"
    is_rob = rng.random(num_words) < 0.5
    y = np.where(is_rob[:, None], [2, 3, 4], [0, 1, 4])
    meant = np.array([letters.index(letter) for letter in "rirob"])[y]
    written = np.where(rng.random(y.shape) < error_rate, rng.integers(0, len(letters), y.shape), meant)
    axes = {"sequence": np.arange(num_words), "step": np.arange(3), "feature": list(letters)}
    x = xr.DataArray(np.eye(len(letters))[written], axes, list(axes))
    return {"x": x, "y": xr.DataArray(y, {name: axes[name] for name in ("sequence", "step")}, ["sequence", "step"])}


def _masked_sequence(name: Any, values: ArrayLike) -> np.ma.MaskedArray:
    """The values of a sequence, with the missing ones masked."""
    try:
        sequence = np.ma.array(values)
    except (TypeError, ValueError):
        raise TypeError(
            f"sequence {name!r} is a {type(values).__name__}, where an array of numbers is expected."
        ) from None
    if sequence.dtype.kind not in "iufb":
        raise TypeError(f"sequence {name!r} holds {sequence.dtype}, where numbers are expected.")
    if sequence.ndim not in (1, 2):
        raise ValueError(f"sequence {name!r} has shape {sequence.shape}; expected (step,) or (step, feature).")
    if sequence.size == 0:
        raise ValueError(f"sequence {name!r} is empty: leave it out.")
    if sequence.dtype.kind != "f":
        return sequence
    if np.isinf(sequence.compressed()).any():
        raise ValueError(
            f"sequence {name!r} has a number that is infinite; expected finite ones, and NaN where missing."
        )
    return np.ma.masked_invalid(sequence)


def _probabilities(name: str, values: Any, length: int) -> np.ndarray:
    array, present = values_and_presence(values, name)
    if array.dtype.kind not in "iuf" or array.shape != (length,) or not (present & (array >= 0) & (array <= 1)).all():
        raise ValueError(f"{name} is {short_repr(values)}; expected {length} probabilities.")
    return array.astype(float)


def _features(shape: tuple[int, ...]) -> str:
    return f"{shape[0]} features" if shape else "no axis of features"
