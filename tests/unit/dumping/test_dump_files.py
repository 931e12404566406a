"""A dump that was cut or altered anywhere is refused whole, and one of a newer format too."""

from __future__ import annotations

import gzip
import hashlib
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from noosphere.consistency import NEVER_MS, NamespacePolicy
from noosphere.server.dumping import DumpError, DumpFile, write_dump
from noosphere.server.dumping.bodies import body_of
from noosphere.server.dumping.lines import (
    Counters,
    End,
    Entry,
    FactLine,
    FenceLine,
    Granted,
    Header,
    JobLine,
    Line,
    RecordLine,
    Rule,
    Space,
    line_of,
)
from noosphere.server.dumping.meanings import rule_of
from noosphere.server.restoring import check_line

HEADER = Header(1, "9.9.9", 1_000, 2, "embedded", "some model", 2, ("limits",))
RULE = Rule("shared/", False, {"conflict_policy": 1})
GRANT = Granted("planner", True, "shared/", False, ("read", "write"))
ENTRY = Entry("limits", "planner", body_of(b"\x01\x01"))
SPACE = Space("shared/a", 1, 0, False, 7, 0, 0, ((1, 0),))
FENCE = FenceLine("lock", 3)
RECORD = RecordLine("plan/next", 7, NEVER_MS, NEVER_MS, body_of(b"\x01\xa1x"))
FACT = FactLine("f", 1, "user/a", "user/a", "semantic", 0.5, 1, 2, 3, 4, "", "", ("x",), body_of(b"x"), "AACAPwAAAAA=")
JOB = JobLine("j", 1, "", body_of(b"body"), False, "")
COUNTERS = Counters(5, 3, 1_000)
ALL: tuple[Line, ...] = (HEADER, RULE, GRANT, ENTRY, SPACE, FENCE, RECORD, FACT, JOB, COUNTERS)


def dump_of(*lines: Line) -> bytes:
    text = b"".join(map(line_of, lines))
    return text + line_of(End(len(lines), hashlib.sha256(text).hexdigest()))


def problem(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    with pytest.raises(DumpError) as caught:
        DumpFile(path).verify(check_line)
    text = str(caught.value)
    assert str(path) in text
    assert "\n" not in text
    return text


def test_a_whole_dump_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "dump"
    path.write_bytes(dump_of(*ALL))
    found = DumpFile(path).verify()
    assert (found.namespaces, found.records, found.facts, found.jobs) == (1, 1, 1, 1)
    assert (found.rules, found.grants, found.entries) == (1, 1, 1)
    assert (found.header, found.counters, found.lines) == (HEADER, COUNTERS, len(ALL))
    assert tuple(DumpFile(path).lines()) == ALL


def test_a_dump_that_was_cut_anywhere_is_refused(tmp_path: Path) -> None:
    whole = dump_of(*ALL)
    for end in range(len(whole)):
        assert problem(tmp_path / "dump", whole[:end])


@pytest.mark.campaign
def test_a_dump_of_which_any_bit_is_another_one_is_refused(tmp_path: Path) -> None:
    whole = dump_of(*ALL)
    for at in range(len(whole)):
        altered = bytearray(whole)
        altered[at] ^= 1 << at % 8
        assert problem(tmp_path / "dump", bytes(altered))


def test_lines_that_are_missing_doubled_or_in_another_order_are_refused(tmp_path: Path) -> None:
    lines = dump_of(*ALL).splitlines(keepends=True)
    for at in range(len(lines)):
        problem(tmp_path / "dump", b"".join((*lines[:at], *lines[at + 1 :])))
        problem(tmp_path / "dump", b"".join((*lines[:at], lines[at], *lines[at:])))
    problem(tmp_path / "dump", b"".join((*lines, b"\n")))


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        ((HEADER,), "counters"),
        ((RULE, COUNTERS), "does not begin"),
        ((HEADER, RECORD, COUNTERS), "no namespace"),
        ((HEADER, FENCE, COUNTERS), "no namespace"),
        ((HEADER, SPACE, RULE, COUNTERS), "a rule stands where none can"),
        ((HEADER, FACT, SPACE, COUNTERS), "a namespace stands where none can"),
        ((HEADER, COUNTERS, JOB), "a job stands where none can"),
        ((HEADER, HEADER, COUNTERS), "stands where none can"),
        ((HEADER, Rule("a", True, {"item_bytes_max": 0}), COUNTERS), "item_bytes_max"),
        ((HEADER, Granted("a", True, "b", True, ("fly",)), COUNTERS), "fly"),
        ((HEADER, Entry("others", "a", body_of(b"")), COUNTERS), "others"),
        ((HEADER, Space("shared/a", 1, 0, False, 1 << 60, 0, 0, ()), COUNTERS), "head"),
        ((HEADER, SPACE, RecordLine("k", 8, 0, 0, body_of(b"")), COUNTERS), "revision"),
        ((HEADER, Counters(-1, 0, 0)), "number"),
        ((HEADER, Entry("limits", "", body_of(b"x")), COUNTERS), "key: must be 1 to 512 bytes"),
        ((HEADER, Entry("limits", "a", body_of(b"x" * 20_000)), COUNTERS), "too many bytes in an entry"),
        ((HEADER, replace(FACT, owner=""), COUNTERS), "owner: is empty"),
        ((HEADER, replace(FACT, recorded_ms=-1), COUNTERS), "recorded_ms: -1"),
        ((HEADER, replace(FACT, predicate="x" * 70_000), COUNTERS), "predicate"),
        ((HEADER, replace(FACT, vector="AACAPw=="), COUNTERS), "vector"),
        ((HEADER, replace(JOB, id=""), COUNTERS), "id"),
        ((HEADER, replace(JOB, priority=-1), COUNTERS), "priority: -1"),
    ],
)
def test_a_dump_that_makes_no_sense_is_refused_though_its_digest_is_right(
    tmp_path: Path, lines: tuple[Line, ...], named: str
) -> None:
    assert named in problem(tmp_path / "dump", dump_of(*lines))


