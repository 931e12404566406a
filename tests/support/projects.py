"""The example projects, run as a developer runs a copy of one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SECONDS_MAX = 150
"""A bound against hanging."""


def copy_project(name: str, folder: Path) -> Path:
    """Returns a copy of a project, to play with."""
    ignored = shutil.ignore_patterns("__pycache__", ".*_cache")
    return shutil.copytree(EXAMPLES / name, folder / name, ignore=ignored)


def run_tests(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a project's tests as its README says, without anything of ours around."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("NOOSPHERE_", "PYTEST_"))}
    return subprocess.run(
        [sys.executable, "-m", "pytest", *arguments],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
