"""What it takes to make a checkpoint, by whichever call: what has to be read before, and the decision."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

import msgspec

from noosphere.consistency import Reason, Refusal

from ..memory.codec import decode_record
from ..ports.store import ScanResult, StoredEntry
from .branches import OlderHistory, older_history
from .codec import author_of, decode_turns, encode, value_of
from .draft import Draft, Look
from .keys import (
    CHECKPOINTS,
    CONTROL,
    MESSAGES,
    SAVEPOINTS,
    SUMMARIES,
    TURNS,
    is_item,
    is_slot,
    slot_revision,
    version_key,
)
from .manifests import (
    Manifest,
    SavedVersion,
    chain_of,
    decode_delta,
    difference,
    encode_delta,
    manifest_key,
    manifest_of,
    resolve,
    stored_delta,
)
from .savepoints import Savepoints, decode_savepoints, encode_savepoints
from .scribe import Scan, Scribe
from .types import Checkpoint, CheckpointCause

CAUSE_ATTRIBUTE = "cause"
TURN_ATTRIBUTE = "turn"
PREPARED_MAX = 16
"""How often a call prepares itself anew because the session changed meanwhile."""

_NEWEST_MAX = 16
NEWEST = (Scan(MESSAGES, _NEWEST_MAX, reverse=True), Scan(SUMMARIES, _NEWEST_MAX, reverse=True))
"""The ranges that :func:`save` needs; they come first among the scans of a call."""

T = TypeVar("T")


class Moved(Exception):
    """What a call had read beforehand is no longer so; it has to begin anew."""


class CheckpointData(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a checkpoint's record holds; see :class:`~.types.Checkpoint`."""

    number: int
    cause: CheckpointCause
    name: str = ""
    branch: int = 0
    turn: int = 0
    last_message: str = ""
    last_session: str = ""
    summary: str = ""
    items: int = 0
    bytes: int = 0
    copied_bytes: int = 0


_decoder = msgspec.json.Decoder(CheckpointData)


class Ground(NamedTuple):
    """What a checkpoint is made on, read beforehand.

    Attributes:
        older: what lies before the present branch's own messages.
        savepoints: where the newest checkpoint stands.
        manifest: which versions it consists of.
    """

    older: OlderHistory
    savepoints: Savepoints
    manifest: Manifest

    @property
    def keys(self) -> tuple[str, ...]:
        """What the decision depends on."""
        return (SAVEPOINTS, CONTROL)

    @property
    def glances(self) -> tuple[str, ...]:
        """What the decision looks at: copies of what has been overwritten since, for their size."""
        return (TURNS, *copies_of(self.manifest))


class Standing(NamedTuple):
    """Where a session stands: its newest message and summary, and the versions of all that is saved."""

    last_message: str
    last_session: str
    summary: str
    manifest: dict[str, SavedVersion]


def copies_of(manifest: Manifest) -> tuple[str, ...]:
    """Returns where the versions of a manifest lie once they are overwritten."""
    return tuple(version_key(key, version.revision) for key, version in manifest.items())


async def survey(scribe: Scribe, session_id: str) -> Ground:
    """Reads what a checkpoint is made on.

    Raises:
        Moved: it changed meanwhile.
    """
    older = await older_history(scribe, session_id)
    savepoints = decode_savepoints((await scribe.peek(session_id, (SAVEPOINTS,))).entries[SAVEPOINTS])
    if not savepoints.newest:
        return Ground(older, savepoints, {})
    return Ground(older, savepoints, await read_manifest(scribe, session_id, savepoints, savepoints.newest))


async def read_manifest(scribe: Scribe, session_id: str, savepoints: Savepoints, number: int) -> Manifest:
    """Puts together which versions a checkpoint consists of.

    Raises:
        Moved: checkpoints have come or gone meanwhile.
    """
    chain = chain_of(number)
    entries = (await scribe.peek(session_id, (SAVEPOINTS, *chain))).entries
    if decode_savepoints(entries[SAVEPOINTS]) != savepoints:
        raise Moved
    return resolve(decode_delta(entry.data) for key in chain if (entry := entries[key]) is not None)


async def prepared(session_id: str, attempt: Callable[[], Awaitable[T]]) -> T:
    """Makes a call that prepares itself by reading, and again if that turned out to be in vain.

    Raises:
        Refusal: CONTENTION.
    """
    for _ in range(PREPARED_MAX):
        try:
            return await attempt()
        except Moved:
            continue
    raise Refusal(Reason.CONTENTION, f"session {session_id!r} changed under each of {PREPARED_MAX} attempts")


