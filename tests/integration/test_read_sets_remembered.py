"""Read sets after crashes, deletions and compaction: what is left of them, who is named, and how large they may be."""

from __future__ import annotations

import pytest
from tests.support.api import SEEN_NOTHING, Agent, data, delete, put
from tests.support.causality import SIBLINGS, Mind, guard, names_of
from tests.support.engine import LocalServer
from tests.support.meddling import meddle, once
from tests.support.statuses import refusal

from noosphere.consistency import (
    NOTHING_READ,
    CollectionSeen,
    KeySeen,
    NamespaceSeen,
    ReadSet,
    Reason,
    StampMode,
    TokenKind,
    encode_read_set,
    seal,
)
from noosphere.v1 import types_pb2 as types

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


async def test_what_was_read_and_lost_is_no_ground_for_a_decision(local: LocalServer, agent: Agent) -> None:
    await agent.put(SPACE, "k", 1)
    await agent.put(ELSEWHERE, "k", 1)
    image = local.image()
    lost = await agent.put(SPACE, "k", 2, blind=True)
    mind, foreign = Mind(agent), Mind(agent)
    await mind.get(SPACE, "k")
    await agent.put(ELSEWHERE, "k", 2, blind=True)
    await foreign.get(ELSEWHERE, "k")
    absent = Mind(agent)
    await absent.get(SPACE, "absent")
    await local.crash(image)
    agent = Agent(local.api, agent.actor)
    for who in (mind, foreign, absent):
        who.agent = agent
    for call, space in (
        (lambda: mind.commit(SPACE, put("d", 1)), SPACE),
        (lambda: mind.commit(SPACE, put("d", 1), warn=True), SPACE),
        # What is not guarded was lost all the same.
        (lambda: mind.commit(SPACE, put("d", 1), guards=["unread"]), SPACE),
        (lambda: absent.commit(SPACE, put("d", 1)), SPACE),
        (lambda: mind.commit("shared/third", put("d", 1), allow_checked=True), SPACE),
        (lambda: foreign.commit(SPACE, put("d", 1), allow_checked=True), ELSEWHERE),
        (lambda: mind.refresh(), SPACE),
        (lambda: mind.get(SPACE, "k"), SPACE),
        (lambda: mind.page(SPACE), SPACE),
    ):
        with refusal(Reason.ACKED_WRITES_LOST) as error:
            await call()
        assert error.metadata["namespace"] == error.lost().namespace == space, "of the namespace that lost it"
    assert getattr(error.lost(), "from") == lost.revision - 1
    assert data(await agent.get(SPACE, "k")) == b"1"


async def test_what_was_read_before_the_cut_stays_good(local: LocalServer, agent: Agent) -> None:
    await agent.put(SPACE, "k", 1)
    await agent.put(SPACE, "plan/1", 1)
    mind = Mind(agent)
    await mind.get(SPACE, "k")
    await mind.page(SPACE, "plan/")
    await mind.get(SPACE, "absent")
    await local.crash()
    mind.agent = agent = Agent(local.api, agent.actor)
    await mind.commit(SPACE, put("k", 2), put("plan/2", 1))
    await mind.commit(SPACE, put("absent", 1))
    await agent.put(SPACE, "plan/3", 1)
    with refusal(Reason.STALE_READ_SET):
        await mind.commit(SPACE, put("k", 3))


async def test_a_read_set_does_not_outlive_its_namespace(local: LocalServer, mind: Mind, peer: Agent) -> None:
    for space in (SPACE, ELSEWHERE):
        await peer.put(space, "k", 1)
        await mind.get(space, "k")
        await mind.page(space, "plan/")
    await local.api.delete_namespace(ELSEWHERE)
    for call in (
        lambda: mind.commit(SPACE, put("d", 1), allow_checked=True),
        lambda: mind.commit(ELSEWHERE, put("d", 1), allow_checked=True),
        lambda: mind.refresh(),
    ):
        with refusal(Reason.NAMESPACE_DELETED) as error:
            await call()
        assert error.metadata["namespace"] == ELSEWHERE
    await mind.commit(SPACE, put("d", 1), guards=[guard("", SPACE)])
    await peer.ensure(ELSEWHERE)
    for space in (SPACE, ELSEWHERE):
        with refusal(Reason.STALE_READ_SET) as error:
            await mind.commit(space, put("e", 1), allow_checked=True)
        assert "k" in {entry.name for entry in error.stale().stale}
        assert {entry.namespace for entry in error.stale().stale} == {ELSEWHERE}
    await mind.refresh()
    await mind.commit(ELSEWHERE, put("k", 1), allow_checked=True)


