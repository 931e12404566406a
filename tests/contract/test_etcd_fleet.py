"""The coordinator on etcd where only more than one process, a real lapse or a fault shows whether it is right."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.contract.coordlab import EtcdLab
from tests.contract.lab import until
from tests.contract.test_coordinator import STRICT, refusal_of
from tests.support.etcd import needs_etcd
from tests.support.proxy import Fault, Proxy, proxied

from noosphere.consistency import DEFAULT_POLICY, NamePattern, Reason, Refusal
from noosphere.server.ports.coordinator import Incarnation
from noosphere.server.ports.grants import GrantKey, Verb
from noosphere.server.ports.runtime import SystemClock
from noosphere.server.storage.etcd import EtcdCoordinator, UnfitEtcd
from noosphere.server.storage.etcd.client import EtcdClient

pytestmark = needs_etcd

PATTERN = NamePattern("shared/a", True)


@contextlib.asynccontextmanager
async def second(lab: EtcdLab, **options: Any) -> AsyncIterator[EtcdCoordinator]:
    """Runs the coordinator of one more process beside the lab's."""
    made = await lab.another(**options)
    try:
        yield made
    finally:
        await made.close()


@contextlib.asynccontextmanager
async def behind_a_proxy(lab: EtcdLab) -> AsyncIterator[tuple[EtcdCoordinator, Proxy]]:
    """Runs one more process whose replies can be lost."""
    with proxied(lab.server.endpoint) as proxy:
        made = await EtcdCoordinator.open([proxy.address], clock=lab.clock, root=lab.root)
        try:
            yield made, proxy
        finally:
            await made.close()


async def test_an_agent_goes_on_at_another_process(etcd: EtcdLab) -> None:
    async with second(etcd) as other:
        opened = await etcd.coordinator.open_agent("a", False)
        await refusal_of(Reason.AGENT_ACTIVE, other, other.open_agent("a", False))
        await other.keep_agent(opened)
        assert other.touch(opened), "whoever has asked etcd knows it"
        await other.close_agent(opened)
        await until(lambda: not etcd.coordinator.touch(opened))
        await refusal_of(Reason.STALE_INCARNATION, etcd.coordinator, etcd.coordinator.keep_agent(opened))


async def test_a_takeover_reaches_every_process(etcd: EtcdLab) -> None:
    async with second(etcd) as other:
        first = await etcd.coordinator.open_agent("a", False)
        newer = await other.open_agent("a", True)
        await until(lambda: not etcd.coordinator.touch(first))
        await etcd.coordinator.keep_agent(newer)
        assert etcd.coordinator.touch(newer)


async def test_a_retry_at_another_process_returns_the_incarnation_that_it_began(etcd: EtcdLab) -> None:
    async with second(etcd) as other:
        first = await etcd.coordinator.open_agent("a", True, "the same")
        assert await other.open_agent("a", True, "the same") == first
        assert other.touch(first)


async def test_of_many_opening_at_two_processes_one_wins(etcd: EtcdLab) -> None:
    async with second(etcd) as other:
        calls = [c.open_agent("a", False) for _ in range(10) for c in (etcd.coordinator, other)]
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert len([r for r in results if isinstance(r, Incarnation)]) == 1
        assert {r.reason for r in results if isinstance(r, Refusal)} == {Reason.AGENT_ACTIVE}


async def test_of_many_taking_over_at_two_processes_the_newest_stays(etcd: EtcdLab) -> None:
    async with second(etcd) as other:
        calls = [c.open_agent("a", True) for _ in range(8) for c in (etcd.coordinator, other)]
        opened = await asyncio.gather(*calls)
        newest = max(opened, key=lambda incarnation: incarnation.number)
        assert len({incarnation.number for incarnation in opened}) == 16
        for coordinator in (etcd.coordinator, other):
            await coordinator.keep_agent(newest)
            assert [i for i in opened if coordinator.touch(i)] == [newest]


async def test_rules_reach_every_process_and_are_never_half_changed(etcd: EtcdLab) -> None:
    async with second(etcd) as other:
        names = [NamePattern(f"shared/{i}", True) for i in range(16)]
        calls = [(etcd.coordinator, other)[i % 2].set_policy(name, STRICT) for i, name in enumerate(names)]
        versions = await asyncio.gather(*calls)
        assert sorted(versions) == list(range(1, 17))
        assert await other.refresh() == await etcd.coordinator.refresh()
        await etcd.coordinator.set_policy(names[0], DEFAULT_POLICY)
        await until(lambda: other.policies().config_version == 17)
        assert other.policies().entries[names[0]] == DEFAULT_POLICY


