"""The last acknowledged writes: bounded, named when they die, and written again once at most."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.client_support import (
    QUICK,
    SILENCE,
    Fault,
    ManualTime,
    ScriptedServer,
    live_record,
    manual_transport,
    put_applied,
    scripted_server,
)

from noosphere.client import (
    AckedWritesLost,
    Client,
    Conflict,
    DeadlineExceeded,
    Delete,
    Increment,
    NotKept,
    Put,
    ServerError,
    SetUpdate,
    TransactionFailed,
    connect,
)
from noosphere.client import _resubmit as resubmitting
from noosphere.client._acked import BYTES_PER_WRITE_MAX, WRITES_MAX, AckedWrites
from noosphere.consistency import NOTHING_READ, CausalContext, KeySeen, LostRange, encode_read_set, make_revision
from noosphere.v1 import errors_pb2
from noosphere.v1 import memory_service_pb2 as ms
from noosphere.v1 import types_pb2 as pb
from noosphere.v1.session_service_pb2 import Message, Part

X = "shared/x"
CUT, END = make_revision(1, 10), make_revision(2, 0)
EVERYTHING = LostRange(0, END)


def put_request(key: str, size: int = 8) -> ms.PutRequest:
    value = pb.Value(data=b'"' + b"v" * size + b'"', encoding=pb.ENCODING_JSON)
    return ms.PutRequest(namespace=X, put=ms.PutOperation(key=key, value=value))


def transact_request(*keys: str, size: int = 8) -> ms.TransactRequest:
    return ms.TransactRequest(namespace=X, operations=[ms.Operation(put=put_request(key, size).put) for key in keys])


@given(st.lists(st.integers(1, 64), max_size=60))
def test_never_more_than_256_writes_and_the_newest_stay(sizes: list[int]) -> None:
    acked = AckedWrites()
    for revision, size in enumerate(sizes, start=1):
        acked.add(transact_request(*(f"{revision}/{n}" for n in range(size))), revision, "id", 0.0)
        assert len(acked) <= WRITES_MAX
    left = acked.mark_lost(X, EVERYTHING)
    assert len(left) == len(acked)
    whole = {revision: size for revision, size in enumerate(sizes, start=1)}
    # Transactions are forgotten whole.
    for revision in {write.revision for write in left}:
        assert sum(write.revision == revision for write in left) == whole[revision]
    kept = [write.revision for write in left]
    assert kept == sorted(kept)
    if sizes:
        assert kept[-1] == len(sizes)


def test_content_is_kept_up_to_4_kib_for_each_write() -> None:
    acked = AckedWrites()
    acked.add(put_request("small", BYTES_PER_WRITE_MAX - 100), 1, "id", 0.0)
    acked.add(put_request("large", BYTES_PER_WRITE_MAX), 2, "id", 0.0)
    acked.add(transact_request("a", "b", size=BYTES_PER_WRITE_MAX - 100), 3, "id", 0.0)
    writes = acked.mark_lost(X, EVERYTHING)
    assert [(write.key, write.operation, write.kept) for write in writes] == [
        ("small", "put", True),
        ("large", "put", False),
        ("a", "put", True),
        ("b", "put", True),
    ]
    assert writes[0].value == "v" * (BYTES_PER_WRITE_MAX - 100)
    assert writes[1].value is None


def test_what_changed_nothing_or_was_known_is_not_noted() -> None:
    acked = AckedWrites()
    acked.add(put_request("k"), 0, "id", 0.0)
    assert len(acked) == 0
    acked.add(put_request("k"), 5, "id", 0.0)
    acked.add(put_request("k"), 5, "id", 0.0, replayed=True)
    acked.add(put_request("k"), 6, "id", 0.0, replayed=True)
    assert [write.revision for write in acked.mark_lost(X, EVERYTHING)] == [5, 6]


def test_an_appended_message_is_named_by_its_own_id_also_if_it_is_not_kept() -> None:
    acked = AckedWrites()
    for revision, size in ((1, 10), (2, 3 * BYTES_PER_WRITE_MAX)):
        request = transact_request("k")
        for name in ("m-1", ""):
            message = Message(id=name, parts=[Part(text="x" * size)])
            request.operations.add(append=ms.AppendOperation(message=message))
        acked.add(request, revision, "id", 0.0)
    assert [(w.operation, w.key, w.kept, w.value) for w in acked.mark_lost(X, EVERYTHING)] == [
        ("put", "k", True, "v" * 8),
        ("append", "m-1", True, None),
        ("append", "", True, None),
        ("put", "k", False, None),
        ("append", "m-1", False, None),
        ("append", "", False, None),
    ]


def test_only_a_lost_range_of_the_same_namespace_is_lost() -> None:
    acked = AckedWrites()
    for revision in (10, 11, 12):
        acked.add(put_request(f"k{revision}"), revision, "id", 0.0)
    assert [write.key for write in acked.mark_lost(X, LostRange(10, 11))] == ["k11"]
    assert acked.mark_lost("shared/y", LostRange(0, 100)) == ()


# From here on over a real connection.


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as script:
        yield script


@pytest.fixture
async def client(server: ScriptedServer) -> AsyncIterator[Client]:
    async with connect(server.address, agent="a", retry=QUICK, coalesce=False) as made:
        yield made


def transact_applied(revision: int, parts: int = 1) -> ms.TransactResponse:
    result = pb.Applied(revision=revision, version=revision, context=pb.CausalContext(prefix=revision))
    applied = ms.TransactApplied(revision=revision, results=[result] * parts)
    return ms.TransactResponse(applied=applied, head=revision)


def present(*records: pb.Record) -> ms.BatchGetResponse:
    return ms.BatchGetResponse(records=records, head=CUT)


async def loss(client: Client, server: ScriptedServer) -> AckedWritesLost:
    """Has the server say that everything after the cut is gone."""
    detail = errors_pb2.LostRevisionsDetail(namespace=X, to=END, head=CUT, **{"from": CUT})
    server.script("Get", Fault(reason="ACKED_WRITES_LOST", detail=detail))
    with pytest.raises(AckedWritesLost) as caught:
        await client.shared("x").get("k")
    return caught.value


async def test_each_kind_of_write_is_named(server: ScriptedServer, client: Client) -> None:
    space = client.shared("x")
    claimed = live_record("todo/a", b"1")
    claimed.claim.holder, claimed.claim.fence = client.actor, CUT + 4
    server.script("Put", put_applied(CUT), put_applied(CUT + 1))
    applied = pb.Applied(revision=CUT + 2, context=pb.CausalContext(prefix=CUT + 2))
    server.script("Delete", ms.DeleteResponse(applied=applied, head=CUT + 2))
    server.script("Merge", ms.MergeResponse(applied=pb.Applied(revision=CUT + 3), head=CUT + 3))
    server.script("ClaimNext", ms.ClaimNextResponse(record=claimed, head=CUT + 4))
    server.script("Complete", ms.CompleteResponse(record=live_record("todo/a", b"1", dot=CUT + 5), head=CUT + 5))
    server.script("Transact", transact_applied(CUT + 6, 2))
    await space.put("survives", 0)
    await space.put("k", {"n": 1})
    await space.delete("k", blind=True)
    await space.key("n").increment(5)
    async with space.board("todo/").claim() as claim:
        assert claim is not None
        await claim.complete("done")
    await space.transact(operations=[Put("p", "v"), Increment("m")])
    died = (await loss(client, server)).own_writes
    assert [(write.operation, write.key, write.value, write.kept) for write in died] == [
        ("put", "k", {"n": 1}, True),
        ("delete", "k", None, True),
        ("merge", "n", None, True),
        ("complete", "todo/a", None, False),
        ("put", "p", "v", True),
        ("merge", "m", None, True),
    ]
    assert [write.revision - CUT for write in died] == [1, 2, 3, 5, 6, 6]


async def test_a_write_is_made_again_on_what_the_loss_has_left(server: ScriptedServer, client: Client) -> None:
    server.script("Put", put_applied(CUT + 1), put_applied(CUT + 2))
    await client.shared("x").put("k", 1, attributes={"kind": "x"})
    await client.shared("x").put("k", 2, blind=True)
    lost = await loss(client, server)
    server.script("BatchGet", present(live_record("k", b"0", dot=7)), present(live_record("k", b"0", dot=7)))
    server.script("Transact", transact_applied(END + 1), transact_applied(END + 2))
    results = await client.resubmit(lost)
    assert [(r.write.value, r.revision, r.error) for r in results] == [(1, END + 1, None), (2, END + 2, None)]
    first, second = (request.operations[0].put for request in server.requests["Transact"])
    assert (first.precondition.expected_version, first.precondition.context.prefix) == (7, CUT)
    assert first.attributes["kind"].string_value == "x"
    # The second follows the first one's new revision.
    assert (second.precondition.expected_version, second.precondition.context.prefix) == (END + 1, END + 1)
    assert not second.precondition.blind


async def test_written_again_is_written_once(server: ScriptedServer, client: Client) -> None:
    """Two tasks were told of the same loss, and one of them asks twice."""
    server.script("Put", put_applied(CUT + 1))
    await client.shared("x").put("k", 1)
    first, second = await loss(client, server), await loss(client, server)
    assert second.own_writes[0].revision == first.own_writes[0].revision
    server.script("BatchGet", present(pb.Record(key="k")))
    server.script("Transact", transact_applied(END + 1))
    answers = await asyncio.gather(client.resubmit(first), client.resubmit(second), client.resubmit(first))
    assert [(r.revision, r.error) for (r,) in answers] == [(END + 1, None)] * 3
    assert len(server.requests["Transact"]) == 1
    # What was written again is one of the acknowledged writes, and what it replaces no longer is.
    assert [write.revision for write in (await loss(client, server)).own_writes] == []


async def test_an_unknown_outcome_is_asked_for_under_the_same_id(server: ScriptedServer, client: Client) -> None:
    server.script("Merge", ms.MergeResponse(applied=pb.Applied(revision=CUT + 1), head=CUT + 1))
    await client.shared("x").key("n").increment()
    lost = await loss(client, server)
    server.script("BatchGet", present(pb.Record(key="n")))
    server.script("Transact", Fault("INTERNAL"), transact_applied(END + 1))
    (doubt,) = await client.resubmit(lost)
    assert isinstance(doubt.error, ServerError)
    assert (doubt.error.outcome, doubt.revision) == ("unknown", 0)
    (sure,) = await client.resubmit(lost)
    assert (sure.revision, sure.error) == (END + 1, None)
    one, two = server.requests["Transact"]
    assert one.call.request_id.uuid
    assert one == two
    assert len(server.requests["BatchGet"]) == 1


async def test_a_doubt_that_is_too_old_stays_one(
    server: ScriptedServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server may have forgotten the id by now: asking again could count twice."""
    server.script("Merge", ms.MergeResponse(applied=pb.Applied(revision=CUT + 1), head=CUT + 1))
    await client.shared("x").key("n").increment()
    lost = await loss(client, server)
    server.script("BatchGet", present(pb.Record(key="n")))
    server.script("Transact", Fault("INTERNAL"))
    await client.resubmit(lost)
    monkeypatch.setattr(resubmitting, "AGAIN_SECONDS_MAX", -1.0)
    (result,) = await client.resubmit(lost)
    assert isinstance(result.error, DeadlineExceeded)
    assert result.error.outcome == "unknown"
    assert len(server.requests["Transact"]) == 1


