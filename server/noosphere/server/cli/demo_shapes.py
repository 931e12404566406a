"""The documents that the demos print with ``--json``; see ``shapes``."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict


class LostWriteShape(TypedDict):
    """An acknowledged call that a failover has lost."""

    agent: Annotated[str, "Whose."]
    op: Annotated[str, "What it was, e.g. `put`."]
    keys: Annotated[list[str], "What it wrote."]
    revision: Annotated[str, "At which it was acknowledged."]
    told: Annotated[bool, "Whether its writer was told that the revision is gone."]
    named: Annotated[bool, "Whether its client named the write; claims are told by their range alone."]


class ChaosShape(TypedDict):
    """A killed server and a failover with loss, and what both Redis servers hold of what was acknowledged."""

    killed_server: Annotated[str, "The server that was killed."]
    old_primary: Annotated[str, "The Redis that was killed."]
    new_primary: Annotated[str, "The Redis that was promoted."]
    wanted: Annotated[int, "How many acknowledged writes it was to lose at least."]
    acknowledged: Annotated[int, "Acknowledged writes of the whole run."]
    lost: Annotated[int, "Those that the old Redis held and the new one does not."]
    unsignalled: Annotated[int, "Lost writes of which their writers were not told."]
    false_alarms: Annotated[int, "Writes that survived although their writers were told otherwise."]
    cut: Annotated[str, "The newest revision that survived."]
    only_in_old: Annotated[int, "Commits that only the old Redis held, whoever made them."]
    told_by: Annotated[dict[str, int], "How many agents were told first by `epoch` in a watch, and by an `error`."]
    resubmitted: Annotated[int, "Lost calls that were written again."]
    redone: Annotated[int, "Lost calls whose part of the work was decided anew."]
    left: Annotated[int, "Lost calls that whoever does the section again makes good."]
    writes: Annotated[list[LostWriteShape], "The lost ones."]


class DemoShape(TypedDict):
    """What came of a demo."""

    ok: Annotated[bool, "Whether nothing was lost, and the contention was real."]
    failures: Annotated[list[str], "What does not hold."]
    source: Annotated[str, "Where the text came from."]
    agents: Annotated[int, "How many agent processes."]
    seconds: Annotated[float, "How long they worked."]
    lost_updates: Annotated[int, "Parts of the serial result that are missing."]
    duplicate_completions: Annotated[int, "Tasks that were completed more than once."]
    conflicts: Annotated[dict[str, Any], "How many were met and resolved, on which records, in how many attempts."]
    serial: Annotated[dict[str, int], "What one process alone makes of the text."]
    shared: Annotated[dict[str, int], "What the agents made of it."]
    completed: Annotated[int, "Completed tasks."]
    completed_by_agent: Annotated[dict[str, int], "The same by agent."]
    takeover: Annotated[dict[str, Any] | None, "Which task of the killed agent was taken over, by whom, how soon."]
    servers: Annotated[int, "How many servers the agents used."]
    chaos: Annotated[ChaosShape | None, "What was done to the servers and lost by it; null without --chaos."]
    counted_again: Annotated[int, "Sections done again whose counting was found done."]
    claims_lost: Annotated[int, "Completions that were refused because somebody else held the task."]
    control: Annotated[dict[str, int], "What blind writes lost in the same time."]
    history: Annotated[dict[str, Any], "The checker's verdict on the recorded calls."]


class LineShape(TypedDict):
    """A statement about the server."""

    text: Annotated[str, "The statement."]
    holds: Annotated[bool, "Whether it is true."]


class ParagraphShape(TypedDict):
    """What a model is told."""

    title: Annotated[str, "When."]
    text: Annotated[str, "The paragraph."]


class SightShape(TypedDict):
    """What an agent had seen of a record."""

    agent: Annotated[str, "Who."]
    holds: Annotated[str, "What it holds of it."]
    seen: Annotated[str, "Whose writes it has seen, up to which revision."]
    order: Annotated[str, "`EQUAL`, `BEFORE`, `AFTER` or `CONCURRENT`, compared with what is there."]


class StepShape(TypedDict):
    """A step of the causality demo."""

    name: Annotated[str, "`history`, `conflict`, `decision`, `handover` or `siblings`."]
    title: Annotated[str, "For people."]
    ok: Annotated[bool, "Whether every line holds."]
    lines: Annotated[list[LineShape], "What is stated, in order."]
    paragraphs: Annotated[list[ParagraphShape], "What models are told."]
    sights: Annotated[list[SightShape], "Who had seen what."]


class CausalityShape(TypedDict):
    """What came of the causality demo."""

    ok: Annotated[bool, "Whether every line of every step holds."]
    failures: Annotated[list[str], "Lines that do not hold, with the step's name."]
    steps: Annotated[list[StepShape], "The steps, up to the first with such a line."]
    missing: Annotated[list[str], "Names of the steps that were not reached."]
    seconds: Annotated[float, "How long it took."]


class DemoTurnShape(TypedDict):
    """A turn of the session demo."""

    turn: Annotated[int, "Its number."]
    tokens_used: Annotated[int, "What its context took."]
    tokens_max: Annotated[int, "What its context was allowed."]
    items: Annotated[int, "Items of working memory afterwards."]
    events: Annotated[list[str], "What else happened, in words."]


class DemoHealthShape(TypedDict):
    """One figure of the played session's health."""

    metric: Annotated[str, "`context_utilization`, `state_hit_rate`, `state_lifespan` or `token_growth`."]
    value: Annotated[float | None, "The value; null if too little is known."]
    verdict: Annotated[str, "`unknown`, `good`, `too_low` or `too_high`."]
    source: Annotated[str, "`measured`, `reported`, `estimated` or `unknown`."]
    advice: Annotated[str, "What it means and what to do."]


