"""Every field of what is stored, remembered and guarded, once a commit or an erasure has gone through."""

from __future__ import annotations

import hashlib

import pytest
from tests.unit.consistency.support import refused

from noosphere.consistency import (
    NEVER_MS,
    CausalContext,
    Claim,
    Encoding,
    MergeType,
    Reason,
    Record,
    Refusal,
    Remembered,
    RequestMemory,
    RequestRef,
    Sibling,
    fingerprint,
)
from noosphere.consistency.causal import NOTHING_SEEN, decode_causal, encode_causal, merge_tokens
from noosphere.consistency.clock import VersionClock
from noosphere.consistency.errors import LimitInfo
from noosphere.consistency.limits import CLIENT_REQUEST_AGE_MS, READ_SET_ENTRIES_MAX, READ_SET_NAMESPACES_MAX
from noosphere.consistency.merge import (
    CounterAdd,
    Extreme,
    LogAppend,
    MapUpdate,
    MergeOp,
    SetUpdate,
    apply,
    state_at,
    state_from_value,
    type_of,
)
from noosphere.consistency.names import split_actor
from noosphere.consistency.readset import (
    NOTHING_READ,
    CollectionSeen,
    Guard,
    KeySeen,
    NamespaceSeen,
    ReadSet,
    StampMode,
    decode_read_set,
    encode_read_set,
    key_seen_bytes,
    read_set_room,
)
from noosphere.consistency.record import seen_by_reader
from noosphere.consistency.revision import SEQ_BITS, Cut, revisions_back
from noosphere.consistency.tokens import TOKEN_BYTES_MAX

# -- records ---------------------------------------------------------------------------------------

OLD = Sibling(3, "a#1", 50, b"[]", Encoding.BYTES, 900)
RECORD = Record(
    stored=0,
    siblings=(OLD, Sibling(0, "b#2", 100, b"x", Encoding.BYTES, 700)),
    clock=VersionClock((("a#1", 3), ("b#2", 0)), 2),
    created_ms=10,
    change_count=4,
    attributes=(("kind", "task"),),
    claim=Claim("b#2", 800, 0, 1),
    deleted_ms=5,
    queued=(0, 6),
)


def test_a_record_once_its_revision_is_known() -> None:
    written = Record(
        stored=9,
        siblings=(OLD, Sibling(9, "b#2", 100, b"x", Encoding.BYTES, 700)),
        clock=VersionClock((("a#1", 3), ("b#2", 9)), 2),
        created_ms=10,
        change_count=4,
        attributes=(("kind", "task"),),
        claim=Claim("b#2", 800, 9, 1),
        deleted_ms=5,
        queued=(9, 6),
    )
    assert RECORD.at(9) == written
    # What earlier commits have put there stays.
    again = written._replace(siblings=(OLD, written.siblings[1]._replace(dot=9)), clock=written.clock)
    assert again.at(12) == written._replace(stored=12)
    assert RECORD._replace(queued=None, claim=None).at(9) == written._replace(queued=None, claim=None)


def test_a_set_once_its_revision_is_known() -> None:
    siblings = (Sibling(0, "a#1", 50, b'[["x",0,4],["y",5,0]]'), Sibling(0, "b#2", 50, None))
    record = RECORD._replace(merge_type=MergeType.SET, siblings=siblings)
    assert record.at(9).siblings == (
        Sibling(9, "a#1", 50, b'[["x",9,4],["y",5,0]]'),
        Sibling(9, "b#2", 50, None),
    )


@pytest.mark.parametrize(("now_ms", "ends_ms"), [(0, 700), (699, 700), (700, 900), (899, 900), (900, NEVER_MS)])
def test_when_the_first_living_value_ends(now_ms: int, ends_ms: int) -> None:
    gone = Sibling(2, "c#1", 20, None, Encoding.JSON, 100)
    assert RECORD._replace(siblings=(gone, *RECORD.siblings)).ends_ms(now_ms) == ends_ms


def test_what_a_reader_has_seen() -> None:
    assert seen_by_reader(None, 0, 12) == CausalContext(12)
    record = RECORD.at(9)
    assert seen_by_reader(record, 899, 12) == CausalContext(9)
    assert seen_by_reader(record, 900, 12) == CausalContext(12)


def test_an_actor_is_split_at_its_number() -> None:
    assert split_actor("a#12") == ("a", 12)


@pytest.mark.parametrize(
    ("op", "merge_type"),
    [
        (CounterAdd(1), MergeType.COUNTER),
        (SetUpdate(), MergeType.SET),
        (Extreme("1", largest=True), MergeType.MAX),
        (Extreme("1", largest=False), MergeType.MIN),
        (MapUpdate({}), MergeType.MAP),
        (LogAppend(()), MergeType.LOG),
    ],
)
def test_each_operation_has_a_type(op: MergeOp, merge_type: MergeType) -> None:
    assert type_of(op) is merge_type