async def test_a_transaction_is_made_again_as_one_or_not_at_all(server: ScriptedServer, client: Client) -> None:
    server.script("Transact", transact_applied(CUT + 1, 3))
    update = SetUpdate("s", add=["x"], remove=["y"], seen=CausalContext(CUT + 1, (CUT - 2, CUT + 1)))
    await client.shared("x").transact(operations=[Put("a", 1), Delete("b", blind=True), update])
    lost = await loss(client, server)
    theirs = live_record("a", b'"theirs"', dot=END + 5)
    refused = pb.NotApplied(reason="VERSION_MISMATCH", message="scripted", current=theirs, as_of=END + 5)
    failure = ms.TransactFailure(index=0, is_operation=True, detail=refused)
    server.script("BatchGet", present(theirs, live_record("b", b"2", dot=4), pb.Record(key="s")))
    server.script("Transact", ms.TransactResponse(not_applied=ms.TransactNotApplied(failures=[failure])))
    a, b, s = await client.resubmit(lost)
    assert isinstance(a.error, Conflict)
    assert (a.error.mine, a.error.theirs and a.error.theirs.value) == (1, "theirs")
    assert isinstance(b.error, TransactionFailed)
    assert b.error is s.error
    sent = server.requests["Transact"][1]
    assert [operation.WhichOneof("kind") for operation in sent.operations] == ["put", "delete", "merge"]
    assert sent.operations[1].delete.precondition.expected_version == 4
    # Of what the removal had seen, only what survived is presented.
    assert sent.operations[2].merge.set_update.context == pb.CausalContext(prefix=CUT, extras=[CUT - 2])


