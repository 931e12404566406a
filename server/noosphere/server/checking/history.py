"""The history format: what every call of a run asked for, when, and what it was told.

A history is a file of JSON lines. The first is a :class:`Header`, every other one a :class:`Call` or a
:class:`Reply`. A process that records itself writes the call before it sends it and the reply when it
has it, so that a call that was in flight when the process was killed is known to have been made: its
outcome is unknown, and a checker must reckon with its effect. In a collected history the reply stands
inside its call, one line each.

Times are nanoseconds of ``CLOCK_MONOTONIC``, comparable between the processes of one machine. Contents
are not recorded; a value is named by a digest (:func:`value_id`), so equal values have equal names.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import Any

import msgspec

FORMAT_NAME = "noosphere-history"
FORMAT_VERSION = 1

Setting = str | int | float | bool


class Op(StrEnum):
    """What a call does. ``get`` may read several keys at one head; ``reserve`` also stands for giving that up."""

    GET = "get"
    LIST = "list"
    PUT = "put"
    DELETE = "delete"
    MERGE = "merge"
    TRANSACT = "transact"
    CLAIM = "claim"
    RENEW = "renew"
    RELEASE = "release"
    COMPLETE = "complete"
    RESERVE = "reserve"


MUTATING = frozenset(Op) - {Op.GET, Op.LIST, Op.RESERVE}
"""Operations that may change records. A reservation takes revisions and changes none."""


class Outcome(StrEnum):
    """How a call ended."""

    OK = "ok"
    REFUSED = "refused"
    """Nothing was written."""
    UNKNOWN = "unknown"
    """The caller does not know: it may take effect at any time after its start, or never."""


class WriteKind(StrEnum):
    """What a write does to its key."""

    PUT = "put"
    DELETE = "delete"
    ADD = "add"
    SET = "set"
    MAX = "max"
    MIN = "min"
    MAP = "map"
    LOG = "log"


MERGES = frozenset(WriteKind) - {WriteKind.PUT, WriteKind.DELETE}
"""Writes that are merge operations; the key then has a merge type of the same name."""


class Header(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, tag="history"):
    """The first line.

    Attributes:
        format: always ``noosphere-history``.
        version: the format's version; a reader refuses a newer one.
        started_unix_ms: wall clock at the start, for people only.
        settings: with what the run was started, for people only.
        complete: namespaces of which every call that may have written is in the history and which were
            new when it began.
        torn: processes whose journal ended in a torn line.
        cuts: for each namespace, by epoch and oldest first, what survived a failover: the newest revision before it.
    """

    format: str
    version: int
    started_unix_ms: int
    settings: dict[str, Setting] = {}
    complete: tuple[str, ...] = ()
    torn: tuple[str, ...] = ()
    cuts: dict[str, tuple[tuple[int, int], ...]] = {}


class Context(msgspec.Struct, frozen=True, array_like=True):
    """A causal context: every dot up to ``prefix``, and ``extras``."""

    prefix: int
    extras: tuple[int, ...] = ()

    def covers(self, dot: int) -> bool:
        """Tells whether the holder of this context has seen the value written at ``dot``."""
        return dot <= self.prefix or dot in self.extras


class Write(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One key's part of a mutating call.

    Attributes:
        key: the key.
        kind: what to do with it.
        value: id of the value that a put writes.
        merge: operand of a merge operation: a number (add, max, min), ``{"add": [], "remove": []}`` (set),
            ``{"set": {}, "remove": []}`` (map), or a list (log).
        expected: the expected version, if one was sent.
        context: the causal context, if one was sent.
        blind: whether to overwrite whatever is there.
        base: ids of the live values that the writer had read when it decided, as far as the recorder
            knows; empty if it had read that there are none, None if it does not know. The register
            checker uses these instead of revisions.
        expires: whether the value has an end of life.
    """

    key: str
    kind: WriteKind
    value: str = ""
    merge: Any = None
    expected: int | None = None
    context: Context | None = None
    blind: bool = False
    base: tuple[str, ...] | None = None
    expires: bool = False

    @property
    def conditional(self) -> bool:
        """Whether the write depends on what the writer had read."""
        return self.expected is not None or self.context is not None


