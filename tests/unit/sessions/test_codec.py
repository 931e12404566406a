"""Names and bytes of sessions' records."""

from __future__ import annotations

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noosphere.consistency import NEVER_MS, Encoding, Record, Refusal, Sibling, VersionClock
from noosphere.server.sessions import codec, keys
from noosphere.server.sessions.types import Message, Part, Role, SessionInfo, SessionSettings, ToolUse, Turns

CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
REVISIONS = st.integers(0, (1 << 63) - 1)
INDEXES = st.integers(0, 511)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
PARTS = st.builds(Part, text=TEXT) | st.builds(Part, media_type=st.just("image/png"), data=st.binary(max_size=20))
MESSAGES = st.builds(
    Message,
    id=TEXT.filter(bool),
    role=st.sampled_from(Role),
    parts=st.lists(PARTS, max_size=3).map(tuple),
    tool_calls=st.lists(st.builds(ToolUse, TEXT, TEXT, TEXT), max_size=3).map(tuple),
    tool_call_id=TEXT,
    name=TEXT,
    author=TEXT,
    turn=st.integers(0, 1 << 40),
    time_ms=st.integers(0, 1 << 50),
    tokens=st.integers(0, 1 << 20),
    retracted=st.booleans(),
)


def record(data: bytes) -> Record:
    """Returns a record with one value."""
    sibling = Sibling(7, "a#1", 1, data, Encoding.JSON, NEVER_MS)
    return Record(7, (sibling,), VersionClock(), 1, 1)


@given(message=MESSAGES, revision=REVISIONS, index=INDEXES)
def test_a_message_survives_its_bytes(message: Message, revision: int, index: int) -> None:
    key = keys.MESSAGES + keys.slot(revision, index)
    stored = codec.encode_message(message)
    msgspec.json.decode(stored)
    assert codec.decode_message(key, record(stored)) == message._replace(key=key)


def test_a_message_without_an_id_is_called_by_its_place() -> None:
    stored = codec.encode_message(Message("", Role.USER))
    key = keys.MESSAGES + keys.slot(5, 2)
    assert codec.decode_message(key, record(stored)).id == "0000000000000005-0002"


@given(places=st.lists(st.tuples(REVISIONS, INDEXES), min_size=1, max_size=20, unique=True))
def test_places_order_as_text_as_they_do_as_numbers(places: list[tuple[int, int]]) -> None:
    names = [keys.MESSAGES + keys.slot(*place) for place in places]
    assert sorted(names) == [keys.MESSAGES + keys.slot(*place) for place in sorted(places)]
    for name, (revision, index) in zip(names, places, strict=True):
        assert (keys.slot_revision(name), keys.slot_index(name)) == (revision, index)
        assert keys.is_slot(name.removeprefix(keys.MESSAGES))
        assert name < keys.just_after(name)


def test_older_records_have_defaults_and_newer_ones_are_read_as_far_as_they_are_known() -> None:
    info = codec.decode_info(record(b'{"owner": "a", "created_ms": 3, "of_the_future": [1]}'))
    assert info == SessionInfo("a", 3, SessionSettings())
    assert codec.decode_turns(None) == Turns()


@given(session_id=st.text(max_size=200))
def test_every_id_is_either_refused_by_name_or_one_segment_of_a_namespace(session_id: str) -> None:
    fits = 0 < len(session_id.encode("utf-8", "surrogatepass")) <= 128
    if fits and "/" not in session_id and not CONTROL.search(session_id):
        assert keys.session_of(keys.check_session_id(session_id, "field")) == session_id
        return
    with pytest.raises(Refusal, match=r"^field"):
        keys.check_session_id(session_id, "field")


@pytest.mark.parametrize(
    ("namespace", "session_id"),
    [("sessions/a", "a"), ("sessions/a/b", None), ("shared/a", None), ("agents/sessions/a", None)],
)
def test_only_one_segment_below_sessions_is_a_session(namespace: str, session_id: str | None) -> None:
    assert keys.session_of(namespace) == session_id


@pytest.mark.parametrize(
    ("key", "item"),
    [
        ("goals/one", True),
        ("_session", True),
        ("_sessions/x", True),
        ("Z", True),
        ("z", True),
        ("_session/info", False),
        ("\0ids/message/x", False),
    ],
)
def test_an_item_is_what_nobody_keeps_and_the_ranges_hold_exactly_these(key: str, item: bool) -> None:
    assert keys.is_item(key) is item
    inside = [(low or "") < key and (high is None or key < high) for low, high in keys.ITEM_RANGES]
    assert any(inside) is item