async def test_what_is_gone_is_not_deleted_again(server: ScriptedServer, client: Client) -> None:
    applied = pb.Applied(revision=CUT + 1, context=pb.CausalContext(prefix=CUT + 1))
    server.script("Delete", ms.DeleteResponse(applied=applied, head=CUT + 1))
    await client.shared("x").delete("k", blind=True)
    lost = await loss(client, server)
    server.script("BatchGet", present(pb.Record(key="k")))
    (result,) = await client.resubmit(lost)
    assert (result.revision, result.error) == (0, None)
    assert not server.requests["Transact"]


async def test_a_value_gets_what_is_left_of_its_life(server: ScriptedServer) -> None:
    time = ManualTime()
    async with manual_transport(server, time) as transport:
        client = Client(transport)
        server.script("Put", put_applied(CUT + 1), put_applied(CUT + 2))
        await client.shared("x").put("long", 1, ttl=100)
        await client.shared("x").put("short", 1, ttl=40)
        time.advance(40)
        lost = await loss(client, server)
        server.script("BatchGet", present(pb.Record(key="long")), present(pb.Record(key="short")))
        server.script("Transact", transact_applied(END + 1))
        written, over = await client.resubmit(lost)
    assert (written.revision, over.revision, over.error) == (END + 1, 0, None)
    (request,) = server.requests["Transact"]
    assert request.operations[0].put.ttl.ToMilliseconds() == 60_000


