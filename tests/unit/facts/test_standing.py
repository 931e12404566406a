"""What a search may show: the ledger and the filter of the fact store agree about it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.effort import examples
from tests.unit.facts.options import SCOPE, fact_id

from noosphere.consistency import NEVER_MS
from noosphere.server.facts.asked import SearchAsked
from noosphere.server.facts.contents import Body, content_of
from noosphere.server.facts.ledger import FactNote, VersionNote
from noosphere.server.facts.standing import is_current, standing, version_at
from noosphere.server.facts.types import FactState, MemoryType
from noosphere.server.storage.facts.columns import Columns

NOW_MS = 10
times = st.integers(8, 12)
trusts = st.sampled_from([0.0, 0.3, 0.5, 1.0])
owners = st.sampled_from(["user/42", "shared/team"])


@st.composite
def notes(draw: st.DrawFn) -> FactNote:
    """A fact as it may stand in a ledger: superseded or not, at times around now."""
    recorded = sorted(draw(st.lists(st.integers(7, NOW_MS), min_size=1, max_size=3, unique=True)))
    since = draw(times)
    superseded = draw(st.booleans())
    ends = max(since, draw(times))
    versions = tuple(
        VersionNote(
            number, (number << 40) + 1, time_ms, since, ends if superseded and number == len(recorded) else NEVER_MS
        )
        for number, time_ms in enumerate(recorded, 1)
    )
    return FactNote(
        id=fact_id(1),
        owner=draw(owners),
        state=FactState.SUPERSEDED if superseded else FactState.CURRENT,
        versions=versions,
        key="key",
        memory_type=draw(st.sampled_from(MemoryType)),
        trust=draw(trusts),
        expires_at_ms=draw(times | st.just(NEVER_MS)),
        superseded_by=fact_id(2) if superseded else "",
    )


searches = st.builds(
    SearchAsked,
    st.just("tea"),
    st.sets(owners, min_size=1).map(tuple),
    st.just((SCOPE,)),
    limit=st.just(0),
    tokens_max=st.just(0),
    subject=st.just(""),
    predicate=st.just(""),
    embed_ms_max=st.none(),
    memory_types=st.just(()) | st.sets(st.sampled_from(MemoryType), max_size=2).map(tuple),
    trust_min=st.just(0.0) | trusts,
    valid_after_ms=st.none() | times,
    valid_before_ms=st.none() | times,
    as_of_ms=st.none() | times,
    include_superseded=st.booleans(),
).map(SearchAsked.checked)


@settings(max_examples=examples(400))
@given(notes(), searches)
def test_the_ledger_and_the_stores_filter_agree(note: FactNote, asked: SearchAsked) -> None:
    """Of the version that was the newest then, the store leaves what the ledger shows, but for what was superseded."""
    version = version_at(note, asked.as_of_ms)
    shown = standing(SCOPE, note, asked, NOW_MS)
    if version is None:
        assert shown is None
        return
    columns = Columns()
    columns.put(0, content_of(SCOPE, note, version, Body("tea"), None, now_ms=NOW_MS))
    left = bool(columns.mask(asked.filter(NOW_MS))[0])
    assert (shown is not None) == (left and (asked.include_superseded or is_current(note, version, asked.as_of_ms)))
    if shown is not None:
        assert shown.version is version


@given(notes(), times)
def test_the_version_of_a_moment_is_the_newest_recorded_by_then(note: FactNote, as_of_ms: int) -> None:
    by_then = [version for version in note.versions if version.recorded_ms <= as_of_ms]
    assert version_at(note, as_of_ms) == (by_then[-1] if by_then else None)
    assert version_at(note, None) == note.versions[-1]


@given(notes())
def test_what_is_superseded_now_was_current_before(note: FactNote) -> None:
    newest = note.newest
    assert is_current(note, newest, None) == (note.state is FactState.CURRENT)
    for version in note.versions[:-1]:
        assert is_current(note, version, version.recorded_ms)
