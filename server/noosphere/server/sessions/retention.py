"""How long checkpoints are kept: by number, age and bytes. The oldest go first.

What only they needed goes with them, in the same commit: the copies of versions that were overwritten while the
checkpoint was the newest one, and the manifests on which no later one rests.
"""

from __future__ import annotations

import msgspec

from noosphere.consistency import NEVER_MS

from .draft import Draft, Look
from .keys import CHECKPOINTS, SAVEPOINTS, KeyRange
from .manifests import base_of, difference, manifest_key
from .savepoints import Savepoints, decode_savepoints, encode_savepoints
from .saving import Moved, copies_of, decode_checkpoint, prepared, read_manifest
from .scribe import BACKGROUND, Intent, Need, Scan, Scribe
from .types import Checkpoint, SessionSettings

_AT_ONCE = 64
"""Most checkpoints that go at once; the rest goes when the next one is made."""

_SCAN_STEP = 64


class Retention:
    """Lets checkpoints go."""

    def __init__(self, scribe: Scribe) -> None:
        self._scribe = scribe

    async def enforce(self, session_id: str) -> int:
        """Removes the checkpoints that are too many, too old or too large together; returns how many.

        The newest one stays, unless it is too old.

        Raises:
            Refusal: CONTENTION.
        """
        removed = 0
        while removed < _AT_ONCE and await prepared(session_id, lambda: self._remove_oldest(session_id)):
            removed += 1
        return removed

    async def ends_ms(self, session_id: str) -> int:
        """Returns when the oldest checkpoint will be too old, ``NEVER_MS`` if there is none."""
        look = await self._scribe.peek(session_id, (SAVEPOINTS,))
        if look.info is None or not decode_savepoints(look.entries[SAVEPOINTS]).newest:
            return NEVER_MS
        try:
            oldest = await self._oldest(session_id)
        except Moved:
            return NEVER_MS
        return oldest.created_ms + look.session.settings.checkpoint_age_ms_max

    async def _remove_oldest(self, session_id: str) -> bool:
        scribe = self._scribe
        look = await scribe.peek(session_id, (SAVEPOINTS,))
        savepoints = decode_savepoints(look.entries[SAVEPOINTS])
        if look.info is None or not savepoints.newest:
            return False
        oldest = await self._oldest(session_id)
        if not _too_many(savepoints, oldest, look.session.settings, look.now_ms):
            return False
        last = savepoints.count == 1
        manifest = await read_manifest(scribe, session_id, savepoints, oldest.number)
        copied = 0
        if last:
            # Of any of these a copy may still be made until the commit, which therefore checks them all.
            copies = copies_of(manifest)
        else:
            following = await read_manifest(scribe, session_id, savepoints, oldest.number + 1)
            gone = difference(manifest, following).touched
            copies = copies_of({key: manifest[key] for key in gone if key in manifest})
            copied = (await self._following(session_id, oldest)).copied_bytes
        rest_on = base_of(oldest.number + 1) if not last else savepoints.newest + 1
        manifests = tuple(map(manifest_key, range(base_of(oldest.number), rest_on)))

        def decide(look: Look, draft: Draft) -> None:
            if decode_savepoints(look.entries[SAVEPOINTS]) != savepoints:
                raise Moved
            draft.remove(CHECKPOINTS + oldest.id)
            for key in (*copies, *manifests):
                draft.forget(key)
            if last:
                draft.forget(SAVEPOINTS)
            else:
                # The first copies that a checkpoint counts are of the one before.
                left = savepoints.bytes - (oldest.bytes - oldest.copied_bytes) - copied
                after = msgspec.structs.replace(savepoints, oldest=oldest.number + 1, bytes=left)
                draft.keep(SAVEPOINTS, encode_savepoints(after))

        keys = (SAVEPOINTS, CHECKPOINTS + oldest.id, *copies)
        intent = Intent("forget_checkpoint", keys=keys, glances=manifests, need=Need.ANY, background=True)
        await scribe.write(BACKGROUND, session_id, intent, decide)
        return True

    async def _oldest(self, session_id: str) -> Checkpoint:
        return await self._first_after(session_id, None)

    async def _following(self, session_id: str, checkpoint: Checkpoint) -> Checkpoint:
        return await self._first_after(session_id, CHECKPOINTS + checkpoint.id)

    async def _first_after(self, session_id: str, after: str | None) -> Checkpoint:
        ref = await self._scribe.living(session_id)
        more = True
        while more:
            scan = Scan(CHECKPOINTS, _SCAN_STEP, keys=KeyRange(after, None))
            page = await self._scribe.scan(ref, scan, accepted=True)
            more = page.more
            for entry in page.entries:
                after = entry.key
                if entry.live_until_ms > page.view.now_ms:
                    return decode_checkpoint(entry)
        raise Moved


def _too_many(savepoints: Savepoints, oldest: Checkpoint, settings: SessionSettings, now_ms: int) -> bool:
    if oldest.created_ms + settings.checkpoint_age_ms_max <= now_ms:
        return True
    over = savepoints.count > settings.checkpoints_max or savepoints.bytes > settings.checkpoint_bytes_max
    return over and savepoints.count > 1
