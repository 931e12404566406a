"""The sync client as its users write it, against the real server.

That it behaves as the async client does is tested by running that one's tests through it (`connect` in
conftest.py). Here is what only a program without an event loop meets.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest
from pydantic import BaseModel
from tests.support.process import ServerProcess

import noosphere.testing
from noosphere.client import Conflict as AsyncConflict
from noosphere.client._pipeline import Pipeline
from noosphere.client.sync import (
    ChangeEvent,
    Claim,
    ClaimLost,
    Client,
    ClientClosed,
    Compare,
    Conflict,
    ConflictPolicy,
    InvalidArgument,
    Namespace,
    NamespacePolicy,
    NotCached,
    Operation,
    Put,
    Record,
    StaleRead,
    TransactionFailed,
    View,
    connect,
    new_request_id,
)
from noosphere.client.sync._portal import Portal

THREADS = 16
SECONDS_MAX = 60
"""A bound against hanging."""


class Plan(BaseModel):
    """What the agents of these tests plan."""

    steps: list[str] = []


@pytest.fixture
def client(binary: ServerProcess) -> Iterator[Client]:
    with connect(binary.address, timeout=60) as connected:
        yield connected


@pytest.fixture
def other(binary: ServerProcess) -> Iterator[Client]:
    with connect(binary.address, timeout=60) as connected:
        yield connected


@pytest.fixture
def name() -> str:
    """The name of a namespace that no other test uses."""
    return f"sync/{new_request_id()}"


@pytest.fixture
def space(client: Client, name: str) -> Namespace:
    return client.shared(name)


def test_a_conflict_is_resolved_with_the_records_it_carries(space: Namespace) -> None:
    key = space.key("plan", Plan)
    read = key.put(Plan(steps=["a"]))
    key.put(Plan(steps=["theirs"]), seen=read)
    with pytest.raises(Conflict) as caught:
        read.replace(Plan(steps=["mine"]))
    conflict = caught.value
    assert type(conflict) is AsyncConflict
    assert conflict.base == read
    assert conflict.mine == Plan(steps=["mine"])
    assert "theirs" in conflict.explain()
    assert conflict.as_dict()["theirs"]["values"] == [{"steps": ["theirs"]}]
    assert conflict.theirs is not None
    merged = conflict.theirs.replace(Plan(steps=[*conflict.theirs.value.steps, "mine"]))
    assert isinstance(merged, Record)
    assert key.read().value == Plan(steps=["theirs", "mine"])


def test_a_failed_transaction_carries_records_to_go_on_with(space: Namespace) -> None:
    old = space.put("a", 1)
    new = old.replace(2)
    with pytest.raises(TransactionFailed) as caught:
        space.transact([old, Compare("b", 0)], [Put("a", 3, seen=old)])
    errors = [failure.error for failure in caught.value.failures]
    assert errors
    for error in errors:
        assert isinstance(error, Conflict)
        assert isinstance(error.theirs, Record)
    assert space.transact([new], [Put("a", 3, seen=new)]).results[0].version is not None


def test_an_update_runs_its_function_in_the_callers_thread(space: Namespace) -> None:
    key = space.key("plan", Plan)
    threads: set[int] = set()
    seen: list[Conflict[Plan] | None] = []

    def revise(current: Plan | None, conflict: Conflict[Plan] | None) -> Plan:
        threads.add(threading.get_ident())
        seen.append(conflict)
        if conflict is None:
            # The client may be used meanwhile, also for what will be in the way.
            key.put(Plan(steps=["theirs"]))
        else:
            assert conflict.theirs is not None
            assert conflict.theirs.delete().applied is not None
            key.put(Plan(steps=["again"]))
        return Plan(steps=[*(current.steps if current else []), "mine"])

    with pytest.raises(Conflict):
        key.update(revise, attempts=2)
    assert threads == {threading.get_ident()}
    assert [conflict is None for conflict in seen] == [True, False]
    assert key.read().value == Plan(steps=["again"])
    assert key.update(lambda current, conflict: Plan(steps=["mine"])).value == Plan(steps=["mine"])


def test_a_decision_is_thought_in_the_callers_thread(client: Client, space: Namespace) -> None:
    space.put("goal", "old")
    notes: list[str] = []

    def think(view: View) -> Sequence[Operation]:
        assert isinstance(view, View)
        goal = view.get("goal")
        assert goal is not None
        notes.append(view.notes.explain())
        if goal.value == "old":
            goal.replace("new")
        return [Put("step", goal.value)]

    decision = space.decide(think)
    assert decision.attempts == 2
    assert notes[0] == ""
    assert "goal" in notes[1]
    with space.reading() as view:
        assert [record.key for record in view.list()] == ["goal", "step"]
        space.put("late", 1)
        with pytest.raises(StaleRead) as caught:
            view.commit(Put("step", "in vain"))
    assert "late" in caught.value.explain()


def test_what_is_no_decision_is_refused_in_words(space: Namespace) -> None:
    async def think(view: View) -> list[Operation]:
        raise AssertionError("not awaited")

    with pytest.raises(TypeError, match="the function is async"):
        space.decide(cast("Any", think))
    with pytest.raises(InvalidArgument, match="think: expected several writes, got one Put"):
        space.decide(lambda view: cast("Any", Put("k", 1)))
    assert space.get("k") is None


def test_siblings_wait_in_the_queue_and_are_resolved(client: Client, space: Namespace) -> None:
    client.ensure_namespace(space.name, NamespacePolicy(conflict_policy=ConflictPolicy.SIBLINGS))
    base = space.put("plan", 0)
    for value in (1, 2):
        base.replace(value)
    (pending,) = space.conflicts()
    assert isinstance(pending.record, Record)
    assert isinstance(pending.conflict.theirs, Record)
    assert sorted(pending.record.values) == [1, 2]
    assert pending.record.resolve(3).value == 3
    assert list(space.conflicts()) == []


@pytest.mark.parametrize("count", [0, 1, 2, 127, 128, 300])
def test_a_list_is_whole_whatever_its_length(space: Namespace, count: int) -> None:
    for first in range(0, count, 50):
        space.transact((), [Put(f"r/{n:03}", n) for n in range(first, min(first + 50, count))])
    assert [record.value for record in space.list("r/", page_size=37)] == list(range(count))
    assert [record.value for record in space.list("r/", reverse=True)] == list(range(count))[::-1]
    events = [event for entry in space.history() for event in entry.events]
    assert len(events) == count
    assert all(isinstance(event, ChangeEvent) and isinstance(event.record, Record) for event in events)


def test_a_list_that_is_left_early_has_not_fetched_the_rest(space: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    space.transact((), [Put(f"r/{n:03}", n) for n in range(40)])
    pages: list[object] = []
    transport = space._inner._space.transport
    read = type(transport).read

    async def count(self: object, method: object, request: object, **options: object) -> object:
        pages.append(request)
        return await read(self, method, request, **options)  # type: ignore[arg-type] # passed on

    monkeypatch.setattr(type(transport), "read", count)
    for record in space.list("r/", page_size=1):
        if record.value == 3:
            break
    # Four were used, in turns of 1, 2 and 4; the turn that brought the last one asked for seven in all.
    assert len(pages) == 7


def test_arguments_of_a_list_are_checked_at_once(space: Namespace) -> None:
    with pytest.raises(InvalidArgument, match="page_size"):
        space.list(page_size=0)


def test_a_watch_is_resumed_by_another(space: Namespace) -> None:
    resume = b""
    with space.watch() as batches:
        space.put("a", 1)
        for batch in batches:
            if batch.kind == "changes":
                resume = batch.resume
                break
    space.put("b", 2)
    with space.watch(resume=resume) as batches:
        batch = next(batch for batch in batches if batch.kind == "changes")
    assert [(event.key, event.record.value if event.record else None) for event in batch.events] == [("b", 2)]
    with pytest.raises(RuntimeError, match="one use"), batches:
        pass


def test_a_watch_of_another_thread_ends_with_the_client(space: Namespace) -> None:
    """Its thread waits for the next batch while this one closes the client: it is told, and does not hang."""
    with ThreadPoolExecutor(1) as pool, connect(space._inner._space.transport.server) as own:
        waiting = threading.Event()

        def wait() -> None:
            with own.shared("quiet").watch() as batches:
                waiting.set()
                while True:
                    next(batches)

        watching = pool.submit(wait)
        assert waiting.wait(SECONDS_MAX)
        # Here the client is closed, and only then the pool, which waits for its thread.
    with pytest.raises(ClientClosed):
        watching.result(SECONDS_MAX)


def test_a_claim_is_completed_released_or_given_back(space: Namespace) -> None:
    board = space.board("todo/")
    board.add({"kind": "crawl"}, "one")
    with board.claim(where={"kind": "crawl"}) as claim:
        assert isinstance(claim, Claim)
        assert claim.is_open
    with pytest.raises(ZeroDivisionError), board.claim():
        raise ZeroDivisionError
    with board.claim() as claim:
        assert claim is not None
        assert claim.attempts == 3
        claim.release()
        assert not claim.is_open
    with board.claim() as claim:
        assert claim is not None
        done = claim.complete({"found": 1})
        assert done.claim is not None
        assert done.claim.result == {"found": 1}
    with board.claim() as claim:
        assert claim is None


@pytest.mark.parametrize("asks", [True, False])
def test_a_lost_claim_is_told_at_the_next_call_and_at_the_end(space: Namespace, other: Client, asks: bool) -> None:
    """Nothing can interrupt the block of a thread; its claim says that it is lost, by itself."""
    board = space.board("todo/")
    board.add({"n": 1}, "one")
    passed = threading.Event()

    def work() -> None:
        with board.claim(lease=1) as claim:
            assert claim is not None
            other.shared(space.name.removeprefix("shared/")).delete("todo/one", blind=True)
            # The claim notices at a renewal, which it does three times in each lease.
            while claim.is_open:
                passed.wait(0.01)
            if asks:
                with pytest.raises(ClaimLost):
                    claim.complete("in vain")

    with pytest.raises(ClaimLost):
        work()


def test_reads_of_the_near_cache_do_not_leave_the_thread(space: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    space.put("plan", {"steps": ["a"]})
    with space.cached() as fast:
        fast.caught_up()

        def refuse(*_: object) -> None:
            raise AssertionError("it went to the loop")

        with monkeypatch.context() as patched:
            patched.setattr(Portal, "submit", refuse)
            record = fast.get("plan", Plan)
            assert record is not None
            assert record.value == Plan(steps=["a"])
            assert fast.raw("plan") == b'{"steps":["a"]}'
            assert fast.get("absent") is None
            assert [found.key for found in fast.list()] == ["plan"]
            with pytest.raises(NotCached):
                fast.get("plan", consistency="linearizable")
        # What was read there is as good as any record.
        record.replace(Plan(steps=["a", "b"]))
        fast.caught_up()
        newer = fast.get("plan", Plan)
        assert newer is not None
        assert newer.value.steps == ["a", "b"]


def test_many_threads_share_one_client(space: Namespace) -> None:
    """Each gets its own answers, and no increment of any is lost."""
    turns = 25

    def work(number: int) -> None:
        own = space.key(f"own/{number}", int)
        for turn in range(turns):
            written = own.update(lambda current, conflict: (current or 0) + 1)
            assert (written.key, written.value) == (f"own/{number}", turn + 1)
            space.key("tally").increment(1)
            read = own.get()
            assert read is not None
            assert read.value == turn + 1

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, range(THREADS)))
    tally = space.get("tally", int)
    assert tally is not None
    assert tally.value == THREADS * turns


def test_calls_of_many_threads_travel_together(space: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """What 16 threads ask for while the loop is busy leaves in one message."""
    space.get("before")
    batches: list[int] = []
    take = Pipeline.take

    def count(pipeline: Pipeline, room: int) -> Any:
        batch, taken = take(pipeline, room)
        batches.append(len(batch.calls))
        return batch, taken

    monkeypatch.setattr(Pipeline, "take", count)
    portal = space._portal
    held, release = threading.Event(), threading.Event()

    async def hold() -> None:
        held.set()
        release.wait()

    with ThreadPoolExecutor(THREADS + 1) as pool:
        holding = pool.submit(portal.run, hold)
        try:
            assert held.wait(SECONDS_MAX)
            asked = [pool.submit(space.get, f"k{number}") for number in range(THREADS)]
            end = time.monotonic() + SECONDS_MAX
            while len(portal._waiting) < THREADS and time.monotonic() < end:
                time.sleep(0.001)
        finally:
            release.set()
        holding.result()
        assert [call.result() for call in asked] == [None] * THREADS
    assert batches == [THREADS]


def test_a_client_that_was_closed_says_so(binary: ServerProcess) -> None:
    with connect(binary.address) as client:
        key = client.private.key("k")
        record = key.put(1)
    for use in (
        key.get,
        lambda: record.replace(2),
        lambda: list(client.private.list()),
        client.private.watch().__enter__,
    ):
        with pytest.raises(ClientClosed):
            use()
    # With another client's loop running, too.
    with connect(binary.address), pytest.raises(ClientClosed):
        key.get()


async def test_in_a_running_loop_and_against_a_server_of_the_test() -> None:
    """The test's server needs the loop that the client's caller must not hold up."""
    async with noosphere.testing.server() as server:

        def work() -> int:
            with connect(server.address) as client:
                client.private.put("k", 1, ttl=60)
                found: int = client.private.key("k").read().value
                return found

        assert await asyncio.to_thread(work) == 1