async def test_grants_reach_every_process_with_the_rules(etcd: EtcdLab) -> None:
    async with second(etcd) as other:
        names = [GrantKey(NamePattern(f"token:{i}", True), NamePattern("shared/", False)) for i in range(8)]
        calls = [
            (etcd.coordinator, other)[i % 2].set_grant(name, frozenset({Verb.READ})) for i, name in enumerate(names)
        ]
        rules = [other.set_policy(NamePattern(f"shared/{i}", True), STRICT) for i in range(8)]
        versions = await asyncio.gather(*calls, *rules)
        assert sorted(versions) == list(range(1, 17))
        assert await other.refresh() == await etcd.coordinator.refresh()
        await etcd.coordinator.set_grant(names[0], frozenset())
        await until(lambda: other.policies().config_version == 17)
        assert set(other.policies().grants) == set(names[1:])


async def test_two_processes_begin_different_epochs(etcd: EtcdLab) -> None:
    async with second(etcd) as other:
        calls = [c.begin_epoch("drill", "", 0) for _ in range(8) for c in (etcd.coordinator, other)]
        begun = await asyncio.gather(*calls, other.begin_epoch("drill", "", 20_000))
        assert len(set(begun)) == 17
        assert await other.epochs() == await etcd.coordinator.epochs()
        assert max(begun) == (await other.epochs())[-1].epoch >= 20_000


async def test_two_processes_that_notice_the_same_begin_one_epoch(etcd: EtcdLab) -> None:
    async with second(etcd) as other:
        last = (await other.epochs())[-1].epoch
        calls = [c.begin_epoch("drill", "", 0, expected=last) for _ in range(8) for c in (etcd.coordinator, other)]
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [r for r in results if isinstance(r, int)] == [last + 1]
        assert {r.reason for r in results if isinstance(r, Refusal)} == {Reason.CONTENTION}


async def test_the_first_epoch_of_all_is_begun_once(etcd: EtcdLab) -> None:
    fresh = [
        await EtcdCoordinator.open([etcd.server.endpoint], clock=etcd.clock, root=f"{etcd.root}fresh/")
        for _ in range(2)
    ]
    try:
        calls = [c.begin_epoch("first start", "", 1, expected=0) for c in fresh]
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [r for r in results if isinstance(r, int)] == [1]
    finally:
        for coordinator in fresh:
            await coordinator.close()


async def test_who_was_kept_is_active_for_every_process_when_the_call_returns(etcd: EtcdLab) -> None:
    opened = await etcd.coordinator.open_agent("a", False)
    await etcd.lapse()
    await etcd.coordinator.keep_agent(opened)
    assert len(etcd.leases()) == 1


async def test_a_lease_lapses_in_etcd_unless_its_agent_calls(etcd: EtcdLab) -> None:
    def lease_of(agent_id: str) -> int:
        key = f"{etcd.root}live/lease/{agent_id}"
        return next((kv.lease for kv in etcd.server.kvs(key) if kv.key == key.encode()), 0)

    options: Any = {"clock": SystemClock(), "root": etcd.root, "agent_lease_ms": 3_000}
    real = await EtcdCoordinator.open([etcd.server.endpoint], **options)
    try:
        quiet = await real.open_agent("quiet", False)
        calling = await real.open_agent("calling", False)
        lease = lease_of("calling")
        await until(lambda: real.touch(calling) and not lease_of("quiet"))
        assert lease_of("calling") == lease, "renewed in time, not given a new one"
        await until(lambda: real.active_count() == 1)
        await refusal_of(Reason.AGENT_ACTIVE, etcd.coordinator, etcd.coordinator.open_agent("calling", False))
        newer = await etcd.coordinator.open_agent("quiet", False)
        assert newer.number > quiet.number
    finally:
        await real.close()


async def test_attempts_that_fail_leave_no_lease_behind(etcd: EtcdLab) -> None:
    before = etcd.server.leases()
    opened = await etcd.coordinator.open_agent("a", False)
    refused = [etcd.coordinator.open_agent("a", False) for _ in range(50)]
    assert {getattr(r, "reason", None) for r in await asyncio.gather(*refused, return_exceptions=True)} == {
        Reason.AGENT_ACTIVE
    }
    async with second(etcd) as other:
        await asyncio.gather(*(c.open_agent("a", True) for _ in range(8) for c in (etcd.coordinator, other)))
        assert len(etcd.server.leases() - before) == 1
    newest = Incarnation("a", await etcd.coordinator.latest("a"))
    assert newest.number > opened.number
    await etcd.coordinator.keep_agent(newest)
    await etcd.coordinator.close_agent(newest)
    assert etcd.server.leases() <= before


