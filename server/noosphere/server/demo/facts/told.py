"""What a demo of facts has to tell, as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, NamedTuple

from noosphere.client import CandidateState, Fact, FactDecision, FactExplanation


class Told(NamedTuple):
    """One step.

    Attributes:
        who: ``user``, ``agent``, ``page`` or ``server``.
        text: what was said or done.
        outcome: what became of it, in a word; empty if nothing had to.
        why: why, in sentences.
    """

    who: str
    text: str
    outcome: str = ""
    why: str = ""


@dataclass(slots=True)
class ToldSession:
    """One session: its id, its title, its day, and its steps."""

    id: str
    title: str
    day: date
    steps: list[Told] = field(default_factory=list)


class Answer(NamedTuple):
    """A question, and the whole path of the fact that answers it best."""

    query: str
    path: FactExplanation


@dataclass(slots=True)
class Played:
    """A whole demo as it was played.

    Attributes:
        title: for people.
        owner: whose facts.
        sessions: what happened.
        known: what is known in the end, and what was so before.
        answers: why the best hits of questions are known, and stand first.
        refused: what did not become a fact.
        gone: words that must stand nowhere any more.
        checks: what must be so, and whether it is.
        seconds: how long it took.
    """

    title: str
    owner: str
    sessions: list[ToldSession] = field(default_factory=list)
    known: list[Fact] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    refused: list[CandidateState] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    checks: list[tuple[str, bool]] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def failures(self) -> list[str]:
        """The checks that do not hold."""
        return [text for text, holds in self.checks if not holds]

    def as_dict(self) -> dict[str, Any]:
        """Returns it as plain data for JSON."""
        return {
            "ok": not self.failures,
            "failures": self.failures,
            "title": self.title,
            "owner": self.owner,
            "sessions": [
                {
                    "session": told.id,
                    "title": told.title,
                    "day": told.day.isoformat(),
                    "steps": [step._asdict() for step in told.steps],
                }
                for told in self.sessions
            ],
            "known": [
                {
                    "fact": fact.id,
                    "text": fact.text,
                    "since": day_of(fact.valid_from),
                    "until": day_of(fact.valid_to),
                    "superseded_by": fact.superseded_by or None,
                    "confidence": fact.confidence,
                    "trust": fact.trust,
                    "sources": fact.source_count,
                }
                for fact in self.known
            ],
            "answers": [
                {
                    "query": answer.query,
                    "fact": answer.path.fact.id,
                    "text": answer.path.fact.text,
                    "rank": answer.path.rank,
                    "relevance": None if answer.path.scores is None else answer.path.scores.relevance,
                    "evidence": [evidence.reference for evidence in answer.path.fact.evidence],
                    "decisions": [state.decision.explain() for state in answer.path.candidates],
                }
                for answer in self.answers
            ],
            "refused": [
                {
                    "candidate": state.decision.candidate_id,
                    "text": state.candidate.text or None,
                    "status": state.decision.status,
                    "reasons": [why.reason for why in state.decision.reasons],
                }
                for state in self.refused
            ],
            "checks": [{"text": text, "holds": holds} for text, holds in self.checks],
            "seconds": round(self.seconds, 3),
        }


def reasons_of(decision: FactDecision) -> str:
    """Returns why a candidate became what it did, in sentences; of a refusal, what speaks against it."""
    # That a claim would have been new says nothing about why it was refused.
    reasons = [why for why in decision.reasons if decision.known or why.step != "resolve"]
    return " ".join(why.explanation for why in reasons or decision.reasons)


def counted(count: int, what: str) -> str:
    """Returns a count with its noun, e.g. ``1 fact`` or ``2 facts``."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def same_words(one: str, other: str) -> bool:
    """Tells whether two texts are one but for the full stop, which extraction leaves as it was said."""
    return one.strip().rstrip(".。") == other.strip().rstrip(".。")


def day_of(moment: datetime | None) -> str | None:
    """Returns the day of a moment, as text; None for none."""
    return None if moment is None else moment.date().isoformat()
