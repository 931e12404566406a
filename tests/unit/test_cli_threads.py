"""How many threads numpy gets in a process of the command line."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, sys
from noosphere.server.cli.main import run
early = "numpy" in sys.modules
run(["--help"])
print(early, os.environ["OPENBLAS_NUM_THREADS"], file=sys.stderr)
"""


@pytest.mark.parametrize(("given", "found"), [({}, "1"), ({"OPENBLAS_NUM_THREADS": "3"}, "3")], ids=["default", "set"])
def test_numpy_is_loaded_later_and_gets_one_thread_unless_told_otherwise(given: dict[str, str], found: str) -> None:
    base = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env={**base, **given})
    assert done.stderr.split() == ["False", found]
