"""What data of sequences may be, how they are padded, and what is said where they do not fit."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import bayeslab as bl
from bayeslab.datasets import dishonest_casino, sequences
from bayeslab.models import diagonal_gaussian_hmm, gaussian_hmm, hmm, markov_chain, poisson_hmm

Array = np.ndarray[Any, Any]
NAN = np.nan


def example(lecture: ModuleType, **changed: Any) -> Callable[[], Any]:
    return lambda: bl.bind(lecture.model, lecture.example() | changed)


def entry(at: tuple[int, ...], value: float, y: Any) -> Array:
    changed = np.array(y, float)
    changed[at] = value
    return changed


COMPLETE = np.array([[0, 0, 2, 1, 2], [1, 0, 0, 1, 2]])
WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "symbol": (example(hmm, y=entry((1, 3), 3, COMPLETE)), r"'y' at position \(1, 3\) is 3, .*interval 0 to 2"),
    "count": (example(poisson_hmm, y=entry((0, 1), -1, COMPLETE)), r"'y' at position \(0, 1\) is -1"),
    "half a count": (example(poisson_hmm, y=entry((0, 1), 0.5, COMPLETE)), r"\(0, 1\) is 0.5, .* takes integers"),
    "state": (example(markov_chain, y=np.full((3, 7), 3)), r"'y' at position \(0, 0\) is 3"),
    "nothing": (example(hmm, y=np.full((2, 5), NAN)), "'y' has no value: all 10 are missing"),
    "one axis": (example(hmm, y=COMPLETE[0]), r"'y' has shape \(5,\), but site 'y' of the program has shape \(2, 5\)"),
    "length": (example(hmm, lengths=np.array([2, 6])), r"must be an integer from 1 to 5, but is 6 at position \(1,\)"),
    "features": (
        example(diagonal_gaussian_hmm, num_features=3),
        r"'y' has shape \(2, 5, 2\), but .* shape \(2, 5, 3\)",
    ),
    "prior": (example(gaussian_hmm, beta=-1.0), "'rate' of the Gamma at site 'tau' must be positive"),
    "no sequence": (lambda: sequences([]), "there is no sequence"),
    "empty": (lambda: sequences({"a": [1, 2], "b": []}), "sequence 'b' is empty"),
    "unequal": (lambda: sequences([np.ones((2, 3)), np.ones((4, 2))]), "sequence 1 has 2 features, but 0 has 3"),
    "mixed": (lambda: sequences([np.ones((2, 3)), np.ones(4)]), "sequence 1 has no axis of features, but 0 has 3 f"),
    "axes": (lambda: sequences([np.ones((2, 3, 4))]), r"sequence 0 has shape \(2, 3, 4\)"),
    "casino": (lambda: dishonest_casino(0), "there must be a sequence and a step"),
    "dice": (lambda: dishonest_casino(9, loaded=(0.5, 0.5, 0.5, 0, 0, 0)), "six faces that sum to one"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_input_gets_one_sentence(case: str) -> None:
    call, words = WRONG[case]
    with pytest.raises(ValueError, match=words) as error:
        call()
    assert "\n" not in str(error.value)


def test_sequences_are_padded_and_labelled() -> None:
    data = sequences({"first": [3, 1, 2], "second": [0]})
    np.testing.assert_array_equal(data["lengths"], [3, 1])
    np.testing.assert_array_equal(data["y"], [[3, 1, 2], [0, NAN, NAN]])
    assert data["y"].indexes["sequence"].tolist() == ["first", "second"]
    assert sequences([[1, 2], [3, 4]])["y"].dtype.kind == "i"
    pairs = sequences([np.ma.masked_equal([[1, 9]], 9), [[1, 2], [3, 4]]])
    np.testing.assert_array_equal(pairs["y"], [[[1, NAN], [NAN, NAN]], [[1, 2], [3, 4]]])
    assert pairs["y"].dims == ("sequence", "step", "feature")
    with pytest.raises(TypeError, match="sequence 0 holds <U1, where numbers are expected"):
        sequences([["a", "b"]])


def test_the_casino_has_the_frequencies_that_it_states() -> None:
    throws = dishonest_casino(2000, 50, seed=1)
    loaded = throws["z"].values == 1
    assert abs(loaded.mean() - 1 / 3) < 0.02
    assert abs((throws["y"].values[loaded] == 5).mean() - 0.5) < 0.01
    assert abs((throws["y"].values[~loaded] == 5).mean() - 1 / 6) < 0.01
    np.testing.assert_array_equal(throws["y"], dishonest_casino(2000, 50, seed=1)["y"])
