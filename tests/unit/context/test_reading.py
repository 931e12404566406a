"""Fitting a context's items into its read set: everything that is shown is covered, whatever the keys."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from noosphere.consistency import NEVER_MS, KeySeen, ReadSet, StampMode, encode_read_set
from noosphere.server.context.asked import Asked
from noosphere.server.context.reading import Readable, fitted
from noosphere.server.context.types import Candidate, SectionKind
from noosphere.server.ports.store import CollectionStamps
from noosphere.server.sessions.keys import CONTROL, GOALS, MESSAGES, TASK, namespace_of
from noosphere.server.sessions.types import Item

SESSION = "s"
STAMPS = {name: CollectionStamps(9, 8) for name in (GOALS, TASK, "plan/", MESSAGES)}


def item(key: str, version: int = 5) -> Item:
    return Item(key, version, b"1", True, (), "a#1", 0, 0, NEVER_MS)


def candidate(key: str, value: float = 0.5) -> Candidate:
    kind = SectionKind.TASK if key.startswith((GOALS, TASK)) else SectionKind.WORKING
    return Candidate(f"item:{key}", kind, "a", 5, 0.5, value, "1")


keys = st.builds(
    lambda collection, number, size: f"{collection}{number}-".ljust(size, "x"),
    st.sampled_from([GOALS, TASK, "plan/", "notes/", ""]),
    st.integers(0, 10_000),
    st.integers(1, 500),
)


@given(st.lists(keys, max_size=256, unique=True), st.booleans(), st.integers(0, 5))
def test_what_is_shown_is_covered_and_the_token_can_be_made(names: list[str], transcript: bool, named: int) -> None:
    guarded = {name: KeySeen(5) for name in names if name.startswith((GOALS, TASK, "plan/"))}
    read = Readable(SESSION, 10, STAMPS, {CONTROL: KeySeen(0), **guarded})
    asked = Asked(SESSION, guard=("plan/", *names[:named]), guard_transcript=transcript)
    read = read._replace(keys={**read.keys, **{name: KeySeen(5) for name in asked.guarded_keys}})
    data: dict[SectionKind, tuple[Candidate, ...]] = {}
    for at, name in enumerate(names):
        one = candidate(name, at / 256)
        data[one.section] = (*data.get(one.section, ()), one)
    found = fitted(read, asked, None, data)
    left_out = {entry.id for entry in found.refused}
    kept = [one for many in found.data.values() for one in many]
    assert {one.id for one in kept} | left_out == {f"item:{name}" for name in names}
    assert {entry.reason for entry in found.refused} <= {"read_set_full"}
    read_set = found.reading.read_set([item(one.id.removeprefix("item:")) for one in kept])
    assert len(encode_read_set(read_set)) <= 64 * 1024
    seen = read_set.namespaces[namespace_of(SESSION)]
    changed = [name for name, mode in seen.collections if mode is StampMode.CHANGED]
    for one in kept:
        key = one.id.removeprefix("item:")
        assert key in seen.keys or key.startswith(tuple(changed))
    assert set(asked.guarded_keys) | {CONTROL} <= set(seen.keys)
    assert {name for name, mode in seen.collections if mode is StampMode.MEMBERS} == (
        {GOALS, TASK, "plan/"} | ({MESSAGES} if transcript else set())
    )
    # Nothing is left out, and nothing stands for anything, without need.
    if sum(18 + len(name) for name in names) < 60_000:
        assert not left_out
        assert not changed
    # Whatever is guarded is covered, whether it is shown or not; only what is not may be left out.
    assert not any(name.removeprefix("item:").startswith((GOALS, TASK, "plan/")) for name in left_out)


def test_the_least_valuable_go_first_and_a_short_one_may_stay() -> None:
    names = [f"notes/{number:03}".ljust(400, "x") for number in range(200)]
    values = [candidate(name, at / 400 + 0.3) for at, name in enumerate(names)]
    short = candidate("n", 0.01)
    read = Readable(SESSION, 10, STAMPS, {})
    found = fitted(read, Asked(SESSION), None, {SectionKind.WORKING: (*values, short)})
    out = [entry.id for entry in found.refused]
    assert out == [one.id for one in values[: len(out)]]
    assert out
    assert short in found.data[SectionKind.WORKING]


def test_what_the_caller_saw_before_takes_room_too() -> None:
    before = ReadSet().with_keys("shared/a", 3, {f"{number:03}".ljust(500, "y"): KeySeen(3) for number in range(120)})
    names = [f"notes/{number:03}".ljust(400, "x") for number in range(100)]
    data = {SectionKind.WORKING: tuple(map(candidate, names))}
    read = Readable(SESSION, 10, STAMPS, {})
    assert not fitted(read, Asked(SESSION), None, data).refused
    found = fitted(read, Asked(SESSION), before, data)
    assert found.refused
    kept = [item(one.id.removeprefix("item:")) for one in found.data[SectionKind.WORKING]]
    assert "shared/a" in found.reading.read_set(kept).namespaces
    assert len(encode_read_set(found.reading.read_set(kept))) <= 64 * 1024
