"""What a handle carries from step to step, against a model that remembers everything."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from noosphere.client._context_carried import CARRIED_BYTES_MAX, CARRIED_PIECES_MAX, CarriedEvidence
from noosphere.v1 import context_service_pb2 as pb


class Given(NamedTuple):
    """What one context is given.

    Attributes:
        pieces: id (empty for none) and text of each.
        steps: to how many more steps they are shown.
        ages: whether the context is a step of its own.
        query: what they were found for.
        fails: whether the context is refused.
    """

    pieces: tuple[tuple[str, str], ...]
    steps: int
    ages: bool = True
    query: str | None = None
    fails: bool = False


texts = st.sampled_from(["red", "green", "blue"])
pieces = st.lists(st.tuples(st.sampled_from(["", "", "a", "b", "1", "2"]), texts), max_size=4).filter(
    lambda found: len(named := [name for name, _ in found if name]) == len(set(named))
)
contexts = st.builds(
    Given,
    pieces.map(tuple),
    st.integers(0, 3),
    st.booleans(),
    st.one_of(st.none(), st.sampled_from(["q1", "q2"])),
    st.booleans(),
)


def proto(name: str, text: str) -> pb.Evidence:
    return pb.Evidence(id=name, text=text, source="s", trust=0.5)


@given(st.lists(contexts, max_size=12))
def test_whatever_is_given_is_carried_for_its_steps_and_no_longer(told: list[Given]) -> None:
    carried = CarriedEvidence()
    shown_until: dict[str, tuple[str, int]] = {}
    answered_until: dict[str, int] = {}
    now = 0
    for number, one in enumerate(told):
        step = carried.step()
        for query in ("q1", "q2"):
            assert step.answers(query) == (answered_until.get(query, -1) >= now)
        sent = step.evidence([proto(*piece) for piece in one.pieces])
        fresh, old = sent[: len(one.pieces)], sent[len(one.pieces) :]
        # What the server asks for.
        assert all(not piece.carried_from for piece in fresh)
        assert all(piece.carried_from and piece.carried_revision for piece in old)
        for some in (fresh, old):
            assert len({piece.id for piece in some}) == len(some)
            assert all(piece.id for piece in some)
        # A name that the caller has given stays; a text without one keeps the name that it had.
        assert [piece.id for piece, (name, _) in zip(fresh, one.pieces, strict=True) if name] == [
            name for name, _ in one.pieces if name
        ]
        fresh_texts = {piece.id: piece.text for piece in fresh}
        live = {name: text for name, (text, until) in shown_until.items() if until >= now}
        assert {piece.id: piece.text for piece in old if fresh_texts.get(piece.id) != piece.text} == {
            name: text for name, text in live.items() if fresh_texts.get(name) != text
        }
        if one.fails:
            continue
        reply = pb.AssembleContextResponse(context_id=f"c{number}", manifest=pb.Manifest(revision=number + 1))
        carried.end(step, reply, one.query, one.steps, ages=one.ages)
        now += one.ages
        for piece in fresh:
            known = shown_until.get(piece.id)
            if one.steps:
                shown_until[piece.id] = (piece.text, now + one.steps - 1)
            elif known is not None and known[0] != piece.text:
                del shown_until[piece.id]
        if one.query is not None and one.steps:
            answered_until[one.query] = max(answered_until.get(one.query, -1), now + one.steps - 1)


@given(st.lists(st.tuples(st.integers(0, 120), st.sampled_from([0, 1_000, 100_000])), max_size=6))
def test_what_is_carried_stays_within_its_limits(told: list[tuple[int, int]]) -> None:
    carried = CarriedEvidence()
    found: dict[str, set[str]] = {}
    for number, (count, size) in enumerate(told):
        step = carried.step()
        fresh = [proto(f"{number}-{at}", f"{number}-{at}".ljust(size, "x")) for at in range(count)]
        sent = step.evidence(fresh)
        assert len(sent) <= CARRIED_PIECES_MAX
        reply = pb.AssembleContextResponse(context_id=f"c{number}", manifest=pb.Manifest(revision=1))
        carried.end(step, reply, f"q{number}", 100, ages=True)
        found[f"q{number}"] = {piece.id for piece in fresh}
        held = carried.step().evidence([])
        assert len(held) <= CARRIED_PIECES_MAX
        assert sum(len(piece.text.encode()) for piece in held) <= CARRIED_BYTES_MAX
        # The newest are kept, and a search of which a part is gone is made again.
        kept = {piece.id for piece in held}
        if count and size < 100_000:
            assert {piece.id for piece in fresh} <= kept or count * size > CARRIED_BYTES_MAX
        assert [query for query in found if carried.step().answers(query)] == [
            query for query, names in found.items() if names <= kept
        ]


def test_contexts_that_are_made_at_once_keep_what_each_was_given() -> None:
    carried = CarriedEvidence()
    one, two = carried.step(), carried.step()
    one.evidence([proto("", "red")])
    two.evidence([proto("", "green"), proto("b", "blue")])
    for number, step in enumerate((one, two), start=1):
        reply = pb.AssembleContextResponse(context_id=f"c{number}", manifest=pb.Manifest(revision=number))
        carried.end(step, reply, None, 5, ages=True)
    # Both have called theirs 1; the later one is what the name means.
    held = carried.step().evidence([])
    assert {piece.id: (piece.text, piece.carried_from) for piece in held} == {"1": ("green", "c2"), "b": ("blue", "c2")}


def test_what_was_given_first_says_so_also_when_it_is_given_again() -> None:
    carried = CarriedEvidence()
    for number in (1, 2, 3):
        step = carried.step()
        step.evidence([proto("a", "red")])
        reply = pb.AssembleContextResponse(context_id=f"c{number}", manifest=pb.Manifest(revision=number))
        carried.end(step, reply, None, 1, ages=True)
    [held] = carried.step().evidence([])
    assert (held.carried_from, held.carried_revision) == ("c1", 1)


def test_what_ended_shows_where_it_stood_if_it_is_found_once_more() -> None:
    carried = CarriedEvidence()
    sent: list[list[pb.Evidence]] = []
    for number in range(4):
        step = carried.step()
        sent.append(step.evidence([] if number == 1 else [proto("", "red")]))
        reply = pb.AssembleContextResponse(context_id=f"c{number}", manifest=pb.Manifest(revision=number + 1))
        carried.end(step, reply, None, int(number in (0, 2)), ages=True)
    assert [[(piece.id, piece.carried_from) for piece in pieces] for pieces in sent] == [
        [("1", "")],
        [("1", "c0")],
        [("1", ""), ("1", "c0")],
        [("1", ""), ("1", "c0")],
    ]
