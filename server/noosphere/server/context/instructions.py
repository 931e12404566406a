"""Messages of the system role: every context begins with them, however old they are.

A transcript has no index by role, so it is read once, from the beginning, and then only what was appended since. What
is remembered are keys: a message that is taken back is seen to be.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from ..memory.codec import decode_record
from ..ports.store import NamespaceRef
from ..sessions.branches import Stretch
from ..sessions.codec import decode_message
from ..sessions.draft import Look
from ..sessions.keys import MESSAGES, KeyRange
from ..sessions.scribe import Scan, Scribe
from ..sessions.types import Message, Role

INSTRUCTIONS_MAX = 64
"""Most older messages of the system role that count of one author, the newest."""

INSTRUCTIONS_DROPPED = "INSTRUCTIONS_DROPPED"
"""There are more messages of the system role than count."""

_REMEMBERED_MAX = 4_096
_KEYS_MAX = 256
_PAGE = 256
# What every message of the role has in its record. Others may have it in their text, so it only saves decoding.
_HINT = b"system"


class Older(NamedTuple):
    """Instructions before what was read anyway, the oldest first, and whether there are more than count."""

    messages: tuple[Message, ...]
    dropped: bool


class _Known(NamedTuple):
    """How far a stretch was read, the keys found there, and whether they were too many to keep."""

    after: str
    keys: tuple[str, ...] = ()
    full: bool = False


class Instructions:
    """Finds the messages of the system role that are older than those that were read anyway."""

    def __init__(self, scribe: Scribe) -> None:
        self._scribe = scribe
        # By author too: were others' messages remembered beside an operator's, anybody could crowd out instructions.
        self._known: OrderedDict[tuple[bytes, Stretch, str], _Known] = OrderedDict()

    async def older(
        self, look: Look, parts: Sequence[Stretch], messages: Sequence[Message], operators: frozenset[str]
    ) -> Older:
        """Returns the instructions before ``messages``.

        Args:
            look: the session.
            parts: the stretches of its present branch, the oldest first.
            messages: the newest messages, the oldest first.
            operators: agents whose messages of that role are instructions.
        """
        read = {message.key for message in messages}
        found: list[Message] = []
        full = False
        for stretch in parts:
            ref = await self._scribe.living(stretch.session or look.session_id)
            here: list[Message] = []
            for operator in operators:
                name = (ref.storage_id, stretch, operator)
                known = await self._read_on(ref, self._known.pop(name, _Known(stretch.after)), stretch, operator)
                entries = (await self._scribe.core.store.read(ref, known.keys)).entries
                stored = [decode_message(e.key, decode_record(e.data, e.revision)) for e in entries if e is not None]
                live = [message for message in stored if not message.retracted]
                here += [message for message in live if message.key not in read]
                full = full or known.full
                self._remember(name, known._replace(keys=tuple(message.key for message in live)))
            found += sorted(here, key=lambda message: message.key)
        counted = _newest(found)
        return Older(counted, full or len(counted) < len(found))

    async def _read_on(self, ref: NamespaceRef, known: _Known, stretch: Stretch, operator: str) -> _Known:
        """Reads what was appended to a stretch since."""
        after, keys, full = known
        more = True
        while more:
            bounds = KeyRange(after or None, stretch.before or None)
            page = await self._scribe.scan(ref, Scan(MESSAGES, _PAGE, keys=bounds))
            for entry in page.entries:
                after = entry.key
                if _HINT in entry.data:
                    message = decode_message(entry.key, decode_record(entry.data, entry.revision))
                    # One that was taken back stays so, and must not take the place of one that holds.
                    if message.role is Role.SYSTEM and message.author == operator and not message.retracted:
                        keys = (*keys, entry.key)
            full = full or len(keys) > _KEYS_MAX
            keys = keys[-_KEYS_MAX:]
            more = page.more
            if more:
                await asyncio.sleep(0)
        return _Known(after, keys, full)

    def _remember(self, name: tuple[bytes, Stretch, str], known: _Known) -> None:
        self._known[name] = known
        while len(self._known) > _REMEMBERED_MAX:
            self._known.popitem(last=False)


def _newest(found: Sequence[Message]) -> tuple[Message, ...]:
    """Returns as many of each author's messages as count, in their order."""
    counts: Counter[str] = Counter()
    kept: list[Message] = []
    for message in reversed(found):
        counts[message.author] += 1
        if counts[message.author] <= INSTRUCTIONS_MAX:
            kept.append(message)
    return tuple(reversed(kept))
