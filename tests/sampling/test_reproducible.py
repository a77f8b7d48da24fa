"""The same seed gives the same bits in another process, whatever ran there before and however it hashes names."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence

import pytest

import fingerprints

# A chain, an optimiser, and draws of another verb: those that take least to compile.
FEW = ("NUTS", "SVI", "predict")


def digests(names: Sequence[str], seed: str) -> dict[str, str]:
    command = [sys.executable, fingerprints.__file__, *names]
    environment = os.environ | {"PYTHONHASHSEED": seed}
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return dict(json.loads(answer.stdout))


@pytest.mark.parametrize("names", [FEW, pytest.param(tuple(fingerprints.RUNS), marks=pytest.mark.slow)], ids=len)
def test_methods_give_the_same_bits_in_another_process(names: tuple[str, ...]) -> None:
    forwards, backwards = digests(names, "1"), digests(names[::-1], "2")
    assert len(set(forwards.values())) == len(forwards) == len(names)
    assert len(fingerprints.RUNS) > 10
    assert forwards == backwards
