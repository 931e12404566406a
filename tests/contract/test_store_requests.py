"""Request memory in the store: a retry of what was applied is answered and not executed."""

from __future__ import annotations

import asyncio

import pytest
from tests.contract.build import (
    NS,
    absent,
    alive,
    commit,
    failures,
    get,
    head,
    put,
    remember,
    sequence,
    uuid,
    write,
)
from tests.contract.lab import StoreLab

from noosphere.consistency import Reason, Refusal, Remembered, RequestRef
from noosphere.consistency.limits import (
    CLIENT_REQUEST_AGE_MS,
    REQUESTS_PER_CLIENT_MAX,
    UUID_REQUEST_AGE_MS,
    UUID_REQUESTS_MAX,
)
from noosphere.server.ports.store import FailureKind, NamespaceRef, Replayed


@pytest.mark.parametrize("ref", [sequence(1), uuid("6f1c")])
async def test_a_retry_executes_once_and_is_answered_as_before(lab: StoreLab, ref: RequestRef) -> None:
    now_ms = lab.store.now_ms()
    request = remember(ref, b"\x00reply", b"\xffmeaning")
    revision = await write(lab.store, put("a", b"once"), checks=[absent("a")], request=request)
    expected = Remembered(revision, b"\xffmeaning", b"\x00reply", now_ms)
    for _ in range(3):
        lab.advance(100)
        retried = await commit(lab.store, put("a", b"twice"), checks=[absent("a")], request=request)
        assert retried == Replayed(expected)
        for accepted in (False, True):
            read = await lab.store.read(NS, ("a",), request=ref, accepted=accepted)
            assert read.remembered == expected
            assert read.entries[0] is not None
            assert read.entries[0].data == b"once"
        await lab.crash()
    assert await head(lab.store) == revision


async def test_comparing_the_meaning_is_the_callers_business(lab: StoreLab) -> None:
    await write(lab.store, put("a"), request=remember(sequence(1), meaning=b"one"))
    result = await commit(lab.store, put("b"), request=remember(sequence(1), meaning=b"another"))
    assert isinstance(result, Replayed)
    assert result.remembered.fingerprint == b"one"
    assert await get(lab.store, "b") is None


async def test_a_failure_is_not_remembered(lab: StoreLab) -> None:
    request = remember(sequence(1))
    await failures(lab.store, put("a"), checks=[alive("a", 1)], request=request)
    assert (await lab.store.read(NS, (), request=request.ref, accepted=True)).remembered is None
    await write(lab.store, put("a"), checks=[absent("a")], request=request)


async def test_a_call_that_changes_nothing_is_remembered_too(lab: StoreLab) -> None:
    """Its retry must not be decided anew: a delete that found nothing could delete what came since."""
    before = await write(lab.store, put("a"))
    request = remember(sequence(1), b"nothing to do")
    assert await write(lab.store, request=request) == before
    await write(lab.store, put("b"))
    await lab.crash()
    result = await commit(lab.store, put("b", b"late"), request=request)
    assert isinstance(result, Replayed)
    assert (result.remembered.revision, result.remembered.reply) == (before, b"nothing to do")


async def test_ids_belong_to_one_namespace_and_one_client(lab: StoreLab) -> None:
    other = NamespaceRef("shared/other")
    await write(lab.store, put("a"), request=remember(sequence(1)))
    await write(lab.store, put("a"), request=remember(sequence(1)), namespace=other)
    await write(lab.store, put("a"), request=remember(sequence(1, client="planner-0#8")))
    await write(lab.store, put("a"), request=remember(uuid("1")))


async def test_answered_calls_are_forgotten(lab: StoreLab) -> None:
    for number in range(1, 11):
        await write(lab.store, put("a"), request=remember(sequence(number)))
    await write(lab.store, put("a"), request=remember(sequence(11, answered_through=8)))
    for _ in range(2):
        found = [
            number
            for number in range(1, 12)
            if (await lab.store.read(NS, (), request=sequence(number))).remembered is not None
        ]
        assert found == [9, 10, 11]
        assert (await lab.store.stats(NS)).request_count == 3
        await lab.crash()


@pytest.mark.parametrize(("ref", "age_ms"), [(sequence(1), CLIENT_REQUEST_AGE_MS), (uuid("x"), UUID_REQUEST_AGE_MS)])
async def test_memory_ends_with_its_age(lab: StoreLab, ref: RequestRef, age_ms: int) -> None:
    await write(lab.store, put("a"), request=remember(ref))
    lab.advance(age_ms - 1)
    assert (await lab.store.read(NS, (), request=ref)).remembered is not None
    lab.advance(1)
    assert (await lab.store.read(NS, (), request=ref)).remembered is None
    await write(lab.store, put("a", b"anew"), request=remember(ref))


async def test_room_is_bounded_per_client(lab: StoreLab) -> None:
    for number in range(1, REQUESTS_PER_CLIENT_MAX + 1):
        await write(lab.store, put("a"), request=remember(sequence(number)))
    full = remember(sequence(REQUESTS_PER_CLIENT_MAX + 1))
    before = await head(lab.store)
    (failure,) = await failures(lab.store, put("a"), request=full)
    assert failure.kind is FailureKind.REQUEST_ROOM
    assert await head(lab.store) == before
    replay = await commit(lab.store, put("a"), request=remember(sequence(5)))
    assert isinstance(replay, Replayed), "a full memory still answers"
    await write(lab.store, put("a"), request=remember(sequence(1, client="other#1")))
    answered = sequence(REQUESTS_PER_CLIENT_MAX + 1, answered_through=1)
    await write(lab.store, put("a"), request=remember(answered))


async def test_room_is_bounded_for_uuids_and_frees_itself(lab: StoreLab) -> None:
    for start in range(0, UUID_REQUESTS_MAX, 500):
        group = [remember(uuid(str(number)), b"", b"") for number in range(start, start + 500)]
        await asyncio.gather(*(write(lab.store, put("a", b""), request=request) for request in group))
    (failure,) = await failures(lab.store, put("a"), request=remember(uuid("one more")))
    assert failure.kind is FailureKind.REQUEST_ROOM
    lab.advance(UUID_REQUEST_AGE_MS)
    await write(lab.store, put("a"), request=remember(uuid("one more")))
    assert (await lab.store.stats(NS)).request_count == 1


async def test_an_ended_incarnation_is_forgotten(lab: StoreLab) -> None:
    other = NamespaceRef("shared/other")
    for namespace in (NS, other):
        await write(lab.store, put("a"), request=remember(sequence(1)), namespace=namespace)
        await write(lab.store, put("a"), request=remember(sequence(1, client="kept#1")), namespace=namespace)
    await lab.store.forget_client("planner-0#7")
    for namespace in (NS, other):
        read = await lab.store.read(namespace, (), request=sequence(1))
        assert read.remembered is None
        assert (await lab.store.read(namespace, (), request=sequence(1, client="kept#1"))).remembered is not None


async def test_a_reply_that_is_too_long_is_refused(lab: StoreLab) -> None:
    await write(lab.store, put("a"), request=remember(sequence(1), b"x" * 256))
    with pytest.raises(Refusal) as refused:
        await commit(lab.store, put("a"), request=remember(sequence(2), b"x" * 257))
    assert refused.value.reason is Reason.VALUE_TOO_LARGE
