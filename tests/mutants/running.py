"""Tries mutants: each in a copy of the sources of its own, with the tests of that copy."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from .mutant import ROOT, Mutant

SOURCES = ("server", "client", "consistency", "protos")
COPIED = (*SOURCES, "tests", "scripts", "docs", "examples", "pyproject.toml", "README.md", "Makefile", "CHANGELOG.md")
SECONDS_MAX = 900
_SHOWN_MAX = 3


class Outcome(StrEnum):
    """What became of a mutant."""

    CAUGHT = "caught"
    SURVIVED = "survived"
    UNFIT = "does not apply"
    UNTESTED = "no test ran"


class Verdict(NamedTuple):
    """What became of a mutant, which tests failed (a few of them), and how long it took."""

    mutant: Mutant
    outcome: Outcome
    failed: tuple[str, ...]
    seconds: float
    output: str = ""


def applies(mutant: Mutant, root: Path = ROOT) -> bool:
    """Tells whether a patch still fits the sources."""
    return _git_apply(mutant, root, "--check")


def run(mutant: Mutant) -> Verdict:
    """Tries one mutant: applies it to a copy, and runs its tests there until the first fails."""
    begun = time.monotonic()
    with _copy() as root:
        if not _git_apply(mutant, root):
            return Verdict(mutant, Outcome.UNFIT, (), 0.0)
        # Without assertions of pytest's own cache: nothing of one mutant may reach another.
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-n0", "-p", "no:cacheprovider", *mutant.tests]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(str(root / folder) for folder in SOURCES),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        try:
            done = subprocess.run(
                command, cwd=root, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
            )
        except subprocess.TimeoutExpired:
            # A bug that makes everything wait for ever is noticed, too.
            return Verdict(mutant, Outcome.CAUGHT, (f"not done after {SECONDS_MAX} s",), time.monotonic() - begun)
    seconds = time.monotonic() - begun
    # With its name: a file that cannot be imported has tested nothing, however it ends.
    failed = tuple(re.findall(r"^(?:FAILED|ERROR) (\S+::\S+)", done.stdout, re.MULTILINE)[:_SHOWN_MAX])
    match done.returncode:
        case 0:
            return Verdict(mutant, Outcome.SURVIVED, (), seconds)
        case 1 if failed:
            return Verdict(mutant, Outcome.CAUGHT, failed, seconds)
        case _:
            # Nothing was selected, or pytest itself could not go on: neither says anything about the bug.
            return Verdict(mutant, Outcome.UNTESTED, (), seconds, f"{done.stdout}{done.stderr}"[-2_000:])


@contextmanager
def _copy() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="noosphere-mutant-") as folder:
        root = Path(folder)
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, root / name, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
            elif source.exists():
                shutil.copy(source, root / name)
        yield root


def _git_apply(mutant: Mutant, root: Path, *options: str) -> bool:
    command = ["git", "apply", *options, str(mutant.patch)]
    # Not as a part of a repository that the folder may lie in.
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(root.parent), "GIT_DIR": os.devnull}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, check=False)
    return done.returncode == 0