class Compare(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A condition of a transaction: the key's version, and what the caller had read at that version."""

    key: str
    expected: int
    base: tuple[str, ...] | None = None


class Seen(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One record in a reply.

    Attributes:
        key: the key.
        version: its version, 0 without a live value.
        values: ids of its live values, in the order of the reply. Empty for a merge type.
        dots: the revisions at which its live values were written; empty if that is just the version.
        kind: the merge type by the name of its operation; empty for a plain value.
        content: what a record with a merge type reads as (JSON).
        fence: the fence of the claim on it, 0 if it was never claimed.
        done: whether the task was completed.
        at: the revision at which this held, if it is not the reply's head.
    """

    key: str
    version: int = 0
    values: tuple[str, ...] = ()
    dots: tuple[int, ...] = ()
    kind: str = ""
    content: Any = None
    fence: int = 0
    done: bool = False
    at: int = 0

    @property
    def written_at(self) -> tuple[int, ...]:
        """The revisions at which its live values were written."""
        return self.dots or ((self.version,) if self.version else ())


class Result(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What one write of an applied call did.

    Attributes:
        version: the new version; None while values live that the writer did not read.
        overwritten: dots that were replaced unseen, as the reply lists them.
        undone_delete: the reply says that a delete was undone that the writer had not seen.
    """

    version: int | None = None
    overwritten: tuple[int, ...] = ()
    undone_delete: bool = False


class Reply(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, tag="reply"):
    """How a call ended.

    Attributes:
        process: whose call.
        call: which of its calls.
        return_ns: when it returned.
        outcome: how.
        reason: why it was refused or is unknown, as in ``ErrorInfo.reason``.
        head: the namespace's newest visible revision, 0 if the reply carries none.
        revision: the commit's revision, 0 if nothing was committed.
        replayed: an earlier execution was reported.
        seen: the records in the reply.
        results: one for each write of an applied call.
        whole: a list that holds everything in its collection.
        expires_ms: store time at which the claim ends.
    """

    process: str
    call: int
    return_ns: int
    outcome: Outcome
    reason: str = ""
    head: int = 0
    revision: int = 0
    replayed: bool = False
    seen: tuple[Seen, ...] = ()
    results: tuple[Result, ...] = ()
    whole: bool = False
    expires_ms: int = 0


class Call(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, tag="call"):
    """What a call asked for.

    Attributes:
        process: who calls, unique in the history.
        call: the number of the call, unique in its process.
        op: what it does.
        namespace: where.
        start_ns: when it was sent.
        keys: keys that a get reads or a reservation is about.
        collection: where a list or a claim looks.
        writes: what it writes.
        compares: conditions of a transaction.
        key: the task that is renewed, released or completed (a claim's task stands in the reply).
        fence: the fence that a renew, release or complete presents.
        lease_ms: the lease that a claim or renew asks for.
        stale: the caller accepts an answer that is not the newest.
        reply: how it ended; None if it never returned.
    """

    process: str
    call: int
    op: Op
    namespace: str
    start_ns: int
    keys: tuple[str, ...] = ()
    collection: str = ""
    writes: tuple[Write, ...] = ()
    compares: tuple[Compare, ...] = ()
    key: str = ""
    fence: int = 0
    lease_ms: int = 0
    stale: bool = False
    reply: Reply | None = None

    @property
    def outcome(self) -> Outcome:
        """How the call ended; a call that never returned is unknown."""
        return self.reply.outcome if self.reply is not None else Outcome.UNKNOWN

    @property
    def applied(self) -> Reply | None:
        """The reply of a call that succeeded."""
        return self.reply if self.reply is not None and self.reply.outcome is Outcome.OK else None

    @property
    def written_keys(self) -> tuple[str, ...]:
        """Keys that the call writes, claims included as far as they are known."""
        if self.writes:
            return tuple(write.key for write in self.writes)
        if self.op is Op.CLAIM and self.applied is not None:
            return tuple(seen.key for seen in self.applied.seen)
        return (self.key,) if self.key else ()

    def describe(self) -> str:
        """Returns one line for people: who did what, when, and what came of it."""
        reply = self.reply
        what = ", ".join(self.written_keys or self.keys) or self.collection or "/"
        text = f"{self.process} call {self.call}: {self.op} {what}"
        for write in self.writes[:4]:
            text += f" [{_intent(write)}]"
        if reply is None:
            return f"{text}, sent at {_seconds(self.start_ns)}, never returned"
        text += f", {_seconds(self.start_ns)} to {_seconds(reply.return_ns)}: {reply.outcome}"
        if reply.reason:
            text += f" {reply.reason}"
        if reply.revision:
            text += f" at revision {show_revision(reply.revision)}"
        if reply.head:
            text += f", head {show_revision(reply.head)}"
        for seen in reply.seen[:4]:
            text += f", {seen.key} = {'+'.join(seen.values) or seen.content} (version {show_revision(seen.version)})"
        return text


class History(msgspec.Struct, frozen=True):
    """A history in memory: the header and every call, in the order of their start."""

    header: Header
    calls: tuple[Call, ...]


def value_id(data: bytes) -> str:
    """Returns the name by which a history refers to a value."""
    return hashlib.sha256(data).hexdigest()[:16]


def show_revision(revision: int) -> str:
    """Returns a revision as ``epoch.seq``."""
    return f"{revision >> 40}.{revision & (1 << 40) - 1}" if revision >> 40 else str(revision)


def _seconds(time_ns: int) -> str:
    return f"{time_ns / 1e9:.6f} s"


def _intent(write: Write) -> str:
    if write.kind in MERGES:
        return f"{write.kind} {write.merge}"
    text = f"{write.kind} {write.value}".strip()
    if write.blind:
        return f"{text}, blind"
    if write.expected is not None:
        text += f", expecting version {show_revision(write.expected)}"
    if write.context is not None:
        text += f", having seen up to {show_revision(write.context.prefix)}"
    return text
