"""`make bench` works: every row is there, and wrong answers are noticed."""

from __future__ import annotations

import asyncio
import json
import math
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.bench import fast_rows, overload_rows, redis_rows, replica_rows
from tests.bench.children import ROOT
from tests.bench.commands import WrongAnswer
from tests.bench.floor import Floor
from tests.bench.machine import NotADisk, mount_of, require_disk
from tests.bench.parts import PARTS
from tests.bench.plan import SMOKE, VALUE_BYTES
from tests.bench.replies import Replies
from tests.bench.report import details
from tests.bench.results import load
from tests.bench.stats import Spread, percentile, ratios, spread
from tests.bench.tables import ROW_NAMES
from tests.bench.workloads import KEYS_PER_CALLER, Caller, key_of, value_of
from tests.support.etcd import needs_etcd
from tests.support.redis import needs_redis

from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1 import types_pb2
from noosphere.v1.memory_service_pb2_grpc import MemoryServiceStub, add_MemoryServiceServicer_to_server

UNPROFILED = (*redis_rows.UNPROFILED, *overload_rows.NAMES)


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """A folder whose file system is not in memory, which is what a run asks for."""
    try:
        require_disk(tmp_path)
    except NotADisk as error:
        pytest.skip(f"no disk to measure: {error}")
    return tmp_path


