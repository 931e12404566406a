"""Request memory: a retry is answered, a late copy is refused, and the memory stays bounded."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.consistency.support import refused

from noosphere.consistency import Reason, Remembered, RequestMemory, RequestRef, check_replay, fingerprint
from noosphere.consistency.limits import (
    CLIENT_REQUEST_AGE_MS,
    REQUESTS_PER_CLIENT_MAX,
    UUID_REQUEST_AGE_MS,
    UUID_REQUESTS_MAX,
)

A, B = "a#1", "b#2"


def call(revision: int, time_ms: int = 0) -> Remembered:
    return Remembered(revision, fingerprint(revision), b"reply", time_ms)


def seq(client: str, sequence: int, answered_through: int = 0) -> RequestRef:
    return RequestRef(client, sequence, answered_through)


def uuid(text: str) -> RequestRef:
    return RequestRef(uuid=text)


# -- sequences -------------------------------------------------------------------------------------


def test_a_call_is_found_until_its_client_says_that_it_was_answered() -> None:
    memory = RequestMemory()
    memory.remember(seq(A, 1), call(1))
    memory.remember(seq(A, 2), call(2))
    assert memory.find(seq(A, 1), 0) == call(1)
    memory.remember(seq(A, 3, answered_through=1), call(3))
    assert memory.find(seq(A, 1), 0) is None
    assert [memory.find(seq(A, n), 0) for n in (2, 3)] == [call(2), call(3)]
    assert len(memory) == 2


def test_clients_and_uuids_do_not_mix() -> None:
    memory = RequestMemory()
    memory.remember(seq(A, 1), call(1))
    memory.remember(seq(B, 1), call(2))
    memory.remember(uuid("1"), call(3))
    assert [memory.find(ref, 0) for ref in (seq(A, 1), seq(B, 1), uuid("1"))] == [call(1), call(2), call(3)]
    memory.forget_client(A)
    memory.forget_client("never seen")
    assert [memory.find(ref, 0) for ref in (seq(A, 1), seq(B, 1), uuid("1"))] == [None, call(2), call(3)]
    assert len(memory) == 2


def test_a_late_copy_of_an_answered_call_must_not_execute() -> None:
    """Its first attempt is still under way in the server while the retry was executed and answered."""
    memory = RequestMemory()
    first_attempt = seq(A, 3, answered_through=2)
    memory.check_room(first_attempt, 0)
    memory.remember(first_attempt, call(3))
    memory.remember(seq(A, 4, answered_through=3), call(4))
    assert memory.find(first_attempt, 0) is None
    assert "3 was answered" in refused(Reason.REQUEST_ID_REUSED, memory.check_room, first_attempt, 0).message
    memory.check_room(seq(A, 5, answered_through=2), 0)
    # Not even a client that says less than before brings it back.
    memory.remember(seq(A, 5, answered_through=2), call(5))
    refused(Reason.REQUEST_ID_REUSED, memory.check_room, first_attempt, 0)


@pytest.mark.parametrize("sequence", [0, 5])
def test_a_call_that_says_of_itself_that_it_was_answered_is_refused(sequence: int) -> None:
    refused(Reason.REQUEST_ID_REUSED, RequestMemory().check_room, seq(A, sequence, answered_through=sequence), 0)


def test_a_client_may_leave_so_many_calls_unanswered_and_no_more() -> None:
    memory = RequestMemory()
    for sequence in range(1, REQUESTS_PER_CLIENT_MAX + 1):
        memory.check_room(seq(A, sequence), 0)
        memory.remember(seq(A, sequence), call(sequence))
    following = REQUESTS_PER_CLIENT_MAX + 1
    refusal = refused(Reason.LIMIT_EXCEEDED, memory.check_room, seq(A, following), 0)
    assert "request_id.sequence" in refusal.message
    assert str(REQUESTS_PER_CLIENT_MAX) in refusal.message
    memory.check_room(seq(A, following, answered_through=1), 0)
    memory.check_room(seq(B, 1), 0)
    memory.remember(seq(A, following, answered_through=1), call(following))
    assert len(memory) == REQUESTS_PER_CLIENT_MAX


def test_a_client_that_went_silent_is_forgotten() -> None:
    memory = RequestMemory()
    memory.remember(seq(A, 1), call(1, time_ms=0))
    memory.remember(seq(B, 1), call(2, time_ms=1))
    assert memory.find(seq(A, 1), CLIENT_REQUEST_AGE_MS - 1) is not None
    assert memory.find(seq(A, 1), CLIENT_REQUEST_AGE_MS) is None
    memory.remember(seq(B, 2), call(3, time_ms=CLIENT_REQUEST_AGE_MS))
    assert len(memory) == 2
    assert [ref for ref, _ in memory.items()] == [seq(B, 1), seq(B, 2)]


# -- UUIDs -----------------------------------------------------------------------------------------


def test_a_uuid_is_remembered_for_two_minutes() -> None:
    memory = RequestMemory()
    memory.remember(uuid("u"), call(1))
    assert memory.find(uuid("u"), UUID_REQUEST_AGE_MS - 1) == call(1)
    assert memory.find(uuid("u"), UUID_REQUEST_AGE_MS) is None


def test_a_uuid_that_comes_again_after_its_time_does_not_hold_up_the_others() -> None:
    memory = RequestMemory()
    for name, time_ms in (("again", 0), ("old", 1), ("again", UUID_REQUEST_AGE_MS)):
        memory.remember(uuid(name), call(1, time_ms))
    memory.remember(uuid("new"), call(2, UUID_REQUEST_AGE_MS + 1))
    assert [ref.uuid for ref, _ in memory.items()] == ["again", "new"]
    assert len(memory) == 2


def test_so_many_uuids_and_no_more() -> None:
    memory = RequestMemory()
    for number in range(UUID_REQUESTS_MAX):
        memory.check_room(uuid(str(number)), 0)
        memory.remember(uuid(str(number)), call(number))
    refused(Reason.LIMIT_EXCEEDED, memory.check_room, uuid("one more"), UUID_REQUEST_AGE_MS - 1)
    memory.check_room(seq(A, 1), 0)
    memory.check_room(uuid("one more"), UUID_REQUEST_AGE_MS)
    assert len(memory) == 0


# -- everything, against a memory that forgets nothing by itself -----------------------------------


@dataclass
class Plain:
    """Request memory as one would explain it: two dictionaries, every question answered by looking at all of it."""

    calls: dict[tuple[str, int], Remembered] = field(default_factory=dict)
    uuids: dict[str, Remembered] = field(default_factory=dict)
    answered: dict[str, int] = field(default_factory=dict)

    def silent(self, client: str, now_ms: int) -> bool:
        times = [c.time_ms for (name, _), c in self.calls.items() if name == client]
        return not times or max(times) + CLIENT_REQUEST_AGE_MS <= now_ms

    def find(self, ref: RequestRef, now_ms: int) -> Remembered | None:
        if ref.uuid:
            found, age = self.uuids.get(ref.uuid), UUID_REQUEST_AGE_MS
        else:
            found, age = self.calls.get((ref.client, ref.sequence)), CLIENT_REQUEST_AGE_MS
        return found if found is not None and now_ms - found.time_ms < age else None

    def answered_before(self, ref: RequestRef) -> bool:
        return not ref.uuid and ref.sequence <= max(ref.answered_through, self.answered.get(ref.client, 0))

    def remember(self, ref: RequestRef, found: Remembered) -> None:
        if ref.uuid:
            self.uuids[ref.uuid] = found
        else:
            self.calls[ref.client, ref.sequence] = found
            through = self.answered[ref.client] = max(self.answered.get(ref.client, 0), ref.answered_through)
            self.calls = {k: v for k, v in self.calls.items() if k[0] != ref.client or k[1] > through}
        for client in [name for name in self.answered if self.silent(name, found.time_ms)]:
            self.forget_client(client)
        self.uuids = {k: v for k, v in self.uuids.items() if found.time_ms - v.time_ms < UUID_REQUEST_AGE_MS}

    def erase(self, revision: int, time_ms: int, spared: set[str | tuple[str, int]]) -> int:
        count = 0
        for held in (self.calls, self.uuids):
            for id, found in held.items():
                if found.reply and found.revision <= revision and found.time_ms <= time_ms and id not in spared:
                    held[id] = Remembered(found.revision, b"", b"", found.time_ms)  # type: ignore[index]
                    count += 1
        return count

    def forget_client(self, client: str) -> None:
        self.answered.pop(client, None)
        self.calls = {k: v for k, v in self.calls.items() if k[0] != client}


refs = st.builds(RequestRef, st.sampled_from([A, B, "c#3"]), st.integers(1, 8), st.integers(0, 7)) | st.builds(
    uuid, st.sampled_from("uvw")
)
pauses = st.sampled_from([0, 1, UUID_REQUEST_AGE_MS // 2, UUID_REQUEST_AGE_MS, CLIENT_REQUEST_AGE_MS])
steps = st.lists(
    st.tuples(refs, pauses, st.sampled_from(["call", "call", "call", "call", "erase", "forget", "reload"]))
)


@given(steps)
def test_what_is_found_refused_and_kept_is_what_the_plain_memory_says(
    history: list[tuple[RequestRef, int, str]],
) -> None:
    memory, plain = RequestMemory(), Plain()
    now_ms = 0
    for revision, (ref, pause_ms, action) in enumerate(history, 1):
        now_ms += pause_ms
        if action == "forget":
            memory.forget_client(ref.client)
            plain.forget_client(ref.client)
        elif action == "erase":
            # Most of the time everything up to now; else what an older erasure finds when it is read again.
            until = (revision, now_ms) if pause_ms else (revision // 2, now_ms - 1)
            spared: set[str | tuple[str, int]] = {ref.uuid or (ref.client, ref.sequence)}
            ids = [held for held, _ in memory.items()]
            # What the plain memory holds for longer is too old to be found in either.
            count, plain_count = memory.erase(*until, spared), plain.erase(*until, spared)
            assert count <= plain_count
            assert [held for held, _ in memory.items()] == ids
        elif action == "reload":
            restored = RequestMemory()
            for held, found in memory.items():
                restored.remember(held, found)
            assert restored.items() == memory.items()
            memory = restored
        else:
            assert memory.find(ref, now_ms) == plain.find(ref, now_ms)
            if memory.find(ref, now_ms) is None:
                if plain.answered_before(ref):
                    refused(Reason.REQUEST_ID_REUSED, memory.check_room, ref, now_ms)
                else:
                    memory.check_room(ref, now_ms)
                    memory.remember(ref, call(revision, now_ms))
                    plain.remember(ref, call(revision, now_ms))
                    assert len(memory) == len(plain.calls) + len(plain.uuids)
        assert len(memory) == len(memory.items())


# -- what a request means --------------------------------------------------------------------------


def test_another_request_under_the_same_id_is_refused() -> None:
    check_replay(call(1), fingerprint(1))
    refused(Reason.REQUEST_ID_REUSED, check_replay, call(1), fingerprint(2))


def test_an_erased_call_is_refused_whatever_is_asked_and_says_that_it_was_applied() -> None:
    memory = RequestMemory()
    memory.remember(seq(A, 1), call(7))
    assert memory.erase(7, 0) == 1
    found = memory.find(seq(A, 1), 0)
    assert found is not None
    assert found.erased
    assert not call(7).erased
    for meaning in (fingerprint(7), b""):
        assert "applied at revision 7" in refused(Reason.REQUEST_ID_REUSED, check_replay, found, meaning).message
    assert memory.erase(7, 0) == 0


def test_different_requests_have_different_fingerprints() -> None:
    meanings: list[tuple[object, ...]] = [
        (),
        ("",),
        ("", ""),
        ("a", "bc"),
        ("ab", "c"),
        ("abc",),
        (b"abc",),
        (1,),
        (1.0,),
        (True,),
        ("1",),
        (None,),
        ("None",),
        ((1, 2),),
        (1, 2),
        ("\ud800",),
        ("\ud801",),
    ]
    assert len({fingerprint(*parts) for parts in meanings}) == len(meanings)
    assert all(len(fingerprint(*parts)) == 16 for parts in meanings)


@given(st.lists(st.text() | st.integers() | st.binary()))
def test_a_fingerprint_depends_on_the_meaning_alone(parts: list[object]) -> None:
    assert fingerprint(*parts) == fingerprint(*list(parts))
