"""Retries over a restart during which the wall clock was set: what was remembered of calls is still known."""

from __future__ import annotations

import itertools

import pytest
from tests.contract.build import NS, commit, get, put, remember, sequence, uuid, write
from tests.contract.lab import EmbeddedLab

from noosphere.consistency import RequestRef
from noosphere.consistency.limits import CLIENT_REQUEST_AGE_MS, UUID_REQUEST_AGE_MS
from noosphere.server.ports.store import Replayed
from noosphere.server.storage.embedded.storetime import MARGIN_MS, StoreTime
from noosphere.testing import ManualClock

HOUR_MS = 3_600_000
CALLS = [(sequence(1), CLIENT_REQUEST_AGE_MS), (uuid("7f0c"), UUID_REQUEST_AGE_MS)]


async def restart(lab: EmbeddedLab, how: str, by_ms: int) -> None:
    """Ends the store, and starts it beside a wall clock that was set on by ``by_ms``."""
    lab.clock.set_wall_back(-by_ms)
    await (lab.crash() if how == "crash" else lab.reopen())


@pytest.mark.parametrize("ref", [ref for ref, _ in CALLS])
@pytest.mark.parametrize("ends", list(itertools.product(("crash", "reopen"), repeat=2)))
async def test_a_call_is_not_executed_again_because_the_wall_clock_jumped(
    embedded: EmbeddedLab, ref: RequestRef, ends: tuple[str, str]
) -> None:
    """Not over a second restart either, whatever was remembered between the two."""
    revision = await write(embedded.store, put("a", b"once"), request=remember(ref))
    before_ms = embedded.store.now_ms()
    for number, how in enumerate(ends):
        await restart(embedded, how, HOUR_MS)
        assert embedded.store.now_ms() >= before_ms + (number + 1) * HOUR_MS, "records expire by the wall clock"
        await write(embedded.store, put(f"b{number}"), request=remember(uuid(f"another-{number}")))
        await write(embedded.store, put(f"c{number}"), request=remember(sequence(1, client=f"other-{number}#1")))
    for accepted in (False, True):
        known = (await embedded.store.read(NS, (), request=ref, accepted=accepted)).remembered
        assert known is not None
        assert known.revision == revision
    assert isinstance(await commit(embedded.store, put("a", b"twice"), request=remember(ref)), Replayed)
    entry = await get(embedded.store, "a")
    assert entry is not None
    assert entry.data == b"once"


@pytest.mark.parametrize(("ref", "age_ms"), CALLS)
@pytest.mark.parametrize("how", ["crash", "reopen"])
async def test_after_a_jump_calls_are_forgotten_when_their_time_is_over(
    embedded: EmbeddedLab, ref: RequestRef, age_ms: int, how: str
) -> None:
    await write(embedded.store, put("a"), request=remember(ref))
    embedded.advance(age_ms // 2)
    await write(embedded.store, put("b"))
    await restart(embedded, how, HOUR_MS)
    embedded.advance(age_ms // 2 - MARGIN_MS - 1)
    assert (await embedded.store.read(NS, (), request=ref)).remembered is not None
    embedded.advance(MARGIN_MS + 1)
    assert (await embedded.store.read(NS, (), request=ref)).remembered is None
    await write(embedded.store, put("a", b"anew"), request=remember(ref))


async def test_what_was_forgotten_before_a_restart_takes_no_room_after_it(embedded: EmbeddedLab) -> None:
    for number in range(3):
        await write(embedded.store, put("a"), request=remember(uuid(str(number))))
        embedded.advance(UUID_REQUEST_AGE_MS)
    await write(embedded.store, put("b"))
    await restart(embedded, "crash", HOUR_MS)
    await write(embedded.store, put("a"), request=remember(uuid("new")))
    assert (await embedded.store.stats(NS)).request_count == 1


async def test_an_erasure_after_a_jump_empties_what_was_remembered_before_it(embedded: EmbeddedLab) -> None:
    await write(embedded.store, put("a"), request=remember(sequence(1)))
    await restart(embedded, "crash", HOUR_MS)
    await write(embedded.store, put("b"), request=remember(sequence(2)))
    assert (await embedded.store.erase(NS)).request_count == 2
    await restart(embedded, "crash", HOUR_MS)
    for number in (1, 2):
        known = (await embedded.store.read(NS, (), request=sequence(number))).remembered
        assert known is not None
        assert known.erased


def test_time_awake_stands_still_while_the_store_is_closed() -> None:
    """And goes back never: not when the wall clock does, nor over starts that end at once."""
    clock = ManualClock()
    time = StoreTime(clock, 0, clean=True)
    assert (time.asleep_ms, time.awake_ms(time.now_ms())) == (0, time.now_ms())
    for by_ms, clean in itertools.product((HOUR_MS, 0, -2 * HOUR_MS, 5_000), (True, False)):
        clock.advance(100)
        last_ms, last_awake_ms = time.now_ms(), time.awake_ms(time.now_ms())
        clock.set_wall_back(-by_ms)
        time = StoreTime(clock, last_ms, clean, time.asleep_ms)
        assert time.now_ms() >= last_ms
        assert time.awake_ms(time.now_ms()) == last_awake_ms + (0 if clean else MARGIN_MS)
