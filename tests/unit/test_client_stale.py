"""What changed while somebody was thinking, in words for a model: within the limit whatever is in them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.client_support import live_record
from tests.unit.test_client_errors import raised
from tests.unit.test_client_explain import SPACE, TEXT, cost, outside

from noosphere.client import Conflict, Notes, SiblingConflict, StaleChange, StaleEntry, StaleRead, VersionMismatch
from noosphere.client._conflict import sibling_conflict
from noosphere.client._record import Record
from noosphere.client._values import JSON
from noosphere.consistency import CausalContext, Reason
from noosphere.v1 import errors_pb2
from noosphere.v1 import types_pb2 as pb

REVISIONS = st.integers(0, 2**62)
CHANGES = st.lists(st.builds(StaleChange, TEXT, TEXT, REVISIONS), max_size=16).map(tuple)
ENTRIES = st.builds(StaleEntry, st.just("shared/x") | TEXT, TEXT, st.booleans(), REVISIONS, REVISIONS, CHANGES)
CONFLICTS = st.builds(
    lambda key, mine: VersionMismatch("message", namespace="shared/x", key=key, codec=JSON, mine=JSON.encode(mine)),
    TEXT.map(lambda text: text.encode("utf-8", "replace").decode()),
    st.integers(),
)


@given(
    st.lists(ENTRIES, max_size=16).map(tuple),
    st.lists(CONFLICTS, max_size=3).map(tuple),
    st.booleans(),
    st.integers(0, 600),
)
def test_a_paragraph_never_exceeds_its_limit(
    stale: tuple[StaleEntry, ...], conflicts: tuple[Conflict[Any], ...], refused: bool, max_tokens: int
) -> None:
    notes = Notes(stale, conflicts, "shared/x", refused)
    paragraph = notes.explain(max_tokens)
    assert cost(paragraph) <= max_tokens
    assert paragraph.count("`") % 2 == 0
    assert "\n" not in paragraph
    assert paragraph.isprintable()
    assert outside(paragraph).isascii()
    assert notes.as_message(max_tokens) == {"role": "user", "content": paragraph}
    assert bool(notes) == bool(stale or conflicts)
    if max_tokens >= 100 and stale:
        assert "This changed after you read it." in paragraph
        assert "Read it again before you decide." in paragraph
    json.dumps(notes.as_dict(), allow_nan=False)


def test_the_paragraph_says_what_changed_by_whom_at_which_revision() -> None:
    steps = tuple(StaleChange(f"plan/{n}", "c#1", n) for n in range(12, 7, -1))
    stale = StaleRead(
        "message",
        (
            StaleEntry("shared/x", "goal", False, 5, 9, (StaleChange("goal", "b#2", 9),)),
            StaleEntry("shared/x", "gone", False, 5, 0, (StaleChange("gone", "", 8),)),
            StaleEntry("shared/y", "new", False, 0, 7),
            StaleEntry("shared/x", "plan/", True, 4, 12, steps),
        ),
        namespace="shared/x",
    )
    assert stale.explain() == (
        "Your decision was not written. This changed after you read it. `goal: changed, by b#2 at revision 9`. "
        "`gone: deleted, by expiry at revision 8`. `new in shared/y: created`. "
        "`plan/: plan/12 by c#1 at revision 12, plan/11 by c#1 at revision 11, plan/10 by c#1 at revision 10 "
        "and 2 more`. Read it again before you decide."
    )
    assert stale.as_message()["role"] == "user"


def test_what_does_not_fit_goes_from_the_end() -> None:
    entries = tuple(StaleEntry("shared/x", f"key-{n}", False, 5, 9) for n in range(16))
    paragraph = Notes(entries, namespace="shared/x", refused=True).explain(110)
    assert "key-0" in paragraph
    assert "key-15" not in paragraph
    assert paragraph.endswith("Read it again before you decide.")


@pytest.mark.parametrize("key_bytes", range(1, 40, 2))
def test_conflicts_do_not_push_out_that_it_is_to_be_read_again(key_bytes: int) -> None:
    refused = VersionMismatch("message", namespace="shared/x", key="k" * key_bytes, codec=JSON, mine=JSON.encode(1))
    entry = StaleEntry("shared/x", "plan", False, 5, 9)
    paragraph = Notes((entry,), (refused,) * 3, "shared/x", refused=True).explain(100)
    assert paragraph.endswith("Read it again before you decide.")


def test_conflicts_are_explained_too() -> None:
    theirs = Record(SPACE, JSON, live_record("plan", b'"theirs"'), 9)
    conflict: Conflict[Any] = VersionMismatch(
        "message", namespace="shared/launch", key="plan", codec=JSON, theirs=theirs, mine=JSON.encode("mine")
    )
    paragraph = Notes(conflicts=(conflict,), refused=True).explain()
    assert paragraph.startswith("Your decision was not written. Your write to `plan` failed:")
    assert 'It is now `"theirs"`.' in paragraph


def test_nothing_to_note_is_no_paragraph() -> None:
    assert Notes().explain() == ""
    assert not Notes(refused=True)
    with pytest.raises(ValueError, match="negative"):
        Notes().explain(-1)


def test_a_stale_read_tells_what_its_detail_tells() -> None:
    entry = pb.StaleEntry(namespace="shared/x", name="plan/", is_collection=True, seen=4, now=9)
    entry.changes.add(key="plan/a", actor="b#1", revision=9)
    error = raised(Reason.STALE_READ_SET, errors_pb2.StaleReadSetDetail(stale=[entry], head=12))
    assert isinstance(error, StaleRead)
    assert (error.head, error.namespace) == (12, "shared/x")
    assert error.stale == (StaleEntry("shared/x", "plan/", True, 4, 9, (StaleChange("plan/a", "b#1", 9),)),)
    assert error.notes.refused


def several(*values: bytes) -> Record[Any]:
    live = [
        pb.LiveValue(dot=n, actor=f"agent-{n}#1", value=pb.Value(data=data, encoding=pb.ENCODING_JSON))
        for n, data in enumerate(values, start=5)
    ]
    proto = pb.Record(key="plan", version=9, context=pb.CausalContext(prefix=9), values=live)
    return Record(SPACE, JSON, proto, 12)


@given(st.lists(st.integers() | TEXT, min_size=2, max_size=16), st.integers(0, 400))
def test_siblings_are_explained_within_a_limit(values: list[Any], max_tokens: int) -> None:
    found = sibling_conflict(several(*(json.dumps(value).encode() for value in values)))
    paragraph = found.explain(max_tokens)
    assert cost(paragraph) <= max_tokens
    assert outside(paragraph).isascii()
    json.dumps(found.as_dict(), allow_nan=False)


def test_siblings_name_their_values_and_writers() -> None:
    found = sibling_conflict(several(b"1", b"2", b"3", b"4"))
    assert isinstance(found, SiblingConflict)
    assert found.theirs is not None
    assert found.theirs.values == (1, 2, 3, 4)
    assert [dot.revision for dot in found.unseen] == [8, 7, 6, 5]
    assert found.explain() == (
        "`plan` has several values that nobody has joined. It has several values now: `1 | 2 | 3 | 4`. They are by "
        "`agent-8#1 at unknown, agent-7#1 at unknown, agent-6#1 at unknown` and 1 more. Write one value that keeps "
        "what matters in each of them."
    )


def test_a_conflict_that_was_read_again_shows_what_is_there_now() -> None:
    base = Record(SPACE, JSON, live_record("plan", b"1", dot=5), 5)
    conflict: Conflict[Any] = VersionMismatch(
        "message", namespace="shared/launch", key="plan", codec=JSON, base=base, mine=JSON.encode(2)
    )
    later = conflict._renewed(several(b"1", b"7"))
    assert isinstance(later, VersionMismatch)
    assert later.theirs is not None
    assert (later.mine, later.base, later.theirs.values) == (2, base, (1, 7))
    # What the writer had read is nothing that it has not seen.
    assert base.seen == CausalContext(5)
    assert [dot.revision for dot in later.unseen] == [6]
