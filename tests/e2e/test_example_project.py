"""The example project is true: its tests pass as its README says, and fail if its agent is broken."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from tests.support.projects import EXAMPLES, copy_project, run_tests

EXAMPLE = EXAMPLES / "agent-tests"
GUIDE = (EXAMPLES.parent / "docs" / "testing.md").read_text()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the project, for a developer to play with."""
    return copy_project("agent-tests", tmp_path)


def test_its_tests_pass(project: Path) -> None:
    done = run_tests(project)
    assert done.returncode == 0, done.stdout + done.stderr
    defined = len(re.findall(r"^async def test_", (project / "tests" / "test_agent.py").read_text(), re.MULTILINE))
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) >= defined > 5


BREAKS = [
    # (what is broken in the agent, by what, which test notices)
    (
        '.key("outline", Outline).update(change)',
        '.put("outline", Outline(texts={title: text}), blind=True)',
        "keeps_what",
    ),
    ("if conflict is not None and title in texts:", "if False:", "join_what_two"),
    ('guard=("goal", "outline")', 'guard=("outline",)', "decides_again"),
    ("finished.append(title)", "pass", "writes_what"),
]


@pytest.mark.campaign
@pytest.mark.parametrize(("old", "new", "noticed_by"), BREAKS, ids=[noticed_by for _, _, noticed_by in BREAKS])
def test_they_notice_what_is_broken(project: Path, old: str, new: str, noticed_by: str) -> None:
    agent = project / "src" / "outliner" / "agent.py"
    text = agent.read_text()
    assert text.count(old) == 1
    agent.write_text(text.replace(old, new))
    done = run_tests(project, "-k", noticed_by)
    assert done.returncode == 1, done.stdout + done.stderr


def test_the_guides_examples_run_as_printed(tmp_path: Path) -> None:
    examples = re.findall(r"<!-- example -->\n```python\n(.*?)```", GUIDE, re.DOTALL)
    assert len(examples) == 3
    tests = tmp_path / "tests"
    tests.mkdir()
    for number, text in enumerate(examples):
        (tests / f"test_example_{number}.py").write_text(text)
    # Configured as the example project is.
    shutil.copy(EXAMPLE / "pyproject.toml", tmp_path)
    done = run_tests(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


def test_the_guide_leads_to_it() -> None:
    assert "examples/agent-tests" in GUIDE
    assert "docs/testing.md" in (EXAMPLE / "README.md").read_text()
