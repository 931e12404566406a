"""Messages of the system role: every context begins with them, however old they are.

A transcript has no index by role, so it is read once, from the beginning, and then only what was appended since. What
is remembered are keys: a message that is taken back is seen to be.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence

from ..memory.codec import decode_record
from ..ports.store import NamespaceRef
from ..sessions.branches import Stretch
from ..sessions.codec import decode_message
from ..sessions.draft import Look
from ..sessions.keys import MESSAGES, KeyRange
from ..sessions.scribe import Scan, Scribe
from ..sessions.types import Message, Role

INSTRUCTIONS_MAX = 64
"""Most messages of the system role that count, the newest."""

_REMEMBERED_MAX = 4_096
_PAGE = 256
# What every message of the role has in its record. Others may have it in their text, so it only saves decoding.
_HINT = b"system"


class Instructions:
    """Finds the messages of the system role that are older than those that were read anyway."""

    def __init__(self, scribe: Scribe) -> None:
        self._scribe = scribe
        self._known: OrderedDict[tuple[bytes, str], tuple[str, tuple[str, ...]]] = OrderedDict()

    async def older(
        self, look: Look, parts: Sequence[Stretch], messages: Sequence[Message], operators: frozenset[str]
    ) -> tuple[Message, ...]:
        """Returns the instructions before ``messages``, the oldest first.

        Args:
            look: the session.
            parts: the stretches of its present branch, the oldest first.
            messages: the newest messages, the oldest first.
            operators: agents whose messages of that role are instructions.
        """
        read = {message.key for message in messages}
        found: list[Message] = []
        for stretch in parts:
            ref = await self._scribe.living(stretch.session or look.session_id)
            keys = await self._keys(ref, stretch)
            entries = (await self._scribe.core.store.read(ref, keys)).entries
            for entry in entries:
                if entry is None or entry.key in read:
                    continue
                message = decode_message(entry.key, decode_record(entry.data, entry.revision))
                if message.role is Role.SYSTEM and message.author in operators and not message.retracted:
                    found.append(message)
        return tuple(found[-INSTRUCTIONS_MAX:])

    async def _keys(self, ref: NamespaceRef, stretch: Stretch) -> tuple[str, ...]:
        """Returns the keys of a stretch's messages of the system role, and remembers how far it was read."""
        name = (ref.storage_id, stretch.after)
        after, keys = self._known.pop(name, (stretch.after, ()))
        more = True
        while more:
            bounds = KeyRange(after or None, stretch.before or None)
            page = await self._scribe.scan(ref, Scan(MESSAGES, _PAGE, keys=bounds))
            for entry in page.entries:
                after = entry.key
                if _HINT in entry.data:
                    message = decode_message(entry.key, decode_record(entry.data, entry.revision))
                    if message.role is Role.SYSTEM:
                        keys = (*keys, entry.key)[-INSTRUCTIONS_MAX:]
            more = page.more
            if more:
                await asyncio.sleep(0)
        self._known[name] = (after, keys)
        while len(self._known) > _REMEMBERED_MAX:
            self._known.popitem(last=False)
        return tuple(key for key in keys if stretch.holds(key))