def stand(look: Look, ground: Ground) -> Standing:
    """Returns where a session stands.

    Args:
        look: with all items, and what ``ground`` and :data:`NEWEST` say read.
        ground: what was read beforehand.

    Raises:
        Moved: it is no longer so.
    """
    older = ground.older
    present = look.session.branch if look.info is not None else 0
    if present != older.branch or decode_savepoints(look.entries[SAVEPOINTS]) != ground.savepoints:
        raise Moved
    message = newest_at(look.scans[0], look.view.head, older.begins)
    summary = newest_at(look.scans[1], look.view.head, older.summaries_begin)
    control = look.internal(CONTROL)
    saved = look.items if control is None else (*look.items, control)
    last, last_session = ("", "") if older.last is None else (older.last.key, older.last_session)
    if message:
        last, last_session = message, ""
    return Standing(last, last_session, summary or older.summary, manifest_of(saved))


def newest_at(found: ScanResult, head: int, begins: str) -> str:
    """Returns the newest key that was there at a head, of a collection that is ordered by revision.

    Args:
        found: the newest entries, perhaps of a later head.
        head: the head.
        begins: only keys above this.

    Returns:
        The key; empty if there is none.

    Raises:
        Moved: more has been appended since than was read.
    """
    for entry in found.entries:
        if entry.key <= begins:
            return ""
        if slot_revision(entry.key) <= head:
            return entry.key
    if found.more:
        raise Moved
    return ""


def has_changed(ground: Ground, standing: Standing, branch: int) -> bool:
    """Tells whether anything of a session is other than at its newest checkpoint; without one, whether it has any."""
    then = ground.savepoints
    return (
        standing.manifest != ground.manifest
        or (standing.last_message, standing.last_session) != (then.last_message, then.last_session)
        or standing.summary != then.summary
        or branch != then.branch
    )


def save(
    look: Look,
    draft: Draft,
    ground: Ground,
    standing: Standing,
    cause: CheckpointCause,
    *,
    name: str = "",
    turn: int | None = None,
) -> int:
    """Makes a checkpoint of a session as it was read.

    Args:
        look: the session, with all items read.
        draft: gets the checkpoint.
        ground: what it is made on.
        standing: where the session stands.
        cause: why.
        name: for people.
        turn: the turn in which it is made; the newest by default.

    Returns:
        The index for ``keys.slot``, which is the checkpoint's id once the commit's revision is known.
    """
    then = ground.savepoints
    number = then.newest + 1
    delta = difference(ground.manifest, standing.manifest)
    manifest = encode_delta(stored_delta(number, delta, standing.manifest))
    copies = copies_of({key: ground.manifest[key] for key in delta.touched if key in ground.manifest})
    copied = sum(_size(entry) for key in copies if (entry := look.entries[key]) is not None)
    items = sum(is_item(key) for key in standing.manifest)
    newest_turn = decode_turns(look.record(TURNS)).turn
    data = CheckpointData(
        number,
        cause,
        name,
        look.session.branch,
        newest_turn if turn is None else turn,
        standing.last_message,
        standing.last_session,
        standing.summary,
        items,
        copied_bytes=copied,
    )
    own = len(encode(data)) + len(manifest) + 2 * len(manifest_key(number))
    data = msgspec.structs.replace(data, bytes=own + copied)
    draft.keep(manifest_key(number), manifest)
    after = Savepoints(
        newest=number,
        oldest=then.oldest,
        at=look.view.head,
        bytes=then.bytes + data.bytes,
        branch=data.branch,
        last_message=data.last_message,
        last_session=data.last_session,
        summary=data.summary,
    )
    draft.keep(SAVEPOINTS, encode_savepoints(after))
    return draft.append(CHECKPOINTS, encode(data), ((CAUSE_ATTRIBUTE, cause.value), (TURN_ATTRIBUTE, data.turn)))


def decode_checkpoint(entry: StoredEntry) -> Checkpoint:
    """Returns a stored checkpoint."""
    record = decode_record(entry.data, entry.revision)
    data = _decoder.decode(value_of(record))
    return Checkpoint(
        id=entry.key[len(CHECKPOINTS) :],
        name=data.name,
        created_ms=record.siblings[-1].time_ms,
        author=author_of(record),
        cause=data.cause,
        branch=data.branch,
        turn=data.turn,
        last_message=data.last_message,
        last_session=data.last_session,
        summary=data.summary,
        items=data.items,
        bytes=data.bytes,
        number=data.number,
        copied_bytes=data.copied_bytes,
    )


def checkpoint_key(checkpoint_id: str, session_id: str) -> str:
    """Returns where a checkpoint lies.

    Raises:
        Refusal: ENTRY_NOT_FOUND, for what cannot be a checkpoint's id.
    """
    if not is_slot(checkpoint_id):
        raise no_checkpoint(checkpoint_id, session_id)
    return CHECKPOINTS + checkpoint_id


def no_checkpoint(checkpoint_id: str, session_id: str) -> Refusal:
    """Returns the refusal of a call that names a checkpoint that was never made, or is no longer kept."""
    return Refusal(Reason.ENTRY_NOT_FOUND, f"checkpoint_id: session {session_id!r} has no checkpoint {checkpoint_id!r}")


def _size(entry: StoredEntry) -> int:
    return len(entry.key.encode()) + len(entry.data)
