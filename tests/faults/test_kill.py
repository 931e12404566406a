"""``kill -9`` under load, repeatedly: no acknowledged write is missing, and every call was executed once.

The page cache survives the death of a process, so this alone proves nothing about durability: the log is
also cut, see ``test_cut_log.py``.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.faults.conftest import connected
from tests.support.api import data
from tests.support.effort import effort
from tests.support.process import ServerProcess
from tests.support.statuses import Refused
from tests.support.watching import Watcher, watching
from tests.support.worker import COUNTER, SPACE, prepare, recorded
from tests.support.workers import workers

from noosphere.server.checking import Op, Outcome, check_history, collect_history, new_header, read_history
from noosphere.v1 import types_pb2 as types

pytestmark = pytest.mark.thorough
ROUNDS = int(os.environ.get("NOOSPHERE_TEST_KILLS", effort(2, 5)))
WORKERS = 3
BATCHES_A_ROUND = 150
"""Commits to one namespace between two kills, as seen by a watcher."""


@dataclass
class Campaign:
    """What several kills under load left behind.

    Attributes:
        history: every call of every client.
        epochs: the epoch of each life of the server.
        watched: revisions that one watcher was told, over all lives, resuming by its tokens.
        logged: revisions that the log holds at the end.
        records: what is there at the end.
    """

    history: Path
    epochs: list[int] = field(default_factory=list)
    watched: list[int] = field(default_factory=list)
    logged: list[int] = field(default_factory=list)
    records: dict[str, types.Record] = field(default_factory=dict)


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    folder = tmp_path_factory.mktemp("kills")
    server = ServerProcess(folder / "data")
    try:
        server.start()
        return asyncio.run(_campaign(server, folder))
    finally:
        server.close()


async def _campaign(server: ServerProcess, folder: Path) -> Campaign:
    found = Campaign(folder / "history.jsonl")
    setup = folder / "setup.jsonl"
    async with recorded(server.address, "setup", setup) as client:
        await prepare(client)
    async with connected(server) as api:
        prepared = len(await (await api.agent("preparer")).history(SPACE, page_size=1000))
    resume: bytes | None = None
    with workers(server.address, folder, WORKERS) as load:
        for number in range(ROUNDS):
            async with connected(server) as api:
                found.epochs.append((await api.info()).epoch)
                watcher = await api.agent(f"watcher-{number}")
                after = 0 if resume is None else None
                async with watching(watcher, SPACE, after=after, resume=resume) as watch:
                    # What the workers write, not what was there before they began.
                    count = BATCHES_A_ROUND if number else prepared + BATCHES_A_ROUND
                    found.watched += [batch.revision for batch in await watch.batches(count)]
                    server.kill()
                    # What was on its way may still arrive.
                    found.watched += await _rest_of(watch)
                    resume = watch.resume
            server.restart()
        load.finish()
    async with connected(server) as api:
        found.epochs.append((await api.info()).epoch)
        reader = await api.agent("reader")
        found.records = {record.key: record for record in await reader.listing(SPACE, page_size=1000)}
        found.logged = [batch.revision for batch in await reader.history(SPACE, page_size=1000)]
        async with watching(reader, SPACE, resume=resume) as watch:
            while found.watched[-1] != found.logged[-1]:
                found.watched.append((await watch.batch()).revision)
    complete = [SPACE, *(f"agents/{journal.stem}" for journal in load.journals)]
    collect_history([setup, *load.journals], found.history, new_header(complete=complete))
    return found


async def _rest_of(watch: Watcher) -> list[int]:
    found = []
    try:
        while True:
            found.append((await watch.batch()).revision)
    except Refused:
        return found


def test_every_unclean_restart_begins_an_epoch(campaign: Campaign) -> None:
    assert campaign.epochs == sorted(set(campaign.epochs))
    assert len(campaign.epochs) == ROUNDS + 1


def test_every_call_was_executed_exactly_once(campaign: Campaign) -> None:
    """No call was given up, so counters must show the calls to the last one."""
    calls = [call for call in read_history(campaign.history).calls if call.namespace == SPACE]
    counted = [call for call in calls if any(write.key == COUNTER for write in call.writes)]
    assert all(call.outcome is Outcome.OK for call in counted)
    assert int(data(campaign.records[COUNTER])) == len(counted) > 0
    paired = [call for call in calls if call.op is Op.TRANSACT and call.outcome is Outcome.OK]
    assert int(data(campaign.records["pairs"])) == len(paired) > 0
    completions = Counter(call.key for call in calls if call.op is Op.COMPLETE and call.outcome is Outcome.OK)
    done = {key for key, record in campaign.records.items() if record.claim.done}
    assert set(completions) == done
    assert set(completions.values()) == {1}


def test_a_resumed_watch_has_neither_gap_nor_duplicate_over_all_kills(campaign: Campaign) -> None:
    assert campaign.watched == campaign.logged
    assert len(campaign.watched) > ROUNDS * BATCHES_A_ROUND


def test_the_history_over_all_kills_is_strictly_serialisable(campaign: Campaign) -> None:
    verdict = check_history(campaign.history)
    assert verdict.ok, verdict.explain()
    assert verdict.figures.commits > ROUNDS * BATCHES_A_ROUND
    assert verdict.figures.registers > 0
