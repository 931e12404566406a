"""The judge of the fault campaign's facts: it accepts what may be, and sees whatever must not be."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from tests.support.fact_claims import Claims

from noosphere.consistency import LostRange

CUT, LOST, LATER = 50, 60, 200
LOSS = LostRange(CUT, 100)


@dataclass(frozen=True)
class Listed:
    """A fact as it is listed."""

    text: str
    source_count: int = 1
    superseded_by: str = ""


def claims() -> Claims:
    """Returns three crates, of which one has two sources and one was forgotten, and two homes."""
    made = Claims()
    for text, ids in {"kept": ("a", "b"), "gone": ("c",), "plain": ("d",)}.items():
        claim = made.add(text)
        claim.sent = len(ids)
        claim.acknowledged = dict.fromkeys(ids, 10)
    for home, id in ((1, "e"), (2, "f")):
        claim = made.add(f"home {home}", home)
        claim.sent, claim.acknowledged = 1, {id: 20}
    made.by_text["gone"].forgetting = True
    made.by_text["gone"].forgotten_at = 30
    return made


DECIDED = [
    ("a", "written"),
    ("b", "merged"),
    ("c", "suppressed"),
    ("d", "written"),
    ("e", "written"),
    ("f", "superseded"),
]
KNOWN = [Listed("kept", 2), Listed("plain"), Listed("home 1", superseded_by="x"), Listed("home 2")]


def test_what_must_be_is_accepted() -> None:
    assert claims().judge(DECIDED, KNOWN) == []


@pytest.mark.parametrize(
    ("decided", "known", "problem"),
    [
        ([*DECIDED, ("d", "written")], KNOWN, "decided 2 times"),
        (DECIDED[1:], KNOWN, "not told to be lost"),
        ([("a", "dead"), *DECIDED[1:]], KNOWN, "became dead"),
        ([("a", "suppressed"), *DECIDED[1:]], KNOWN, "became suppressed"),
        (DECIDED, KNOWN[:1] + KNOWN[2:], "and no fact"),
        (DECIDED, [*KNOWN, Listed("plain")], "2 facts"),
        (DECIDED, [*KNOWN, Listed("gone")], "there again"),
        (DECIDED, [*KNOWN, Listed("other")], "nobody has claimed"),
        (DECIDED, [Listed("kept", 1), *KNOWN[1:]], "1 sources"),
        (DECIDED, [Listed("kept", 3), *KNOWN[1:]], "3 sources"),
        (DECIDED, [*KNOWN[:2], Listed("home 1"), Listed("home 2")], "the newest home"),
        (DECIDED, [*KNOWN[:2], Listed("home 1"), Listed("home 2", superseded_by="x")], "the newest home"),
    ],
)
def test_what_must_not_be_is_seen(decided: list[tuple[str, str]], known: list[Listed], problem: str) -> None:
    found = claims().judge(decided, known)
    assert len(found) == 1
    assert problem in found[0]


def test_what_was_told_to_be_lost_may_be_gone_and_may_be_back() -> None:
    made = claims()
    made.by_text["plain"].acknowledged = {"d": LOST}
    made.by_text["gone"].forgotten_at = LOST
    without = [one for one in DECIDED if one[0] != "d"]
    facts = [*KNOWN, Listed("gone")]
    assert len(made.judge(without, facts)) == 2, "nobody was told"
    made.losses.append(LOSS)
    assert made.judge(without, facts) == []
    assert made.judge(without, [fact for fact in facts if fact.text != "plain"]) == []
    assert made.judge(DECIDED, facts) == []


@pytest.mark.parametrize("seen", [CUT, LATER])
def test_a_loss_excuses_nothing_before_and_after_it(seen: int) -> None:
    made = claims()
    made.losses.append(LOSS)
    made.by_text["plain"].acknowledged = {"d": seen}
    (problem,) = made.judge(DECIDED, [fact for fact in KNOWN if fact.text != "plain"])
    assert "and no fact" in problem
