"""What a client has seen orders its reads, never its writes, and no loss hides behind a newer revision."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.client_support import QUICK, Fault, ScriptedServer, got, put_applied, scripted_server

from noosphere.client import (
    AckedWritesLost,
    Client,
    FutureRevision,
    InvalidArgument,
    LostRevisions,
    ServerError,
    connect,
)
from noosphere.client._causal import CausalState, from_text, to_text
from noosphere.client._handover import token_of
from noosphere.consistency import CausalToken, LostRange, decode_causal, make_revision
from noosphere.v1 import errors_pb2
from noosphere.v1 import memory_service_pb2 as ms
from noosphere.v1 import types_pb2 as pb

X = "shared/x"
LINEARIZABLE, CAUSAL, STALE = (
    pb.READ_CONSISTENCY_LINEARIZABLE,
    pb.READ_CONSISTENCY_CAUSAL,
    pb.READ_CONSISTENCY_STALE,
)
FIRST, SECOND = make_revision(1, 50), make_revision(2, 3)


def state(*revisions: int) -> CausalState:
    found = CausalState()
    for revision in revisions:
        found.saw(X, revision)
    return found


def asked(found: CausalState, namespace: str = X) -> tuple[int, dict[str, int]]:
    demand = found.demand("causal", namespace)
    return demand.level, dict(demand.presented.revisions) if demand.presented is not None else {}


def test_only_the_newest_counts() -> None:
    found = state(5, 9, 7)
    assert asked(found) == (CAUSAL, {X: 9})
    assert found.needed(X) == 9


def test_a_namespace_that_was_never_seen_asks_for_nothing() -> None:
    assert asked(state(5), "shared/y") == (CAUSAL, {})


def test_other_levels_present_nothing() -> None:
    assert state(5).demand("linearizable", X) == (LINEARIZABLE, None)
    assert state(5).demand("stale", X) == (STALE, None)
    with pytest.raises(InvalidArgument, match="consistency: 'eventual' is not one of linearizable, causal, stale"):
        state(5).demand("eventual", X)  # type: ignore[arg-type] # what a typo does


def test_a_later_epoch_hides_no_loss() -> None:
    """Until a server has accepted what was seen before, both are presented, and no cache may answer."""
    found = state(FIRST, SECOND)
    demand = found.demand("causal", X)
    assert demand.level == LINEARIZABLE
    assert demand.presented is not None
    assert tuple(decode_causal(demand.token).named(X)) == (FIRST, SECOND)
    assert found.needed(X) is None
    found.accepted(X, demand, SECOND + 4)
    assert asked(found) == (CAUSAL, {X: SECOND + 4})


def test_what_came_after_the_question_is_not_confirmed_by_its_answer() -> None:
    found = state(FIRST)
    demand = found.demand("causal", X)
    found.saw(X, SECOND)
    found.accepted(X, demand, FIRST)
    assert found.needed(X) is None


def test_a_loss_takes_with_it_what_was_lost_and_nothing_else() -> None:
    found = state(FIRST, SECOND)
    found.saw("shared/y", FIRST)
    found.forget(X, LostRange(FIRST - 1, make_revision(2, 0)))
    assert asked(found) == (CAUSAL, {X: SECOND})
    assert asked(found, "shared/y") == (CAUSAL, {"shared/y": FIRST})
    found.forget(X, LostRange(SECOND, SECOND + 5))
    assert asked(found) == (CAUSAL, {X: SECOND})
    found.forget(X, LostRange(SECOND - 1, SECOND + 5))
    assert asked(found) == (CAUSAL, {})


def test_beyond_64_namespaces_the_oldest_are_read_linearizably() -> None:
    found = CausalState()
    for n in range(70):
        found.saw(f"shared/{n}", n + 1, linearizable=True)
    assert len(found.token.revisions) == 64
    assert asked(found, "shared/5") == (LINEARIZABLE, {})
    assert asked(found, "shared/6") == (CAUSAL, {"shared/6": 7})
    # A cache's answer may lack what was once seen and dropped; a linearizable one cannot.
    found.saw("shared/5", 6)
    assert asked(found, "shared/5") == (LINEARIZABLE, {})
    found.saw("shared/5", 6, linearizable=True)
    assert asked(found, "shared/5") == (CAUSAL, {"shared/5": 6})


@given(st.dictionaries(st.integers(0, 99).map(lambda n: f"shared/n{n}"), st.integers(1, 2**62), max_size=64))
def test_a_token_survives_being_text(revisions: dict[str, int]) -> None:
    token = CausalToken(revisions)
    text = to_text(token)
    assert from_text(f" {text}\n") == token
    assert token_of(json.dumps({"note": "hello", "causal_token": text})) == token
    assert text.isascii()
    assert not set(text) & set("+/= \n")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "damaged"),
        ("AAAA", "damaged"),
        ("not a token!", "damaged"),
        ("…", "damaged"),
        (to_text(CausalToken({X: 5}))[:-3], "damaged"),
        ("{}", "no causal_token"),
        ("{broken", "no causal_token"),
        ('{"causal_token": 5}', "int"),
        ("x" * (1 << 20) + "x", "the limit is 1048576"),
        (b"bytes", "expected text"),
    ],
)
def test_what_is_no_token_is_refused(text: str, problem: str) -> None:
    with pytest.raises(InvalidArgument, match="token: ") as caught:
        token_of(text)
    assert problem in caught.value.message


# From here on over a real connection.


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as script:
        yield script


@pytest.fixture
async def client(server: ScriptedServer) -> AsyncIterator[Client]:
    async with connect(server.address, agent="a", retry=QUICK, coalesce=False) as made:
        yield made


def lost(namespace: str, after: int, through: int, head: int) -> Fault:
    detail = errors_pb2.LostRevisionsDetail(namespace=namespace, to=through, head=head, **{"from": after})
    return Fault(reason="ACKED_WRITES_LOST", detail=detail)


def presented(request: Any) -> list[dict[str, int]]:
    return [dict(decode_causal(token).revisions) for token in request.call.causal_tokens]


async def test_a_causal_read_presents_what_every_answer_has_told(server: ScriptedServer, client: Client) -> None:
    space = client.shared("x")
    server.script("Put", put_applied(8))
    server.script("Get", got("k", b"1", dot=9), got("k", b"1", dot=11))
    server.script("BatchGet", ms.BatchGetResponse(head=12))
    server.script("List", ms.ListResponse(head=13, next_page_token="more"), ms.ListResponse(head=14))
    await space.put("k", 1)
    await space.get("k", consistency="causal")
    await client.shared("y").get("k")
    await space.get_many(["k"], consistency="causal")
    assert [record async for record in space.list(consistency="causal")] == []
    first = server.requests["Get"][0]
    assert (first.consistency, presented(first)) == (CAUSAL, [{X: 8}])
    assert presented(server.requests["BatchGet"][0]) == [{X: 9}]
    # Each page reflects the one before.
    assert [presented(request) for request in server.requests["List"]] == [[{X: 12}], [{X: 13}]]
    assert from_text(client.causal_token()).revisions == {X: 14, "shared/y": 11}


async def test_no_write_and_no_other_read_presents_it(server: ScriptedServer, client: Client) -> None:
    """It never authorises an overwrite."""
    space = client.shared("x")
    server.script("Get", got("k", b"1", dot=9), got("k", b"1", dot=9))
    server.script("Put", put_applied(12))
    await space.get("k")
    await space.get("k", consistency="stale")
    await space.put("k", 2)
    assert [request.consistency for request in server.requests["Get"]] == [LINEARIZABLE, STALE]
    assert not any(request.call.causal_tokens for request in server.requests["Get"] + server.requests["Put"])
    assert not server.requests["Put"][0].put.HasField("precondition")


async def test_a_refusal_tells_the_head_too(server: ScriptedServer, client: Client) -> None:
    detail = errors_pb2.ConflictDetail(namespace=X, key="k", head=30)
    server.script("Merge", Fault(reason="CONTENTION", detail=detail))
    with pytest.raises(Exception, match="CONTENTION"):
        await client.shared("x").key("k").increment()
    assert from_text(client.causal_token()).revisions == {X: 30}


async def test_a_loss_is_told_once_and_the_entry_is_gone(server: ScriptedServer, client: Client) -> None:
    space = client.shared("x")
    head = make_revision(2, 1)
    server.script("Put", put_applied(FIRST))
    server.script("Get", lost(X, FIRST - 1, make_revision(2, 0), head), got("k", b"1", dot=head))
    await space.put("k", {"n": 1}, request_id="a987fbc9-4bed-3078-cf07-9141ba07c9f3")
    with pytest.raises(AckedWritesLost) as caught:
        await space.get("k", consistency="causal")
    assert caught.value.namespace == X
    assert [(w.namespace, w.key, w.revision, w.operation, w.value) for w in caught.value.own_writes] == [
        (X, "k", FIRST, "put", {"n": 1})
    ]
    assert caught.value.own_writes[0].request_id == "a987fbc9-4bed-3078-cf07-9141ba07c9f3"
    await space.get("k", consistency="causal")
    (token,) = map(decode_causal, server.requests["Get"][1].call.causal_tokens)
    assert tuple(token.named(X)) == (head,)


async def test_a_handed_token_is_presented_as_it_was_handed(server: ScriptedServer, client: Client) -> None:
    """This client has seen newer revisions; merged with those, the loss of the other's would not be noticed."""
    server.script("Get", got("k", b"1", dot=SECOND))
    await client.shared("x").get("k")
    token = to_text(CausalToken({X: FIRST, "shared/y": 4}))
    gone = lost(X, FIRST - 1, make_revision(2, 0), SECOND)

    def answer(request: ms.BatchGetRequest) -> Any:
        return gone if request.namespace == X else ms.BatchGetResponse(head=6)

    server.script("BatchGet", answer, answer)
    with pytest.raises(AckedWritesLost) as caught:
        await client.observe(token)
    assert caught.value.own_writes == ()
    asked_for = {request.namespace: presented(request) for request in server.requests["BatchGet"]}
    assert asked_for == {X: [{X: FIRST}], "shared/y": [{"shared/y": 4}]}
    assert from_text(client.causal_token()).revisions == {X: SECOND, "shared/y": 6}


