"""A deliberate bug: a patch of the source, and the tests that have to notice it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple

PATCHES = Path(__file__).parent / "patches"
ROOT = Path(__file__).parents[2]

NEAR = {
    "consistency/": "tests/unit/consistency tests/simulation",
    "client/": "tests/unit tests/integration -k client",
    "server/noosphere/server/storage/embedded/": "tests/contract tests/simulation -k embedded",
    "server/noosphere/server/storage/facts/": "tests/contract -k fact",
    "server/noosphere/server/storage/redis/": "tests/contract tests/faults -k redis",
    "server/noosphere/server/storage/etcd/": "tests/contract tests/unit -k etcd",
    "server/noosphere/server/storage/weaviate/": "tests/contract tests/faults -k weaviate",
    "server/noosphere/server/context/": "tests/unit/context tests/integration -k context",
    "server/noosphere/server/facts/": "tests/unit/facts tests/integration -k fact",
    "server/noosphere/server/sessions/": "tests/unit/sessions tests/integration tests/simulation -k session",
    "server/noosphere/server/transitions/": "tests/unit/transitions tests/integration -k transition",
    "server/noosphere/server/security/": "tests/unit/security tests/integration",
    "server/noosphere/server/rpc/": "tests/unit tests/integration",
    "server/noosphere/server/memory/": "tests/integration tests/simulation",
    "server/noosphere/server/models/": "tests/unit/models",
    "server/noosphere/server/dumping/": "tests/unit/dumping tests/integration -k dump",
    "server/": "tests/unit tests/integration",
}
"""Where a patch that names no tests is tried: the tests near what it changes, the longest match first."""


class Mutant(NamedTuple):
    """One deliberate bug.

    Attributes:
        name: what it is called, after its file.
        about: what is wrong with it, in one sentence.
        tests: arguments of pytest that select tests of which one has to fail.
        patch: the unified diff, its paths relative to the root of the repository.
    """

    name: str
    about: str
    tests: tuple[str, ...]
    patch: Path


def read(patch: Path) -> Mutant:
    """Reads a patch. Its first lines may say ``About:`` and ``Tests:``; without tests those near it are taken.

    Raises:
        ValueError: it changes nothing of ours.
    """
    text = patch.read_text()
    about = re.search(r"^About: (.+)$", text, re.MULTILINE)
    tests = re.search(r"^Tests: (.+)$", text, re.MULTILINE)
    changed = re.findall(r"^\+\+\+ b/(\S+)", text, re.MULTILINE)
    if not changed:
        raise ValueError(f"{patch}: is no unified diff of paths like b/server/…")
    chosen = tests[1] if tests else _near(patch, changed)
    return Mutant(patch.stem, about[1] if about else "", tuple(shlex.split(chosen)), patch.resolve())


def _near(patch: Path, changed: list[str]) -> str:
    for folder in sorted(NEAR, key=len, reverse=True):
        if any(path.startswith(folder) for path in changed):
            return NEAR[folder]
    raise ValueError(f"{patch}: changes {', '.join(changed)}, and nothing of {', '.join(NEAR)}")


def ours() -> tuple[Mutant, ...]:
    """Returns every deliberate bug that is kept here, by name."""
    return tuple(read(patch) for patch in sorted(PATCHES.glob("*.patch")))
