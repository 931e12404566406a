"""The coordinator port: incarnations, rules and epochs."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest
from tests.contract.coordlab import CoordinatorLab
from tests.contract.lab import EmbeddedLab

from noosphere.consistency import DEFAULT_POLICY, ConflictPolicy, NamePattern, NamespacePolicy, Reason, Refusal
from noosphere.consistency.limits import AGENT_LEASE_MS
from noosphere.server.ports.coordinator import Coordinator, Incarnation, PolicyTable
from noosphere.server.ports.grants import GrantKey, Verb

NAMES = ["planner-0", "a|b", "x%_*", "代理", "ä/b:c-{d}"]
STRICT = NamespacePolicy(
    ConflictPolicy.SIBLINGS, (("a/", ConflictPolicy.LAST_WRITER_WINS),), 2048, 17, 4_000_000, 5_000, 9, 8
)


@pytest.fixture
def lab(coordinator_lab: CoordinatorLab) -> CoordinatorLab:
    return coordinator_lab


async def refusal_of(reason: Reason, coordinator: Coordinator, call: object) -> str:
    with pytest.raises(Refusal) as refused:
        await call  # type: ignore[misc]  # any of the port's coroutines
    assert refused.value.reason is reason
    return refused.value.message


@pytest.mark.parametrize("name", NAMES)
async def test_an_incarnation_is_active_until_it_is_closed(lab: CoordinatorLab, name: str) -> None:
    coordinator = lab.coordinator
    assert await coordinator.latest(name) == 0
    first = await coordinator.open_agent(name, False)
    assert (first.agent_id, first.number > 0) == (name, True)
    assert await coordinator.latest(name) == first.number
    assert coordinator.touch(first)
    message = await refusal_of(Reason.AGENT_ACTIVE, coordinator, coordinator.open_agent(name, False))
    assert name in message
    assert coordinator.touch(first), "a refused opening takes nothing away"
    await coordinator.close_agent(first)
    assert not coordinator.touch(first)
    assert await coordinator.latest(name) == first.number
    second = await coordinator.open_agent(name, False)
    assert second.number > first.number
    assert not coordinator.touch(first)


async def test_numbers_come_from_one_counter_for_all_agents(lab: CoordinatorLab) -> None:
    numbers = [(await lab.coordinator.open_agent(f"a{i % 3}", True)).number for i in range(9)]
    assert numbers == sorted(set(numbers))


@pytest.mark.parametrize("takeover", [False, True])
async def test_a_retry_under_the_same_id_returns_the_incarnation_that_it_began(
    lab: CoordinatorLab, takeover: bool
) -> None:
    coordinator = lab.coordinator
    first, again = await asyncio.gather(
        coordinator.open_agent("a", takeover, "the same"), coordinator.open_agent("a", takeover, "the same")
    )
    assert first == again
    assert coordinator.touch(first)
    await refusal_of(Reason.AGENT_ACTIVE, coordinator, coordinator.open_agent("a", False, "another"))
    second = await coordinator.open_agent("a", True, "another")
    assert second.number > first.number
    await refusal_of(Reason.AGENT_ACTIVE, coordinator, coordinator.open_agent("a", False, "the same"))
    await coordinator.close_agent(second)
    third = await coordinator.open_agent("a", False, "another")
    assert third.number > second.number, "an incarnation that was closed is not handed out again"


async def test_a_takeover_ends_the_earlier_incarnation_at_once(lab: CoordinatorLab) -> None:
    coordinator = lab.coordinator
    first = await coordinator.open_agent("a", False)
    second = await coordinator.open_agent("a", True)
    assert (coordinator.touch(first), coordinator.touch(second)) == (False, True)
    for call in (coordinator.keep_agent(first), coordinator.close_agent(first)):
        await refusal_of(Reason.STALE_INCARNATION, coordinator, call)
    assert coordinator.touch(second), "closing a stale incarnation does not end the present one"


async def test_a_lapsed_lease_makes_an_agent_takeable_but_ends_nothing(lab: CoordinatorLab) -> None:
    coordinator = lab.coordinator
    first = await coordinator.open_agent("a", False)
    assert coordinator.active_count() == 1
    assert coordinator.is_active(first)
    await lab.lapse()
    assert coordinator.active_count() == 0
    assert not coordinator.is_active(first), "looking renews nothing"
    assert coordinator.touch(first), "nobody else has opened it, so it may go on"
    assert coordinator.active_count() == 1
    assert coordinator.is_active(first)
    assert not coordinator.is_active(Incarnation("a", first.number + 1))
    await refusal_of(Reason.AGENT_ACTIVE, coordinator, coordinator.open_agent("a", False))
    await lab.lapse()
    second = await coordinator.open_agent("a", False)
    assert (coordinator.touch(first), coordinator.touch(second)) == (False, True)


async def test_keeping_revives_a_lapsed_lease(lab: CoordinatorLab) -> None:
    coordinator = lab.coordinator
    kept = await coordinator.open_agent("a", False)
    for _ in range(3):
        await lab.lapse()
        assert coordinator.active_count() == 0
        await coordinator.keep_agent(kept)
        assert coordinator.active_count() == 1
        await refusal_of(Reason.AGENT_ACTIVE, coordinator, coordinator.open_agent("a", False))


async def test_an_embedded_lease_lapses_to_the_millisecond(embedded: EmbeddedLab) -> None:
    coordinator = embedded.coordinator
    touched = await coordinator.open_agent("touched", False)
    kept = await coordinator.open_agent("kept", False)
    for _ in range(3):
        embedded.advance(AGENT_LEASE_MS - 1)
        await refusal_of(Reason.AGENT_ACTIVE, coordinator, coordinator.open_agent("kept", False))
        assert coordinator.touch(touched)
        await coordinator.keep_agent(kept)
    assert coordinator.active_count() == 2
    embedded.advance(AGENT_LEASE_MS)
    assert coordinator.active_count() == 0


async def test_of_many_opening_at_once_one_wins(lab: CoordinatorLab) -> None:
    coordinator = lab.coordinator
    results = await asyncio.gather(*(coordinator.open_agent("a", False) for _ in range(20)), return_exceptions=True)
    won = [r for r in results if isinstance(r, Incarnation)]
    lost = [r for r in results if isinstance(r, Refusal)]
    assert (len(won), len(lost)) == (1, 19)
    assert coordinator.touch(won[0])


async def test_of_many_taking_over_at_once_the_newest_stays(lab: CoordinatorLab) -> None:
    coordinator = lab.coordinator
    opened = await asyncio.gather(*(coordinator.open_agent("a", True) for _ in range(20)))
    newest = max(opened, key=lambda i: i.number)
    assert [i for i in opened if coordinator.touch(i)] == [newest]
    assert await coordinator.latest("a") == newest.number


async def test_many_agents_may_open_and_close_at_once(lab: CoordinatorLab) -> None:
    coordinator = lab.coordinator
    opened = await asyncio.gather(*(coordinator.open_agent(f"a{i}", False) for i in range(200)))
    assert len({incarnation.number for incarnation in opened}) == 200
    assert coordinator.active_count() == 200
    await asyncio.gather(*(coordinator.close_agent(incarnation) for incarnation in opened[::2]))
    await lab.crash()
    assert [lab.coordinator.touch(incarnation) for incarnation in opened] == [False, True] * 100


async def test_an_unknown_incarnation_is_stale(lab: CoordinatorLab) -> None:
    coordinator = lab.coordinator
    assert not coordinator.touch(Incarnation("nobody", 1))
    await refusal_of(Reason.STALE_INCARNATION, coordinator, coordinator.keep_agent(Incarnation("nobody", 1)))
    opened = await coordinator.open_agent("a", False)
    assert not coordinator.touch(Incarnation("a", opened.number + 1))


@pytest.mark.parametrize("how", ["reopen", "crash"])
async def test_a_restart_ends_no_incarnation_and_only_leases_that_it_held_itself(lab: CoordinatorLab, how: str) -> None:
    alive = await lab.coordinator.open_agent("alive", False)
    closed = await lab.coordinator.open_agent("closed", False)
    await lab.coordinator.close_agent(closed)
    await (lab.reopen() if how == "reopen" else lab.crash())
    coordinator = lab.coordinator
    assert coordinator.active_count() == lab.leases_outlive_the_process
    assert await coordinator.latest("alive") == alive.number
    assert await coordinator.latest("closed") == closed.number
    assert coordinator.touch(alive), "the newest incarnation stays current"
    assert not coordinator.touch(closed), "a closed one does not come back"
    await refusal_of(Reason.AGENT_ACTIVE, coordinator, coordinator.open_agent("alive", False))
    newer = await coordinator.open_agent("other", False)
    assert newer.number > closed.number, "the counter goes on"


async def test_rules_are_set_replaced_and_removed_each_with_a_new_version(lab: CoordinatorLab) -> None:
    coordinator = lab.coordinator
    start = coordinator.policies()
    assert dict(start.entries) == {}
    exact, prefix = NamePattern("shared/a", True), NamePattern("shared/a", False)
    versions = [
        await coordinator.set_policy(exact, STRICT),
        await coordinator.set_policy(prefix, DEFAULT_POLICY),
        await coordinator.set_policy(exact, DEFAULT_POLICY),
        await coordinator.set_policy(NamePattern("shared/名", False), STRICT),
        await coordinator.set_policy(prefix, None),
    ]
    assert versions == sorted(set(versions))
    assert versions[0] > start.config_version
    expected = {exact: DEFAULT_POLICY, NamePattern("shared/名", False): STRICT}
    for _ in range(2):
        table = lab.coordinator.policies()
        assert (table.config_version, dict(table.entries)) == (versions[-1], expected)
        assert await lab.coordinator.refresh() == table
        await lab.crash()
    assert dict(start.entries) == {}, "a table that was handed out does not change"


async def test_rules_are_shown_as_one_table_under_concurrent_changes(lab: CoordinatorLab) -> None:
    coordinator = lab.coordinator
    patterns = [NamePattern(f"shared/{i}", True) for i in range(20)]
    versions = await asyncio.gather(*(coordinator.set_policy(p, STRICT) for p in patterns))
    assert sorted(versions) == list(range(min(versions), min(versions) + 20))
    table = await coordinator.refresh()
    assert (table.config_version, set(table.entries)) == (max(versions), set(patterns))


async def test_removing_rules_that_are_not_there_is_no_error(lab: CoordinatorLab) -> None:
    await lab.coordinator.set_policy(NamePattern("shared/none", True), None)
    assert dict(lab.coordinator.policies().entries) == {}


async def test_grants_are_set_replaced_and_taken_back_each_with_a_new_version(lab: CoordinatorLab) -> None:
    coordinator = lab.coordinator
    start = coordinator.policies()
    assert dict(start.grants) == {}
    exactly = GrantKey(NamePattern("jwt:https://issuer|名/* %_", True), NamePattern("shared/a", True))
    all_of = exactly._replace(principal=exactly.principal._replace(exact=False))
    below = exactly._replace(namespace=NamePattern("shared/a", False))
    versions = [
        await coordinator.set_grant(exactly, frozenset({Verb.READ})),
        await coordinator.set_policy(exactly.namespace, STRICT),
        await coordinator.set_grant(all_of, frozenset({Verb.READ, Verb.WATCH})),
        await coordinator.set_grant(below, frozenset(Verb)),
        await coordinator.set_grant(exactly, frozenset({Verb.ADMIN, Verb.WRITE})),
        await coordinator.set_grant(all_of, frozenset()),
        await coordinator.set_grant(all_of, frozenset()),
    ]
    assert versions == list(range(start.config_version + 1, start.config_version + 8)), "one version for both"
    expected = {exactly: frozenset({Verb.ADMIN, Verb.WRITE}), below: frozenset(Verb)}
    for _ in range(2):
        table = lab.coordinator.policies()
        assert (table.config_version, dict(table.grants)) == (versions[-1], expected)
        assert dict(table.entries) == {exactly.namespace: STRICT}
        assert await lab.coordinator.refresh() == table
        await lab.crash()
    assert dict(start.grants) == {}, "a table that was handed out does not change"


async def test_an_epoch_is_above_all_before_and_not_below_what_is_asked(lab: CoordinatorLab) -> None:
    coordinator = lab.coordinator
    last = (await coordinator.epochs())[-1].epoch
    assert await coordinator.begin_epoch("drill", "nothing", 1) == last + 1
    assert await coordinator.begin_epoch("größer", "1 namespace", last + 100) == last + 100
    assert await coordinator.begin_epoch("drill", "", last + 50) == last + 101
    for _ in range(2):
        records = await lab.coordinator.epochs()
        assert [r.epoch for r in records] == sorted(r.epoch for r in records)
        found = next(r for r in records if r.epoch == last + 100)
        assert (found.cause, found.recovered) == ("größer", "1 namespace")
        assert found.started_ms > 0
        await lab.reopen()


async def test_an_epoch_that_is_to_follow_another_begins_only_if_that_is_the_newest(lab: CoordinatorLab) -> None:
    coordinator = lab.coordinator
    before = await coordinator.epochs()
    last = before[-1].epoch
    for wrong in (0, last - 1, last + 1):
        message = await refusal_of(
            Reason.CONTENTION, coordinator, coordinator.begin_epoch("drill", "", last + 9, expected=wrong)
        )
        assert str(last) in message
    assert await coordinator.epochs() == before, "a refused epoch leaves nothing"
    assert await coordinator.begin_epoch("drill", "", last + 5, expected=last) == last + 5
    await refusal_of(Reason.CONTENTION, coordinator, coordinator.begin_epoch("drill", "", 0, expected=last))
    assert await coordinator.begin_epoch("drill", "", 0, expected=last + 5) == last + 6


async def test_of_many_that_notice_the_same_one_begins_the_epoch(lab: CoordinatorLab) -> None:
    coordinator = lab.coordinator
    last = (await coordinator.epochs())[-1].epoch
    calls = [coordinator.begin_epoch("drill", "", 0, expected=last) for _ in range(10)]
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [r for r in results if isinstance(r, int)] == [last + 1]
    assert {r.reason for r in results if isinstance(r, Refusal)} == {Reason.CONTENTION}
    assert (await coordinator.epochs())[-1].epoch == last + 1


async def test_after_closing_calls_are_refused(lab: CoordinatorLab) -> None:
    coordinator = lab.coordinator
    await coordinator.close()
    await coordinator.close()
    for call in (coordinator.open_agent("a", False), coordinator.epochs(), coordinator.latest("a")):
        await refusal_of(Reason.ENGINE_UNAVAILABLE, coordinator, call)


async def test_numbers_go_on_above_those_of_another_coordinator(lab: CoordinatorLab) -> None:
    coordinator = lab.coordinator
    before = await coordinator.open_agent("before", False)
    assert await coordinator.counted() >= before.number
    far = await coordinator.counted() + 1_000_000
    await coordinator.resume(far, PolicyTable(0, {}, {}))
    assert await coordinator.counted() >= far
    first = await coordinator.open_agent("a", False)
    assert first.number > far
    assert await coordinator.latest("a") == first.number
    assert coordinator.touch(first)
    await coordinator.keep_agent(first)
    held = await coordinator.locks.acquire("lock", "a", 10_000, life=first)
    assert held is not None
    assert held.token > far
    assert await coordinator.locks.holder("lock") == held
    assert await coordinator.locks.held("", "", 10) == (held,)
    await coordinator.locks.renew("lock", held.token)
    assert await coordinator.locks.release("lock", held.token)
    member = await coordinator.presence.join("group", "a", 10_000, life=first)
    assert member.number > far
    assert await coordinator.presence.members("group") == (member,)
    async with aclosing(coordinator.presence.watch("group")) as changes:
        assert await anext(changes) == {"a": member}
    await coordinator.presence.keep("group", "a", member.number)
    assert await coordinator.presence.leave("group", "a", member.number)
    await coordinator.close_agent(first)
    await lab.reopen()
    again = await lab.coordinator.open_agent("a", False)
    assert again.number > first.number


async def test_rules_and_grants_of_another_coordinator_replace_all_others(lab: CoordinatorLab) -> None:
    coordinator = lab.coordinator
    kept, gone, new = (NamePattern(f"shared/{name}", True) for name in ("kept", "gone", "new"))
    grant = GrantKey(NamePattern("planner", True), NamePattern("shared/", False))
    old = GrantKey(NamePattern("old", True), NamePattern("shared/", False))
    for pattern in (kept, gone):
        await coordinator.set_policy(pattern, NamespacePolicy(records_max=5))
    version = await coordinator.set_grant(old, frozenset({Verb.READ}))
    wanted = PolicyTable(
        version + 10,
        {kept: NamespacePolicy(records_max=6), new: NamespacePolicy(records_max=7)},
        {grant: frozenset({Verb.READ, Verb.WRITE})},
    )
    for _ in range(2):
        await coordinator.resume(0, wanted)
        for table in (coordinator.policies(), await coordinator.refresh()):
            assert (table.entries, table.grants) == (wanted.entries, wanted.grants)
            assert table.config_version > wanted.config_version
    await lab.reopen()
    table = lab.coordinator.policies()
    assert (table.entries, table.grants) == (wanted.entries, wanted.grants)
    assert await lab.coordinator.set_policy(gone, NamespacePolicy()) > table.config_version
