"""docs/fleet.md is true: its commands run as printed, one after the other, in one shell."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.etcd import needs_etcd
from tests.support.redis import needs_redis

from noosphere.server.fleet import bring_down

pytestmark = [needs_redis, needs_etcd, pytest.mark.campaign, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "fleet.md").read_text()
BLOCKS = re.findall(r"<!-- fleet -->\n```(sh|python)\n(.*?)```", PAGE, flags=re.DOTALL)
SECONDS_MAX = 500


@pytest.fixture
def clone(tmp_path: Path) -> Iterator[Path]:
    """A folder that looks like a clone to make, with the environment that the tests run in."""
    folder = tmp_path / "clone"
    folder.mkdir()
    for name in ("Makefile", "pyproject.toml", "requirements.lock", "docs"):
        (folder / name).symlink_to(ROOT / name)
    (folder / ".venv").symlink_to(Path(sys.prefix))
    yield folder
    bring_down(folder / ".run", print)


def test_the_page_runs_as_printed(clone: Path) -> None:
    assert [kind for kind, _ in BLOCKS] == ["sh", "sh", "python", "sh", "sh", "sh", "sh"]
    script = ""
    for number, (kind, text) in enumerate(BLOCKS):
        script += f"echo '== {number}'\n"
        script += text if kind == "sh" else f"python - <<'END'\n{text}END\n"
    # A make below another one tells which folder it enters, and these tests may be run by make.
    kept = {n: v for n, v in os.environ.items() if not n.startswith("NOOSPHERE_") and n not in {"MAKELEVEL", "MFLAGS"}}
    # The environment is up to date, or these tests would not run.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=clone,
        env={**kept, "PATH": path, "MAKEFLAGS": "--old-file=setup"},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    up, cluster, together, demo, chaos, roll, down = re.split(r"== \d\n", done.stdout)[1:]
    assert up.startswith("export NOOSPHERE_REDIS_URLS=redis://127.0.0.1:")
    addresses = re.findall(r"export NOOSPHERE_SERVER=(\S+)", cluster)[0].split(",")
    assert len(addresses) == 3
    assert all(cluster.count(address) >= 3 for address in addresses), "exported, echoed, and listed by the servers"
    assert re.findall(r"^(127\.0\.0\.1:\d+) ", cluster, re.MULTILINE) == sorted(addresses), "listed by address"
    assert together == "5\n"
    assert re.search(r"lost updates +0\b", demo)
    assert re.search(r"lost updates +0\b", chaos)
    assert re.search(r"unsignalled losses +0\b", chaos)
    assert "history is valid" in chaos
    assert "draft" in roll, "what was written before a failover and two restarts is there"
    assert down == ""
    assert done.stderr.count("stopped server-") == 6, "each once in turn, and each in the end"


def test_the_pages_links_lead_somewhere() -> None:
    for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", PAGE):
        assert (ROOT / "docs" / link).exists(), link


def test_the_pages_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"(?:^|`|\()make (?:--silent )?([a-z-]+)", PAGE, flags=re.MULTILINE)):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), f"make {target}"