async def test_a_compacted_log_names_nobody_but_refuses_all_the_same(
    local: LocalServer, mind: Mind, peer: Agent
) -> None:
    await peer.put(SPACE, "k", 1)
    await mind.get(SPACE, "k")
    moved = await peer.put(SPACE, "k", 2, blind=True)
    await peer.put(SPACE, "other", 1)
    await peer.ensure(SPACE, types.NamespacePolicy(log_revisions_max=1))
    await local.sweep()
    with refusal(Reason.STALE_READ_SET) as error:
        await mind.commit(SPACE, put("d", 1))
    (entry,) = error.stale().stale
    assert (entry.now, list(entry.changes)) == (moved.revision, [])
    assert "'k'" in error.message


async def test_a_log_that_is_compacted_while_it_is_searched(local: LocalServer, mind: Mind, peer: Agent) -> None:
    await peer.put(SPACE, "k", 1)
    await mind.get(SPACE, "k")
    await peer.put(SPACE, "k", 2, blind=True)
    last = await peer.put(SPACE, "k", 3, blind=True)

    async def compact() -> None:
        await peer.ensure(SPACE, types.NamespacePolicy(log_revisions_max=1))
        await local.sweep()

    meddle(local, once(compact), "changes")
    with refusal(Reason.STALE_READ_SET) as error:
        await mind.commit(SPACE, put("d", 1))
    assert names_of(error.stale().stale) == {"k": [("k", peer.name, last.revision)]}


async def test_who_changed_it_is_told_across_an_epoch(local: LocalServer, mind: Mind, peer: Agent) -> None:
    await peer.put(SPACE, "k", 1)
    await mind.get(SPACE, "k")
    moved = await peer.put(SPACE, "k", 2, blind=True)
    await local.crash()
    mind.agent = Agent(local.api, mind.agent.actor)
    after = await mind.agent.put(SPACE, "other", 1)
    assert after.revision >> 40 > moved.revision >> 40
    with refusal(Reason.STALE_READ_SET) as error:
        await mind.commit(SPACE, put("d", 1))
    assert names_of(error.stale().stale) == {"k": [("k", peer.name, moved.revision)]}


async def test_a_delete_that_leaves_a_sibling_hides_nobody(local: LocalServer, mind: Mind, peer: Agent) -> None:
    """Of a key that was absent, only what came after the end of its earlier life is told, and this is no end."""
    await peer.ensure(SPACE, SIBLINGS)
    await mind.get(SPACE, "k")
    first = await peer.put(SPACE, "k", 1, context=SEEN_NOTHING)
    second = await mind.agent.put(SPACE, "k", 2, context=SEEN_NOTHING)
    last = await peer.delete(SPACE, "k", context=first.context)
    with refusal(Reason.STALE_READ_SET) as error:
        await mind.commit(SPACE, put("d", 1))
    told = [("k", who, at.revision) for who, at in ((peer.name, last), (mind.agent.name, second), (peer.name, first))]
    assert names_of(error.stale().stale) == {"k": told}


async def test_many_changes_are_told_from_the_newest_on(local: LocalServer, mind: Mind, peer: Agent) -> None:
    await mind.page(SPACE, "plan/")
    made = [await peer.put(SPACE, f"plan/{number:04}", 1) for number in range(2_100)]
    with refusal(Reason.STALE_READ_SET) as error:
        await mind.commit(SPACE, put("d", 1))
    changes = error.stale().stale[0].changes
    assert [c.revision for c in changes] == [m.revision for m in reversed(made[-16:])]