async def test_above_the_limit_the_agent_whose_lease_has_lapsed_is_ended(etcd: EtcdLab) -> None:
    async with second(etcd, agents_open_max=3) as small:
        opened = [await small.open_agent(f"a{i}", False) for i in range(3)]
        message = await refusal_of(Reason.LIMIT_EXCEEDED, small, small.open_agent("more", False))
        assert "the limit is 3" in message
        etcd.clock.advance(15_000)
        lapsed = next(kv for kv in etcd.server.kvs(f"{etcd.root}live/lease/") if kv.key.endswith(b"a1"))
        etcd.server.lapse(lapsed.lease)
        await until(lambda: small.active_count() == 2)
        await small.open_agent("more", False)
        assert [small.touch(incarnation) for incarnation in opened] == [True, False, True]


async def test_a_lost_reply_to_an_opening_begins_no_second_incarnation(etcd: EtcdLab) -> None:
    async with behind_a_proxy(etcd) as (coordinator, proxy):
        proxy.begin(Fault.DROP_REPLIES)
        await refusal_of(Reason.ENGINE_UNAVAILABLE, coordinator, coordinator.open_agent("a", False, "the same"))
        proxy.end()
        opened = await coordinator.open_agent("a", False, "the same")
        assert opened == await coordinator.open_agent("a", False, "the same")
        assert await etcd.coordinator.latest("a") == opened.number


async def test_what_was_changed_while_the_watch_was_broken_is_seen_afterwards(etcd: EtcdLab) -> None:
    async with behind_a_proxy(etcd) as (coordinator, proxy):
        await etcd.coordinator.set_policy(PATTERN, STRICT)
        await until(lambda: PATTERN in coordinator.policies().entries)
        kept = await coordinator.open_agent("kept", False)
        proxy.begin(Fault.DROP_REPLIES)
        await etcd.coordinator.set_policy(PATTERN, None)
        gone = await etcd.coordinator.open_agent("gone", False)
        await etcd.coordinator.close_agent(gone)
        came = await etcd.coordinator.open_agent("came", False)
        await proxy.happened()
        proxy.end()
        await until(lambda: coordinator.touch(came))
        assert (PATTERN in coordinator.policies().entries, coordinator.touch(gone)) == (False, False)
        assert coordinator.touch(kept)


async def test_what_was_compacted_while_the_watch_was_broken_is_read_anew(
    etcd: EtcdLab, caplog: pytest.LogCaptureFixture
) -> None:
    async with behind_a_proxy(etcd) as (coordinator, proxy):
        for name in ("goes", "stays"):
            await etcd.coordinator.set_policy(NamePattern(f"shared/{name}", True), STRICT)
        ended = await coordinator.open_agent("ended", False)
        called = await coordinator.open_agent("called", False)
        for name in ("goes", "stays"):
            await coordinator.put_entry("tokens", name, b"1")
        tokens = coordinator.table("tokens")
        await coordinator.refresh()
        proxy.begin(Fault.DROP_REPLIES)
        for kv in etcd.server.kvs(f"{etcd.root}live/lease/called"):
            etcd.server.lapse(kv.lease)
        await etcd.coordinator.set_policy(NamePattern("shared/goes", True), None)
        await etcd.coordinator.put_entry("tokens", "goes", None)
        await proxy.happened()
        await etcd.coordinator.keep_agent(ended)
        await etcd.coordinator.close_agent(ended)
        last = await etcd.coordinator.open_agent("last", False)
        etcd.server.compact(last.number)
        proxy.end()
        await until(lambda: coordinator.touch(last))
        assert coordinator.policies() == etcd.coordinator.policies()
        assert dict(tokens) == {"stays": b"1"}, "also in a table that was handed out before"
        assert not coordinator.touch(ended)
        assert coordinator.active_count() == 2, "a call that etcd has not been told of yet still counts"
        assert coordinator.touch(called)
        assert any("read anew" in record.getMessage() for record in caplog.records)


