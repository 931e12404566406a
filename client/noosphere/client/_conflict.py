"""Conflicts as objects: what the caller had read, what it wanted, what is there now, and who did it."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Generic, TypeVar

from ._errors import NoosphereError
from ._explain import Sentence, as_data, compose, escape, show_payload, show_time
from ._record import Record
from ._values import Codec, Payload
from ._wire import Dot, to_payload

T = TypeVar("T")

_WRITERS_SHOWN = 3


class Action(StrEnum):
    """What a caller may do about a conflict."""

    MERGE = "merge"
    """``theirs.replace(...)`` with one value that takes all of theirs into account."""
    KEEP_THEIRS = "keep_theirs"
    """Leave what is there."""
    OVERWRITE = "overwrite"
    """``put(..., blind=True)``: their value goes, and the reply names whose it was."""
    RECREATE = "recreate"
    """``theirs.replace(...)``: write it again although it was deleted."""
    DELETE = "delete"
    """``theirs.delete()``: delete it, their change included."""
    READ_AGAIN = "read_again"
    """Read the key, then decide."""


_SAYS = {
    Action.MERGE: "write one value that keeps both changes",
    Action.KEEP_THEIRS: "leave it as it is",
    Action.OVERWRITE: "overwrite it on purpose",
    Action.RECREATE: "write it again",
    Action.DELETE: "delete it with that change",
    Action.READ_AGAIN: "read it again first",
}


class Conflict(NoosphereError, Generic[T]):
    """A write was refused because of something that its author had not seen. Nothing was written.

    Attributes:
        namespace: the namespace.
        key: the key.
        operation: ``put``, ``delete`` or ``compare``.
        base: the record that the caller had read, None if it presented none.
        theirs: the record as it is now; None if the server did not send it.
        unseen: the writes that the caller had not seen, newest first.
    """

    default_reason = "CONFLICT"
    default_code = "ABORTED"

    def __init__(
        self,
        message: str,
        *,
        namespace: str,
        key: str,
        operation: str = "put",
        codec: Codec[T] | None = None,
        base: Record[T] | None = None,
        mine: Payload | None = None,
        theirs: Record[T] | None = None,
        unseen: tuple[Dot, ...] = (),
        reason: str = "",
        code: str = "",
        request_id: str | None = None,
        head: int = 0,
    ) -> None:
        super().__init__(message, reason=reason, code=code, request_id=request_id, head=head)
        self.namespace = namespace
        self.key = key
        self.operation = operation
        self.base = base
        self.theirs = theirs
        self.unseen = unseen
        self._codec = codec
        self._mine = mine

    @property
    def mine(self) -> T | None:
        """The value that was refused, as a fresh object; None for a delete or a compare."""
        if self._mine is None or self._codec is None:
            return None
        return self._codec.decode(self._mine)

    @property
    def allowed(self) -> tuple[Action, ...]:
        """What the caller may do, the most sensible first."""
        if self.theirs is None or self.operation == "compare":
            return (Action.READ_AGAIN, Action.KEEP_THEIRS)
        if self.operation == "delete":
            return (Action.KEEP_THEIRS, Action.DELETE)
        if not self.theirs.exists:
            return (Action.RECREATE, Action.KEEP_THEIRS)
        return (Action.MERGE, Action.KEEP_THEIRS, Action.OVERWRITE)

    def explain(self, max_tokens: int = 200) -> str:
        """Returns one short paragraph for a model.

        The limit holds for any tokenizer and any text: users' text is counted at one token per UTF-8
        byte, the paragraph's own plain English words at one each plus a quarter. What does not fit
        is cut with a marker or left out: first what the caller knows anyway (``base``, ``mine``).

        Args:
            max_tokens: the limit. Below about 20 the paragraph is empty.

        Raises:
            ValueError: ``max_tokens`` is negative.
        """
        if max_tokens < 0:
            raise ValueError(f"max_tokens: {max_tokens} is negative")
        return compose(self._sentences(), max_tokens)

    def as_dict(self) -> dict[str, Any]:
        """Returns the conflict as JSON-able data: the same parts, values as JSON or ``{"base64": …}``."""
        return {
            "reason": self.reason,
            "message": self.message,
            "namespace": self.namespace,
            "key": self.key,
            "operation": self.operation,
            "request_id": self.request_id,
            "outcome": self.outcome,
            "head": self.head,
            "base": _record_data(self.base),
            "mine": as_data(self._mine) if self._mine is not None else None,
            "theirs": _record_data(self.theirs),
            "unseen": [
                {"revision": d.revision, "actor": d.actor, "time": show_time(d.time), "deleted": d.deleted}
                for d in self.unseen
            ],
            "allowed": [action.value for action in self.allowed],
        }

    def _renewed(self, theirs: Record[T]) -> Conflict[T]:
        """Returns the same conflict with a record that was read later."""
        seen = self.base.seen if self.base is not None else None
        unseen = tuple(dot for dot in _dots(theirs) if seen is None or not seen.covers(dot.revision))
        return type(self)(
            self.message,
            namespace=self.namespace,
            key=self.key,
            operation=self.operation,
            codec=self._codec,
            base=self.base,
            mine=self._mine,
            theirs=theirs,
            unseen=unseen or self.unseen,
            reason=self.reason,
            code=self.code,
            request_id=self.request_id,
            head=theirs.head,
        )

    def _sentences(self) -> list[Sentence]:
        what = {"put": "Your write to ", "delete": "Your delete of "}.get(self.operation, "Your check of ")
        found = [Sentence(what, escape(self.key), f" failed: {self._why()}.", 0, cut=True)]
        if self.theirs is not None:
            found.append(self._now(self.theirs))
        if self.unseen:
            shown = ", ".join(_writer(dot) for dot in self.unseen[:_WRITERS_SHOWN])
            more = len(self.unseen) - _WRITERS_SHOWN
            rest = f" and {more} more." if more > 0 else "."
            changes = (
                "changes that you have not seen are" if len(self.unseen) > 1 else "change that you have not seen is"
            )
            found.append(Sentence(f"The {changes} by ", shown, rest, 2, cut=True))
        if self._mine is not None:
            found.append(Sentence("You wanted to write ", show_payload(self._mine), ".", 4, cut=True))
        if self.base is not None:
            found.append(_read_before(self.base))
        options = " or ".join(_SAYS[action] for action in self.allowed)
        found.append(Sentence(f"You may {options}.", None, "", 3))
        return found

    def _why(self) -> str:
        return "it changed after you read it" if self.base is not None else "it is not as you expected"

    def _now(self, theirs: Record[T]) -> Sentence:
        payloads = _payloads(theirs)
        if not payloads:
            return Sentence("It has no value now.", None, "", 1)
        if len(payloads) == 1:
            return Sentence("It is now ", show_payload(payloads[0]), ".", 1, cut=True)
        joined = " | ".join(show_payload(payload) for payload in payloads)
        return Sentence("It has several values now: ", joined, ".", 1, cut=True)


class VersionMismatch(Conflict[T]):
    """``expected_version`` is not the record's version."""

    default_reason = "VERSION_MISMATCH"


