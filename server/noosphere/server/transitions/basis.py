"""What pending tool calls are based on: it stays where it is, so that a late result can be judged."""

from __future__ import annotations

from ..sessions.codec import decode_index
from ..sessions.keys import CALL_IDS, PENDING, TOOLS, id_key, slot
from ..sessions.scribe import Scan, Scribe
from ..sessions.toolcall import decode_tool_call

PENDING_MAX = 1_024
"""More calls than a session may have pending."""

_STEP = 128


class RecordedBasis:
    """Reads the records of tool calls.

    Args:
        scribe: reads them.
    """

    def __init__(self, scribe: Scribe) -> None:
        self._scribe = scribe

    async def awaited_keys(self, session_id: str) -> frozenset[str]:
        """Returns the keys that calls without a result are based on, as accepted."""
        scribe = self._scribe
        ref = await scribe.living(session_id)
        pending = await scribe.scan(ref, Scan(PENDING, PENDING_MAX), accepted=True)
        ids = [id_key(CALL_IDS, entry.key[len(PENDING) :]) for entry in pending.entries]
        keys: set[str] = set()
        for start in range(0, len(ids), _STEP):
            named = (await scribe.peek(session_id, ids[start : start + _STEP])).entries
            records = [
                TOOLS + slot(entry.revision, decode_index(entry.data))
                for name in ids[start : start + _STEP]
                if (entry := named[name]) is not None
            ]
            look = await scribe.peek(session_id, records)
            for name in records:
                record = look.record(name)
                if record is not None:
                    keys.update(basis.key for basis in decode_tool_call(name, record).based_on)
        return frozenset(keys)
