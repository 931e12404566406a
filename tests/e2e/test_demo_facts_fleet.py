"""`noosphere demo facts` on three servers with Weaviate: what is known, why, and what was refused is as on one."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.test_demo import environment
from tests.support.etcd import needs_etcd
from tests.support.fleet import Fleet
from tests.support.process import NOOSPHERE
from tests.support.redis import needs_redis
from tests.support.weaviate import needs_weaviate

pytestmark = [needs_redis, needs_etcd, needs_weaviate, pytest.mark.campaign]

SECONDS_MAX = 300


def demo(folder: Path, *words: str) -> dict[str, Any]:
    done = subprocess.run(
        [NOOSPHERE, "demo", "facts", "--json", *words],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def without(entries: list[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    """Returns entries without what no two runs have in common."""
    return [{name: value for name, value in one.items() if name not in names} for one in entries]


def told(found: dict[str, Any]) -> dict[str, Any]:
    """Returns everything that two runs have in common."""
    steps = [step for session in found["sessions"] for step in session["steps"]]
    return {
        # Whether something supersedes a fact, not what it is called.
        "known": [
            {**one, "superseded_by": bool(old["superseded_by"])}
            for one, old in zip(without(found["known"], "fact"), found["known"], strict=True)
        ],
        "answers": without(found["answers"], "fact", "evidence", "relevance"),
        "refused": without(found["refused"], "candidate"),
        # Relevance wanes by the second, and is compared where it is a number.
        "outcomes": [(step["who"], step["outcome"], re.sub(r"relevance [0-9.]+", "", step["why"])) for step in steps],
    }


def test_a_fleet_answers_as_one_machine_does(tmp_path: Path) -> None:
    alone = demo(tmp_path, "--data", "alone")
    with Fleet(tmp_path / "fleet", options=(), weaviate=True) as fleet:
        together = demo(tmp_path, "--server", fleet.address)
        assert told(together) == told(alone)
        for one, other in zip(together["answers"], alone["answers"], strict=True):
            assert one["relevance"] == pytest.approx(other["relevance"], abs=0.01), "it wanes by the second"
        again = demo(tmp_path, "--server", fleet.address)
        assert told(again) == told(alone), "somebody else's facts are in nobody's way"
    files = [one["text"] for one in alone["checks"] if "stands in no file" in one["text"]]
    assert len(together["checks"]) == len(alone["checks"]) - len(files), "only the demo's own server shows its files"