def test_a_newer_format_is_refused_with_a_clear_line(tmp_path: Path) -> None:
    data = b'{"is":"noosphere dump","format":2,"something":"new"}\n{"is":"surprise"}\n'
    assert "has format 2, this version of noosphere reads up to 1: use the newer version" in problem(
        tmp_path / "dump", data
    )


@pytest.mark.parametrize("data", [b"", b"\n", b"PK\x03\x04", b'{"is":"rule"}\n', b"\x1f\x8b\x08\x00", b"\x1f\x8bx"])
def test_other_files_are_refused(tmp_path: Path, data: bytes) -> None:
    problem(tmp_path / "dump", data)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DumpError, match=r"cannot read .*dump: No such file"):
        DumpFile(tmp_path / "dump").verify()


def test_a_compressed_dump_that_was_cut_anywhere_is_refused(tmp_path: Path) -> None:
    whole = gzip.compress(dump_of(*ALL))
    path = tmp_path / "dump.gz"
    path.write_bytes(whole)
    assert DumpFile(path).verify().lines == len(ALL)
    for end in range(len(whole)):
        assert problem(path, whole[:end])


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


@pytest.mark.parametrize("name", ["dump", "dump.gz"])
async def test_a_dump_is_written_whole_and_for_its_owner_alone(tmp_path: Path, name: str) -> None:
    whole = dump_of(*ALL)
    path = tmp_path / name
    # However it comes.
    end, size = await write_dump(path, pieces(*(whole[at : at + 7] for at in range(0, len(whole), 7))))
    assert end.lines == len(ALL)
    assert size == path.stat().st_size
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert tuple(DumpFile(path).lines()) == ALL
    assert os.listdir(tmp_path) == [name]


async def test_a_dump_without_an_end_leaves_the_file_of_before(tmp_path: Path) -> None:
    path = tmp_path / "dump"
    path.write_bytes(b"of yesterday")
    whole = dump_of(*ALL)
    for end in (0, 10, len(whole) - 1):
        with pytest.raises(DumpError, match="no end"):
            await write_dump(path, pieces(whole[:end]))
    assert path.read_bytes() == b"of yesterday"
    assert os.listdir(tmp_path) == ["dump"]


def test_rules_are_told_in_full() -> None:
    policy = NamespacePolicy(records_max=17)
    assert rule_of(Rule("a", True, to_builtins(policy)))[1] == policy
