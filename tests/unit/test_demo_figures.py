"""The demo says what does not hold, whatever it is, and shows its figures."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from noosphere.server.checking import Figures as HistoryFigures
from noosphere.server.checking import Kind, Verdict, Violation
from noosphere.server.demo.display import Lines, Screen, print_figures
from noosphere.server.demo.figures import Figures, Takeover, Tally
from noosphere.server.demo.job import Entry, JobResult
from noosphere.server.demo.protocol import (
    EVENTS,
    Claimed,
    Completed,
    Conflicted,
    Counted,
    Event,
    Finished,
    Holding,
    Lost,
    Overwrote,
    Ready,
    Updated,
    to_line,
)


def a_result(**changes: Any) -> JobResult:
    outline = {f"000{n}": Entry(title=f"Part {n}", source="tale", words=n) for n in (1, 2, 3, 4)}
    result = JobResult(outline, {"harbour": ["0001", "0002"], "ships": ["0003"]}, 10, 4, 4)
    return replace(result, **changes)


def some_events() -> list[tuple[str, Event]]:
    events: list[tuple[str, Event]] = [("agent-2", Overwrote()) for _ in range(3)]
    for number in (1, 2, 3, 4):
        events += [
            ("agent-1", Claimed(f"000{number}", 1)),
            ("agent-1", Conflicted("outline", "because" if number == 1 else "")),
            ("agent-1", Updated("outline", 2)),
            ("agent-1", Counted(f"000{number}", again=number == 4)),
            ("agent-1", Completed(f"000{number}")),
        ]
    return events


def a_tally() -> Tally:
    tally = Tally()
    for agent, event in some_events():
        tally.add(agent, event)
    return tally


def figures(**changes: Any) -> Figures:
    made = Figures(
        source="tale",
        agents=2,
        seconds=1.5,
        serial=a_result(),
        shared=a_result(),
        done=4,
        tally=a_tally(),
        takeover=Takeover("0004", "agent-2", "agent-1", 1.25),
        control=1,
        verdict=Verdict((), (), (), HistoryFigures(calls=99)),
        conflicts_min=4,
    )
    return replace(made, **changes)


def test_when_everything_holds_there_is_nothing_to_say() -> None:
    good = figures()
    assert good.failures == []
    document = good.as_dict()
    assert document["ok"] is True
    assert document["lost_updates"] == document["duplicate_completions"] == 0
    assert document["conflicts"] == {
        "met": 4,
        "resolved": 4,
        "ended_with_claim": 0,
        "abandoned": 0,
        "by_record": {"outline": 4},
        "updates_by_attempts": {"2": 4},
    }
    assert document["control"] == {"blind_writes": 3, "final": 1, "lost": 2}
    assert document["takeover"] == {"section": "0004", "killed": "agent-2", "by": "agent-1", "after_seconds": 1.25}
    assert document["counted_again"] == 1
    assert good.tally.explanation == "because"


def without(result: JobResult, name: str) -> JobResult:
    return replace(result, outline={key: entry for key, entry in result.outline.items() if key != name})


def twice_completed() -> Tally:
    tally = a_tally()
    tally.add("agent-2", Completed("0001"))
    return tally


def unresolved() -> Tally:
    tally = a_tally()
    tally.add("agent-2", Conflicted("outline"))
    return tally


BAD = Violation(Kind.STALE_READ, "revisions", "shared/demo", ("outline",), "read version 1")


@pytest.mark.parametrize(
    ("changes", "lost", "message"),
    [
        ({"shared": without(a_result(), "0002")}, 1, "1 updates were lost (outline 0002)"),
        ({"shared": a_result(index={"harbour": ["0001"], "ships": ["0003"]})}, 1, "lost (index harbour 0002)"),
        ({"shared": a_result(sections=3, words=9)}, 1, "1 updates were lost (tally)"),
        ({"shared": a_result(words=14, sections=5)}, 0, "something was applied twice"),
        ({"tally": twice_completed()}, 0, "1 sections were completed more than once"),
        ({"tally": unresolved()}, 0, "1 of 5 conflicts were not resolved"),
        ({"done": 3}, 0, "3 of 4 sections are marked as done"),
        ({"takeover": None}, 0, "no agent could be killed while it held a claim"),
        ({"takeover": Takeover("0004", "agent-2")}, 0, "nobody took over section 0004 from agent-2"),
        ({"conflicts_min": 100}, 0, "contention was not real: 4 conflicts, at least 100 are needed"),
        ({"control": 3}, 0, "contention was not real: the control wrote blindly and lost nothing"),
        ({"verdict": Verdict((BAD,), (), (), HistoryFigures())}, 0, "the recorded history is invalid"),
        ({"verdict": Verdict((), ("k",), (), HistoryFigures())}, 0, "the recorded history is undecided"),
        ({"verdict": Verdict((), (), (), HistoryFigures(lost_updates=2))}, 2, "2 updates were lost"),
        ({"verdict": Verdict((), (), (), HistoryFigures(duplicate_completions=1))}, 0, "more than once"),
    ],
)
def test_what_does_not_hold_is_said(changes: dict[str, Any], lost: int, message: str) -> None:
    bad = figures(**changes)
    assert len(bad.failures) == 1
    assert message in bad.failures[0]
    assert bad.lost_updates == lost
    assert bad.as_dict()["ok"] is False
    screen = io.StringIO()
    print_figures(bad, Console(file=screen, width=160))
    assert f"FAILED: {bad.failures[0]}" in screen.getvalue()


def test_a_conflict_whose_claim_went_to_somebody_else_is_moot() -> None:
    tally = unresolved()
    tally.add("agent-2", Lost("0003"))
    document = figures(tally=tally).as_dict()
    assert document["ok"] is True
    assert document["claims_lost"] == document["conflicts"]["ended_with_claim"] == 1


def test_the_final_table_has_every_figure() -> None:
    screen = io.StringIO()
    print_figures(figures(), Console(file=screen, width=160))
    text = screen.getvalue()
    for wanted in (
        "lost updates",
        "4 (4 on outline)",
        "section 0004: agent-2 killed, taken over by agent-1 1.2 s later",
        "3 writes acknowledged, 1 left, 2 lost",
        "99 calls, valid",
        "because",
        "All of it holds",
    ):
        assert wanted in text


def test_progress_is_plain_lines_off_a_terminal() -> None:
    screen = io.StringIO()
    tally = Tally()
    with Lines(Console(file=screen, width=80)) as display:
        display.begin("tale", ["agent-1", "agent-2"], 4)
        for agent, event in [*some_events(), ("agent-1", Lost("0002")), ("agent-2", Claimed("0002", 2))]:
            tally.add(agent, event)
            display.event(agent, event, tally)
        display.killed("agent-2", "0004")
    lines = screen.getvalue().splitlines()
    assert lines[0] == "2 agents on 4 sections of tale"
    assert "4 of 4 sections done, 4 conflicts met on the way" in lines
    assert "agent-1 lost its claim on section 0002" in lines
    assert "agent-2 took over section 0002" in lines
    assert "agent-2 killed in the middle of section 0004" in lines
    assert "\x1b" not in screen.getvalue()


def test_progress_is_a_live_table_on_a_terminal() -> None:
    screen = io.StringIO()
    tally = Tally()
    with Screen(Console(file=screen, width=120, force_terminal=True)) as display:
        display.begin("tale", ["agent-1", "agent-2"], 4)
        for agent, event in [("agent-2", Ready()), *some_events(), ("agent-2", Holding("0004"))]:
            tally.add(agent, event)
            display.event(agent, event, tally)
        display.killed("agent-2", "0004")
        display.event("agent-1", Finished(), tally)
    text = screen.getvalue()
    assert "2 agents on 4 sections of tale" in text
    assert "in the middle of 0004" in text
    assert "4 sections done, 4 conflicts met" in text


@pytest.mark.parametrize("event", [Ready(), Claimed("0001", 2), Conflicted("outline", "a\nb"), Updated("k", 3)])
def test_events_travel_as_one_line_each(event: Event) -> None:
    line = to_line(event)
    assert line.count(b"\n") == 1
    assert EVENTS.decode(line) == event
