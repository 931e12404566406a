"""What becomes of each kind of record when words are to be forgotten."""

from __future__ import annotations

import json
import zlib
from typing import Any

import msgspec
import pytest

from noosphere.consistency import Claim, Encoding, MergeType, Record, Sibling, VersionClock
from noosphere.server.ports.sources import REDACTED
from noosphere.server.sessions.blackout import Blackout
from noosphere.server.sessions.rewriting import GONE, Rewriter

WORD = "hunter22"
M = REDACTED
COUNT = 7


def record(*values: bytes | None, encoding: Encoding = Encoding.JSON, **more: Any) -> Record:
    """Returns a record with these values, the newest last."""
    siblings = tuple(Sibling(dot, f"a#{dot}", dot, data, encoding) for dot, data in enumerate(values, 1))
    return Record(9, siblings, VersionClock(), 1, 1, **more)


def rewriter(*told: str, words: tuple[str, ...] = (WORD,)) -> Rewriter:
    """Returns a rewriter for which every text has the same size."""
    return Rewriter(Blackout(words), lambda _: COUNT, told)


def left(key: str, before: Record, told: tuple[str, ...] = (), words: tuple[str, ...] = (WORD,)) -> Record | None:
    """Returns a record as it is left; None if it goes."""
    fate = rewriter(*told, words=words).visible(key, before)
    if fate is None:
        return before
    if isinstance(fate.record, Record):
        assert rewriter(*told, words=words).visible(key, fate.record) is None, "nothing is left to do"
        return fate.record
    assert fate.record is GONE
    return None


def summary(**said: Any) -> bytes:
    """Returns a summary's JSON."""
    base = {"first": "_session/messages/1", "last": "_session/messages/2", "messages": 2, "tokens": 99}
    return json.dumps(base | said).encode()


def test_every_value_of_an_item_is_rewritten_and_whose_they_are_stays() -> None:
    before = record(json.dumps({"a": WORD}).encode(), b'"fine"', json.dumps(f"x {WORD}").encode())
    after = left("notes/a", before)
    assert after is not None
    assert [sibling.data for sibling in after.siblings] == [
        json.dumps({"a": M}).encode(),
        b'"fine"',
        f'"x {M}"'.encode(),
    ]
    assert [s[:3] + s[4:] for s in after.siblings] == [s[:3] + s[4:] for s in before.siblings]


def test_a_tombstone_and_what_has_no_word_stay_the_same_object() -> None:
    for untouched in (record(None), record(b'"fine"', None), record(b"\xff", encoding=Encoding.BYTES)):
        assert left("notes/a", untouched) is untouched


@pytest.mark.parametrize(
    ("merge_type", "state", "expected"),
    [
        (MergeType.SET, [["x hunter22", 22, 0], ["fine", 7, 22]], [[f"x {M}", 22, 0], ["fine", 7, 22]]),
        (MergeType.LOG, {"e": ["hunter22", {"n": 1}], "t": 3}, {"e": [M, {"n": 1}], "t": 3}),
        (MergeType.MAP, {"hunter22": 1, "b": "hunter22"}, {M: 1, "b": M}),
        (MergeType.MAX, "hunter22", M),
    ],
    ids=["set", "log", "map", "max"],
)
def test_a_merged_record_keeps_its_state(merge_type: MergeType, state: Any, expected: Any) -> None:
    after = left("notes/a", record(json.dumps(state).encode(), merge_type=merge_type))
    assert after is not None
    assert json.loads(after.siblings[0].data or b"") == expected


@pytest.mark.parametrize("word", ["2222", "4321"])
def test_numbers_of_a_merged_record_are_no_content(word: str) -> None:
    state = json.dumps([["fine", 2222, 4321]]).encode()
    before = record(state, merge_type=MergeType.SET)
    after = left("notes/a", before, words=(word,))
    assert after is not None
    assert json.loads(after.siblings[0].data or b"") == [["fine", 2222, 4321]]