def test_a_refusal_says_when_to_try_again() -> None:
    assert Refusal(Reason.CONTENTION, "busy", retry_after_ms=40).retry_after_ms == 40
    assert Refusal(Reason.CONTENTION, "busy").retry_after_ms is None


def test_a_fingerprint_is_the_same_in_every_version() -> None:
    digest = hashlib.blake2b(b"\0\0\0\3'a'\0\0\0\x04b'b'", digest_size=16).digest()
    assert fingerprint("a", b"b") == digest


# -- sets ------------------------------------------------------------------------------------------


def test_a_set_put_whole_is_added_by_the_commit() -> None:
    assert state_from_value(MergeType.SET, b'[1,"a",1]') == b'[[1,0,0],["a",0,0]]'
    assert apply(SetUpdate(add=("1",)), None, 100).state == b"[[1,0,0]]"
    assert apply(SetUpdate(add=("1",)), b"[[1,5,2]]", 100).state == b"[[1,0,5]]"


def removed(state: bytes, context: CausalContext) -> bytes:
    return apply(SetUpdate(remove=("1",), context=context), state, 100).state


def test_what_is_left_of_an_element_after_a_removal() -> None:
    state = b"[[1,9,7]]"
    assert removed(state, CausalContext(9)) == b"[]"
    assert removed(state, CausalContext(7, (9,))) == b"[]"
    # The newest add alone was seen; before it there were others, nobody knows how many.
    left = removed(state, CausalContext(6, (9,)))
    assert left == b"[[1,7,7]]"
    assert removed(left, CausalContext(6, (7,))) == left
    assert removed(left, CausalContext(7)) == b"[]"
    # The newest was not seen, the one before it was, or was not.
    assert removed(state, CausalContext(7)) == b"[[1,9,0]]"
    assert removed(state, CausalContext(6)) == state
    assert state_at(MergeType.SET, b"[[1,0,9]]", 12) == b"[[1,12,9]]"


# -- remembered requests ---------------------------------------------------------------------------


def call(revision: int, time_ms: int) -> Remembered:
    return Remembered(revision, fingerprint(revision), b"reply", time_ms)


def erased(revision: int, time_ms: int) -> Remembered:
    return Remembered(revision, b"", b"", time_ms)


def test_an_erasure_empties_what_lies_before_it_and_nothing_else() -> None:
    memory = RequestMemory()
    # Before the revision and the time, up to both, later in one, later in the other, spared, and both once more.
    places = [(4, 40), (5, 50), (6, 50), (5, 51), (3, 30), (2, 20)]
    uuids = [RequestRef(uuid=f"u{n}") for n in range(len(places))]
    calls = [RequestRef("a#1", n + 2, 1) for n in range(len(places))]
    for ref, place in zip(uuids + calls, places * 2, strict=True):
        memory.remember(ref, call(*place))
    wanted = [erased(4, 40), erased(5, 50), call(6, 50), call(5, 51), call(3, 30), erased(2, 20)]

    assert memory.erase(5, 50, {"u4", ("a#1", 6)}) == 6
    assert sorted(memory.items()) == sorted(zip(uuids + calls, wanted * 2, strict=True))
    assert len(memory) == 12
    assert memory.erase(5, 50, {"u4", ("a#1", 6)}) == 0
    assert memory.erase(5, 50) == 2


def test_a_call_counts_once_and_not_when_it_was_answered() -> None:
    memory = RequestMemory()
    for ref in (RequestRef("a#1", 2, 1), RequestRef("a#1", 2, 1), RequestRef(uuid="u"), RequestRef(uuid="u")):
        memory.remember(ref, call(1, 0))
    assert len(memory) == 2
    memory.remember(RequestRef("b#1", 3, 3), call(2, 0))
    assert len(memory) == 2
    assert memory.find(RequestRef("b#1", 3), 0) is None


def test_a_client_that_was_idle_goes_although_a_uuid_stays() -> None:
    memory = RequestMemory()
    memory.remember(RequestRef("a#1", 1), call(1, 0))
    memory.remember(RequestRef(uuid="u"), call(2, CLIENT_REQUEST_AGE_MS))
    assert [ref for ref, _ in memory.items()] == [RequestRef(uuid="u")]
    assert len(memory) == 1


def test_a_client_without_calls_counts_as_idle_since_the_beginning() -> None:
    memory = RequestMemory()
    late = RequestRef("a#1", 1)
    memory.remember(RequestRef("a#1", 1, 1), call(1, CLIENT_REQUEST_AGE_MS - 1))
    refused(Reason.REQUEST_ID_REUSED, memory.check_room, late, 0)
    memory.remember(RequestRef(uuid="u"), call(2, CLIENT_REQUEST_AGE_MS))
    memory.check_room(late, 0)


# -- positions -------------------------------------------------------------------------------------


