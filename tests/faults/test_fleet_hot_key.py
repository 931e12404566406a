"""Three replicas and 48 writers on one key: no update is lost, nobody tries for ever, nobody starves."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from tests.support.etcd import needs_etcd
from tests.support.fleet import Fleet
from tests.support.redis import needs_redis
from tests.support.worker import recorded

from noosphere.client import Conflict
from noosphere.server.checking import check_history, collect_history, new_header

pytestmark = [needs_redis, needs_etcd]

SPACE = "shared/hot"
WRITERS_EACH = 16
UPDATES_MIN = 2
"""What everybody has made before anybody stops."""
ATTEMPTS_MAX = 40
"""Fewer than there are writers. Whoever has lost twice reserves the key, at whichever replica, and has its turn; it
loses again only to those who have not lost twice yet."""
KEPT = 16
"""Entries of the list that fit into an item; what they were before is in the history."""


def appended(entry: str, held: list[str] | None, _: Conflict[list[str]] | None) -> list[str]:
    """Returns the newest entries with one more."""
    return [*(held or []), entry][-KEPT:]


class Round:
    """What the writers have done so far.

    Attributes:
        met: where everybody waits who is about to write for the first time: all are in each other's way.
    """

    def __init__(self, names: list[str]) -> None:
        self.met = asyncio.Barrier(len(names))
        self.made = Counter(dict.fromkeys(names, 0))
        self.attempts: Counter[int] = Counter()

    @property
    def over(self) -> bool:
        # How often the others write until then is up to the machine; who starves needs too many attempts, or for ever.
        return min(self.made.values()) >= UPDATES_MIN


async def write(address: str, name: str, journal: Path, round_: Round) -> None:
    async with recorded(address, name, journal) as client:
        space = client.namespace(SPACE)
        while not round_.over:
            tries = 0

            async def change(held: list[str] | None, conflict: Conflict[list[str]] | None) -> list[str]:
                nonlocal tries
                tries += 1
                if tries == 1 and not round_.made[name]:
                    await round_.met.wait()
                return appended(f"{name}/{round_.made[name]}", held, conflict)

            await space.key("hot", list[str]).update(change, attempts=ATTEMPTS_MAX, reserve="on_conflict")
            round_.attempts[tries] += 1
            round_.made[name] += 1
            # A second hot key, on which nobody ever has to try again.
            await space.key("tally").increment(1)


@pytest.mark.timeout(300)
async def test_48_writers_at_three_replicas_lose_nothing_and_nobody_starves(fleet: Fleet, tmp_path: Path) -> None:
    writers = [
        (address, f"writer-{replica}-{number}")
        for replica, address in enumerate(fleet.addresses)
        for number in range(WRITERS_EACH)
    ]
    round_ = Round([name for _, name in writers])
    journals = {name: tmp_path / f"{name}.jsonl" for _, name in writers}
    async with asyncio.TaskGroup() as group:
        for address, name in writers:
            group.create_task(write(address, name, journals[name], round_))
    made = sum(round_.made.values())
    assert sum(count for tries, count in round_.attempts.items() if tries > 1) >= len(writers) - 1
    last = tmp_path / "last.jsonl"
    async with recorded(fleet.addresses[0], "last", last) as client:
        hot = await client.namespace(SPACE).get("hot", list[str])
        tally = await client.namespace(SPACE).get("tally", int)
        assert hot is not None
        assert tally is not None
        assert tally.value == made
        assert hot.change_count == made, "an update was lost, or made twice"
    history = tmp_path / "history.jsonl"
    collect_history([*journals.values(), last], history, new_header(complete=[SPACE]))
    verdict = check_history(history)
    assert verdict.ok, verdict.explain()
    assert verdict.figures.lost_updates == 0
    assert verdict.figures.registers > 0, "the second checker has checked nothing"
    assert verdict.figures.commits >= 2 * made
