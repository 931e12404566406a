"""The README is true: its tour runs as printed, against a server started as it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
TOUR = re.findall(r"<!-- tour -->\n```(sh|python)\n(.*?)```", README, flags=re.DOTALL)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A server as the README starts it, on a free port; returns the environment of the other shell."""
    bin_folder = Path(sys.executable).parent
    env = {**os.environ, "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}"}
    server = subprocess.Popen(
        ["noosphere", "serve", "--listen", "127.0.0.1:0"],
        cwd=tmp_path,
        env=env,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        found = re.search(r"127\.0\.0\.1:\d+", line)
        assert found is not None, line
        yield {**env, "NOOSPHERE_SERVER": found.group()}
        server.terminate()
        assert server.wait(timeout=60) == 0
    finally:
        server.kill()
        server.wait()
        if server.stdout is not None:
            server.stdout.close()


@pytest.mark.campaign
def test_the_tour_runs_as_printed(shell: dict[str, str], tmp_path: Path) -> None:
    assert [kind for kind, _ in TOUR] == ["sh", *["python"] * 7, "sh"]
    outputs = []
    for kind, text in TOUR:
        command = ["bash", "-euo", "pipefail", "-c", text] if kind == "sh" else [sys.executable, "-c", text]
        done = subprocess.run(command, cwd=tmp_path, env=shell, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        assert done.stderr == ""
        outputs.append(done.stdout)
    first, conflict, _, decision, siblings, session, facts, kit, last = outputs
    assert "draft" in first
    assert "writer#" in conflict, "the paragraph names who was faster"
    assert "['draft', 'review', 'publish']" in conflict, "the resolved plan has both changes"
    thought, again, decided = decision.splitlines()
    assert thought == "first thought"
    assert again.startswith("Your decision was not written.")
    assert "writer#" in again, "the model is told who changed what it had read"
    assert decided == "2 attempts: {'after': 'legal check'}"
    assert siblings.splitlines()[0] == "('shorter', 'with figures')"
    assert "has several values that nobody has joined" in siblings
    size, thought, size_again, again, decided = session.splitlines()
    assert re.fullmatch(r"\d+ of 600 tokens in 5 messages", size), "instructions, goal, question, call and its result"
    assert re.fullmatch(r"\d+ of 600 tokens in 6 messages", size_again), "and what has changed"
    assert thought == "first thought"
    assert again.startswith("Your decision was not written.")
    assert "goals/main" in again
    assert decided == "2 attempts: The Opera, which you can afford."
    known, moved, planted, found = facts.splitlines()
    assert known.startswith("written (")
    assert moved.startswith("superseded ("), "the new home takes the old one's place"
    assert planted.startswith("rejected ("), "a page is not believed"
    assert found.startswith("Lives in Bergen 0.5 relevance ")
    assert kit == "passed\n"
    assert "todo/" in last
    assert "no record has several values" in last, "the queue was worked off"


def test_the_readmes_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"\bmake (?:--silent )?([a-z-]+)", README)) - {"sure"}
    assert targets >= {"setup", "demo", "test"}
    for target in targets:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), f"make {target}"


def test_the_readmes_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert links
    for link in links:
        assert (ROOT / link).exists(), link
