"""Read sets over time: what ends, who comes in between, what a crash, a deletion or a compaction leaves of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from tests.support.api import SEEN_NOTHING, Agent, put, put_op
from tests.support.causality import SIBLINGS, Mind
from tests.support.engine import LocalServer
from tests.support.meddling import meddle, once
from tests.support.statuses import refusal

from noosphere.consistency import (
    NEVER_MS,
    CollectionSeen,
    NamespaceSeen,
    ReadSet,
    Reason,
    StampMode,
    encode_read_set,
)
from noosphere.v1 import memory_service_pb2 as pb

SPACE = "shared/plan"
ELSEWHERE = "shared/goals"
CHANGED = StampMode.CHANGED


@pytest.fixture
async def agent(local: LocalServer) -> Agent:
    return await local.api.agent("thinker")


@pytest.fixture
async def peer(local: LocalServer) -> Agent:
    return await local.api.agent("peer")


@pytest.fixture
def mind(agent: Agent) -> Mind:
    return Mind(agent)


# -- what ends while somebody thinks ----------------------------------------------------------------


async def _key(mind: Mind) -> None:
    await mind.get(SPACE, "lease")


async def _list(mind: Mind) -> None:
    await mind.page(SPACE)


async def _filtered(mind: Mind) -> None:
    assert len((await mind.page(SPACE, where={"kind": "lease"})).records) == 1


Look = Callable[[Mind], Awaitable[None]]


@pytest.mark.parametrize("swept", [False, True], ids=["unswept", "swept"])
@pytest.mark.parametrize("look", [_key, _list, _filtered], ids=lambda look: look.__name__.strip("_"))
async def test_a_value_that_ends_while_somebody_thinks_makes_the_decision_stale(
    local: LocalServer, mind: Mind, peer: Agent, look: Look, swept: bool
) -> None:
    await peer.put(SPACE, "lease", 1, ttl_ms=10_000, attributes={"kind": "lease"})
    await peer.put(SPACE, "other", 1)
    await look(mind)
    await local.elapse(9_999)
    await mind.commit(SPACE, put("decision/1", 1))
    await local.elapse(1)
    if swept:
        await local.sweep()
    with refusal(Reason.STALE_READ_SET) as error:
        await mind.commit(SPACE, put("decision/2", 1))
    (entry,) = error.stale().stale
    assert entry.name == ("lease" if look is _key else "")
    if swept:
        assert [c.key for c in entry.changes] == ["lease"]
        assert [c.actor for c in entry.changes] == [""], "nobody did it"
    assert (await peer.get(SPACE, "decision/2")).version == 0
    # The model is told, and may decide again.
    assert [e.name for e in await mind.refresh()] == [entry.name]
    await mind.commit(SPACE, put("decision/2", 1))


async def test_a_value_that_ends_between_the_check_and_the_commit_is_noticed(
    local: LocalServer, mind: Mind, peer: Agent
) -> None:
    await peer.put(SPACE, "lease", 1, ttl_ms=10_000)
    await mind.get(SPACE, "lease")
    meddle(local, once(lambda: local.elapse(10_000)))
    with refusal(Reason.STALE_READ_SET):
        await mind.commit(SPACE, put("decision", 1))


async def test_a_value_elsewhere_that_ends_before_the_commit_is_noticed(
    local: LocalServer, mind: Mind, peer: Agent
) -> None:
    await peer.put(ELSEWHERE, "lease", 1, ttl_ms=10_000)
    await mind.get(ELSEWHERE, "lease")
    meddle(local, once(lambda: local.elapse(10_000)))
    with refusal(Reason.STALE_READ_SET):
        await mind.commit(SPACE, put("decision", 1), allow_checked=True)


async def test_an_end_that_was_overruled_does_not_let_others_end_unnoticed(
    local: LocalServer, mind: Mind, peer: Agent
) -> None:
    await peer.put(SPACE, "a", 1, ttl_ms=1_000)
    await peer.put(SPACE, "b", 1, ttl_ms=2_000)
    await mind.batch_get(SPACE, "a", "b")
    await local.elapse(1_000)
    meddle(local, once(lambda: local.elapse(1_000)))
    await mind.commit(SPACE, put("decision", 1), warn=True)
    assert {entry.name for entry in mind.told.stale} == {"a", "b"}


async def test_one_of_several_values_that_ends_is_a_change(local: LocalServer, mind: Mind, peer: Agent) -> None:
    await peer.ensure(SPACE, SIBLINGS)
    await peer.put(SPACE, "k", 1, context=SEEN_NOTHING)
    await peer.put(SPACE, "k", 2, context=SEEN_NOTHING, ttl_ms=1_000)
    assert len((await mind.get(SPACE, "k")).values) == 2
    await local.elapse(999)
    await mind.commit(SPACE, put("decision/1", 1))
    await local.elapse(1)
    with refusal(Reason.STALE_READ_SET):
        await mind.commit(SPACE, put("decision/2", 1))
    await mind.refresh()
    await mind.commit(SPACE, put("decision/2", 1))
    # What had ended when it was read is not waited for again.
    late = Mind(mind.agent)
    assert len((await late.get(SPACE, "k")).values) == 1
    assert late.seen.namespaces[SPACE].keys["k"].expires_at_ms == NEVER_MS


async def test_a_claim_that_lapses_takes_its_task_off_the_list_of_claimed_ones(
    local: LocalServer, mind: Mind, peer: Agent
) -> None:
    await peer.put(SPACE, "task/1", 1)
    await peer.claim(SPACE, "task/", lease_ms=5_000)
    assert len((await mind.page(SPACE, "task/", claimed_only=True)).records) == 1
    everything = Mind(mind.agent)
    await everything.page(SPACE, "task/")
    await local.elapse(5_000)
    with refusal(Reason.STALE_READ_SET):
        await mind.commit(SPACE, put("decision", 1))
    await everything.commit(SPACE, put("decision", 1))


async def test_ones_own_value_ends_like_any(local: LocalServer, mind: Mind) -> None:
    await mind.get(SPACE, "own")
    await mind.commit(SPACE, put("own", 1, ttl_ms=1_000))
    await local.elapse(999)
    await mind.commit(SPACE, put("decision/1", 1))
    await local.elapse(1)
    with refusal(Reason.STALE_READ_SET) as error:
        await mind.commit(SPACE, put("decision/2", 1))
    assert [entry.name for entry in error.stale().stale] == ["own"]


async def test_ones_own_value_in_a_collection_that_was_listed_ends_like_any(local: LocalServer, mind: Mind) -> None:
    await mind.page(SPACE, "plan/")
    await mind.commit(SPACE, put("plan/own", 1, ttl_ms=1_000))
    await mind.commit(SPACE, put("plan/longer", 1, ttl_ms=2_000))
    await local.elapse(999)
    await mind.commit(SPACE, put("decision/1", 1))
    await local.elapse(1)
    with refusal(Reason.STALE_READ_SET) as error:
        await mind.commit(SPACE, put("decision/2", 1))
    assert [entry.name for entry in error.stale().stale] == ["plan/"]


@pytest.mark.parametrize("swept", [False, True], ids=["unswept", "swept"])
async def test_a_member_that_was_given_an_end_after_it_was_listed_vanishes_like_any(
    local: LocalServer, mind: Mind, peer: Agent, swept: bool
) -> None:
    """Giving it an end is no change of the members, so nothing else tells."""
    made = await peer.put(SPACE, "plan/x", 1)
    listed = {("plan/", StampMode.MEMBERS): CollectionSeen(made.revision)}
    mind.token = encode_read_set(ReadSet({SPACE: NamespaceSeen(made.revision, {}, listed)}))
    await peer.put(SPACE, "plan/x", 2, blind=True, ttl_ms=1_000)
    await local.elapse(999)
    await mind.commit(SPACE, put("decision/1", 1))
    await local.elapse(1)
    if swept:
        await local.sweep()
    with refusal(Reason.STALE_READ_SET) as error:
        await mind.commit(SPACE, put("decision/2", 1))
    assert [entry.name for entry in error.stale().stale] == ["plan/"]
    assert [entry.name for entry in await mind.refresh()] == ["plan/"]
    await mind.commit(SPACE, put("decision/2", 1))


async def test_a_refresh_does_not_leave_to_the_sweeper_what_it_tells_of(
    local: LocalServer, mind: Mind, peer: Agent
) -> None:
    await peer.put(SPACE, "plan/x", 1, ttl_ms=1_000)
    await mind.page(SPACE, "plan/")
    await local.elapse(1_000)
    (entry,) = await mind.refresh()
    assert [(c.key, c.actor) for c in entry.changes] == [("plan/x", "")]
    await local.sweep()
    assert await mind.refresh() == []
    await mind.commit(SPACE, put("decision", 1))


async def test_an_expired_value_that_is_replaced_by_its_reader_surprises_nobody(
    local: LocalServer, mind: Mind, peer: Agent
) -> None:
    await peer.put(SPACE, "plan/lease", 1, ttl_ms=1_000)
    await local.elapse(1_000)
    assert not (await mind.get(SPACE, "plan/lease")).values
    await mind.page(SPACE, "plan/")
    await mind.commit(SPACE, put("plan/lease", 2))
    await mind.commit(SPACE, put("decision", 1))


# -- who comes in between ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["goal", "goals/"])
async def test_a_change_between_the_check_and_the_commit_is_noticed(
    local: LocalServer, mind: Mind, peer: Agent, name: str
) -> None:
    await peer.put(SPACE, "goal", 1)
    await mind.get(SPACE, "goal")
    await mind.page(SPACE, "goals/")
    key = "goal" if name == "goal" else "goals/new"
    meddle(local, once(lambda: peer.put(SPACE, key, 2, blind=True)))
    with refusal(Reason.STALE_READ_SET) as error:
        await mind.commit(SPACE, put("decision", 1))
    assert [entry.name for entry in error.stale().stale] == [name]
    assert (await peer.get(SPACE, "decision")).version == 0


@pytest.mark.parametrize("warn", [False, True], ids=["strict", "warn"])
async def test_advancing_over_ones_own_write_does_not_hide_who_came_in_between(
    local: LocalServer, mind: Mind, peer: Agent, warn: bool
) -> None:
    """The collection is not guarded, so the write goes through; but the read set must not claim to know it."""
    await mind.page(SPACE, "plan/")
    await mind.get(SPACE, "goal")
    meddle(local, once(lambda: peer.put(SPACE, "plan/theirs", 1)))
    await mind.commit(SPACE, put("plan/mine", 1), guards=["goal"], warn=warn)
    with refusal(Reason.STALE_READ_SET) as error:
        await mind.commit(SPACE, put("decision", 1))
    assert "plan/theirs" in {c.key for c in error.stale().stale[0].changes}


async def test_nor_does_one_that_overruled_the_end_of_a_value(local: LocalServer, mind: Mind, peer: Agent) -> None:
    await peer.put(SPACE, "plan/lease", 1, ttl_ms=1_000)
    await mind.page(SPACE, "plan/")
    await local.elapse(1_000)
    # The stamp has not moved, so the commit may only build on it if it checks it.
    meddle(local, once(lambda: peer.put(SPACE, "plan/theirs", 1)))
    await mind.commit(SPACE, put("plan/mine", 1), warn=True)
    assert [entry.name for entry in mind.told.stale] == ["plan/"]
    assert mind.seen.namespaces[SPACE].collections["plan/", CHANGED].stamp < mind.told.stale[0].now


async def test_whoever_writes_the_same_key_in_between_is_not_hidden(
    local: LocalServer, mind: Mind, peer: Agent
) -> None:
    await peer.put(SPACE, "state", 1)
    await mind.get(SPACE, "state")
    meddle(local, once(lambda: peer.put(SPACE, "state", 2, blind=True)))
    call = mind.call(guards=["unread"])
    response = await mind.agent.api.put(pb.PutRequest(namespace=SPACE, put=put_op("state", 3, blind=True), call=call))
    mind.take(response.call)
    with refusal(Reason.STALE_READ_SET) as error:
        await mind.commit(SPACE, put("decision", 1))
    assert peer.name in {c.actor for c in error.stale().stale[0].changes}


async def test_a_page_of_a_filtered_list_is_of_one_moment(local: LocalServer, mind: Mind, peer: Agent) -> None:
    """What appears behind the search while it goes on is on the page, or makes it stale; it is never lost between."""
    for number in range(300):
        await peer.put(SPACE, f"t/{number:03}", 1)
    await peer.put(SPACE, "t/999", 1, attributes={"open": True})

    async def appears() -> None:
        await peer.put(SPACE, "t/000", 2, attributes={"open": True}, blind=True)

    meddle(local, once(appears, skip=1), "scan")
    found: list[str] = []
    token, pages = "", 0
    while token or not pages:
        page = await mind.page(SPACE, "t/", page_token=token, where={"open": True})
        found += [record.key for record in page.records]
        token, pages = page.next_page_token, pages + 1
    assert found == ["t/999"]
    assert pages > 1
    with refusal(Reason.STALE_READ_SET):
        await mind.commit(SPACE, put("decision", 1))