async def test_without_etcd_calls_are_refused_and_what_is_known_is_served(etcd: EtcdLab) -> None:
    coordinator = etcd.coordinator
    await coordinator.set_policy(PATTERN, STRICT)
    opened = await coordinator.open_agent("a", False)
    etcd.server.kill()
    try:
        calls = (
            coordinator.open_agent("b", False),
            coordinator.keep_agent(opened),
            coordinator.latest("a"),
            coordinator.refresh(),
            coordinator.set_policy(PATTERN, None),
            coordinator.epochs(),
            coordinator.begin_epoch("drill", "", 0),
        )
        refused = await asyncio.gather(*calls, return_exceptions=True)
        assert [getattr(r, "reason", r) for r in refused] == [Reason.ENGINE_UNAVAILABLE] * len(calls)
        assert coordinator.touch(opened)
        assert coordinator.policies().entries[PATTERN] == STRICT
    finally:
        etcd.server.start()
    await coordinator.keep_agent(opened)
    async with second(etcd) as other:
        await other.set_policy(PATTERN, DEFAULT_POLICY)
        await until(lambda: coordinator.policies().entries[PATTERN] == DEFAULT_POLICY)


async def test_an_etcd_that_hangs_is_given_up(etcd: EtcdLab) -> None:
    etcd.server.pause()
    try:
        calls = [etcd.coordinator.open_agent(f"a{i}", False) for i in range(300)]
        refused = await asyncio.gather(*calls, return_exceptions=True)
        assert {getattr(r, "reason", r) for r in refused} == {Reason.ENGINE_UNAVAILABLE}
    finally:
        etcd.server.resume()
    assert (await etcd.coordinator.open_agent("a", False)).number > 0


async def test_a_renewal_that_is_cancelled_leaves_no_task_behind(etcd: EtcdLab) -> None:
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["message"]))
    client = EtcdClient([etcd.server.endpoint])
    try:
        lease = await client.grant(60)
        renewing = asyncio.create_task(client.renew([lease] * 10))
        await asyncio.sleep(0)
        renewing.cancel()
        await asyncio.wait([renewing])
        assert renewing.cancelled()
        # Whatever it has left is destroyed now.
        del renewing
        gc.collect()
        assert await client.renew([lease]) == {lease}
        assert told == []
        await client.drop(lease)
    finally:
        await client.close()


async def test_a_member_that_does_not_answer_is_left_for_the_next(etcd: EtcdLab, unused_tcp_port: int) -> None:
    opened = await etcd.coordinator.open_agent("a", False)
    endpoints = [f"127.0.0.1:{unused_tcp_port}", etcd.server.endpoint]
    made = await EtcdCoordinator.open(endpoints, clock=etcd.clock, root=etcd.root)
    try:
        assert await made.latest("a") == opened.number
        assert (await made.open_agent("b", False)).number > opened.number
    finally:
        await made.close()


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        pytest.param("format", b"2", "etcd holds format 2, this version knows 1", id="format"),
        pytest.param("live/config", b"many", "cannot read", id="config"),
        pytest.param("live/rule/=shared/a", b'{"item_bytes_max": "x"}', "cannot read", id="rule"),
    ],
)
async def test_what_another_version_has_written_is_refused(etcd: EtcdLab, key: str, value: bytes, words: str) -> None:
    etcd.server.put(etcd.root + key, value)
    with pytest.raises(UnfitEtcd, match=words):
        await etcd.another()


async def test_a_grant_of_another_version_grants_nothing_and_stops_nobody(etcd: EtcdLab) -> None:
    key = GrantKey(NamePattern("planner", True), NamePattern("shared/", False))
    await etcd.coordinator.set_grant(key, frozenset({Verb.READ}))
    etcd.server.put(etcd.root + "live/grant/=planner\0^shared/", b'["read","levitate"]')
    await etcd.coordinator.set_grant(GrantKey(*reversed(key)), frozenset({Verb.WRITE}))
    for one in (etcd.coordinator, await etcd.another()):
        assert list(one.policies().grants) == [GrantKey(*reversed(key))]
    await etcd.coordinator.set_grant(key, frozenset({Verb.READ}))
    assert etcd.coordinator.policies().grants[key] == {Verb.READ}


@pytest.mark.parametrize(
    ("endpoints", "root", "words"),
    [
        ([], "a/", "endpoints: must not be empty"),
        (["localhost"], "a/", "'localhost' is not of the form host:port"),
        (["http://localhost:2379"], "a/", "is not of the form host:port"),
        (["localhost:2379"], "a", "root: 'a' does not end in a slash"),
    ],
    ids=["none", "no-port", "url", "root"],
)
async def test_a_wrong_address_is_told(endpoints: list[str], root: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        await EtcdCoordinator.open(endpoints, clock=SystemClock(), root=root)
