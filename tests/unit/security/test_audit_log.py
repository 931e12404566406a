"""The audit log's files: bounded, whole lines only, and honest about what they miss."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from tests.support.waiting import until

from noosphere.server.security.audit import AuditLog, Entry, files_of, line_of, read_line

CLOCK_MS = 1_800_000_000_123


def read(path: Path) -> list[Entry]:
    found = [read_line(line) for file in files_of(path) for line in file.read_bytes().splitlines()]
    assert None not in found
    return [entry for entry in found if entry is not None]


def entry(number: int) -> Entry:
    return Entry(
        CLOCK_MS + number, principal="p", method="MemoryService/Put", target="shared/ünï\n", keys=(str(number),)
    )


def test_what_is_noted_can_be_read_and_only_by_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    audit = AuditLog(str(path), wall_ms=lambda: CLOCK_MS)
    for number in range(5_000):
        audit.note(entry(number))
    audit.close()
    assert read(path) == [entry(number) for number in range(5_000)]
    assert b'"time":"2027-01-15T08:00:00.123Z"' in path.read_bytes().splitlines()[0]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = AuditLog(str(path), wall_ms=lambda: CLOCK_MS)
    again.note(entry(5_000))
    again.close()
    assert len(read(path)) == 5_001


def test_files_are_bounded_in_size_and_number_and_the_oldest_go(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    line = len(line_of(entry(1_000)))
    for round_ in range(12):
        # Each log that is opened writes one batch, which stays whole.
        audit = AuditLog(str(path), wall_ms=lambda: CLOCK_MS, bytes_max=25 * line, files_max=3)
        for number in range(10):
            audit.note(entry(1_000 + round_ * 10 + number))
        audit.close()
    files = files_of(path)
    assert [file.name for file in files] == ["audit.jsonl.2", "audit.jsonl.1", "audit.jsonl"]
    assert all(file.stat().st_size <= 25 * line for file in files)
    assert [entry.keys[0] for entry in read(path)] == [str(number) for number in range(1_060, 1_120)]


async def test_a_full_disk_loses_no_whole_line_and_what_found_no_room_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "audit.jsonl"
    full = asyncio.Event()
    real = os.write

    def write(number: int, data: bytes) -> int:
        if not full.is_set():
            return real(number, data)
        if len(data) > 10:
            return real(number, data[:10])  # as much as there is room for
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", write)
    audit = AuditLog(str(path), wall_ms=lambda: CLOCK_MS, entries_max=100)
    audit.note(entry(0))
    await until(lambda: len(read(path)) == 1)
    full.set()
    for number in range(1, 131):
        audit.note(entry(number))
    await until(lambda: audit.failing)
    assert audit.lost == 30
    assert read(path) == [entry(0)]
    full.clear()
    await until(lambda: not audit.failing)
    audit.note(entry(200))
    audit.close()
    found = read(path)
    assert [e.keys[0] for e in found if not e.lost] == [*map(str, range(101)), "200"]
    assert [e.lost for e in found if e.lost] == [30]


def test_lines_that_are_none_are_passed_over() -> None:
    assert read_line(line_of(entry(1))[:40]) is None
    assert read_line(b"\xff\xfe\n") is None
    assert read_line(b'{"time_ms": "soon"}') is None


def test_half_a_line_of_who_was_killed_costs_no_other_line(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_bytes(line_of(entry(1)) + line_of(entry(2))[:30])
    audit = AuditLog(str(path), wall_ms=lambda: CLOCK_MS)
    audit.note(entry(3))
    audit.close()
    assert [read_line(line) for line in path.read_bytes().splitlines()] == [entry(1), None, entry(3)]


def test_a_rotation_that_was_cut_off_hides_and_costs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    for name, number in (("audit.jsonl.3", 1), ("audit.jsonl.2", 2), ("audit.jsonl", 3)):
        (tmp_path / name).write_bytes(line_of(entry(number)))
    for stranger in ("audit.jsonl.x", "audit.jsonl.01", "audit.jsonl.gz.1", "other.jsonl.1"):
        (tmp_path / stranger).write_bytes(b"{")
    assert read(path) == [entry(1), entry(2), entry(3)]
    audit = AuditLog(str(path), wall_ms=lambda: CLOCK_MS, bytes_max=1, files_max=4)
    audit.note(entry(4))
    audit.close()
    assert read(path) == [entry(1), entry(2), entry(3), entry(4)]


async def test_a_rotation_that_fails_again_and_again_takes_no_older_file_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "audit.jsonl"
    for name, number in (("audit.jsonl.2", 1), ("audit.jsonl.1", 2), ("audit.jsonl", 3)):
        (tmp_path / name).write_bytes(line_of(entry(number)))
    audit = AuditLog(str(path), wall_ms=lambda: CLOCK_MS, bytes_max=1, files_max=5)
    real, tries = os.open, []

    def full(*arguments: Any, **options: Any) -> int:
        tries.append(arguments)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "open", full)
    audit.note(entry(4))
    await until(lambda: len(tries) > 5)
    monkeypatch.setattr(os, "open", real)
    await until(lambda: not audit.failing)
    audit.close()
    assert read(path) == [entry(1), entry(2), entry(3), entry(4)]


def test_a_file_that_was_taken_away_is_begun_anew_and_no_older_one_moves(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    (tmp_path / "audit.jsonl.1").write_bytes(line_of(entry(1)))
    path.write_bytes(line_of(entry(2)))
    audit = AuditLog(str(path), wall_ms=lambda: CLOCK_MS, bytes_max=1, files_max=3)
    path.rename(tmp_path / "taken")
    audit.note(entry(3))
    audit.close()
    assert not audit.failing
    assert read(path) == [entry(1), entry(3)]
