"""Going back to a checkpoint: one commit that puts back items and control state and begins a new branch.

What is left behind is saved first, in the same commit: the state that was left is a checkpoint of its own, its
messages stay where they are on the branch that was left, and nothing that came after the checkpoint is erased.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import msgspec

from noosphere.consistency import ReadSet, Reason, Refusal, StaleEntry, StampMode, too_large
from noosphere.consistency.limits import COMMIT_BYTES_MAX, COMMIT_MUTATIONS_MAX

from ..memory.codec import decode_entry, decode_record
from ..memory.types import Call
from ..ports.store import StoredEntry
from .branches import BranchData, branch_key, branch_keys, stretches, up_to
from .codec import encode
from .draft import Draft, Look
from .keys import CONTROL, HISTORY, INFO, SAVEPOINTS, is_item, version_key
from .manifests import Manifest, SavedVersion
from .putting_back import decide_put_back
from .retention import Retention
from .savepoints import decode_savepoints
from .saving import (
    NEWEST,
    Ground,
    Moved,
    Standing,
    checkpoint_key,
    copies_of,
    decode_checkpoint,
    has_changed,
    no_checkpoint,
    prepared,
    read_manifest,
    save,
    stand,
    survey,
)
from .scribe import Intent, Scan, Scribe, Written
from .sessions import SessionBook
from .types import Checkpoint, CheckpointCause, Session

_REPLY = struct.Struct(">III")
_NOTHING_NEW = Scan("", 1, guard=StampMode.MEMBERS)
"""An item that is made meanwhile came later than the checkpoint and must not be overlooked."""


class RestoreReply(NamedTuple):
    """A session on its new branch.

    Attributes:
        session: the session.
        abandoned_branch: the branch that was left.
        restored: how many items were put back.
        removed: how many items were removed because they came later.
        head: the namespace's newest visible revision.
        read_set: the caller's read set.
        stale: what was stale and was overruled.
    """

    session: Session
    abandoned_branch: int
    restored: int
    removed: int
    head: int
    read_set: ReadSet | None
    stale: tuple[StaleEntry, ...]


class _Target(NamedTuple):
    checkpoint: Checkpoint
    manifest: Manifest


class Restorer:
    """Goes back to checkpoints.

    Args:
        scribe: reads and writes the records.
        book: reads the session as it is then.
        retention: lets old checkpoints go, since a restore makes one.
    """

    def __init__(self, scribe: Scribe, book: SessionBook, retention: Retention) -> None:
        self._scribe = scribe
        self._book = book
        self._retention = retention

    async def restore(self, call: Call, session_id: str, checkpoint_id: str) -> RestoreReply:
        """Makes items, control state, transcript and summary those of a checkpoint, on a new branch.

        Raises:
            Refusal: SESSION_NOT_FOUND, SESSION_CLOSED, ENTRY_NOT_FOUND, VALUE_TOO_LARGE (it does not fit one commit),
                CONTENTION, or a reason that concerns the caller.
        """
        key = checkpoint_key(checkpoint_id, session_id)
        written = await prepared(session_id, lambda: self._attempt(call, session_id, key))
        abandoned, restored, removed = _REPLY.unpack(written.reply)
        if not written.replayed:
            await self._retention.enforce(session_id)
        session = (await self._book.get(Call(call.incarnation), session_id)).session
        return RestoreReply(session, abandoned, restored, removed, written.head, written.read_set, written.stale)

    async def _attempt(self, call: Call, session_id: str, key: str) -> Written[None]:
        ground = await survey(self._scribe, session_id)
        target = await self._target(session_id, key, ground)
        next_branch = ground.older.branch + 1
        wanted = target.manifest if target is not None else {}
        branches = branch_keys(target.checkpoint.branch) if target is not None else ()

        def decide(look: Look, draft: Draft) -> None:
            entry = look.internal(key)
            standing = stand(look, ground)
            if entry is None:
                raise no_checkpoint(key.rpartition("/")[2], session_id)
            if target is None:
                raise Moved
            _leave(look, draft, ground, standing)
            restored, removed = _put_back(look, draft, ground, target.manifest)
            left = look.session.branch
            then = target.checkpoint
            kept = up_to(stretches(look, then.branch), then.last_message, then.last_session)
            begun = BranchData(left, then.id, kept, then.summary)
            draft.put(branch_key(next_branch), encode(begun))
            draft.keep(HISTORY, encode(begun))
            draft.put(INFO, encode(msgspec.structs.replace(look.session, branch=next_branch)))
            draft.reply = _REPLY.pack(left, restored, removed)
            check_fits(draft, "the checkpoint")

        intent = Intent(
            "restore",
            (key,),
            keys=(*ground.keys, key, branch_key(next_branch), *wanted),
            glances=(*ground.glances, *branches, *copies_of(wanted)),
            scans=(*NEWEST, _NOTHING_NEW),
            items=True,
        )
        return await self._scribe.write(call, session_id, intent, decide)

    async def _target(self, session_id: str, key: str, ground: Ground) -> _Target | None:
        """Reads the checkpoint; None if there is none, for the decision to say so in its turn."""
        look = await self._scribe.peek(session_id, (key, SAVEPOINTS))
        entry = look.internal(key)
        if decode_savepoints(look.entries[SAVEPOINTS]) != ground.savepoints:
            raise Moved
        if entry is None:
            return None
        checkpoint = decode_checkpoint(entry)
        manifest = await read_manifest(self._scribe, session_id, ground.savepoints, checkpoint.number)
        return _Target(checkpoint, manifest)


def _leave(look: Look, draft: Draft, ground: Ground, standing: Standing) -> None:
    """Makes a checkpoint of the state that is left, unless there is one already."""
    if not has_changed(ground, standing, look.session.branch):
        return
    save(look, draft, ground, standing, CheckpointCause.RESTORE)


def _put_back(look: Look, draft: Draft, ground: Ground, manifest: Manifest) -> tuple[int, int]:
    """Makes everything that is saved what a manifest says; returns how many items were put back and removed."""
    restored = removed = 0
    present = {entry.key: entry for entry in look.items}
    if (control := look.internal(CONTROL)) is not None:
        present[CONTROL] = control
    for key in (*manifest, *(key for key in present if key not in manifest)):
        here, version = present.get(key), manifest.get(key)
        if here is not None and version is not None and here.revision == version.revision:
            continue
        then = None if version is None else old_version(look, key, version)
        decision = None
        if then is not None:
            now = decode_entry(look.entries[key])
            decision = decide_put_back(now, decode_record(then.data, then.revision), draft.at(key))
        if (decision is None and here is None) or (decision is not None and decision.noop):
            continue
        if here is not None and here.revision > ground.savepoints.at:
            # It belongs to the checkpoint that this very commit makes, of which those who keep copies know nothing yet.
            draft.keep(version_key(key, here.revision), here.data)
        if decision is None:
            draft.remove(key)
            removed += is_item(key)
        else:
            draft.change(key, decision)
            restored += is_item(key)
    return restored, removed


def old_version(look: Look, key: str, version: SavedVersion) -> StoredEntry | None:
    """Returns a version of an item as it was stored, from where it lies now; None if its time has come meanwhile.

    Raises:
        Refusal: ENTRY_NOT_FOUND, for one so large that there was no room to keep it when some of its values ended.
    """
    here = look.entries[key]
    if here is not None and here.revision == version.revision:
        return here
    copy = look.entries[version_key(key, version.revision)]
    if copy is not None:
        return StoredEntry(key, version.revision, copy.data, version.ends_ms)
    if version.ends_ms <= look.now_ms:
        # What ends by itself is not copied: it would have ended in the copy too.
        return None
    raise Refusal(
        Reason.ENTRY_NOT_FOUND,
        f"checkpoint_id: version {version.revision} of {key!r} belongs to the checkpoint and was too large to be kept",
    )


def check_fits(draft: Draft, what: str) -> None:
    """Checks that what a draft holds can be one commit.

    Raises:
        Refusal: VALUE_TOO_LARGE.
    """
    mutations = draft.mutations()
    if len(mutations) > COMMIT_MUTATIONS_MAX:
        raise too_large(what, len(mutations), COMMIT_MUTATIONS_MAX, "records to be written in one commit")
    size = sum(len(m.key.encode()) + len(m.data or b"") + len(m.event) for m in mutations)
    if size > COMMIT_BYTES_MAX:
        raise too_large(what, size, COMMIT_BYTES_MAX, "bytes to be written in one commit")
