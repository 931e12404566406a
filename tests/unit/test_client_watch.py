"""Watches: in order, each change once, resumed by themselves, and never silent about a gap."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import pytest
from google.protobuf.message import Message
from tests.unit.client_support import (
    QUICK,
    SILENCE,
    Fault,
    ManualTime,
    ScriptedServer,
    Silence,
    live_record,
    manual_transport,
    scripted_server,
)

from noosphere.client import (
    Client,
    ClientClosed,
    FutureRevision,
    InvalidArgument,
    LimitExceeded,
    Namespace,
    Unavailable,
    Watch,
    WatchBatch,
    connect,
)
from noosphere.client._space import Space
from noosphere.v1 import errors_pb2
from noosphere.v1 import memory_service_pb2 as ms


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as script:
        yield script


@pytest.fixture
async def client(server: ScriptedServer) -> AsyncIterator[Client]:
    async with connect(server.address, agent="a", retry=QUICK) as connected:
        yield connected


@pytest.fixture
def space(client: Client) -> Namespace:
    return client.shared("launch")


def change(revision: int, key: str = "plan/a", *, token: bool = True) -> ms.WatchResponse:
    one = ms.Change(kind=ms.CHANGE_KIND_PUT, actor="b#1", key=key, record=live_record(key, b"1", dot=revision))
    batch = ms.ChangeBatch(revision=revision, changes=[one])
    return ms.WatchResponse(changes=batch, resume_token=b"at %d" % revision if token else b"", head=revision)


def bookmark(head: int) -> ms.WatchResponse:
    return ms.WatchResponse(bookmark=ms.Bookmark(), resume_token=b"at %d" % head, head=head)


def page(*keys: str, head: int, last: bool = True) -> ms.WatchResponse:
    records = [live_record(key, b"1", dot=head) for key in keys]
    token = b"at %d" % head if last else b""
    return ms.WatchResponse(snapshot=ms.SnapshotPage(records=records, last=last), resume_token=token, head=head)


def epoch(cut: int, head: int) -> ms.WatchResponse:
    return ms.WatchResponse(epoch=ms.EpochChanged(epoch=2, cut=cut), head=head)


def starts(server: ScriptedServer) -> list[Any]:
    """Returns where each stream was asked to begin."""
    found = []
    for request in server.requests["Watch"]:
        kind = request.WhichOneof("start")
        found.append((kind, getattr(request, kind)))
    return found


async def take(batches: Watch[Any], count: int) -> list[WatchBatch[Any]]:
    return [await anext(batches) for _ in range(count)]


async def test_a_batch_is_one_revision_with_its_resume_point(server: ScriptedServer, space: Namespace) -> None:
    server.script_watch([change(11), bookmark(12), SILENCE])
    async with space.watch("plan/", after=10) as batches:
        first, second = await take(batches, 2)
    assert (first.kind, first.revision, first.resume, first.head) == ("changes", 11, b"at 11", 11)
    (event,) = first.events
    assert (event.key, event.kind, event.actor) == ("plan/a", "put", "b#1")
    assert event.record is not None
    assert (event.record.value, event.record.version, event.record.namespace) == (1, 11, "shared/launch")
    assert (second.kind, second.revision, second.events, second.resume) == ("bookmark", 12, (), b"at 12")
    request = server.requests["Watch"][0]
    assert (request.collection, request.after, request.call.actor.agent_id) == ("plan/", 10, "a")


async def test_from_now_on_is_a_revision(server: ScriptedServer, space: Namespace) -> None:
    """Lost before its first message, the watch begins again at the same now."""
    server.script("List", ms.ListResponse(head=40))
    server.script_watch([Fault("UNAVAILABLE")], [change(41), SILENCE])
    async with space.watch() as batches:
        (batch,) = await take(batches, 1)
    assert batch.revision == 41
    assert starts(server) == [("after", 40), ("after", 40)]


LOST = [
    Fault("UNAVAILABLE"),
    Fault(reason="DRAINING"),
    Fault(reason="ENGINE_UNAVAILABLE"),
    Fault(reason="SLOW_CONSUMER"),
    Fault(reason="SLOW_CONSUMER", retry_delay=0.001),
    None,
]


@pytest.mark.parametrize("fault", LOST, ids=lambda fault: fault and (fault.reason or fault.code))
async def test_a_lost_stream_goes_on_after_the_last_delivered_batch(
    server: ScriptedServer, space: Namespace, fault: Fault | None
) -> None:
    stream: list[Message | Fault | Silence] = [change(11), change(12)]
    if fault is not None:
        stream.append(fault)
    server.script_watch(stream, [change(13), SILENCE])
    async with space.watch(after=10) as batches:
        taken = await take(batches, 3)
    assert [batch.revision for batch in taken] == [11, 12, 13]
    assert starts(server) == [("after", 10), ("resume_token", b"at 12")]


async def test_a_change_that_was_delivered_is_not_told_again(server: ScriptedServer, space: Namespace) -> None:
    server.script_watch([change(11), Fault("UNAVAILABLE")], [change(11), change(12), SILENCE])
    async with space.watch(resume=b"at 10") as batches:
        assert [batch.revision for batch in await take(batches, 2)] == [11, 12]
    assert starts(server) == [("resume_token", b"at 10"), ("resume_token", b"at 11")]


async def test_without_a_token_the_revision_is_where_to_go_on(server: ScriptedServer, space: Namespace) -> None:
    server.script_watch([change(11, token=False), Fault("UNAVAILABLE")], [change(12), SILENCE])
    async with space.watch(after=10) as batches:
        await take(batches, 2)
    assert starts(server)[1] == ("after", 11)


async def test_a_snapshot_is_one_batch(server: ScriptedServer, space: Namespace) -> None:
    pages = [page("plan/a", "plan/b", head=20, last=False), page("plan/c", head=20), change(21), SILENCE]
    server.script_watch(pages)
    async with space.watch("plan/", snapshot=True) as batches:
        snapshot, later = await take(batches, 2)
    assert (snapshot.kind, snapshot.revision, snapshot.resume) == ("snapshot", 20, b"at 20")
    assert [(event.key, event.kind) for event in snapshot.events] == [
        ("plan/a", "put"),
        ("plan/b", "put"),
        ("plan/c", "put"),
    ]
    assert later.revision == 21


async def test_a_broken_snapshot_begins_again(server: ScriptedServer, space: Namespace) -> None:
    """Half a snapshot of one moment and half of another would be no state that ever was."""
    server.script_watch(
        [page("plan/a", "plan/gone", head=20, last=False), Fault("UNAVAILABLE")],
        [page("plan/a", head=22, last=False), page("plan/b", head=22), SILENCE],
    )
    async with space.watch(snapshot=True) as batches:
        (snapshot,) = await take(batches, 1)
    assert [event.key for event in snapshot.events] == ["plan/a", "plan/b"]
    assert starts(server) == [("snapshot", True), ("snapshot", True)]


async def test_a_snapshot_has_a_limit(server: ScriptedServer, space: Namespace) -> None:
    server.script_watch([page("a", "b", head=20, last=False), page("c", head=20)])
    async with space.watch(snapshot=True, snapshot_records_max=2) as batches:
        with pytest.raises(LimitExceeded, match="snapshot: more than 2 records"):
            await anext(batches)


async def test_a_compacted_log_means_a_reset(server: ScriptedServer, space: Namespace) -> None:
    compacted = Fault(reason="COMPACTED", detail=errors_pb2.LogRangeDetail(requested=10, floor=15))
    server.script_watch([compacted], [page("plan/a", head=20), change(21), SILENCE])
    async with space.watch(resume=b"at 10") as batches:
        reset, later = await take(batches, 2)
    assert (reset.kind, reset.revision, [event.key for event in reset.events]) == ("reset", 20, ["plan/a"])
    assert (later.kind, later.revision) == ("changes", 21)
    assert starts(server) == [("resume_token", b"at 10"), ("snapshot", True)]


async def test_an_epoch_is_told_and_followed_by_a_reset(server: ScriptedServer, space: Namespace) -> None:
    """Revisions of the new epoch may be lower than lost ones that were delivered: they must not be skipped."""
    server.script_watch(
        [change(11), change(15), Fault("UNAVAILABLE")],
        [epoch(cut=11, head=12)],
        [page("plan/a", head=12), change(13), SILENCE],
    )
    async with space.watch(after=10) as batches:
        taken = await take(batches, 5)
    assert [(batch.kind, batch.revision) for batch in taken] == [
        ("changes", 11),
        ("changes", 15),
        ("epoch", 11),
        ("reset", 12),
        ("changes", 13),
    ]
    assert taken[2].resume == b""
    assert starts(server) == [("after", 10), ("resume_token", b"at 15"), ("snapshot", True)]


async def test_lost_writes_are_an_epoch_too(server: ScriptedServer, space: Namespace) -> None:
    lost = errors_pb2.LostRevisionsDetail(namespace="shared/launch", to=19, head=21, **{"from": 11})
    server.script_watch([Fault(reason="ACKED_WRITES_LOST", detail=lost)], [page("a", head=21), SILENCE])
    async with space.watch(after=15) as batches:
        taken = await take(batches, 2)
    assert [(batch.kind, batch.revision) for batch in taken] == [("epoch", 11), ("reset", 21)]


async def test_what_cannot_be_mended_is_raised(server: ScriptedServer, space: Namespace) -> None:
    server.script_watch([Fault(reason="FUTURE_REVISION")])
    async with space.watch(after=10**6) as batches:
        with pytest.raises(FutureRevision):
            await anext(batches)


async def test_a_cancelled_wait_loses_nothing(server: ScriptedServer, space: Namespace) -> None:
    server.script("List", ms.ListResponse(head=10))
    server.script_watch([change(11), change(12), change(13), SILENCE])
    revisions: list[int] = []
    async with space.watch() as batches:
        while len(revisions) < 3:
            waiting = asyncio.ensure_future(anext(batches))
            # Cancelled wherever it is: before the stream is open, while it waits, or with a message at hand.
            for _ in range(len(revisions)):
                await asyncio.sleep(0)
            waiting.cancel()
            try:
                revisions.append((await waiting).revision)
            except asyncio.CancelledError:
                revisions.append((await anext(batches)).revision)
    assert revisions == [11, 12, 13]
    assert len(server.requests["Watch"]) == 1


async def test_leaving_ends_the_stream(server: ScriptedServer, space: Namespace) -> None:
    server.script_watch([change(11), SILENCE])
    watch = space.watch(after=10)
    async with watch as batches:
        async for _ in batches:
            break
    with pytest.raises(StopAsyncIteration):
        await anext(watch)
    with pytest.raises(RuntimeError, match="one use"):
        await watch.__aenter__()


async def test_a_closed_client_ends_its_watches(server: ScriptedServer) -> None:
    server.script_watch([SILENCE])
    async with connect(server.address, agent="b", retry=QUICK) as client:
        watch = client.shared("launch").watch(after=10)
        batches = await watch.__aenter__()
        waiting = asyncio.ensure_future(anext(batches))
        await server.arrival("Watch")
    with pytest.raises(ClientClosed):
        await waiting
    await watch.__aexit__(None, None, None)


async def test_a_slow_reader_is_not_read_ahead_for(server: ScriptedServer, space: Namespace) -> None:
    """The client holds at most one message; the rest waits in gRPC's window and then in the server."""
    pulled = 0

    class Counted(list[Message]):
        def __iter__(self) -> Any:
            nonlocal pulled
            for message in super().__iter__():
                pulled += 1
                yield message

    big = change(11)
    big.changes.changes[0].record.values[0].value.data = b'"' + b"x" * 60_000 + b'"'
    messages: list[Message] = []
    for revision in range(11, 511):
        message = ms.WatchResponse()
        message.CopyFrom(big)
        message.changes.revision = revision
        messages.append(message)
    server.script_watch(Counted(messages))
    async with space.watch(after=10) as batches:
        assert (await anext(batches)).revision == 11
        for _ in range(200):
            await asyncio.sleep(0)
        assert pulled < 400


