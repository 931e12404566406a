"""Every kind of call, made by the real client against the real binary, recorded and judged."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import grpc
import pytest

from noosphere.client import (
    Client,
    Conflict,
    ConflictPolicy,
    Increment,
    KeepMax,
    NamespacePolicy,
    Put,
    TransactionFailed,
    connect,
)
from noosphere.server.checking import (
    HistoryWriter,
    Op,
    Outcome,
    Recorder,
    check_history,
    collect_history,
    new_header,
    read_history,
)
from noosphere.server.demo.processes import own_server

ROUNDS = 8


@asynccontextmanager
async def recorded(server: str, name: str, folder: Path) -> AsyncIterator[Client]:
    with HistoryWriter(folder / name) as writer:
        channel = grpc.aio.insecure_channel(server, interceptors=[Recorder(writer, name)])
        async with channel, connect(server, agent=name, channel=channel, timeout=30, coalesce=False) as client:
            yield client


def _with(mine: str, held: list[str] | None, _: Conflict[list[str]] | None) -> list[str]:
    return [*(held or []), mine]


async def work(server: str, name: str, folder: Path, namespace: str) -> None:
    """Everything that a client can do to records, a few times, while others do the same."""
    chance = random.Random(name)
    async with recorded(server, name, folder) as client:
        space = client.namespace(namespace)
        document = space.key("document", list[str])
        for number in range(ROUNDS):
            mine = f"{name}/{number}"
            await document.update(partial(_with, mine), attempts=200, reserve="first" if number % 2 else "never")
            await space.key("counter").increment(chance.randrange(1, 5))
            await space.key("members").set_add(mine)
            await space.key("members").set_remove(f"{name}/{number - 1}")
            await space.key("fields").map_set({f"field {number % 3}": mine})
            await space.key("highest").keep_max(chance.random())
            await space.key("entries").log_append(mine, keep=5)
            try:
                await space.transact(
                    operations=[
                        Put(f"marks/{number}", mine, expected_version=0),
                        Increment("sum", 1),
                        KeepMax("top", number),
                    ]
                )
            except TransactionFailed:
                assert (await space.get(f"marks/{number}")) is not None
            try:
                record = await space.key("on and off").read()
                record = await (record.delete() if record.exists else record.replace(mine))
            except Conflict:
                pass
            await space.key("blind").put(mine, blind=True)
            async with space.board("tasks/").claim(lease=60) as claim:
                if claim is not None:
                    await claim.renew()
                    if number % 3:
                        await claim.complete({"by": mine})
            async for _ in space.list("marks/"):
                pass
            await space.get_many(["document", "counter", "members", "fields"])


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    target = folder / "history"

    async def run() -> None:
        namespaces = ["shared/rejecting", "shared/last-writer", "shared/siblings"]
        policies = [ConflictPolicy.REJECT, ConflictPolicy.LAST_WRITER_WINS, ConflictPolicy.SIBLINGS]
        async with own_server(folder) as server, recorded(server, "first", folder) as client:
            for namespace, policy in zip(namespaces, policies, strict=True):
                await client.ensure_namespace(namespace, NamespacePolicy(conflict_policy=policy))
                for number in range(12):
                    await client.namespace(namespace).board("tasks/").add({"number": number}, f"{number:02}")
            names = [f"worker-{number}" for number in range(3)]
            async with asyncio.TaskGroup() as group:
                for name in names:
                    group.create_task(work(server, name, folder, namespaces[0]))
            # Unseen values are not refused there, so reads and writes may overlap without an update loop.
            for namespace in namespaces[1:]:
                reader = client.namespace(namespace).key("page")
                one, two = await reader.read(), await reader.read()
                await one.replace("first")
                await two.replace("second")
                last = await reader.read()
                assert last.values == (("second",) if namespace == namespaces[1] else ("first", "second"))
        journals = [folder / name for name in ("first", *names)]
        collect_history(journals, target, new_header(complete=namespaces))

    asyncio.run(run())
    return target


def test_what_the_real_server_did_is_valid(history: Path) -> None:
    verdict = check_history(history)
    assert verdict.ok, verdict.explain()
    assert verdict.figures.lost_updates == verdict.figures.duplicate_completions == 0
    assert verdict.figures.unknown == 0
    assert verdict.figures.completions > 0
    assert verdict.figures.registers > 10


def test_every_kind_of_call_is_in_the_history(history: Path) -> None:
    calls = read_history(history).calls
    outcomes = Counter((call.op, call.outcome) for call in calls)
    assert {op for op, outcome in outcomes if outcome is Outcome.OK} == set(Op)
    kinds = {write.kind for call in calls for write in call.writes}
    assert {str(kind) for kind in kinds} == {"put", "delete", "add", "set", "max", "map", "log"}
    # A write after a read knows what it read, so the register checker has something to check.
    conditional = [write for call in calls for write in call.writes if write.context is not None and not write.blind]
    assert conditional
    assert all(write.base is not None for write in conditional)
