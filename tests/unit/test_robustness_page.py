"""The page on robustness names tests that are there, and words of ``-k`` that select some of them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_ROWS = re.compile(r"^\|.*\| `?((?:tests/)[^|`]*?)`? \|$", re.MULTILINE)
_TEST = re.compile(r"(?:^@(?:.*\n)+?)?^(?:async )?def test_\w+", re.MULTILINE)
_PARAMETERS = re.compile(r"params=.*")
COMMANDS = sorted(set(_ROWS.findall((ROOT / "docs" / "robustness.md").read_text())))


def selected(command: str) -> dict[str, int]:
    """Returns how many tests each path of a command has, by the names that ``-k`` looks at."""
    words = shlex.split(command)
    word = words[words.index("-k") + 1] if "-k" in words else ""
    found = {}
    for name in (word for word in words if word.startswith("tests/")):
        path = ROOT / name
        files = sorted(path.rglob("test_*.py")) if path.is_dir() else [path]
        found[name] = sum(word.lower() in f"{file.name} {text}".lower() for file in files for text in _tests(file))
    return found


def _tests(file: Path) -> list[str]:
    """Returns the name of each test of a file, decorators before it, and what its fixtures run it on."""
    if not file.exists():
        return []
    shared = file.parent / "conftest.py"
    engines = _PARAMETERS.findall(shared.read_text()) if shared.exists() else []
    return [" ".join((found, *engines)) for found in _TEST.findall(file.read_text())]


def test_there_are_commands() -> None:
    assert len(COMMANDS) > 40
    assert any(" -k " in command for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_selects_something(command: str) -> None:
    assert [name for name, count in selected(command).items() if not count] == []


def test_what_is_not_there_selects_nothing() -> None:
    assert selected("tests/unit/test_no_such_thing.py tests/unit/test_docs.py -k no_such_test") == {
        "tests/unit/test_no_such_thing.py": 0,
        "tests/unit/test_docs.py": 0,
    }