async def test_patience_is_bounded(server: ScriptedServer) -> None:
    time = ManualTime()
    server.script_watch(*[[Fault("UNAVAILABLE")]] * 1_000)
    async with manual_transport(server, time) as transport:
        slow = dataclasses.replace(QUICK, first_delay=1.0, delay_max=8.0)
        transport.retry = slow
        space = Namespace(Space(transport, "shared/launch"))
        async with space.watch(after=10, patience=60.0) as batches:
            began = time.clock()
            waiting = asyncio.ensure_future(anext(batches))
            while not waiting.done():
                sleeping = asyncio.ensure_future(time.sleeper())
                await asyncio.wait((waiting, sleeping), return_when=asyncio.FIRST_COMPLETED)
                if sleeping.done():
                    time.advance(sleeping.result())
                else:
                    sleeping.cancel()
            with pytest.raises(Unavailable, match="could not be resumed within 60 s"):
                await waiting
    assert 60.0 < time.clock() - began <= 60.0 + 8.0
    # Waits grow to their bound, so a long outage is not a storm of connections.
    assert len(server.requests["Watch"]) < 30


@pytest.mark.parametrize(
    "arguments", [{"resume": b"x", "after": 1}, {"after": 1, "snapshot": True}, {"resume": b"x", "snapshot": True}]
)
async def test_there_is_one_start_point(space: Namespace, arguments: Any) -> None:
    with pytest.raises(InvalidArgument, match="at most"):
        space.watch(**arguments)


async def test_an_empty_resume_point_begins_anew(server: ScriptedServer, space: Namespace) -> None:
    """What `load()` returns the first time: nothing."""
    server.script("List", ms.ListResponse(head=40))
    server.script_watch([change(41), SILENCE])
    async with space.watch(resume=b"") as batches:
        await take(batches, 1)
    assert starts(server) == [("after", 40)]


async def test_the_collection_is_checked_at_once(space: Namespace) -> None:
    with pytest.raises(InvalidArgument, match="must end in '/'"):
        space.watch("plan")