class ContextTooOld(Conflict[T]):
    """What the caller read is older than what the namespace remembers about deleted keys."""

    default_reason = "CONTEXT_TOO_OLD"

    def _why(self) -> str:
        return "what you read is too old to tell what changed"


class SiblingLimit(Conflict[T]):
    """The record has as many unresolved values as it may; write one in their place."""

    default_reason = "SIBLING_LIMIT"

    def _why(self) -> str:
        return "it has too many values that nobody has joined"


class PreconditionRequired(Conflict[T]):
    """There is a value, and the write said neither what it had read nor that it does not care."""

    default_reason = "PRECONDITION_REQUIRED"
    default_code = "FAILED_PRECONDITION"

    def _why(self) -> str:
        return "it has a value that you have not read"


class SiblingConflict(Conflict[T]):
    """A record has several live values that nobody has joined yet.

    Never raised: ``key.update`` hands it to its function, whose result replaces all of ``theirs.values``.
    """

    default_reason = "UNRESOLVED_SIBLINGS"
    default_code = "FAILED_PRECONDITION"

    @property
    def allowed(self) -> tuple[Action, ...]:
        """What the caller may do."""
        return (Action.MERGE,)

    def _sentences(self) -> list[Sentence]:
        found = [Sentence("", escape(self.key), " has several values that nobody has joined.", 0, cut=True)]
        if self.theirs is not None:
            found.append(self._now(self.theirs))
        shown = ", ".join(_writer(dot) for dot in self.unseen[:_WRITERS_SHOWN])
        more = len(self.unseen) - _WRITERS_SHOWN
        found.append(Sentence("They are by ", shown, f" and {more} more." if more > 0 else ".", 2, cut=True))
        found.append(Sentence("Write one value that keeps what matters in each of them.", None, "", 3))
        return found


def sibling_conflict(record: Record[T]) -> SiblingConflict[T]:
    """Returns what is to be said about a record with several live values."""
    return SiblingConflict(
        f"{record.key!r} in {record.namespace} has {len(record.writers)} live values",
        namespace=record.namespace,
        key=record.key,
        operation="update",
        codec=record._codec,
        theirs=record,
        unseen=_dots(record),
        head=record.head,
    )


def _dots(record: Record[Any]) -> tuple[Dot, ...]:
    """Returns a record's live values without their content, newest first."""
    return tuple(Dot(w.revision, w.actor, w.time, False) for w in reversed(record.writers))


def _writer(dot: Dot) -> str:
    what = " (a delete)" if dot.deleted and dot.actor else ""
    return f"{escape(dot.actor) or 'expiry'} at {show_time(dot.time)}{what}"


def _payloads(record: Record[Any]) -> list[Payload]:
    return [to_payload(live.value) for live in record._proto.values]


def _read_before(base: Record[Any]) -> Sentence:
    payloads = _payloads(base)
    if not payloads:
        return Sentence("When you read it, it had no value.", None, "", 5)
    joined = " | ".join(show_payload(payload) for payload in payloads)
    return Sentence("You had read ", joined, ".", 5, cut=True)


def _record_data(record: Record[Any] | None) -> dict[str, Any] | None:
    if record is None:
        return None
    return {
        "version": record.version,
        "values": [as_data(payload) for payload in _payloads(record)],
        "writers": [{"revision": w.revision, "actor": w.actor, "time": show_time(w.time)} for w in record.writers],
        "attributes": dict(record.attributes),
        "seen": {"prefix": record.seen.prefix, "extras": list(record.seen.extras)},
    }