def test_attributes_and_the_result_of_a_claim_are_rewritten() -> None:
    claim = Claim("a#1", 5, 3, 1, done=True, result=json.dumps(WORD).encode())
    after = left("board/task", record(b"1", attributes=(("about", WORD), ("n", 3)), claim=claim))
    assert after is not None
    assert after.attributes == (("about", M), ("n", 3))
    assert after.claim is not None
    assert after.claim.result == json.dumps(M).encode()


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("_session/meta", {"title": WORD, "labels": {"a": WORD}}, {"title": M, "labels": {"a": M}}),
        (
            "_session/control",
            {"next_node": "hunter22", "pending_interrupt": "", "retries": 2, "data": {"x": [WORD]}},
            {"next_node": M, "pending_interrupt": "", "retries": 2, "data": {"x": [M]}},
        ),
        ("_session/handoffs/1", {"to": "hunter22", "note": WORD}, {"to": "hunter22", "note": M}),
        (
            "_session/events/1",
            {"turn": 1, "decisions": [{"key": "notes/hunter22", "explanation": f"as {WORD}"}]},
            {"turn": 1, "decisions": [{"key": "notes/hunter22", "explanation": f"as {M}"}]},
        ),
    ],
    ids=["title", "control", "hand-over", "event"],
)
def test_of_the_services_records_texts_are_rewritten_and_names_stay(key: str, value: Any, expected: Any) -> None:
    after = left(key, record(json.dumps(value).encode()))
    assert after is not None
    assert json.loads(after.siblings[0].data or b"") == expected


@pytest.mark.parametrize("key", ["_session/info", "_session/turns", "_session/branches/00000001"])
def test_records_without_texts_of_others_stay(key: str) -> None:
    before = record(json.dumps({"owner": WORD}).encode())
    assert left(key, before) is before


def entry(**said: Any) -> Record:
    """Returns an entry of the outbox."""
    return record(json.dumps({"item": "notes/a", "version": 1, "value": {"json": "fine"}} | said).encode())


@pytest.mark.parametrize(
    ("before", "told"),
    [
        (entry(value={"json": {"a": [WORD]}}), ()),
        (entry(others=[{"json": WORD}]), ()),
        (entry(value={"data": "eCBodW50ZXIyMg=="}), ()),
        (entry(attributes={"about": WORD}), ()),
        (entry(item="notes/hunter22"), ()),
        (entry(value={"json": "The vault code is in the blue book."}), ("the code for the vault is in the blue book",)),
    ],
    ids=["value", "other value", "bytes", "attribute", "item", "retold"],
)
def test_an_entry_of_the_outbox_that_tells_of_it_goes(before: Record, told: tuple[str, ...]) -> None:
    assert left("_session/outbox/1", before, told) is None


@pytest.mark.parametrize("word", ["item", "value", "version", "json"])
def test_an_entry_stays_if_only_its_form_has_the_word(word: str) -> None:
    before = entry()
    assert left("_session/outbox/1", before, words=(word,)) is before


def test_a_summary_loses_what_tells_of_it_and_keeps_everything_else() -> None:
    told = "Decision: the vault code for the archive is 4711."
    before = summary(
        goals=["Travel to Oslo", f"Use {WORD}"],
        decisions=["the vault code for the archive is 4711", "take the train"],
        open_questions=["Who keeps the vault code for the archive?"],
        entities=["Oslo", "4711", "hunter"],
        narrative=f"user: We go by train. user: the vault code for the arch… Then {WORD}! It costs 3.50 francs.",
    )
    after = left("_session/summaries/1", record(before), (told,))
    assert after is not None
    assert json.loads(after.siblings[0].data or b"") == {
        "first": "_session/messages/1",
        "last": "_session/messages/2",
        "messages": 2,
        "tokens": COUNT,
        "goals": ["Travel to Oslo"],
        "decisions": ["take the train"],
        "entities": ["Oslo"],
        "narrative": "user: We go by train. It costs 3.50 francs.",
    }


def test_a_summary_of_which_nothing_is_left_says_so() -> None:
    after = left("_session/summaries/1", record(summary(narrative=f"All about {WORD}.")))
    assert after is not None
    assert json.loads(after.siblings[0].data or b"")["narrative"] == M


def test_a_summary_that_tells_of_other_things_stays_the_same_object() -> None:
    before = record(summary(goals=["Travel to Oslo"], narrative="By train.\n"))
    assert left("_session/summaries/1", before, ("the code is 4711",)) is before


def test_a_manifest_that_has_the_words_is_known_and_a_damaged_one_is_not() -> None:
    packed = zlib.compress(msgspec.msgpack.encode(["c", [["evidence:e", f"page about {WORD}"]]]))
    assert rewriter().manifest(packed)
    assert not rewriter(words=("other",)).manifest(packed)
    assert not rewriter().manifest(b"damaged")
