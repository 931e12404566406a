"""The rules of the source tree hold, and the script that says so can fail."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from scripts import check_layout

ROOT = Path(__file__).resolve().parents[2]


def test_the_repository_keeps_its_layout() -> None:
    done = subprocess.run([sys.executable, "scripts/check_layout.py"], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_no_namespace_package_has_an_init_file() -> None:
    """Looked up on disk rather than in git: an ignored or generated one would hide the other parts as well."""
    assert [folder for folder in check_layout.SOURCES if (ROOT / folder / "noosphere" / "__init__.py").exists()] == []


@pytest.mark.parametrize(
    ("path", "content", "problem"),
    [
        ("client/noosphere/__init__.py", "", "namespace package"),
        ("server/noosphere/server/long.py", "x = 1\n" * 501, "501 lines"),
        ("server/noosphere/server/part/module.py", "", "no __init__.py"),
        ("requirements.lock", "--index" + "-url example\n", "package index"),
        ("requirements.lock", "# from https:" + "//example.org/simple/\n", "package index"),
    ],
)
def test_a_violation_is_found(tmp_path: Path, path: str, content: str, problem: str) -> None:
    typed = [package + "/py.typed" for package in check_layout.TYPED]
    for name, text in [(name, "") for name in typed] + [(path, content)]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert list(check_layout.violations(tmp_path, typed)) == []
    (found,) = check_layout.violations(tmp_path, [*typed, path])
    assert found.startswith(path)
    assert problem in found


def test_a_missing_type_marker_is_found(tmp_path: Path) -> None:
    assert len(list(check_layout.violations(tmp_path, []))) == len(check_layout.TYPED)
