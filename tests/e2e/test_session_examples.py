"""The examples of sessions are true: their tests pass as their READMEs say, and fail if the agents are broken."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.support.projects import EXAMPLES, copy_project, run_tests

PROJECTS = ["react-agent", "shared-session"]

BREAKS = {
    # What is broken (in which module, what, by what), and which tests notice. Together: a run takes its time.
    "react-agent": [
        ("loop", "return await self._finish(call, tool)", "await self._finish(call, tool)", "its_goal_has_changed"),
        ("loop", "notes=[*notes, *refused]", "notes=[*notes]", "is_thought_anew"),
        ("loop", "guard=self.guard,", "", "shifting_grounds"),
        ("loop", 'if call.status != "pending":', "if False:", "taken_up_where_it_stood"),
        ("loop", "and message.author == asked.author", "", "messages_of_others"),
        ("files", "path.is_file() and path.resolve().is_relative_to(root)", "path.is_file()", "outside_its_folder"),
        ("endpoint", 'call["id"] =', "_ =", "from_the_shell"),
    ],
    "shared-session": [
        ("writer", "await client.observe(envelope)", "", "failover_has_lost"),
        ("writer", "Append(said(text)), ", "", "of_yesterday"),
        ("plan", 'written.get(title, "")', '""', "written_meanwhile"),
    ],
}


@pytest.mark.campaign
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


@pytest.mark.campaign
@pytest.mark.parametrize("name", PROJECTS)
def test_they_notice_what_is_broken(name: str, tmp_path: Path) -> None:
    project = copy_project(name, tmp_path)
    for module, old, new, _ in BREAKS[name]:
        source = project / "src" / name.replace("-", "_") / f"{module}.py"
        text = source.read_text()
        assert text.count(old) == 1
        source.write_text(text.replace(old, new))
    noticing = [noticed_by for *_, noticed_by in BREAKS[name]]
    done = run_tests(project, "-k", " or ".join(noticing))
    assert done.returncode == 1, done.stdout + done.stderr
    failed = re.findall(r"^FAILED (\S+)", done.stdout, re.MULTILINE)
    assert [words for words in noticing if not any(words in test for test in failed)] == []


@pytest.mark.parametrize("name", PROJECTS)
def test_readers_find_them(name: str) -> None:
    root = EXAMPLES.parent
    assert f"(examples/{name})" in (root / "README.md").read_text()
    assert f"(../examples/{name})" in (root / "docs" / "sessions.md").read_text()
