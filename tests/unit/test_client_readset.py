"""Views record what was read, whatever runs side by side, and present it with the writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.client_support import QUICK, Fault, ScriptedServer, live_record, put_applied, scripted_server

from noosphere.client import (
    Client,
    Delete,
    Guard,
    Increment,
    InvalidArgument,
    Put,
    ServerError,
    ValueTooLarge,
    connect,
)
from noosphere.client._readset import KNOWN_MAX, Readings, to_guards
from noosphere.consistency import (
    NOTHING_READ,
    CollectionSeen,
    KeySeen,
    ReadSet,
    StampMode,
    decode_read_set,
    encode_read_set,
)
from noosphere.v1 import memory_service_pb2 as ms
from noosphere.v1 import types_pb2 as pb

X = "shared/x"


def key_read(key: str, version: int, head: int, namespace: str = X) -> pb.CallReply:
    read_set = NOTHING_READ.with_key(namespace, head, key, KeySeen(version))
    return pb.CallReply(read_set_token=encode_read_set(read_set))


def listed(collection: str, stamp: int, head: int) -> pb.CallReply:
    seen = CollectionSeen(stamp)
    read_set = NOTHING_READ.with_collection(X, head, collection, StampMode.CHANGED, seen)
    return pb.CallReply(read_set_token=encode_read_set(read_set))


def keys(read_set: ReadSet, namespace: str = X) -> dict[str, int]:
    return {key: seen.version for key, seen in read_set.namespaces[namespace].keys.items()}


@given(st.permutations([("a", 5, 9), ("a", 0, 7), ("a", 8, 8), ("b", 3, 9), ("b", 3, 12)]))
def test_of_a_key_that_was_read_twice_the_older_state_counts(reads: list[tuple[str, int, int]]) -> None:
    """In whichever order the answers come: then absent, then created, then changed."""
    readings = Readings()
    for key, version, head in reads:
        readings.accept(key_read(key, version, head))
    assert keys(readings.read_set) == {"a": 0, "b": 3}
    assert readings.read_set.namespaces[X].revision == 7


@given(st.permutations([4, 9, 6]))
def test_of_a_collection_that_was_listed_twice_the_older_stamp_counts(stamps: list[int]) -> None:
    readings = Readings()
    for stamp in stamps:
        readings.accept(listed("plan/", stamp, stamp))
    assert readings.read_set.namespaces[X].collections["plan/", StampMode.CHANGED].stamp == 4


def test_a_resumed_set_is_older_than_what_is_read_after_it() -> None:
    readings = Readings(decode_read_set(key_read("a", 5, 9).read_set_token))
    readings.accept(key_read("a", 0, 7))
    assert keys(readings.read_set) == {"a": 5}


def test_what_was_read_during_a_write_stays_read() -> None:
    readings = Readings()
    readings.accept(key_read("a", 5, 9))
    sent = readings.read_set
    readings.accept(key_read("b", 6, 9))
    readings.accept(listed("plan/", 4, 9))
    readings.advance(sent, key_read("a", 12, 9).read_set_token)
    assert keys(readings.read_set) == {"a": 12, "b": 6}
    assert readings.read_set.namespaces[X].collections["plan/", StampMode.CHANGED].stamp == 4


def test_more_than_a_read_set_holds_is_refused_when_it_is_read() -> None:
    readings = Readings()
    for n in range(1024):
        readings.accept(key_read(f"k{n}", 5, 9))
    with pytest.raises(ValueTooLarge, match="1025 entries, the limit is 1024"):
        readings.accept(key_read("one too many", 5, 9))
    assert len(keys(readings.read_set)) == 1024
    readings = Readings()
    for n in range(8):
        readings.accept(key_read("k", 5, 9, f"shared/{n}"))
    with pytest.raises(ValueTooLarge, match="9 namespaces, the limit is 8"):
        readings.accept(key_read("k", 5, 9, "shared/9"))


def test_an_answer_that_records_nothing_is_not_taken_for_a_record() -> None:
    with pytest.raises(ServerError):
        Readings().accept(pb.CallReply())


def test_known_versions_are_bounded_and_give_way_to_what_was_read() -> None:
    readings = Readings()
    for n in range(KNOWN_MAX + 1):
        readings.knows(X, f"k{n}", n)
    assert readings.version(X, "k0") is None
    assert readings.version(X, "k1") == 1
    readings.accept(key_read("k1", 7, 9))
    assert readings.version(X, "k1") == 7
    readings.knows(X, "k2", None)
    assert readings.version(X, "k2") is None
    assert readings.version("shared/y", "k3") is None


READ = NOTHING_READ.with_key(X, 9, "plan/a", KeySeen(5)).with_key("shared/y", 9, "goal", KeySeen(5))


def test_guards_are_names_or_places() -> None:
    found = to_guards(("plan/", Guard("goal", "shared/y"), ""), READ)
    assert [(guard.prefix, guard.namespace) for guard in found] == [("plan/", ""), ("goal", "shared/y"), ("", "")]
    assert [guard.prefix for guard in to_guards("plan/a", READ)] == ["plan/a"]
    assert to_guards((), READ) == []


@pytest.mark.parametrize("guard", ["goals/", "plan", Guard("goal", X), ["plan/", "nothing"]])
def test_a_guard_that_would_guard_nothing_is_a_mistake(guard: Any) -> None:
    with pytest.raises(InvalidArgument, match="covers nothing that was read"):
        to_guards(guard, READ)


@pytest.mark.parametrize(
    ("guard", "problem"),
    [
        ([5], "guard: expected keys, collections or Guards, got int"),
        (5, "guard: expected a key, a collection, a Guard or several, got int"),
        (None, "guard: expected a key, a collection, a Guard or several, got NoneType"),
        ("a//", "guards.prefix: 'a//' has an empty segment"),
        (["plan/"] * 33, "guards has 33 entries, the limit is 32"),
        ([Guard("x", "nowhere")], "'nowhere' is not"),
    ],
    ids=["no guard", "a number", "nothing", "an empty segment", "too many", "no namespace"],
)
def test_a_guard_has_a_form(guard: Any, problem: str) -> None:
    with pytest.raises(InvalidArgument, match=problem):
        to_guards(guard, READ)


# From here on over a real connection.


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as script:
        yield script


@pytest.fixture
async def client(server: ScriptedServer) -> AsyncIterator[Client]:
    async with connect(server.address, agent="a", retry=QUICK, coalesce=False) as made:
        yield made


def got_recorded(request: ms.GetRequest) -> ms.GetResponse:
    version = {"plan": 5, "goal": 6}.get(request.key, 0)
    record = live_record(request.key, b"1", dot=version) if version else pb.Record(key=request.key)
    return ms.GetResponse(record=record, head=9, call=key_read(request.key, version, 9, request.namespace))


def committed(*results: pb.Applied, token: bytes = b"", revision: int = 20) -> ms.CommitResponse:
    applied = ms.TransactApplied(revision=revision, results=results)
    return ms.CommitResponse(applied=applied, head=revision, call=pb.CallReply(read_set_token=token))


async def test_reads_side_by_side_ask_for_what_they_read_alone(server: ScriptedServer, client: Client) -> None:
    server.script("Get", *[got_recorded] * 3)
    async with client.shared("x").reading() as view:
        plan, goal, absent = await asyncio.gather(view.get("plan"), view.get("goal"), view.get("absent"))
        assert plan is not None
        assert goal is not None
        assert absent is None
        token = view.token()
    assert all(request.call.record_read_set for request in server.requests["Get"])
    assert not any(request.call.read_set_token for request in server.requests["Get"])
    async with client.shared("x").resume_view(token) as view:
        assert keys(view._seen.read_set) == {"plan": 5, "goal": 6, "absent": 0}


async def test_a_commit_presents_what_was_read_and_replaces_what_was_seen(
    server: ScriptedServer, client: Client
) -> None:
    server.script("Get", got_recorded, got_recorded)
    page = ms.ListResponse(records=[live_record("steps/1", b"1", dot=7)], head=9, call=listed("steps/", 7, 9))
    server.script("List", page)
    result = pb.Applied(revision=20, version=20, context=pb.CausalContext(prefix=20))
    advanced = key_read("plan", 20, 9).read_set_token
    server.script("Commit", committed(*[result] * 6, token=advanced), committed(result, token=advanced))
    space = client.shared("x")
    async with space.reading(guard="plan", allow_checked=True) as view:
        await view.get("plan")
        await view.namespace("shared/y").get("goal")
        assert [record.key async for record in view.list("steps/")] == ["steps/1"]
        read = view._seen.read_set
        decision = await view.commit(
            Put("plan", 1),
            Put("steps/1", 2),
            Delete("steps/2"),
            Put("other", 3),
            Put("expected", 4, expected_version=3),
            Increment("n"),
        )
        assert (decision.revision, len(decision.results), decision.attempts) == (20, 6, 1)
        await view.commit(Put("other", 5))
    first, second = server.requests["Commit"]
    assert decode_read_set(first.call.read_set_token) == read
    assert [(guard.prefix, guard.namespace) for guard in first.call.guards] == [("plan", "")]
    assert (first.call.guard_mode, first.call.allow_checked) == (pb.GUARD_MODE_STRICT, True)
    sent = [
        operation.put.precondition if operation.HasField("put") else operation.delete.precondition
        for operation in first.operations
        if not operation.HasField("merge")
    ]
    assert [p.expected_version if p.HasField("expected_version") else None for p in sent] == [5, 7, None, None, 3]
    # An own write is something that was seen, and the set that came back is the one that is presented next.
    assert second.operations[0].put.precondition.expected_version == 20
    assert second.call.read_set_token == advanced


async def test_a_lenient_commit_overrules_on_purpose(server: ScriptedServer, client: Client) -> None:
    server.script("Get", got_recorded)
    stale = pb.StaleEntry(namespace=X, name="plan", seen=5, now=8)
    stale.changes.add(key="plan", actor="b#1", revision=8)
    answer = committed(pb.Applied(revision=20, version=20), token=key_read("plan", 20, 9).read_set_token)
    answer.call.stale.append(stale)
    server.script("Commit", answer)
    async with client.shared("x").reading(mode="warn") as view:
        await view.get("plan")
        decision = await view.commit(Put("plan", 1))
    (request,) = server.requests["Commit"]
    assert request.call.guard_mode == pb.GUARD_MODE_WARN
    assert request.operations[0].put.precondition.blind
    assert [(entry.name, entry.changes[0].actor) for entry in decision.stale] == [("plan", "b#1")]


async def test_single_writes_carry_the_view_and_advance_it(server: ScriptedServer, client: Client) -> None:
    server.script("Get", got_recorded)
    tokens = [key_read("plan", version, 9).read_set_token for version in (20, 21, 22)]
    put = put_applied(20)
    put.call.read_set_token = tokens[0]
    applied = pb.Applied(revision=21, version=0, context=pb.CausalContext(prefix=21))
    server.script("Put", put)
    server.script("Delete", ms.DeleteResponse(applied=applied, head=21, call=pb.CallReply(read_set_token=tokens[1])))
    merged = pb.Applied(revision=22, version=22)
    server.script("Merge", ms.MergeResponse(applied=merged, head=22, call=pb.CallReply(read_set_token=tokens[2])))
    server.script("Put", Fault(reason="STALE_READ_SET"))
    async with client.shared("x").reading() as view:
        await view.get("plan")
        await view.put("plan", 2)
        await view.delete("plan", guard="plan")
        await view.apply(Increment("n"))
        with pytest.raises(Exception, match="STALE_READ_SET"):
            await view.put("last", 1)
    first, last = server.requests["Put"]
    assert first.put.precondition.expected_version == 5
    assert server.requests["Delete"][0].delete.precondition.expected_version == 20
    presented = [
        request.call.read_set_token for request in (*server.requests["Delete"], *server.requests["Merge"], last)
    ]
    assert presented == tokens


async def test_a_refreshed_view_presents_the_present(server: ScriptedServer, client: Client) -> None:
    server.script("Get", got_recorded)
    fresh = key_read("plan", 8, 30).read_set_token
    stale = pb.StaleEntry(namespace=X, name="plan", seen=5, now=8)
    server.script("RefreshReadSet", ms.RefreshReadSetResponse(stale=[stale], call=pb.CallReply(read_set_token=fresh)))
    server.script("Commit", committed(pb.Applied(revision=40, version=40), token=fresh))
    async with client.shared("x").reading(guard="plan") as view:
        await view.get("plan")
        notes = await view.refresh()
        assert notes
        assert "plan: changed" in notes.explain()
        await view.commit(Put("plan", 1))
    (asked,) = server.requests["RefreshReadSet"]
    assert (asked.call.guards[0].prefix, asked.call.guard_mode) == ("plan", pb.GUARD_MODE_UNSPECIFIED)
    (request,) = server.requests["Commit"]
    assert request.call.read_set_token == fresh
    assert request.operations[0].put.precondition.expected_version == 8


async def test_a_closed_view_says_so(client: Client) -> None:
    async with client.shared("x").reading() as view:
        other = view.namespace("shared/y")
        assert view.namespace("shared/x") is view
    for read in (view, other):
        with pytest.raises(RuntimeError, match="closed"):
            await read.get("plan")
    with pytest.raises(RuntimeError, match="closed"):
        await view.commit(Put("plan", 1))
    assert view.token()


async def test_arguments_are_named(client: Client) -> None:
    space = client.shared("x")
    with pytest.raises(InvalidArgument, match="mode: 'strickt' is not one of strict, warn"):
        space.reading(mode="strickt")  # type: ignore[arg-type] # what a typo does
    with pytest.raises(InvalidArgument, match="token: is damaged"):
        space.resume_view("nonsense")
    with pytest.raises(InvalidArgument, match="kind"):
        space.resume_view(client.causal_token())
    async with space.reading(guard="plan") as view:
        with pytest.raises(InvalidArgument, match="'plan' covers nothing that was read"):
            await view.commit(Put("plan", 1))
