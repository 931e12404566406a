"""What the checkers find: violations with their evidence, figures, and what could not be decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from .history import Call

EVIDENCE_MAX = 6
VIOLATIONS_SHOWN_MAX = 20
VIOLATIONS_KEPT_MAX = 1000


class Status(StrEnum):
    """The outcome of a check."""

    VALID = "valid"
    INVALID = "invalid"
    UNDECIDED = "undecided"
    """No violation was found, but a search met its bound before it was finished."""


class Kind(StrEnum):
    """Kinds of violation, by what a user would call them."""

    LOST_UPDATE = "lost update"
    STALE_READ = "stale read"
    FUTURE_READ = "read from the future"
    PHANTOM = "value from nowhere"
    TORN_TRANSACTION = "torn transaction"
    RESURRECTED_DELETE = "resurrected delete"
    MISSING_RECORD = "missing record"
    DUPLICATE_REVISION = "duplicate revision"
    GHOST_COMMIT = "commit that no call explains"
    REAL_TIME = "real-time inversion"
    HEAD_ORDER = "head went back"
    UNCHECKED_WRITE = "precondition not enforced"
    UNFOUNDED_REFUSAL = "refusal without a reason"
    WRONG_CONTENT = "wrong merge result"
    DOUBLE_COMPLETION = "double completion"
    TWO_HOLDERS = "two holders at once"
    CLAIM_RULE = "claim rule broken"
    UNTOLD_LOSS = "loss that was not told"
    NOT_LINEARIZABLE = "not linearizable"


@dataclass(frozen=True, slots=True)
class Violation:
    """One contradiction.

    Attributes:
        kind: what went wrong.
        checker: who found it: ``revisions``, ``registers``, ``tallies`` or ``claims``.
        namespace: where.
        keys: the keys concerned.
        text: what contradicts what, one sentence or two.
        calls: the calls that are the evidence.
    """

    kind: Kind
    checker: str
    namespace: str
    keys: tuple[str, ...]
    text: str
    calls: tuple[Call, ...] = ()

    def explain(self) -> str:
        """Returns the contradiction and its evidence as text of several lines."""
        lines = [f"{self.kind} in {self.namespace} ({', '.join(self.keys) or 'whole namespace'}): {self.text}"]
        lines += [f"    {call.describe()}" for call in self.calls[:EVIDENCE_MAX]]
        if len(self.calls) > EVIDENCE_MAX:
            lines.append(f"    … and {len(self.calls) - EVIDENCE_MAX} more calls")
        return "\n".join(lines)


class Findings:
    """Collects what one checker finds in one namespace; keeps the first 1,000 and counts all.

    Attributes:
        checker: who finds it.
        violations: what is kept, in the order found.
        counts: all violations by kind.
        undecided: what a search could not finish.
    """

    def __init__(self, checker: str, namespace: str) -> None:
        self.checker = checker
        self._namespace = namespace
        self.violations: list[Violation] = []
        self.counts: Counter[Kind] = Counter()
        self.undecided: list[str] = []

    def add(self, kind: Kind, keys: Iterable[str], text: str, *calls: Call) -> None:
        """Adds a violation with its evidence."""
        self.counts[kind] += 1
        if len(self.violations) < VIOLATIONS_KEPT_MAX:
            self.violations.append(Violation(kind, self.checker, self._namespace, tuple(keys), text, calls))


@dataclass(frozen=True, slots=True)
class Figures:
    """What happened in a history, counted from the calls alone.

    Attributes:
        processes: who called.
        calls: calls in all.
        by_op: calls by operation.
        unknown: calls with unknown outcome.
        commits: acknowledged commits.
        lost_updates: acknowledged writes that were replaced by somebody who had not seen them and was not told.
        duplicate_completions: completions of a task beyond its first.
        conflicts: refused writes by reason.
        resolved: conflicts after which the same process wrote the same key, having read it again.
        abandoned: conflicts after which it never did.
        attempts: how many writes needed how many attempts.
        blind_losses: values that a blind write replaced although its writer had never read them.
        claims_lost: calls refused because the claim was no longer the caller's.
        completions: tasks completed.
        takeovers: claims that were lapsed and taken by another process.
        registers: keys that the register checker covered.
        uncovered: keys that it could not cover, by reason.
    """

    processes: int = 0
    calls: int = 0
    by_op: dict[str, int] = field(default_factory=dict)
    unknown: int = 0
    commits: int = 0
    lost_updates: int = 0
    duplicate_completions: int = 0
    conflicts: dict[str, int] = field(default_factory=dict)
    resolved: int = 0
    abandoned: int = 0
    attempts: dict[int, int] = field(default_factory=dict)
    blind_losses: int = 0
    claims_lost: int = 0
    completions: int = 0
    takeovers: int = 0
    registers: int = 0
    uncovered: dict[str, int] = field(default_factory=dict)

    @property
    def conflict_count(self) -> int:
        """Conflicts met, of every reason."""
        return sum(self.conflicts.values())


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of every checker on one history.

    Attributes:
        violations: contradictions, the most telling first.
        undecided: what a search could not finish within its bound.
        notes: what a reader should know, e.g. torn journals.
        figures: what happened.
    """

    violations: tuple[Violation, ...]
    undecided: tuple[str, ...]
    notes: tuple[str, ...]
    figures: Figures

    @property
    def status(self) -> Status:
        """Valid, invalid or undecided."""
        if self.violations:
            return Status.INVALID
        return Status.UNDECIDED if self.undecided else Status.VALID

    @property
    def ok(self) -> bool:
        """Whether the history is valid beyond doubt."""
        return self.status is Status.VALID

    def explain(self) -> str:
        """Returns the verdict as text of several lines."""
        lines = [f"history is {self.status}"]
        lines += [violation.explain() for violation in self.violations[:VIOLATIONS_SHOWN_MAX]]
        if len(self.violations) > VIOLATIONS_SHOWN_MAX:
            lines.append(f"… and {len(self.violations) - VIOLATIONS_SHOWN_MAX} more violations")
        lines += [f"undecided: {text}" for text in self.undecided]
        lines += [f"note: {text}" for text in self.notes]
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """Returns the verdict as plain data for JSON."""
        figures = self.figures
        return {
            "status": str(self.status),
            "violations": [
                {
                    "kind": str(violation.kind),
                    "checker": violation.checker,
                    "namespace": violation.namespace,
                    "keys": list(violation.keys),
                    "text": violation.text,
                    "calls": [{"process": call.process, "call": call.call} for call in violation.calls],
                }
                for violation in self.violations
            ],
            "undecided": list(self.undecided),
            "notes": list(self.notes),
            "figures": {
                **asdict(figures),
                "attempts": {str(count): writes for count, writes in sorted(figures.attempts.items())},
                "conflict_count": figures.conflict_count,
            },
        }
