"""The demo as users run it: small, but with real processes, a real kill and real contention."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from noosphere.client import NamespaceDeleted, connect
from noosphere.server.checking import read_history
from noosphere.server.demo.processes import own_server

ROOT = Path(__file__).resolve().parents[2]
CLI = (sys.executable, "-m", "noosphere.server.cli")
SMALL = ("--agents", "4", "--sections", "28", "--think-ms", "15", "--min-conflicts", "10")
LIMIT_S = 120


def environment(folder: Path) -> dict[str, str]:
    """Temporary folders of the demo appear where the test can see them."""
    # A server of the developer's own must not be what is tested.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("NOOSPHERE_")}
    return {**kept, "TMPDIR": str(folder)}


def processes_that_name(folder: Path) -> list[str]:
    """Returns the command lines and environments of processes that know ``folder``."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                told = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            except OSError:
                continue
            if str(folder).encode() in told:
                found.append(told.replace(b"\0", b" ").decode("utf-8", "replace")[:200])
    return found


class Run(NamedTuple):
    """A finished run of the demo."""

    code: int
    out: str
    err: str
    history: Path
    left: list[str]


@pytest.fixture(scope="module")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("demo")
    temporary = folder / "temporary"
    temporary.mkdir()
    history = folder / "history"
    done = subprocess.run(
        [*CLI, "demo", *SMALL, "--json", "--history", str(history)],
        cwd=folder,
        env=environment(temporary),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    left = [path.name for path in temporary.iterdir()] + processes_that_name(temporary)
    return Run(done.returncode, done.stdout, done.stderr, history, left)


def figures_of(run: Run) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(run.out)
    return document


def test_everything_holds_and_the_figures_are_one_json_object(small_run: Run) -> None:
    assert (small_run.code, small_run.err) == (0, ""), small_run
    assert small_run.out.count("\n") == 1
    figures = figures_of(small_run)
    assert figures["ok"] is True
    assert figures["failures"] == []
    assert figures["lost_updates"] == figures["duplicate_completions"] == 0
    assert figures["shared"] == figures["serial"]
    assert figures["serial"]["sections"] == figures["completed"] == 28
    conflicts = figures["conflicts"]
    assert conflicts["met"] == conflicts["resolved"] + conflicts["ended_with_claim"] >= 10
    assert conflicts["abandoned"] == 0
    assert sum(figures["completed_by_agent"].values()) == 28


def test_an_agent_was_killed_and_its_half_done_section_was_taken_over(small_run: Run) -> None:
    figures = figures_of(small_run)
    takeover = figures["takeover"]
    assert takeover["killed"] != takeover["by"] != ""
    # The killed agent had counted the section, and its successor did not count it again.
    assert figures["counted_again"] >= 1
    assert figures["history"]["takeovers"] >= 1


def test_the_control_lost_writes_so_the_contention_was_real(small_run: Run) -> None:
    control = figures_of(small_run)["control"]
    assert control["lost"] == control["blind_writes"] - control["final"] > 0
    assert figures_of(small_run)["history"]["blind_losses"] > 0


def test_nothing_is_left_behind(small_run: Run) -> None:
    assert small_run.left == []


def check(history: Path) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [*CLI, "check", "--json", str(history)], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.stdout.count("\n") == 1, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_the_history_is_judged_independently_with_the_same_figures(small_run: Run) -> None:
    code, verdict = check(small_run.history)
    assert code == 0, verdict
    assert verdict["status"] == "valid"
    figures, counted = figures_of(small_run), verdict["figures"]
    assert counted["processes"] == 5
    assert counted["lost_updates"] == counted["duplicate_completions"] == 0
    assert counted["completions"] == 28
    # Counted from the calls here and by the agents there.
    assert counted["conflicts"] == {"CONFLICT": figures["conflicts"]["met"]}
    assert counted["resolved"] == figures["conflicts"]["resolved"]
    assert counted["registers"] > 28


Line = dict[str, Any]


def _of(lines: list[Line], op: str, key: str, *, reply: bool = True) -> list[Line]:
    """Returns acknowledged calls of a kind that write ``key``, in the order of their revisions."""
    found = [
        line
        for line in lines
        if line.get("op") == op
        and key in [line.get("key"), *(write["key"] for write in line.get("writes", []))]
        and line.get("reply", {}).get("outcome") == "ok"
    ]
    return sorted(found, key=lambda line: int(line["reply"].get("revision", 0)))


def _forget_a_write(lines: list[Line]) -> None:
    lines.remove(_of(lines, "put", "outline")[7])


def _change_what_was_read(lines: list[Line]) -> None:
    reads = [line for line in lines if line.get("op") == "get" and line.get("keys") == ["outline"]]
    reads[-1]["reply"]["seen"][0]["values"] = ["0123456789abcdef"]


def _read_an_old_state(lines: list[Line]) -> None:
    reads = [line for line in lines if line.get("op") == "get" and line.get("keys") == ["outline"]]
    old = _of(lines, "put", "outline")[3]
    seen = reads[-1]["reply"]["seen"][0]
    seen["version"], seen["values"] = old["reply"]["revision"], [old["writes"][0]["value"]]


def _lose_an_update(lines: list[Line]) -> None:
    """The successor of a write pretends to have read what was there before it."""
    first, second, third = _of(lines, "put", "outline")[5:8]
    third["writes"][0]["base"] = second["writes"][0]["base"]
    third["writes"][0]["context"] = second["writes"][0]["context"]
    assert first is not second


def _complete_twice(lines: list[Line]) -> None:
    done = next(line for line in lines if line.get("op") == "complete")
    again = json.loads(json.dumps(done))
    again["call"] = again["reply"]["call"] = 1_000_000
    again["reply"]["revision"] += 1 << 30
    again["reply"]["head"] += 1 << 30
    again["start_ns"] += 10**12
    again["reply"]["return_ns"] += 10**12
    again["reply"]["seen"] = []
    lines.append(again)


def _swap_revisions(lines: list[Line]) -> None:
    first, *_, last = _of(lines, "put", "control")
    for name in ("revision", "head"):
        first["reply"][name], last["reply"][name] = last["reply"][name], first["reply"][name]


def _count_one_more(lines: list[Line]) -> None:
    [final] = [line for line in lines if line.get("op") == "get" and len(line.get("keys", [])) == 4]
    counter = next(seen for seen in final["reply"]["seen"] if seen["key"] == "tally/words")
    counter["content"] += 1


def _tear_a_transaction(lines: list[Line]) -> None:
    """The counter of sections lacks what the marker of the same transaction shows."""
    [final] = [line for line in lines if line.get("op") == "get" and len(line.get("keys", [])) == 4]
    before = _of(lines, "transact", "tally/sections")[-2]
    counter = next(seen for seen in final["reply"]["seen"] if seen["key"] == "tally/sections")
    counter["version"] = before["reply"]["revision"]
    counter["dots"] = []
    counter["content"] -= 1


@pytest.mark.parametrize(
    ("tamper", "checkers"),
    [
        (_forget_a_write, {"revisions", "registers"}),
        (_change_what_was_read, {"revisions", "registers"}),
        (_read_an_old_state, {"revisions", "registers"}),
        (_lose_an_update, {"revisions", "registers"}),
        (_complete_twice, {"revisions", "tallies"}),
        (_swap_revisions, {"revisions"}),
        (_count_one_more, {"revisions", "tallies"}),
        (_tear_a_transaction, {"revisions", "tallies"}),
    ],
)
def test_a_tampered_history_is_rejected(
    small_run: Run, tmp_path: Path, tamper: Callable[[list[Line]], None], checkers: set[str]
) -> None:
    lines = [json.loads(line) for line in small_run.history.read_text().splitlines()]
    tamper(lines)
    tampered = tmp_path / "history"
    tampered.write_text("".join(json.dumps(line) + "\n" for line in lines))
    code, verdict = check(tampered)
    assert code == 5
    assert verdict["status"] == "invalid"
    assert {violation["checker"] for violation in verdict["violations"]} >= checkers


def namespace_of(folder: Path) -> str:
    [namespace] = read_history(folder / "history").header.complete
    return namespace


@pytest.mark.campaign
def test_given_files_and_a_running_server_too_little_contention_fails(tmp_path: Path) -> None:
    """Two agents on another text and somebody else's server; what they show is not enough, and that is said."""
    text = tmp_path / "licence.txt"
    shutil.copy(ROOT / "LICENSE", text)

    async def run() -> tuple[str, str]:
        async with own_server(tmp_path) as server:
            for _ in range(2):
                process = await asyncio.create_subprocess_exec(
                    *(*CLI, "demo", str(text), "--server", server, "--agents", "2", "--sections", "16"),
                    *("--think-ms", "5", "--min-conflicts", "100000", "--history", str(tmp_path / "history")),
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                    env=environment(tmp_path),
                )
                out, err = await asyncio.wait_for(process.communicate(), LIMIT_S)
                # The second one does not wait for the lease of the agent that the first one has killed.
                assert process.returncode == 5, err
            async with connect(server) as client:
                with pytest.raises(NamespaceDeleted):
                    await client.namespace(namespace_of(tmp_path)).get("outline")
            return out.decode(), err.decode()

    out, err = asyncio.run(run())
    assert err == ""
    assert out.startswith(f"2 agents on 16 sections of {text}\n")
    assert "FAILED: contention was not real" in out
    assert "\x1b" not in out
    assert "updates were lost" not in out


@pytest.fixture
def running(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A demo in the middle of its work, one that would go on for long."""
    process = subprocess.Popen(
        [*CLI, "demo", "--agents", "3", "--think-ms", "2000", "--history", str(tmp_path / "history")],
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        yield process
        process.kill()


@pytest.mark.parametrize("sign", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.campaign)])
def test_interrupted_it_stops_every_process_and_removes_its_folder(
    running: subprocess.Popen[str], tmp_path: Path, sign: signal.Signals
) -> None:
    assert running.stdout is not None
    assert "agents on" in running.stdout.readline()
    assert len(processes_that_name(tmp_path)) >= 2
    running.send_signal(sign)
    _, err = running.communicate(timeout=LIMIT_S)
    assert running.returncode == 130
    assert err == "noosphere: error: interrupted; every process of the demo was stopped\n"
    assert processes_that_name(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("absent.md",), 2, "absent.md: No such file"),
        (("--agents", "1"), 2, "agents: 1 is not between 2 and 32"),
        (("--history", "absent/history"), 2, "absent: no such folder"),
        (("--history", "."), 2, "is a folder"),
        (("--server", ""), 2, "--server: '' is not host:port with a port from 1 to 65535"),
        pytest.param(
            *(("--server", "127.0.0.1:1"), 4, "no server answers at 127.0.0.1:1 within 5 s"), marks=pytest.mark.campaign
        ),
    ],
)
def test_what_cannot_be_run_is_said_in_one_line(
    tmp_path: Path, arguments: tuple[str, ...], code: int, message: str
) -> None:
    done = subprocess.run(
        [*CLI, "demo", *arguments],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == code
    assert message.lower() in done.stderr.lower()
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []
