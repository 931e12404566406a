"""What a near cache knows of the store's clock."""

from __future__ import annotations

from noosphere.client._cache_time import DRIFT, StoreClock


def test_the_stores_clock_is_never_behind_what_it_may_be() -> None:
    now = 100.0
    clock = StoreClock(lambda: now)
    assert clock.may_have_passed(1 << 60), "unknown"
    asked = clock.ask()
    now = 103.0
    clock.told(asked, 5_000)
    # Read somewhere in these 3 s, at the earliest when we asked.
    assert clock.may_have_passed(8_000)
    assert not clock.may_have_passed(8_010)
    now = 203.0
    assert clock.may_have_passed(int(5_000 + 103_000 * DRIFT))
    assert not clock.may_have_passed(109_000)
    asked = clock.ask()
    clock.forget()
    clock.told(asked, 0)
    assert clock.may_have_passed(1 << 60), "an answer from before says nothing of the clock since"
