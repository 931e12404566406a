"""`noosphere watch` as a process that follows, resumes, and ends cleanly."""

from __future__ import annotations

import json
import signal
import subprocess
import uuid
from typing import Any

import pytest
from tests.support.cli import SECONDS_MAX, Cli, holds
from tests.support.process import NOOSPHERE, ServerProcess

from noosphere.server.cli import shapes


@pytest.fixture
def cli(binary: ServerProcess) -> Cli:
    return Cli(binary.address)


@pytest.fixture
def space() -> str:
    return f"shared/cli-{uuid.uuid4().hex[:12]}"


class _Follower:
    """A running `noosphere watch`."""

    def __init__(self, cli: Cli, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [str(NOOSPHERE), "watch", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=cli.environment(),
            start_new_session=True,
        )

    def line(self) -> str:
        """Waits for the next line."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().rstrip("\n")

    def document(self, kind: str) -> Any:
        """Waits for the next document of a kind."""
        while True:
            found = json.loads(self.line())
            holds(shapes.WatchShape, found)
            if found["kind"] == kind:
                return found

    def interrupt(self, number: signal.Signals = signal.SIGINT) -> tuple[int, bytes]:
        """Sends a signal; returns exit code and stderr."""
        self.process.send_signal(number)
        _, err = self.process.communicate(timeout=SECONDS_MAX)
        return self.process.returncode, err


def test_a_watch_delivers_resumes_and_ends_cleanly(cli: Cli, space: str) -> None:
    cli.ok("put", space, "plan/a", "1")
    follower = _Follower(cli, space, "plan/", "--snapshot", "--json")
    snapshot = follower.document("snapshot")
    assert [change["key"] for change in snapshot["changes"]] == ["plan/a"]
    cli.run_all(["put", space, "other", "0"], ["put", space, "plan/b", "2"])
    first = follower.document("changes")
    assert [(c["kind"], c["key"], c["record"]["values"][0]["value"]) for c in first["changes"]] == [
        ("put", "plan/b", 2)
    ]
    assert follower.interrupt() == (0, b"")

    cli.ok("put", space, "plan/c", "3")
    resumed = _Follower(cli, space, "plan/", "--resume", first["resume"], "--json")
    assert [change["key"] for change in resumed.document("changes")["changes"]] == ["plan/c"]
    assert resumed.interrupt(signal.SIGTERM) == (0, b"")

    after = _Follower(cli, space, "--after", snapshot["revision"])
    seen = {after.line().split("  ")[2] for _ in range(3)}
    assert seen == {"other", "plan/b", "plan/c"}
    assert after.interrupt() == (0, b"")


def test_a_watch_that_cannot_begin_says_why(cli: Cli, space: str) -> None:
    ends = cli.run_all(
        ["watch", space, "--after", "1", "--snapshot"],
        ["watch", space, "--resume", "?"],
        ["watch", space, "--after", str(1 << 50)],
        ["watch", space, "plan"],
    )
    assert [end.code for end in ends] == [2, 2, 1, 1]
    assert ends[0].error == "--resume, --after and --snapshot exclude each other"
    assert ends[1].error.startswith("--resume: '?' is not a `resume`")
    assert ends[2].error.startswith("FUTURE_REVISION: ")
    assert ends[3].error.startswith("INVALID_FIELD: ")


def test_a_reader_that_leaves_early_is_no_error(cli: Cli, space: str) -> None:
    for number in range(3):
        cli.ok("put", space, f"k{number}", str(number))
    follower = _Follower(cli, space, "--snapshot", "--json")
    follower.document("snapshot")
    assert follower.process.stdout is not None
    follower.process.stdout.close()
    cli.ok("put", space, "k3", "3")
    assert follower.process.stderr is not None
    assert follower.process.wait(SECONDS_MAX) == 0
    assert follower.process.stderr.read() == b""
    follower.process.stderr.close()
