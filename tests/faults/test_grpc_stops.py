"""The gRPC that is installed outlives stops of servers while calls arrive. 1.78 died of about one in ten thousand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "grpc_stops.py"

pytestmark = pytest.mark.campaign


def test_no_process_dies_of_stops() -> None:
    """In short; `make grpc-stops` looks long enough to find one in ten thousand."""
    tried = [
        subprocess.Popen(
            [sys.executable, SCRIPT, "--seconds", "20", "--seed", str(seed)], stdout=subprocess.PIPE, text=True
        )
        for seed in (21, 22)
    ]
    for process in tried:
        out, _ = process.communicate(timeout=150)
        assert process.returncode == 0
        assert "servers were stopped while calls arrived" in out
