"""The test kit without an event loop: the same time, faults and lives through the sync client."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from noosphere.client.sync import AckedWritesLost, ClaimLost, Client, Conflict, PreconditionRequired, connect
from noosphere.testing.sync import Server, UnmetFaults, server

SPACE = "shared/launch"


@pytest.fixture
def srv() -> Iterator[Server]:
    with server() as found:
        yield found


@pytest.fixture
def client(srv: Server) -> Iterator[Client]:
    with srv.client("planner-0") as found:
        yield found


def test_values_end_when_time_moves(srv: Server, client: Client) -> None:
    begun = srv.now
    client.namespace(SPACE).put("note", 1, ttl=5)
    srv.advance(4.9)
    assert client.namespace(SPACE).get("note") is not None
    srv.advance(0.1)
    assert client.namespace(SPACE).get("note") is None
    assert srv.now == begun + timedelta(seconds=5)


def test_a_living_holder_keeps_its_claim_and_a_suspended_one_loses_it(srv: Server, client: Client) -> None:
    board = client.namespace(SPACE).board("todo/")
    board.add("crawl", "first")

    def work() -> None:
        with board.claim(lease=30) as claim:
            assert claim is not None
            srv.advance(600)
            assert claim.is_open
            with srv.faults.suspended("planner-0"):
                srv.advance(31)
            with pytest.raises(ClaimLost):
                claim.complete("late")

    # The block itself learns of the loss, too.
    with pytest.raises(ClaimLost):
        work()


def test_somebody_comes_between_a_read_and_the_next_write(srv: Server, client: Client) -> None:
    key = client.namespace(SPACE).key("plan")
    key.put("old")
    seen = key.read()
    srv.faults.conflict_next(SPACE, "plan", "theirs")
    with pytest.raises(Conflict) as caught:
        seen.replace("mine")
    assert caught.value.theirs is not None
    assert caught.value.theirs.value == "theirs"
    key.read().replace("mine")


def test_somebody_can_do_anything_before_a_write(srv: Server, client: Client) -> None:
    key = client.namespace(SPACE).key("plan")
    seen = key.put("old")
    threads: list[str] = []

    def delete(theirs: object) -> None:
        threads.append(threading.current_thread().name)
        theirs.delete(blind=True)  # type: ignore[attr-defined] # a key of the sync client

    srv.faults.before_write(SPACE, "plan", delete)
    with pytest.raises(Conflict) as caught:
        seen.replace("mine")
    assert [dot.deleted for dot in caught.value.unseen] == [True]
    assert threads != ["noosphere-sync"]


def test_a_lost_reply_is_answered_by_what_was_done_the_first_time(srv: Server, client: Client) -> None:
    srv.faults.drop_reply(method="Merge")
    assert client.namespace(SPACE).key("count").increment(1).replayed
    assert client.namespace(SPACE).key("count").read().value == 1


def test_a_delayed_call_waits_until_another_thread_moves_time(srv: Server, client: Client) -> None:
    srv.faults.delay(5, method="Put")
    with ThreadPoolExecutor(1) as pool, srv.client("other") as other:
        put = pool.submit(client.namespace(SPACE).put, "plan", "mine")
        while not _held_back(srv):
            srv.settle()
        other.namespace(SPACE).key("plan").keep_max(1)
        srv.advance(5)
        with pytest.raises(PreconditionRequired):
            put.result()


def _held_back(srv: Server) -> bool:
    # The delay is taken off the list by the call that it holds back.
    return srv.faults.unmet == ()


def test_restarts_and_failovers(srv: Server, client: Client) -> None:
    records = [client.namespace(SPACE).put(key, key) for key in ("a", "b")]
    address = srv.address
    srv.restart()
    client.namespace(SPACE).put("c", "c")
    lost = client.namespace(SPACE).put("d", "d")
    srv.faults.fail_over(lose=1)
    assert (srv.address, srv.epoch) == (address, 2)
    assert [record.key for record in client.namespace(SPACE).list()] == ["a", "b", "c"]
    with pytest.raises(AckedWritesLost):
        lost.replace("from what was lost")
    records[0].replace("still valid")


def test_a_fault_that_nobody_met_fails_the_test() -> None:
    with pytest.raises(UnmetFaults, match="a lost reply of Put"), server() as srv:
        srv.faults.drop_reply(method="Put")
    with server(allow_unmet_faults=True) as srv:
        srv.faults.drop_reply()


def _leave_a_fault_over(error: Exception) -> None:
    with server() as srv:
        srv.faults.drop_reply()
        raise error


def test_a_failure_of_the_test_stays_what_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        _leave_a_fault_over(ZeroDivisionError())


def test_servers_side_by_side_share_nothing_and_leave_no_thread() -> None:
    with server() as one, server() as two, one.client("a") as first, two.client("a") as second:
        first.namespace(SPACE).put("mine", 1)
        one.advance(100)
        assert (one.now - two.now).total_seconds() == 100
        assert list(second.namespace(SPACE).list()) == []
    assert [thread for thread in threading.enumerate() if "noosphere" in thread.name] == []


def test_code_under_test_connects_as_it_always_does(srv: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOOSPHERE_SERVER", srv.address)
    with connect(agent="worker") as client:
        client.private.put("draft", 1)
        srv.advance(100)
        client.private.put("draft", 2)
