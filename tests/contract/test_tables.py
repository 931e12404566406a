"""The coordinator's tables: what they show, to whom, and after what."""

from __future__ import annotations

import asyncio

import pytest
from tests.contract.coordlab import CoordinatorLab, EtcdLab
from tests.contract.lab import EmbeddedLab, until
from tests.support.etcd import needs_etcd

from noosphere.consistency import Reason, Refusal
from noosphere.server.ports import tables
from noosphere.server.ports.coordinator import Coordinator
from noosphere.server.ports.tables import ENTRY_BYTES_MAX, ENTRY_KEY_BYTES_MAX

KEYS = ["a", "a/b", "x%_*|:{}..", "名", "ä\u202eb", "é" * 256]


@pytest.fixture
def lab(coordinator_lab: CoordinatorLab) -> CoordinatorLab:
    return coordinator_lab


async def refused(call: object) -> Refusal:
    with pytest.raises(Refusal) as found:
        await call  # type: ignore[misc]  # a coroutine of the port
    return found.value


async def test_an_entry_shows_once_it_is_written_and_after_a_crash(lab: CoordinatorLab) -> None:
    assert dict(lab.coordinator.table("tokens")) == {}
    for number, key in enumerate(KEYS):
        await lab.coordinator.put_entry("tokens", key, bytes([number, 0, 255]))
    await lab.coordinator.put_entry("limits", "a", b"another table's")
    await lab.coordinator.put_entry("tokens", "a", b"")
    expected = {key: bytes([number, 0, 255]) for number, key in enumerate(KEYS)} | {"a": b""}
    for _ in range(2):
        assert dict(lab.coordinator.table("tokens")) == expected
        assert dict(lab.coordinator.table("limits")) == {"a": b"another table's"}
        await lab.crash()


async def test_an_entry_that_was_removed_does_not_come_back(lab: CoordinatorLab) -> None:
    shown = lab.coordinator.table("tokens")
    await lab.coordinator.put_entry("tokens", "gone", b"1")
    await lab.coordinator.put_entry("tokens", "stays", b"2")
    await lab.coordinator.put_entry("tokens", "gone", None)
    await lab.coordinator.put_entry("tokens", "never there", None)
    assert dict(shown) == {"stays": b"2"}
    assert shown is lab.coordinator.table("tokens")
    await lab.crash()
    assert dict(lab.coordinator.table("tokens")) == {"stays": b"2"}


async def test_the_version_tells_whether_anything_has_changed(lab: CoordinatorLab) -> None:
    table = lab.coordinator.table("limits")
    seen = [table.version]
    for value in (b"1", b"2", None):
        await lab.coordinator.put_entry("limits", "a", value)
        seen.append(table.version)
    await lab.coordinator.put_entry("tokens", "a", b"1")
    assert seen == sorted(set(seen))
    assert table.version == seen[-1], "another table is no change of this one"


async def test_a_condition_that_does_not_hold_changes_nothing(lab: CoordinatorLab) -> None:
    put = lab.coordinator.put_entry
    await put("tokens", "a", b"1", expected=None)
    for wrong in (None, b"", b"2"):
        assert (await refused(put("tokens", "a", b"x", expected=wrong))).reason is Reason.CONTENTION
        assert (await refused(put("tokens", "a", None, expected=wrong))).reason is Reason.CONTENTION
    assert dict(lab.coordinator.table("tokens")) == {"a": b"1"}
    await put("tokens", "a", b"2", expected=b"1")
    await put("tokens", "a", None, expected=b"2")
    assert (await refused(put("tokens", "a", b"3", expected=b"2"))).reason is Reason.CONTENTION
    await put("tokens", "none", None, expected=None)
    assert dict(lab.coordinator.table("tokens")) == {}


async def test_of_many_that_expect_the_same_one_writes(lab: CoordinatorLab) -> None:
    calls = [lab.coordinator.put_entry("tokens", "a", str(n).encode(), expected=None) for n in range(20)]
    results = await asyncio.gather(*calls, return_exceptions=True)
    lost = [r for r in results if isinstance(r, Refusal)]
    assert {r.reason for r in lost} == {Reason.CONTENTION}
    assert len(lost) == 19
    assert lab.coordinator.table("tokens")["a"] == str(results.index(None)).encode()


async def test_what_does_not_fit_is_refused_with_its_limit(lab: CoordinatorLab) -> None:
    put = lab.coordinator.put_entry
    for key in ("", "a\0b", "k" * (ENTRY_KEY_BYTES_MAX + 1), "\ud800"):
        assert (await refused(put("tokens", key, b""))).reason is Reason.INVALID_FIELD
    large = await refused(put("tokens", "a", b"x" * (ENTRY_BYTES_MAX + 1)))
    assert (large.reason, str(ENTRY_BYTES_MAX) in large.message) == (Reason.LIMIT_EXCEEDED, True)
    await put("tokens", "a", b"x" * ENTRY_BYTES_MAX)
    for name in ("", "Tokens", "a/b", "a" * 33, "1"):
        with pytest.raises(ValueError, match="table"):
            lab.coordinator.table(name)


async def test_a_full_table_takes_changes_and_nothing_new(lab: CoordinatorLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "TABLE_ENTRIES_MAX", 3)
    put = lab.coordinator.put_entry
    for key in "abc":
        await put("tokens", key, b"1")
    full = await refused(put("tokens", "d", b"1"))
    assert (full.reason, "limit is 3" in full.message) == (Reason.LIMIT_EXCEEDED, True)
    await put("tokens", "a", b"2")
    await put("limits", "d", b"1")
    await put("tokens", "b", None)
    await put("tokens", "d", b"1")
    assert dict(lab.coordinator.table("tokens")) == {"a": b"2", "c": b"1", "d": b"1"}


async def test_a_change_whose_caller_has_gone_shows_if_it_was_made(embedded: EmbeddedLab) -> None:
    coordinator: Coordinator = embedded.coordinator
    await coordinator.put_entry("tokens", "a", b"1")
    going = asyncio.create_task(coordinator.put_entry("tokens", "a", None))
    await asyncio.sleep(0)
    going.cancel()
    await asyncio.wait((going,))
    await coordinator.put_entry("tokens", "b", b"1")
    assert dict(coordinator.table("tokens")) == {"b": b"1"}
    await embedded.crash()
    assert dict(embedded.coordinator.table("tokens")) == {"b": b"1"}


@needs_etcd
async def test_every_process_sees_what_another_one_writes(etcd: EtcdLab) -> None:
    other = await etcd.another()
    try:
        mine, theirs = etcd.coordinator.table("tokens"), other.table("tokens")
        calls = [
            (etcd.coordinator, other)[n % 2].put_entry("tokens", f"{n}", str(n).encode(), expected=None)
            for n in range(20)
        ]
        await asyncio.gather(*calls)
        await until(lambda: len(mine) == len(theirs) == 20)
        await other.put_entry("tokens", "3", None)
        await until(lambda: "3" not in mine)
        assert dict(mine) == dict(theirs)
    finally:
        await other.close()
