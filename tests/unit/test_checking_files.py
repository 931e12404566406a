"""Histories on disk: journals that survive `kill -9`, clear errors, and what `noosphere check` prints."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from rich.console import Console
from tests.support.checking_simulation import NAMESPACE, simulate

from noosphere.server.checking import (
    Call,
    Header,
    HistoryError,
    HistoryWriter,
    Op,
    Outcome,
    Reply,
    Write,
    WriteKind,
    check_history,
    collect_history,
    new_header,
    read_history,
    run_check,
    value_id,
    write_history,
)
from noosphere.server.checking.history import FORMAT_VERSION

# Of a fixed time: the header is part of the names of tests, which every worker has to agree on.
HEADER = msgspec.structs.replace(new_header(), started_unix_ms=1_700_000_000_000)


def a_call(number: int, process: str = "p") -> Call:
    writes = (Write("k", WriteKind.PUT, value_id(b"%d" % number)),)
    return Call(process, number, Op.PUT, NAMESPACE, number * 10, writes=writes)


def a_reply(number: int, process: str = "p") -> Reply:
    return Reply(process, number, number * 10 + 5, Outcome.OK, head=number, revision=number)


def test_a_journal_reads_back_as_written(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with HistoryWriter(path, {"seed": 7}, [NAMESPACE]) as writer:
        writer.begin(a_call(1))
        writer.begin(a_call(2))
        writer.end(a_reply(2))
    history = read_history(path)
    assert history.header.settings == {"seed": 7}
    assert history.header.complete == (NAMESPACE,)
    assert [call.outcome for call in history.calls] == [Outcome.UNKNOWN, Outcome.OK]
    assert history.calls[1] == msgspec.structs.replace(a_call(2), reply=a_reply(2))


def test_a_journal_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    HistoryWriter(path).close()
    before = path.read_bytes()
    with pytest.raises(FileExistsError):
        HistoryWriter(path)
    assert path.read_bytes() == before


def test_a_closed_writer_refuses_further_calls(tmp_path: Path) -> None:
    writer = HistoryWriter(tmp_path / "journal")
    writer.close()
    writer.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        writer.begin(a_call(1))


def test_cut_at_every_byte_a_journal_reads_as_a_prefix(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with HistoryWriter(path) as writer:
        writer.begin(a_call(1))
        writer.end(a_reply(1))
        writer.begin(a_call(2))
    data = path.read_bytes()
    header_bytes = data.index(b"\n") + 1
    lines = [index for index, byte in enumerate(data) if byte == 0x0A]
    cut_file = tmp_path / "cut"
    for size in range(len(data) + 1):
        cut_file.write_bytes(data[:size])
        if size < header_bytes:
            with pytest.raises(HistoryError, match="begins with a header"):
                read_history(cut_file)
            continue
        history = read_history(cut_file)
        complete = sum(index < size for index in lines) - 1
        assert len(history.calls) == (0, 1, 1, 2)[complete]
        assert [call.outcome for call in history.calls] == [[], ["unknown"], ["ok"], ["ok", "unknown"]][complete]
        assert bool(history.header.torn) is (size - 1 not in lines)


def test_what_was_recorded_survives_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    script = (
        "import itertools, sys\n"
        "from tests.unit.test_checking_files import HistoryWriter, a_call, a_reply\n"
        "writer = HistoryWriter(sys.argv[1])\n"
        "for number in itertools.count(1):\n"
        "    writer.begin(a_call(number))\n"
        "    writer.end(a_reply(number))\n"
        "    if number == 500:\n"
        "        print('ready', flush=True)\n"
    )
    root = Path(__file__).resolve().parents[2]
    with subprocess.Popen([sys.executable, "-c", script, str(path)], cwd=root, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.kill()
        assert process.wait() == -signal.SIGKILL
    history = read_history(path)
    assert len(history.calls) >= 500
    assert [call.call for call in history.calls] == list(range(1, len(history.calls) + 1))
    assert all(call.outcome is Outcome.OK for call in history.calls[:-1])


def test_journals_of_several_processes_become_one_history(tmp_path: Path) -> None:
    for process in ("p", "q"):
        with HistoryWriter(tmp_path / process) as writer:
            for number in (1, 2):
                writer.begin(a_call(number, process))
                writer.end(a_reply(number, process))
    with (tmp_path / "q").open("ab") as file:
        file.write(b'{"type":"call","proc')
    target = tmp_path / "history"
    count = collect_history([tmp_path / "p", tmp_path / "q"], target, new_header(complete=[NAMESPACE]))
    assert count == 4
    history = read_history(target)
    assert [(call.process, call.call) for call in history.calls] == [("p", 1), ("q", 1), ("p", 2), ("q", 2)]
    assert all(call.reply is not None for call in history.calls)
    assert history.header.torn == ("q",)
    assert len(target.read_bytes().splitlines()) == 5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["history", "p", "q"]


def lines_of(*items: Header | Call | Reply) -> bytes:
    return b"".join(msgspec.json.encode(item) + b"\n" for item in items)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "begins with a header"),
        (b"hello\n", "line 1: no history"),
        (b'{"format": "other"}\n', "line 1: no history"),
        (b"\xff\xfe\n", "line 1: no history"),
        (
            b'{"type":"history","format":"noosphere-history","version":%d,"started_unix_ms":0}\n'
            % (FORMAT_VERSION + 1),
            f"line 1: format {FORMAT_VERSION + 1} is newer than {FORMAT_VERSION}",
        ),
        (b'{"type":"history","format":"noosphere-history","version":0,"started_unix_ms":0}\n', "never existed"),
        (b'{"type":"history","format":"noosphere-history","version":1}\n', "line 1: .*started_unix_ms"),
        (lines_of(HEADER, HEADER), "line 2: a second header"),
        (lines_of(HEADER, a_call(1), a_call(1)), "line 3: p call 1 was recorded before"),
        (lines_of(HEADER, a_reply(1)), "line 2: a reply to p call 1, which was never made"),
        (lines_of(HEADER, a_call(1), a_reply(1), a_reply(1)), "line 4: a second reply"),
        (
            lines_of(HEADER, a_call(1), msgspec.structs.replace(a_reply(1), return_ns=3)),
            "line 3: returned at 3, before its start at 10",
        ),
        (
            lines_of(HEADER, msgspec.structs.replace(a_call(1), reply=a_reply(2))),
            "line 2: p call 1 holds the reply of another call",
        ),
        (lines_of(HEADER) + b"{}\n", "line 2: "),
        (lines_of(HEADER) + b"[" * 100_000 + b"\n", "line 2: "),
        (lines_of(HEADER) + lines_of(a_call(1)).replace(b'"put"', b'"fly"', 1), "line 2: .*fly"),
        (lines_of(HEADER) + lines_of(a_call(1)).replace(b'"key"', b'"kez"'), "line 2: .*kez"),
        (lines_of(HEADER) + b"x" * (4 * 1024 * 1024 + 2) + b"\n", "line 2: longer than"),
    ],
)
def test_a_wrong_file_is_refused_with_the_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "history"
    path.write_bytes(content)
    with pytest.raises(HistoryError, match=message):
        read_history(path)


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match=r"absent: No such file"):
        read_history(tmp_path / "absent")
    with pytest.raises(HistoryError, match="Is a directory"):
        read_history(tmp_path)


def test_a_history_is_judged_the_same_on_disk_and_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "history"
    history = simulate(3)
    write_history(path, history.header, history.calls)
    assert read_history(path) == history
    assert check_history(path).ok


def test_run_check_prints_a_verdict_for_people_and_one_for_programs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "history"
    history = simulate(3)
    write_history(path, history.header, history.calls)
    screen = io.StringIO()
    assert run_check(path, console=Console(file=screen, width=120))
    assert "history is valid" in screen.getvalue()
    assert "lost updates" in screen.getvalue()
    assert run_check(path, json=True)
    document = json.loads(capsys.readouterr().out)
    assert document["status"] == "valid"
    assert document["violations"] == []
    assert document["figures"]["calls"] == len(history.calls)
    assert document["figures"]["lost_updates"] == 0


def test_run_check_explains_a_violation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "history"
    history = simulate(3, faults=("lost update",))
    write_history(path, history.header, history.calls)
    assert not run_check(path, json=True)
    document = json.loads(capsys.readouterr().out)
    assert document["status"] == "invalid"
    first = document["violations"][0]
    assert first["kind"] == "lost update"
    assert first["keys"]
    assert first["calls"][0]["process"].startswith("agent-")
    screen = io.StringIO()
    assert not run_check(path, console=Console(file=screen, width=200))
    assert "history is invalid" in screen.getvalue()
    assert "lost update in shared/simulated" in screen.getvalue()


def test_run_check_prints_nothing_about_a_file_that_it_cannot_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(HistoryError, match=r"absent: No such file"):
        run_check(tmp_path / "absent")
    assert capsys.readouterr().out == ""
