"""The examples of sessions are true: their tests pass as their READMEs say, and fail if the agents are broken."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.support.projects import EXAMPLES, copy_project, run_python, run_tests

PROJECTS = ["react-agent"]

BREAKS = [
    # (which project, which module, what is broken in it, by what, which test notices)
    ("react-agent", "loop", "return await self._finish(call, tool)", "await self._finish(call, tool)", "its_goal"),
    ("react-agent", "loop", "notes=[*notes, *refused]", "notes=[*notes]", "thought_anew"),
    ("react-agent", "loop", "notes=[*notes, *refused]", "notes=[*refused]", "pointed_out"),
    ("react-agent", "loop", "guard=self.guard,", "", "shifting_grounds"),
    ("react-agent", "loop", 'if call.status != "pending":', "if False:", "taken_up"),
    ("react-agent", "loop", "and message.author == asked.author", "", "messages_of_others"),
    ("react-agent", "files", "path.is_file() and path.resolve().is_relative_to(root)", "path.is_file()", "outside"),
    ("react-agent", "endpoint", 'call["id"] =', "_ =", "from_the_shell"),
]


@pytest.mark.parametrize("name", PROJECTS)
def test_their_tests_pass(name: str, tmp_path: Path) -> None:
    project = copy_project(name, tmp_path)
    done = run_tests(project)
    assert done.returncode == 0, done.stdout + done.stderr
    written = "".join(path.read_text() for path in (project / "tests").glob("test_*.py"))
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) >= len(re.findall(r"^async def test_", written, re.MULTILINE)) > 3
    assert "skipped" not in done.stdout


@pytest.mark.parametrize(
    ("name", "module", "old", "new", "noticed_by"), BREAKS, ids=[f"{one[0]}-{one[4]}" for one in BREAKS]
)
def test_they_notice_what_is_broken(
    name: str, module: str, old: str, new: str, noticed_by: str, tmp_path: Path
) -> None:
    project = copy_project(name, tmp_path)
    source = project / "src" / name.replace("-", "_") / f"{module}.py"
    text = source.read_text()
    assert text.count(old) == 1
    source.write_text(text.replace(old, new))
    done = run_tests(project, "-k", noticed_by)
    assert done.returncode == 1, done.stdout + done.stderr


@pytest.mark.parametrize("name", PROJECTS)
def test_they_are_typed(name: str, tmp_path: Path) -> None:
    done = run_python(copy_project(name, tmp_path), "-m", "mypy", "src", "tests")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", PROJECTS)
def test_readers_find_them(name: str) -> None:
    root = EXAMPLES.parent
    assert f"(examples/{name})" in (root / "README.md").read_text()
    assert f"(../examples/{name})" in (root / "docs" / "sessions.md").read_text()