async def test_what_was_not_kept_is_reported(server: ScriptedServer, client: Client) -> None:
    server.script("Put", put_applied(CUT + 1))
    await client.shared("x").put("k", "v" * 5000)
    (result,) = await client.resubmit(await loss(client, server))
    assert isinstance(result.error, NotKept)
    assert not server.requests["Transact"]


async def test_a_decision_is_made_again_on_the_same_grounds(server: ScriptedServer, client: Client) -> None:
    """What it was decided on may have died with it; the server has to say whether it still holds."""
    token = encode_read_set(NOTHING_READ.with_key(X, 9, "goal", KeySeen(9)))
    reply = ms.GetResponse(record=live_record("goal", b"1", dot=9), head=9, call=pb.CallReply(read_set_token=token))
    applied = transact_applied(CUT + 1).applied
    server.script("Get", reply)
    server.script(
        "Commit",
        ms.CommitResponse(applied=applied, head=CUT + 1, call=pb.CallReply(read_set_token=token)),
        Fault(reason="STALE_READ_SET"),
    )
    async with client.shared("x").reading(guard="goal") as view:
        await view.get("goal")
        await view.commit(Put("next", 1))
    lost = await loss(client, server)
    assert [(write.key, write.value) for write in lost.own_writes] == [("next", 1)]
    server.script("BatchGet", present(pb.Record(key="next")))
    (result,) = await client.resubmit(lost)
    assert result.error is not None
    assert result.error.reason == "STALE_READ_SET"
    first, again = server.requests["Commit"]
    assert again.call.read_set_token == first.call.read_set_token == token
    assert again.call.guards == first.call.guards
    assert again.operations[0].put.value == first.operations[0].put.value
    assert again.operations[0].put.precondition.context.prefix == CUT
    assert again.call.request_id != first.call.request_id


async def test_a_cancelled_resubmission_is_finished_by_the_next(server: ScriptedServer, client: Client) -> None:
    server.script("Put", put_applied(CUT + 1))
    await client.shared("x").put("k", 1)
    lost = await loss(client, server)
    server.script("BatchGet", present(pb.Record(key="k")))
    server.script("Transact", SILENCE, transact_applied(END + 1))
    task = asyncio.create_task(client.resubmit(lost))
    await server.arrival("Transact")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (result,) = await client.resubmit(lost)
    assert result.revision == END + 1
    ids: list[Any] = [request.call.request_id.uuid for request in server.requests["Transact"]]
    assert ids[0] == ids[1]