def test_going_back_over_the_beginning_of_epochs() -> None:
    first, second = 1 << SEQ_BITS, 2 << SEQ_BITS
    cuts = (Cut(1, 100), Cut(2, first + 10))
    head = second + 5
    assert revisions_back(head, 3, cuts) == second + 2
    assert revisions_back(head, 5, cuts) == second
    assert revisions_back(head, 6, cuts) == first + 9
    assert revisions_back(head, 15, cuts) == first
    assert revisions_back(head, 16, cuts) == 99
    assert revisions_back(head, 114, cuts) == 1
    assert revisions_back(head, 115, cuts) == revisions_back(head, 1000, cuts) == 0
    # Nothing was issued yet in the newest epoch.
    assert revisions_back(second, 1, cuts) == first + 9
    assert revisions_back(first + 10, 1, cuts) == first + 9


def test_a_namespace_without_commits_was_seen_at_zero() -> None:
    token = NOTHING_SEEN.seen("shared/a", 0)
    assert token.revisions == {"shared/a": 0}
    assert merge_tokens([token, token]) == token


def test_a_token_keeps_every_earlier_epoch() -> None:
    newest = [epoch << SEQ_BITS | 5 for epoch in (1, 2, 3, 4)]
    token = merge_tokens(NOTHING_SEEN.seen(name, revision) for revision in newest for name in ("shared/a", "shared/b"))
    assert token.earlier == {"shared/a": tuple(newest[:-1]), "shared/b": tuple(newest[:-1])}
    assert decode_causal(encode_causal(token)) == token


# -- read sets -------------------------------------------------------------------------------------


def test_a_guard_of_one_namespace_and_one_list() -> None:
    whole = NOTHING_READ
    for namespace in ("shared/a", "shared/b"):
        whole = whole.with_key(namespace, 9, "x/k", KeySeen(3)).with_key(namespace, 9, "y", KeySeen(4))
        for collection in ("x/", "z/"):
            whole = whole.with_collection(namespace, 9, collection, StampMode.MEMBERS, CollectionSeen(5))
    wanted = NOTHING_READ.with_key("shared/a", 9, "x/k", KeySeen(3)).with_collection(
        "shared/a", 9, "x/", StampMode.MEMBERS, CollectionSeen(5)
    )
    assert whole.guarded([Guard("x/", "shared/a")]) == wanted
    assert whole.guarded([Guard("members", "shared/a")]) == NOTHING_READ


def test_the_room_in_a_token_shrinks_by_what_a_key_takes() -> None:
    read = NOTHING_READ.with_key("shared/a", 9, "x", KeySeen(3))
    assert read_set_room(read) == TOKEN_BYTES_MAX - len(encode_read_set(read))
    more = read.with_key("shared/a", 9, "計畫", KeySeen(3))
    assert read_set_room(read) - read_set_room(more) == key_seen_bytes("計畫")


def test_a_token_fits_while_there_is_room() -> None:
    names = (f"{n:0512}" for n in range(1024))
    read = NOTHING_READ
    while read_set_room(read) >= key_seen_bytes("k" * 512):
        read = read.with_key("shared/a", 9, next(names), KeySeen(3))
        assert len(encode_read_set(read)) <= TOKEN_BYTES_MAX
    # The last key leaves no room at all.
    exact = read.with_key("shared/a", 9, "k" * (read_set_room(read) - key_seen_bytes("")), KeySeen(3))
    assert len(encode_read_set(exact)) == TOKEN_BYTES_MAX
    over = read.with_key("shared/a", 9, next(names), KeySeen(3))
    assert read_set_room(over) < 0
    refused(Reason.VALUE_TOO_LARGE, encode_read_set, over)


def test_a_token_may_hold_as_much_as_a_read_set_and_no_more() -> None:
    def part(keys: int, collections: int) -> NamespaceSeen:
        return NamespaceSeen(
            9,
            {f"{n}": KeySeen(3) for n in range(keys)},
            {(f"{n}/", list(StampMode)[n % 2]): CollectionSeen(3) for n in range(collections)},
        )

    def decoded(namespaces: int, keys: int, collections: int) -> ReadSet:
        read = ReadSet({f"shared/{n}": part(keys, collections) for n in range(namespaces)})
        assert decode_read_set(encode_read_set(read)) == read
        return read

    decoded(READ_SET_NAMESPACES_MAX, 64, 64)
    refusal = refused(Reason.VALUE_TOO_LARGE, decoded, READ_SET_NAMESPACES_MAX + 1, 1, 1)
    assert refusal.detail == LimitInfo("read_set_token", 9, READ_SET_NAMESPACES_MAX)
    refusal = refused(Reason.VALUE_TOO_LARGE, decoded, 1, READ_SET_ENTRIES_MAX, 1)
    assert refusal.detail == LimitInfo("read_set_token", READ_SET_ENTRIES_MAX + 1, READ_SET_ENTRIES_MAX)