# -- bounds -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("letter", ["k", "鍵", "🔑"])
async def test_a_decision_that_is_stale_everywhere_still_gives_a_readable_error(
    local: LocalServer, mind: Mind, letter: str
) -> None:
    peer = await local.api.agent("書" * 40)
    space = "shared/" + "智" * 80
    keys = [f"{number:03}/" + letter * (500 // len(letter.encode())) for number in range(100)]
    await mind.batch_get(space, *keys[:40])
    await mind.page(space)
    for _ in range(2):
        for start in range(0, 100, 50):
            operations = [put(key, 1, blind=True) for key in keys[start : start + 50]]
            await peer.transact(space, *operations)
    with refusal(Reason.STALE_READ_SET) as error:
        await mind.commit(space, put("d", 1))
    stale = error.stale().stale
    assert len(stale) >= 3, "as much as fits"
    assert [entry.name for entry in stale] == keys[: len(stale)]
    # In a reply there is room for all of them.
    await mind.commit(space, put("d", 1), warn=True)
    assert len(mind.told.stale) == 41
    assert sum(len(entry.changes) for entry in mind.told.stale) >= 40 * 2 + 16


async def test_a_short_staleness_is_told_whole(local: LocalServer, mind: Mind, peer: Agent) -> None:
    keys = [f"k{number}" for number in range(20)]
    await mind.batch_get(SPACE, *keys)
    await peer.transact(SPACE, *(put(key, 1) for key in keys))
    with refusal(Reason.STALE_READ_SET) as error:
        await mind.commit(SPACE, put("d", 1))
    stale = error.stale().stale
    assert [entry.name for entry in stale] == keys[:16]
    assert all(len(entry.changes) == 1 for entry in stale)
    assert "and 19 more" in error.message


async def test_a_read_set_has_its_limits(local: LocalServer, mind: Mind) -> None:
    for number in range(8):
        await mind.get(f"shared/{number}", "k")
    with refusal(Reason.VALUE_TOO_LARGE) as error:
        await mind.get("shared/8", "k")
    assert (error.limit().field, error.limit().actual, error.limit().limit) == ("read_set_token", 9, 8)
    wide = Mind(mind.agent)
    for start in range(0, 1024, 256):
        await wide.batch_get(SPACE, *(f"k{number}" for number in range(start, start + 256)))
    with refusal(Reason.VALUE_TOO_LARGE) as error:
        await wide.get(SPACE, "one more")
    assert error.limit().limit == 1024
    # It can still be used.
    await wide.commit(SPACE, put("k0", 1), delete("k1"))
    long = Mind(mind.agent)
    with refusal(Reason.VALUE_TOO_LARGE) as error:
        await long.batch_get(SPACE, *(f"{number}" + "k" * 500 for number in range(150)))
    assert error.limit().limit == 65_536


def forged(space: str = SPACE, revision: int = 0, **keys: int) -> bytes:
    seen = {key: KeySeen(version) for key, version in keys.items()}
    return encode_read_set(ReadSet({space: NamespaceSeen(revision, seen)}))


async def test_a_forged_token_authorises_nothing_and_reaches_nothing(
    local: LocalServer, mind: Mind, peer: Agent
) -> None:
    made = await peer.put(SPACE, "k", 1)
    for token in (forged(k=made.revision + 1), forged(revision=made.revision + 1)):
        with refusal(Reason.FUTURE_REVISION) as error:
            await Mind(mind.agent, token).commit(SPACE, put("d", 1))
        assert error.metadata["namespace"] == SPACE
    stamped = {("plan/", CHANGED): CollectionSeen(made.revision + 1)}
    token = encode_read_set(ReadSet({SPACE: NamespaceSeen(0, {}, stamped)}))
    with refusal(Reason.FUTURE_REVISION):
        await Mind(mind.agent, token).commit(SPACE, put("d", 1))
    # A version that was guessed lets its owner write what any expected version would.
    await Mind(mind.agent, forged(k=made.version)).commit(SPACE, put("k", 2))
    internal = encode_read_set(ReadSet({SPACE: NamespaceSeen(0, {"\0conflicts/": KeySeen(0)})}))
    newer = seal(TokenKind.READ_SET, b"\xff" * 40)
    for token in (internal, newer, b"token", encode_read_set(NOTHING_READ)[:-1]):
        with refusal(Reason.INVALID_FIELD) as error:
            await Mind(mind.agent, token).commit(SPACE, put("d", 1))
        assert "call.read_set_token" in error.message
