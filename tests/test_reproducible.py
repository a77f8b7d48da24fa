"""The same seed gives the same bits in another process, whatever ran there before and however it hashes names."""

import json
import os
import subprocess
import sys
from pathlib import Path


def digests(order: str, seed: str) -> dict[str, str]:
    command = [sys.executable, str(Path(__file__).with_name("fingerprints.py")), order]
    environment = os.environ | {"PYTHONHASHSEED": seed}
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return dict(json.loads(answer.stdout))


def test_every_method_gives_the_same_bits_in_another_process() -> None:
    forwards, backwards = digests("1", "1"), digests("-1", "2")
    assert len(set(forwards.values())) == len(forwards) > 10
    assert forwards == backwards