async def test_two_losses_are_told_as_one(server: ScriptedServer, client: Client) -> None:
    server.script("Put", put_applied(FIRST), put_applied(FIRST))
    await client.shared("x").put("k", 1)
    await client.shared("y").put("k", 2)

    def gone(request: ms.BatchGetRequest) -> Fault:
        return lost(request.namespace, FIRST - 1, make_revision(2, 0), 0)

    server.script("BatchGet", gone, gone)
    with pytest.raises(AckedWritesLost, match="and so were others of 'shared/y'") as caught:
        await client.observe(client.causal_token())
    assert [(write.namespace, write.value) for write in caught.value.own_writes] == [(X, 1), ("shared/y", 2)]
    assert caught.value.namespace == X
    assert caught.value.others == (LostRevisions("shared/y", FIRST - 1, make_revision(2, 0)),)


@pytest.mark.parametrize("reason", ["PERMISSION_DENIED", "NAMESPACE_DELETED"])
async def test_what_cannot_be_read_here_is_handed_on(server: ScriptedServer, client: Client, reason: str) -> None:
    server.script("BatchGet", Fault(reason=reason))
    await client.observe(to_text(CausalToken({"agents/b": 4})))
    assert from_text(client.causal_token()).revisions == {"agents/b": 4}


@pytest.mark.parametrize(
    ("fault", "error"),
    [(Fault(reason="FUTURE_REVISION"), FutureRevision), (Fault("INTERNAL"), ServerError)],
)
async def test_what_could_not_be_verified_is_not_taken_over(
    server: ScriptedServer, client: Client, fault: Fault, error: type[Exception]
) -> None:
    server.script("BatchGet", fault)
    with pytest.raises(error):
        await client.observe(to_text(CausalToken({X: 4})))
    assert from_text(client.causal_token()).revisions == {}


async def test_many_namespaces_are_verified_a_few_at_a_time(server: ScriptedServer, client: Client) -> None:
    waiting, most = 0, 0
    full = asyncio.Event()

    async def slow(_: Any) -> ms.BatchGetResponse:
        nonlocal waiting, most
        waiting, most = waiting + 1, max(most, waiting + 1)
        if waiting == 8:
            full.set()
        await full.wait()
        waiting -= 1
        return ms.BatchGetResponse(head=9)

    server.script("BatchGet", *[slow] * 40)
    await client.observe(to_text(CausalToken({f"shared/{n}": 5 for n in range(40)})))
    assert most == 8
    assert len(from_text(client.causal_token()).revisions) == 40