async def _run(out: Path, *words: str, **environment: str) -> tuple[str, dict[str, Any]]:
    """Runs a benchmark in short; returns its report, and its rows by name."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.bench", "--plan", SMOKE.name, "--profile", "--out", str(out), *words),
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    told, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    document = json.loads((out / "benchmarks.json").read_text())
    assert told.startswith(b"| ")
    return details(load(out / "benchmarks.json")), {row["name"]: row for row in document["rows"]}


def _check_measured(rows: dict[str, Any]) -> None:
    for name, row in rows.items():
        assert row["value"]["median"] > 0, name
        assert all(math.isfinite(number) for number in _numbers(row)), name
        assert bool(row["profiles"]) == (row["goal"] is not None and name not in UNPROFILED), name


@pytest.mark.campaign
@pytest.mark.timeout(600)
async def test_a_run_fills_every_row(disk: Path) -> None:
    parts = ",".join(part.name for part in PARTS)
    # No program is found there, so that what needs an engine has to say so.
    report, rows = await _run(disk / "out", "--only", parts, PATH=str(disk / "nothing"))
    assert sorted(rows) == sorted(ROW_NAMES)
    for row in rows.values():
        assert f"| {row['what']} |" in report
    for name in redis_rows.NAMES:
        row = rows.pop(name)
        assert row["why"].startswith("no redis-server is installed")
        assert f"| {row['what']} | not measured: {row['why']} |" in report
    _check_measured(rows)
    for name in ("get_floor", "put_floor"):
        samples = rows[name]["samples"]
        assert [len(samples[target]) for target in ("noosphere", "floor")] == [SMOKE.pairs] * 2
    calls = SMOKE.callers * SMOKE.put_calls * SMOKE.pairs
    assert rows["put_floor"]["figures"]["calls_total"] == calls
    assert 0 < rows["put_floor"]["figures"]["syncs"] <= calls


@needs_redis
@needs_etcd
@pytest.mark.timeout(600)
async def test_what_needs_engines_is_measured_where_there_are_some(disk: Path) -> None:
    names = (*redis_rows.NAMES, *fast_rows.CACHED)
    _, rows = await _run(disk / "out", "--only", ",".join(names))
    assert sorted(rows) == sorted(names)
    _check_measured(rows)
    assert all(rows[name]["goal"] is not None for name in redis_rows.NAMES if name not in replica_rows.WORKS)
    server = [name for name in redis_rows.NAMES if name not in redis_rows.UNPROFILED]
    for name in server:
        # The server that was profiled was on Redis too.
        cells = [cell for profile in rows[name]["profiles"] for line in profile["rows"] for cell in line]
        assert any("storage/redis/" in cell for cell in cells), name
    found = rows["redis_hot_key"]["samples"]
    assert [len(taken) for taken in found.values()] == [SMOKE.cas_pairs] * 2


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from _numbers(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _numbers(inner)
    elif isinstance(value, (int, float)):
        yield value


def test_a_folder_in_memory_is_refused() -> None:
    shared = Path("/dev/shm")
    if not shared.is_dir() or mount_of(shared).kind != "tmpfs":
        pytest.skip("no tmpfs here")
    with pytest.raises(NotADisk, match="tmpfs"):
        require_disk(shared)


def _replies(key: str, value: bytes, revision: int) -> Replies:
    live = types_pb2.LiveValue(dot=revision, value=types_pb2.Value(data=value, encoding=types_pb2.ENCODING_JSON))
    return Replies(
        pb.GetResponse(record=types_pb2.Record(key=key, version=revision, values=[live]), head=revision),
        pb.PutResponse(applied=types_pb2.Applied(revision=revision, version=revision), head=revision),
        pb.OpenAgentResponse(actor=types_pb2.Actor(agent_id="bench", incarnation=1)),
    )


@asynccontextmanager
async def _caller(replies: Replies, canned: tuple[str, bytes] | None) -> AsyncIterator[Caller]:
    server = grpc.aio.server()
    add_MemoryServiceServicer_to_server(Floor(replies), server)  # type: ignore[abstract] # the rest is UNIMPLEMENTED
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield Caller(MemoryServiceStub(channel), replies.open_agent.actor, 0, canned)
    finally:
        await server.stop(None)


async def test_the_load_accepts_the_floor() -> None:
    key, value = key_of(0, 0), value_of(1)
    async with _caller(_replies(key, value, 7), (key, value)) as caller:
        latencies: list[int] = []
        await caller.get(KEYS_PER_CALLER, latencies)
        await caller.put(KEYS_PER_CALLER, latencies)
    assert len(latencies) == 2 * KEYS_PER_CALLER


async def test_the_load_notices_a_revision_that_does_not_rise() -> None:
    async with _caller(_replies(key_of(0, 0), value_of(1), 7), None) as caller:
        await caller.put(1, [])
        with pytest.raises(WrongAnswer, match="was not applied above 8"):
            await caller.put(1, [])


async def test_the_load_notices_a_value_that_was_not_written() -> None:
    async with _caller(_replies(key_of(0, 0), value_of(2), 7), None) as caller:
        caller.sent[0] = value_of(1)
        with pytest.raises(WrongAnswer, match="another value"):
            await caller.get(1, [])


async def test_the_load_notices_a_head_that_goes_back() -> None:
    async with _caller(_replies(key_of(0, 0), value_of(1), 7), None) as caller:
        caller.sent[0] = value_of(1)
        await caller.get(1, [])
        caller.head = 8
        with pytest.raises(WrongAnswer, match="head went back from 8 to 7"):
            await caller.get(1, [])


def test_values_have_the_stated_size_and_differ() -> None:
    values = {value_of(number) for number in (0, 1, 999_999_999_999)}
    assert len(values) == 3
    assert {len(value) for value in values} == {VALUE_BYTES}
    assert all(json.loads(value)["n"] for value in values)


def test_ratios_are_of_pairs_and_percentiles_are_samples() -> None:
    # The machine halves its speed after the second pair: the ratios do not notice.
    assert ratios([80.0, 80.0, 40.0], [100.0, 100.0, 50.0]) == Spread(0.8, 0.8, 0.8, 3)
    assert spread([3.0, 1.0, 2.0, 5.0, 4.0]) == Spread(3.0, 2.0, 4.0, 5)
    assert [percentile(range(1, 101), share) for share in (0.5, 0.99, 1.0)] == [50, 99, 100]
    assert percentile([4.0], 0.99) == 4.0