class SessionDemoShape(TypedDict):
    """What came of the session demo."""

    ok: Annotated[bool, "Whether everything is as it must be."]
    failures: Annotated[list[str], "What is not."]
    session: Annotated[str, "The session, which stays."]
    title: Annotated[str, "The script's title."]
    context: Annotated[str, "The newest context, for `noosphere context explain`."]
    turns: Annotated[list[DemoTurnShape], "The turns."]
    health: Annotated[list[DemoHealthShape], "How the session fares in the end."]
    checks: Annotated[list[LineShape], "What must be so, and whether it is."]
    seconds: Annotated[float, "How long it took."]
    serve: Annotated[str | None, "What serves its data again; null if a running server was used."]


class FactsDemoStepShape(TypedDict):
    """A step of the facts demo."""

    who: Annotated[str, "`user`, `agent`, `page` or `server`."]
    text: Annotated[str, "What was said or done."]
    outcome: Annotated[str, "What became of it, in a word; empty if nothing had to."]
    why: Annotated[str, "Why, in sentences."]


class FactsDemoSessionShape(TypedDict):
    """A session of the facts demo."""

    session: Annotated[str, "Its id."]
    title: Annotated[str, "Its title."]
    day: Annotated[str, "Its day."]
    steps: Annotated[list[FactsDemoStepShape], "What happened, in order."]


class FactsDemoKnownShape(TypedDict):
    """What is known in the end, or was so before."""

    fact: Annotated[str, "The fact's id."]
    text: Annotated[str, "The claim."]
    since: Annotated[str | None, "Since which day it is so."]
    until: Annotated[str | None, "Until which day it was; null while it is."]
    superseded_by: Annotated[str | None, "The fact that superseded it."]
    confidence: Annotated[float, "How sure it is, 0 to 1."]
    trust: Annotated[float, "How far it is trusted, 0 to 1."]
    sources: Annotated[int, "How many sources support it."]


class FactsDemoAnswerShape(TypedDict):
    """A question and its best answer."""

    query: Annotated[str, "The question."]
    fact: Annotated[str, "The fact's id."]
    text: Annotated[str, "The claim."]
    rank: Annotated[int | None, "Where it stands, from 1; null if it is not found any more."]
    relevance: Annotated[float | None, "How likely it helps, 0 to 1."]
    evidence: Annotated[list[str], "What it rests on, the newest first."]
    decisions: Annotated[list[str], "What became of its candidates, and why."]


class FactsDemoRefusedShape(TypedDict):
    """What did not become a fact."""

    candidate: Annotated[str, "The candidate's id."]
    text: Annotated[str | None, "The claim; null if it was forgotten."]
    status: Annotated[str, "`rejected`, `quarantined`, `suppressed` or `dead`."]
    reasons: Annotated[list[str], "Why, as words."]


class FactsDemoShape(TypedDict):
    """What came of the facts demo."""

    ok: Annotated[bool, "Whether everything is as it must be."]
    failures: Annotated[list[str], "What is not."]
    title: Annotated[str, "The script's title."]
    owner: Annotated[str, "Whose facts, which stay."]
    sessions: Annotated[list[FactsDemoSessionShape], "The sessions."]
    known: Annotated[list[FactsDemoKnownShape], "What is known, then what was so before."]
    answers: Annotated[list[FactsDemoAnswerShape], "Why the best answers are known, and stand first."]
    refused: Annotated[list[FactsDemoRefusedShape], "What was refused, the newest first."]
    checks: Annotated[list[LineShape], "What must be so, and whether it is."]
    seconds: Annotated[float, "How long it took."]
    serve: Annotated[str | None, "What serves its data again; null if a running server was used."]
