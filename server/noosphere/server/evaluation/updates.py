"""What becomes of facts that later ones contradict: is the present value found first, and does everything else stay?

A set has numbered facts, which arrive in order, and questions with their present answers. Every fact is a candidate of
its own and goes through the whole pipeline; every question is a search. Nothing here knows the rules by which slots are
found: what contradicts what is read off the words again, in another way.

- The *fact asked for* is the one that ends with the answer and has most words in common with the question before it;
  of equals the newest.
- *current first*: the first hit is that fact. *stale first*: the first hit is another one with the same words before
  its answer. Both in percent of all questions.
- A *false supersession*: the fact that superseded another does not begin as that one does, up to where a value may
  begin, or goes on as a value does not. In doubt it is counted as false. In percent of all supersessions. Facts that
  were merged with others that say something else count as falsely superseded, too.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from noosphere.consistency import NEVER_MS

from ..facts.asked import EMBED_MS_MAX, SearchAsked
from ..facts.ledger import digest
from ..facts.scopes import IdKind, make_id
from ..facts.service import Facts
from ..facts.trust import USER_TRUST
from ..facts.types import Candidate, Channel, Decision, FactState, Status
from ..memory.types import ANONYMOUS
from ..text import distinct_terms, normalise

FILE_BYTES_MAX = 64 * 1024 * 1024
FACTS_MAX = 100_000
UPDATE_GATES = {"current_first": 95.0, "stale_first": 0.0, "false_supersessions": 1.0}
UPDATE_GOALS = {"current_first": 98.0, "stale_first": 0.0, "false_supersessions": 1.0}

_BATCH = 100
_LIMIT = 10
_SCOPE = "shared/updates"
_NUMBERED = re.compile(r"(\d+)\. (\S.*)")
_BEFORE_VALUES = frozenset(
    {"is", "are", "was", "were", "of", "by", "to", "for", "in", "at", "as", "with", "on", "from"}
)
_STATES = re.compile(r"\b(?:is|are|was|were)\b")
_GOES_ON = re.compile(r"(?:^|\s)[a-z]+ (?:of|by|to|for|in|at|as|with|on|from)\s")


class UpdatesError(Exception):
    """A file that holds no such set; the message names it and what is wrong."""


class Question(NamedTuple):
    """A question, and the answers that are right now."""

    text: str
    answers: tuple[str, ...]


class UpdateSet(NamedTuple):
    """Facts in the order in which they arrive, and questions about what is so after all of them."""

    name: str
    facts: tuple[str, ...]
    questions: tuple[Question, ...]


class Placed(NamedTuple):
    """How questions were answered, in percent."""

    n: int
    current_first: float
    stale_first: float


class UpdatesScore(NamedTuple):
    """All figures.

    Attributes:
        facts: how many there are.
        questions: over all questions.
        alone: the same for a search that also finds what was superseded.
        decided: how many candidates became what.
        supersessions: how many facts were superseded.
        false_supersessions: descriptions of those that should not have been.
        missed: for each question whose answer is not first: what is asked, what is right, and what is first.
    """

    facts: int
    questions: Placed
    alone: Placed
    decided: dict[str, int]
    supersessions: int
    false_supersessions: tuple[str, ...]
    missed: tuple[tuple[str, str, str], ...]

    @property
    def reached(self) -> dict[str, float]:
        """The figures that gates and goals are for."""
        return {
            "current_first": self.questions.current_first,
            "stale_first": self.questions.stale_first,
            "false_supersessions": 100 * len(self.false_supersessions) / max(1, self.supersessions),
        }


def reaches(name: str, value: float, limit: float) -> bool:
    """Tells whether a figure keeps a gate or goal: one is to be high, the others low."""
    return value >= limit if name == "current_first" else value <= limit


def read_updates(path: Path) -> tuple[UpdateSet, ...]:
    """Reads the sets of a file, or of all ``*.json`` files of a folder.

    Raises:
        UpdatesError: there is no such file, it is too large, or not of this shape.
    """
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not files:
        raise UpdatesError(f"{path}: has no JSON files")
    return tuple(map(_read, files))


def _read(file: Path) -> UpdateSet:
    try:
        if (size := file.stat().st_size) > FILE_BYTES_MAX:
            raise UpdatesError(f"{file}: has {size} bytes, the limit is {FILE_BYTES_MAX}")
        whole = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UpdatesError(f"{file}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UpdatesError(f"{file}: is no JSON ({error})") from None
    return _set(file, whole)


def _set(file: Path, whole: Any) -> UpdateSet:
    try:
        lines = sorted(
            (int(match[1]), match[2].strip())
            for line in str(whole["context"]).splitlines()
            if (match := _NUMBERED.fullmatch(line.strip()))
        )
        questions = tuple(
            Question(str(text), tuple(map(str, [answers] if isinstance(answers, str) else answers)))
            for text, answers in zip(whole["questions"], whole["answers"], strict=True)
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UpdatesError(f"{file}: is no set of updates ({type(error).__name__}: {error})") from None
    if not lines or not questions:
        raise UpdatesError(f"{file}: has {len(lines)} numbered facts and {len(questions)} questions, both are needed")
    if len(lines) > FACTS_MAX:
        raise UpdatesError(f"{file}: has {len(lines)} facts, the limit is {FACTS_MAX}")
    return UpdateSet(file.stem, tuple(text for _, text in lines), questions)


async def score_updates(facts: Facts, given: UpdateSet, *, scope: str = _SCOPE) -> UpdatesScore:
    """Measures everything.

    Args:
        facts: an engine's facts, with nothing in the scope yet.
        given: facts and questions.
        scope: where facts go.
    """
    decisions = await _remember(facts, given.facts, scope)
    text_of = {made.fact_id: text for text, made in zip(given.facts, decisions, strict=True) if _written(made)}
    notes = await facts.ledger.facts(scope, list(text_of))
    superseded = [(id, note.superseded_by) for id, note in notes.items() if note.state is FactState.SUPERSEDED]
    wrong = [
        f"{text_of[old]} ← {text_of.get(new, '?')}"
        for old, new in superseded
        if not same_but_value(text_of[old], text_of.get(new, ""))
    ]
    for text, decision in zip(given.facts, decisions, strict=True):
        if decision.status is Status.MERGED and normalise(text_of.get(decision.fact_id, "")) != normalise(text):
            wrong.append(f"{text} ← {text_of.get(decision.fact_id, '?')}")
    asked = [(one, *_wanted(one, given.facts)) for one in given.questions]
    first = [await _first(facts, one.text, scope) for one in given.questions]
    alone = [await _first(facts, one.text, scope, include_superseded=True) for one in given.questions]
    return UpdatesScore(
        len(given.facts),
        _placed(asked, first),
        _placed(asked, alone),
        dict(sorted(Counter(decision.status.value for decision in decisions).items())),
        len(superseded),
        tuple(wrong),
        tuple(
            (one.text, wanted, hit)
            for (one, wanted, _), hit in zip(asked, first, strict=True)
            if normalise(hit) != normalise(wanted) or not wanted
        ),
    )


async def _remember(facts: Facts, texts: Sequence[str], scope: str) -> list[Decision]:
    now_ms = facts.ledger.now_ms
    decisions: list[Decision] = []
    for start in range(0, len(texts), _BATCH):
        batch = [
            Candidate(
                id=make_id(scope, digest("update", scope, str(at)), IdKind.CANDIDATE),
                scope=scope,
                owner=scope,
                text=texts[at],
                confidence=1.0,
                importance=1.0,
                channel=Channel.INTERNAL,
                trust=USER_TRUST,
                producer="updates",
                # One after the other, and none in the future.
                valid_from_ms=now_ms - len(texts) + at,
                expires_at_ms=NEVER_MS,
                submitted_ms=now_ms,
            )
            for at in range(start, min(len(texts), start + _BATCH))
        ]
        await facts.intake.enqueue(batch)
        made = await facts.decisions.wait(scope, [one.id for one in batch])
        if any(decision.status is Status.QUEUED for decision in made):
            raise UpdatesError(f"facts {start} to {start + len(batch) - 1}: were not decided in time")
        decisions += made
    return decisions


def _written(decision: Decision) -> bool:
    return bool(decision.fact_id) and decision.status is not Status.MERGED


async def _first(facts: Facts, query: str, scope: str, *, include_superseded: bool = False) -> str:
    asked = SearchAsked(
        query, owners=(scope,), limit=_LIMIT, include_superseded=include_superseded, embed_ms_max=EMBED_MS_MAX
    )
    reply = await facts.retrieval.search(ANONYMOUS, asked)
    return reply.hits[0].fact.text if reply.hits else ""


def _wanted(asked: Question, facts: Sequence[str]) -> tuple[str, str]:
    """Returns the fact asked for, and its words before the answer; empty if there is none."""
    words = distinct_terms(asked.text)
    best, found = (-1.0, -1), ("", "")
    for at, text in enumerate(facts):
        for answer in asked.answers:
            before = text.rstrip(" .").removesuffix(answer.rstrip(" ."))
            if before != text.rstrip(" .") and before.endswith(" "):
                said = distinct_terms(before)
                rank = (len(words & said) / (len(words) + len(said)), at)
                if rank > best:
                    best, found = rank, (text, before)
    return found


def _placed(asked: Sequence[tuple[Question, str, str]], first: Sequence[str]) -> Placed:
    current = stale = 0
    for (_, wanted, before), hit in zip(asked, first, strict=True):
        if wanted and normalise(hit) == normalise(wanted):
            current += 1
        elif before and normalise(hit).startswith(normalise(before)):
            stale += 1
    return Placed(len(asked), 100 * current / len(asked), 100 * stale / len(asked))


def same_but_value(old: str, new: str) -> bool:
    """Tells whether two facts say something else of the same: alike up to a word before values, then only values."""
    one, other = old.rstrip(" .").split(" "), new.rstrip(" .").split(" ")
    alike = 0
    while alike < min(len(one), len(other)) and one[alike] == other[alike]:
        alike += 1
    while alike and one[alike - 1] not in _BEFORE_VALUES:
        alike -= 1
    rests = [" ".join(words[alike:]) for words in (one, other)]
    if not alike or not all(rests) or any(_STATES.search(rest) for rest in rests):
        return False
    return not all(_GOES_ON.search(rest) for rest in rests)
