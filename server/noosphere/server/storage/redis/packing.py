"""How calls become arguments of scripts, and their replies what the port returns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from noosphere.consistency import NEVER_MS, Cut, Remembered, RequestRef, epoch_of, seq_of, to_hex
from noosphere.consistency.revision import SEQ_BITS

from ...ports.store import (
    Commit,
    Failure,
    FailureKind,
    KeyCheck,
    LoggedBatch,
    LoggedChange,
    NamespaceRef,
    NamespaceView,
    StampMode,
    StoredEntry,
)
from ..keys import above
from .wire import Reply

_HEX = 16
_CUT = 22
_EXACT_MS = (1 << 53) - 1
"""The latest time that a sorted set of Redis can tell from the one before."""

Argument = str | bytes | int


class View(NamedTuple):
    """The head of a reply: the state of a namespace in one text."""

    exists: bool
    deleted: bool
    head: int
    config_version: int
    floor_context: int
    floor: int
    now_ms: int
    cuts: tuple[Cut, ...]

    def under(self, epoch: int) -> NamespaceView:
        """Returns what the port shows in an epoch."""
        cuts = self.cuts
        if not self.exists or epoch_of(self.head) < epoch:
            # Nobody has written in this epoch yet, so the head is what survived its beginning.
            cuts = (*cuts, Cut(epoch, self.head))
        return NamespaceView(
            self.exists,
            self.deleted,
            self.head,
            epoch,
            self.now_ms,
            self.config_version,
            self.floor_context,
            self.floor,
            cuts,
        )


@lru_cache(maxsize=16_384)
def stem_of(ref: NamespaceRef) -> bytes:
    """Returns what the keys of a namespace begin with; all of it in one hash slot."""
    return b"noosphere:{%b}" % ref.storage_id.hex().encode()


def view_of(text: bytes) -> View:
    """Reads the head of a reply, which each of them has: so it is written for speed."""
    state = text[:1]
    return View(
        state != b"0",
        state == b"2",
        int(text[1:17], 16),
        int(text[17:33], 16),
        int(text[33:49], 16),
        int(text[49:65], 16),
        int(text[65:81], 16),
        _cuts_of(text[81:]),
    )


@lru_cache(maxsize=4_096)
def _cuts_of(text: bytes) -> tuple[Cut, ...]:
    """Reads cuts, which stay the same for as long as an epoch."""
    return tuple(Cut(int(text[at : at + 6], 16), int(text[at + 6 : at + _CUT], 16)) for at in range(0, len(text), _CUT))


def common(ref: NamespaceRef, told_ms: int) -> tuple[Argument, ...]:
    """Returns the arguments that every script of a namespace begins with."""
    return ref.name, to_hex(ref.origin), to_hex(told_ms)


RECORD_EXTRA_BYTES = 2 * _HEX
"""What is kept in front of a record's own bytes."""


def entry_of(key: str, record: bytes | None) -> StoredEntry | None:
    """Reads a record."""
    if record is None:
        return None
    return StoredEntry(key, int(record[:_HEX], 16), record[2 * _HEX :], int(record[_HEX : 2 * _HEX], 16))


def field_of(ref: RequestRef) -> str:
    """Returns under which field a call is remembered."""
    return f"u{ref.uuid}" if ref.uuid else f"s{ref.client}\0{to_hex(ref.sequence)}"


def call_of(text: bytes) -> Remembered:
    """Reads a remembered call."""
    start = 2 * _HEX + 4
    end = start + int(text[2 * _HEX : start], 16)
    return Remembered(int(text[:_HEX], 16), text[start:end], text[end:], int(text[_HEX : 2 * _HEX], 16))


def commit_arguments(ref: NamespaceRef, commit: Commit) -> Iterator[Argument]:
    """Returns what follows the common arguments of a commit; see ``commit.lua``."""
    yield f"{commit.epoch:06x}"
    yield to_hex(commit.config_version)
    yield "" if commit.not_after_ms is None else to_hex(max(0, commit.not_after_ms))
    if commit.request is None:
        yield from ("", "", "", "", "", "")
    else:
        call = commit.request.ref
        yield "u" if call.uuid else "s"
        yield field_of(call)
        yield call.uuid or call.client
        yield to_hex(call.sequence)
        yield to_hex(call.answered_through)
        yield b"%04x%b%b" % (len(commit.request.fingerprint), commit.request.fingerprint, commit.request.reply)
    yield to_hex(max((mutation.raise_floor_context for mutation in commit.mutations), default=0))
    yield to_hex(ref.generation)
    moved: dict[str, bool] = {}
    emptied: dict[str, None] = {}
    for mutation in commit.mutations:
        if mutation.event or mutation.data is None:
            for collection in above(mutation.key):
                if mutation.event:
                    moved[collection] = moved.get(collection, False) or mutation.members
                if mutation.data is None:
                    emptied[collection] = None
    yield from (len(commit.fences), len(commit.checks), len(commit.mutations), len(moved), len(emptied))
    for lock, token in commit.fences:
        yield from (lock, to_hex(token))
    for check in commit.checks:
        if isinstance(check, KeyCheck):
            yield from ("key", check.key, to_hex(check.revision), int(check.live))
        else:
            mode = "m" if check.mode is StampMode.MEMBERS else "c"
            yield from ("collection", check.collection, to_hex(check.stamp), mode)
    for mutation in commit.mutations:
        yield ("r" if mutation.data is None else "p") + ("s" if mutation.rev_slot else "-")
        yield mutation.key
        yield to_hex(mutation.live_until_ms)
        yield "" if mutation.due_ms == NEVER_MS else min(mutation.due_ms, _EXACT_MS)
        yield mutation.data or b""
        yield mutation.event
    for collection, members in moved.items():
        yield from (collection, int(members))
    # Sorted, so that the same commit is always the same text.
    yield from sorted(emptied)


def failures_of(reply: Reply) -> tuple[Failure, ...]:
    """Reads ``F`` and groups of kind, name and present value."""
    parts = iter(reply[1:])
    return tuple(
        Failure(FailureKind(kind.decode()), name.decode(), int(actual, 16))
        for kind, name, actual in zip(parts, parts, parts, strict=True)
    )


def after_entry(revision: int) -> str:
    """Returns the bound of a stream that excludes a revision and all before it."""
    return f"({epoch_of(revision)}-{seq_of(revision)}"


def batches_of(entries: Iterable[Reply]) -> tuple[LoggedBatch, ...]:
    """Reads entries of a log."""
    return tuple(_batch_of(entry_id, fields) for entry_id, fields in entries)


def _batch_of(entry_id: bytes, fields: list[bytes]) -> LoggedBatch:
    epoch, sequence = entry_id.split(b"-")
    changes = []
    for key, text in zip(fields[2::2], fields[3::2], strict=True):
        end = 9 + int(text[1:9], 16)
        changes.append(LoggedChange(key.decode(), text[end:] if text[:1] == b"p" else None, text[9:end]))
    return LoggedBatch(int(epoch) << SEQ_BITS | int(sequence), int(fields[1][:_HEX], 16), tuple(changes))
