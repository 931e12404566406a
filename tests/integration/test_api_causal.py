"""Causal tokens: what an answer must reflect, what replies return, and what a token never does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest
from tests.support.api import Agent, delete, put, put_op, span
from tests.support.causality import causal, collide
from tests.support.engine import LocalServer
from tests.support.statuses import refusal
from tests.support.worlds import World

from noosphere.consistency import CausalToken, Reason, decode_causal, encode_causal, make_revision
from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1 import types_pb2 as types


@pytest.fixture
async def agent(world: World) -> Agent:
    return await world.agent("a")


def told(agent: Agent, *tokens: CausalToken | bytes, ask: bool = False, sequence: int = 0) -> types.CallContext:
    """Returns who calls, with what it has been told."""
    found = agent.call(sequence=sequence)
    found.causal_tokens.extend(t if isinstance(t, bytes) else encode_causal(t) for t in tokens)
    found.return_causal_token = ask
    return found


def calls_of(agent: Agent, space: str, call: types.CallContext) -> dict[str, Callable[[], Awaitable[Any]]]:
    """Returns every call whose reply carries tokens; none is refused in a fresh namespace with a task and siblings."""
    api = agent.api
    return {
        "Get": lambda: api.get(pb.GetRequest(namespace=space, key="k", call=call)),
        "BatchGet": lambda: api.batch_get(pb.BatchGetRequest(namespace=space, keys=["k", "l"], call=call)),
        "List": lambda: api.list_records(pb.ListRequest(namespace=space, call=call)),
        "Put": lambda: api.put(pb.PutRequest(namespace=space, put=put_op("k", 1, blind=True), call=call)),
        "Delete": lambda: api.delete(
            pb.DeleteRequest(namespace=space, delete=pb.DeleteOperation(key="absent"), call=call)
        ),
        "Merge": lambda: api.merge(
            pb.MergeRequest(
                namespace=space, merge=pb.MergeOperation(key="n", counter_add=pb.CounterAdd(delta=1)), call=call
            )
        ),
        "Transact": lambda: api.transact(
            pb.TransactRequest(namespace=space, operations=[put("k", 1, blind=True)], call=call)
        ),
        "ClaimNext": lambda: api.claim_next(
            pb.ClaimNextRequest(namespace=space, collection="none/", lease=span(1_000), call=call)
        ),
        "ListConflicts": lambda: api.list_conflicts(pb.ListConflictsRequest(namespace=space, call=call)),
    }


async def test_every_reply_that_can_carries_a_token_of_its_head(world: World, agent: Agent) -> None:
    space = world.space()
    for name, call in calls_of(agent, space, told(agent, ask=True)).items():
        response = await call()
        assert causal(response.call) == CausalToken({space: response.head}), name


async def test_nobody_gets_a_token_who_did_not_ask(world: World, agent: Agent) -> None:
    space = world.space()
    for name, call in calls_of(agent, space, agent.call()).items():
        assert not (await call()).HasField("call"), name
    record = agent.call()
    record.record_read_set = True
    response = await agent.api.get(pb.GetRequest(namespace=space, key="k", call=record))
    assert not response.call.causal_token


async def test_whoever_presents_tokens_gets_one_that_holds_them_all(world: World, agent: Agent) -> None:
    space, elsewhere, third = world.space(), world.space("goals"), world.space("third")
    far = [CausalToken({third: n, elsewhere: 10 - n}) for n in range(1, 9)]
    for name, call in calls_of(agent, space, told(agent, *far)).items():
        response = await call()
        assert causal(response.call) == CausalToken({third: 8, elsewhere: 9, space: response.head}), name
        assert list(causal(response.call).revisions)[-1] == space, "seen last, dropped last"


async def test_a_write_is_seen_by_whoever_is_told_of_it(world: World, agent: Agent) -> None:
    space, reader = world.space(), await world.agent("b")
    request = pb.PutRequest(namespace=space, put=put_op("k", 1), call=told(agent, ask=True))
    token = (await agent.api.put(request)).call.causal_token
    for level in types.ReadConsistency.values():
        get = pb.GetRequest(namespace=space, key="k", consistency=level, call=told(reader, token))
        response = await reader.api.get(get)
        assert response.record.version
        assert causal(response.call).revisions == decode_causal(token).revisions
    with refusal(Reason.INVALID_FIELD):
        await reader.api.get(pb.GetRequest(namespace=space, key="k", consistency=99, call=told(reader)))  # type: ignore[arg-type] # of a later version


async def test_a_revision_that_was_never_issued_is_refused_wherever_it_is_presented(world: World, agent: Agent) -> None:
    space = world.space()
    made = await agent.put(space, "k", 1)
    ahead = CausalToken({space: made.revision + 1})
    late = CausalToken({world.space("other"): made.revision + 9})
    for call in calls_of(agent, space, told(agent, late, ahead)).values():
        with refusal(Reason.FUTURE_REVISION) as error:
            await call()
        assert error.log_range().requested == made.revision + 1
        assert error.metadata["namespace"] == space
    for call in calls_of(agent, space, told(agent, late)).values():
        await call()


async def test_a_token_never_authorises_an_overwrite(world: World, agent: Agent) -> None:
    space, other = world.space(), await world.agent("b")
    made = await other.put(space, "k", 1)
    call = told(agent, CausalToken({space: made.revision}))
    with refusal(Reason.PRECONDITION_REQUIRED):
        await agent.put(space, "k", 2, call=call)
    await agent.put(space, "k", 2, context=made.context, call=call)
    with refusal(Reason.CONFLICT):
        await other.put(space, "k", 3, context=made.context, call=told(other, CausalToken({space: made.revision + 1})))


async def test_what_was_not_applied_returns_tokens_too(world: World, agent: Agent) -> None:
    space, other = world.space(), CausalToken({"shared/elsewhere": 7})
    made = await agent.put(space, "k", 1)
    await agent.put(space, "k", 2, expected=made.version)
    operation = pb.DeleteOperation(key="k", precondition=types.Precondition(expected_version=made.version))
    call = told(agent, other)
    for response in (
        await agent.api.put(
            pb.PutRequest(namespace=space, put=put_op("k", 3, expected=made.version), return_current=True, call=call)
        ),
        await agent.api.delete(pb.DeleteRequest(namespace=space, delete=operation, return_current=True, call=call)),
        await agent.api.transact(
            pb.TransactRequest(
                namespace=space, operations=[delete("k", expected=made.version)], return_current=True, call=call
            )
        ),
    ):
        assert response.WhichOneof("outcome") == "not_applied"
        assert causal(response.call).revisions == {"shared/elsewhere": 7, space: response.head}


async def test_only_so_many_tokens_and_entries(world: World, agent: Agent) -> None:
    space = world.space()
    nine = told(agent, *[CausalToken({f"shared/{n}": 1}) for n in range(9)])
    for call in calls_of(agent, space, nine).values():
        with refusal(Reason.VALUE_TOO_LARGE) as error:
            await call()
        assert (error.limit().field, error.limit().actual, error.limit().limit) == ("call.causal_tokens", 9, 8)
    many = [CausalToken({f"shared/{part}/{n}": 1 for n in range(40)}) for part in range(2)]
    response = await agent.api.get(pb.GetRequest(namespace=space, key="k", call=told(agent, *many)))
    token = causal(response.call)
    assert (len(token.revisions), token.incomplete) == (64, True)
    assert "shared/0/0" not in token.revisions
    assert {"shared/1/39", space} <= set(token.revisions)
    # It stays incomplete in every further reply.
    response = await agent.api.get(pb.GetRequest(namespace=space, key="k", call=told(agent, token)))
    assert causal(response.call).incomplete


def damaged(token: bytes) -> Iterable[bytes]:
    yield b"token"
    yield token[:-1]
    yield token + b"\0"
    yield bytes((token[0] ^ 1,)) + token[1:]


async def test_a_damaged_token_is_refused_by_name(world: World, agent: Agent) -> None:
    space = world.space()
    whole = encode_causal(CausalToken({space: 0}))
    for token in damaged(whole):
        for call in calls_of(agent, space, told(agent, whole, token)).values():
            with refusal(Reason.INVALID_FIELD) as error:
                await call()
            assert "call.causal_tokens" in error.message


async def test_a_retry_returns_tokens_as_well(world: World, agent: Agent) -> None:
    space = world.space()
    request = pb.PutRequest(namespace=space, put=put_op("k", 1), call=told(agent, ask=True, sequence=1))
    first = await agent.api.put(request)
    await agent.put(space, "other", 1)
    again = await agent.api.put(request)
    assert again.applied.replayed
    assert causal(again.call).revisions == {space: again.head}
    assert again.head > first.head


# -- crashes ----------------------------------------------------------------------------------------

SPACE, ELSEWHERE = "shared/s", "shared/t"


@pytest.fixture
async def lost(local: LocalServer) -> tuple[Agent, CausalToken, CausalToken]:
    """An agent, a token of what a crash has lost, and one of what survived it."""
    agent = await local.api.agent("a")
    await collide(SPACE, "k", agent)
    kept = CausalToken({SPACE: (await agent.put(SPACE, "l", 1)).revision})
    image = local.image()
    token = CausalToken({SPACE: (await agent.put(SPACE, "k", 2, blind=True)).revision})
    await local.crash(image)
    return Agent(local.api, agent.actor), token, kept


async def test_a_lost_revision_is_told_by_every_call(lost: tuple[Agent, CausalToken, CausalToken]) -> None:
    agent, token, kept = lost
    calls = calls_of(agent, SPACE, told(agent, token))
    calls["ListHistory"] = lambda: agent.api.list_history(
        pb.ListHistoryRequest(namespace=SPACE, call=told(agent, token))
    )
    for call in calls.values():
        with refusal(Reason.ACKED_WRITES_LOST) as error:
            await call()
        (named,), (survived,) = token.revisions.values(), kept.revisions.values()
        assert (getattr(error.lost(), "from"), error.lost().to >= named) == (survived, True)
        assert error.lost().namespace == SPACE
    before = await agent.history(SPACE)
    assert all(batch.revision <= survived for batch in before), "nothing was written"
    for call in calls_of(agent, SPACE, told(agent, kept)).values():
        await call()
    # A read of elsewhere does not need what was lost here.
    for call in calls_of(agent, ELSEWHERE, told(agent, token)).values():
        await call()


async def test_a_later_token_does_not_hide_the_loss(lost: tuple[Agent, CausalToken, CausalToken]) -> None:
    agent, token, _ = lost
    made = await agent.put(SPACE, "k", 3, blind=True)
    later = CausalToken({SPACE: made.revision})
    with refusal(Reason.ACKED_WRITES_LOST):
        await agent.api.get(pb.GetRequest(namespace=SPACE, key="k", call=told(agent, token, later)))
    # Nor where the two meet in a call to somewhere else, and are read only afterwards.
    met = await agent.api.get(pb.GetRequest(namespace=ELSEWHERE, key="k", call=told(agent, token, later)))
    assert list(causal(met.call).named(SPACE)) == [*token.revisions.values(), made.revision]
    with refusal(Reason.ACKED_WRITES_LOST):
        await agent.api.get(pb.GetRequest(namespace=SPACE, key="k", call=told(agent, met.call.causal_token)))
    # Nor does a token that has forgotten much.
    forgetful = CausalToken({ELSEWHERE: 0}, incomplete=True)
    with refusal(Reason.ACKED_WRITES_LOST):
        await agent.api.get(pb.GetRequest(namespace=SPACE, key="k", call=told(agent, token, forgetful)))


async def test_what_survived_is_confirmed_by_an_answer(lost: tuple[Agent, CausalToken, CausalToken]) -> None:
    agent, _, kept = lost
    made = await agent.put(SPACE, "k", 3, blind=True)
    both = told(agent, kept, CausalToken({SPACE: made.revision}))
    response = await agent.api.get(pb.GetRequest(namespace=SPACE, key="k", call=both))
    assert list(causal(response.call).named(SPACE)) == [made.revision]


async def test_a_token_outlives_a_generation_of_its_namespace(local: LocalServer) -> None:
    agent = await local.api.agent("a")
    made = await agent.put(SPACE, "k", 1)
    await local.api.delete_namespace(SPACE)
    token = CausalToken({SPACE: made.revision})
    with refusal(Reason.NAMESPACE_DELETED):
        await agent.api.get(pb.GetRequest(namespace=SPACE, key="k", call=told(agent, token)))
    await agent.ensure(SPACE)
    response = await agent.api.get(pb.GetRequest(namespace=SPACE, key="k", call=told(agent, token)))
    assert not response.record.values
    assert causal(response.call).revisions == {SPACE: response.head}
    assert response.head > made.revision


async def test_an_epoch_that_has_not_come_yet_is_the_future(local: LocalServer) -> None:
    agent = await local.api.agent("a")
    await agent.put(SPACE, "k", 1)
    token = CausalToken({SPACE: make_revision(9_000, 1)})
    with refusal(Reason.FUTURE_REVISION):
        await agent.api.get(pb.GetRequest(namespace=SPACE, key="k", call=told(agent, token)))
