"""What changed while somebody was thinking, as data and as words for a model's next attempt."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from noosphere.consistency import StaleChange, StaleEntry
from noosphere.v1 import types_pb2 as pb

from ._conflict import Conflict
from ._errors import Aborted, Outcome
from ._explain import Sentence, compose, escape

MAX_TOKENS = 300
_CHANGES_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Notes:
    """What is to be known before deciding (again). Empty, and false, before the first attempt.

    Attributes:
        stale: what changed after it was read: by whom, at which revision.
        conflicts: writes that were refused because of something that was not read.
        namespace: the namespace that need not be named.
        refused: whether a decision was refused because of this.
    """

    stale: tuple[StaleEntry, ...] = ()
    conflicts: tuple[Conflict[Any], ...] = ()
    namespace: str = ""
    refused: bool = False

    def __bool__(self) -> bool:
        return bool(self.stale or self.conflicts)

    def explain(self, max_tokens: int = MAX_TOKENS) -> str:
        """Returns one paragraph for a model; empty if there is nothing to explain.

        Args:
            max_tokens: a limit that holds for any tokenizer and any text, as that of ``Conflict.explain``.

        Raises:
            ValueError: ``max_tokens`` is negative.
        """
        if max_tokens < 0:
            raise ValueError(f"max_tokens: {max_tokens} is negative")
        return compose(self._sentences(), max_tokens) if self else ""

    def as_message(self, max_tokens: int = MAX_TOKENS) -> dict[str, Any]:
        """Returns the paragraph as a chat message: ``{"role": "user", "content": …}``."""
        return {"role": "user", "content": self.explain(max_tokens)}

    def as_dict(self) -> dict[str, Any]:
        """Returns the same as JSON-able data."""
        return {
            "stale": [
                {
                    "namespace": entry.namespace,
                    "name": entry.name,
                    "is_collection": entry.is_collection,
                    "seen": entry.seen,
                    "now": entry.now,
                    "changes": [change._asdict() for change in entry.changes],
                }
                for entry in self.stale
            ],
            "conflicts": [conflict.as_dict() for conflict in self.conflicts],
        }

    def _sentences(self) -> list[Sentence]:
        found = []
        if self.refused:
            found.append(Sentence("Your decision was not written.", None, "", 0))
        if self.stale:
            found.append(Sentence("This changed after you read it.", None, "", 1))
        # What is listed first matters most, and all of it more than what a conflict says beyond its key.
        for rank, entry in enumerate(self.stale, start=3):
            found.append(Sentence("", self._told(entry), ".", rank, cut=True))
        for conflict in self.conflicts:
            found += [replace(s, optional=2 if not s.optional else 50 + s.optional) for s in conflict._sentences()]
        # What to do is more than any detail of why: no number of conflicts may push it out.
        found.append(Sentence("Read it again before you decide.", None, "", 1))
        return found

    def _told(self, entry: StaleEntry) -> str:
        name = escape(entry.name) or "everything"
        where = "" if entry.namespace == self.namespace else f" in {escape(entry.namespace)}"
        told = [
            f"{escape(change.key)} {_by(change)}" if entry.is_collection else _by(change)
            for change in entry.changes[:_CHANGES_SHOWN]
        ]
        more = len(entry.changes) - len(told)
        rest = f" and {more} more" if more else ""
        return f"{name}{where}: {', '.join([*_verb(entry), *told])}{rest}"


NO_NOTES = Notes()


class StaleRead(Aborted):
    """Something that was read changed, appeared or vanished before the decision was written. Nothing was written.

    Attributes:
        stale: what changed, at most 16 entries.
        namespace: the namespace that was to be written.
    """

    default_reason = "STALE_READ_SET"

    def __init__(
        self,
        message: str,
        stale: Sequence[StaleEntry] = (),
        *,
        namespace: str = "",
        reason: str = "",
        code: str = "",
        request_id: str | None = None,
        outcome: Outcome = "not_applied",
        head: int = 0,
    ) -> None:
        super().__init__(message, reason=reason, code=code, request_id=request_id, outcome=outcome, head=head)
        self.stale = tuple(stale)
        self.namespace = namespace

    @property
    def notes(self) -> Notes:
        """The same for the next attempt."""
        return Notes(self.stale, namespace=self.namespace, refused=True)

    def explain(self, max_tokens: int = MAX_TOKENS) -> str:
        """Returns one paragraph for a model; see :meth:`Notes.explain`."""
        return self.notes.explain(max_tokens)

    def as_message(self, max_tokens: int = MAX_TOKENS) -> dict[str, Any]:
        """Returns the paragraph as a chat message: ``{"role": "user", "content": …}``."""
        return self.notes.as_message(max_tokens)


def to_stale(entries: Iterable[pb.StaleEntry]) -> tuple[StaleEntry, ...]:
    """Returns what changed."""
    return tuple(
        StaleEntry(
            entry.namespace,
            entry.name,
            entry.is_collection,
            entry.seen,
            entry.now,
            tuple(StaleChange(change.key, change.actor, change.revision) for change in entry.changes),
        )
        for entry in entries
    )


def _verb(entry: StaleEntry) -> tuple[str, ...]:
    if not entry.is_collection:
        return ("created" if not entry.seen else "changed" if entry.now else "deleted",)
    # Who changed what in it says it better.
    return () if entry.changes else ("changed",)


def _by(change: StaleChange) -> str:
    return f"by {escape(change.actor) or 'expiry'} at revision {change.revision}"
