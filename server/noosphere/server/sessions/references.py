"""References to what sessions hold: ``msg:<session>/<message id>`` and ``tool:<session>/<call id>``."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from noosphere.consistency import Refusal

from .keys import check_entry_id, check_session_id


class SourceKind(StrEnum):
    """What a reference names."""

    MESSAGE = "msg"
    TOOL = "tool"


class Reference(NamedTuple):
    """A message or a tool call of a session.

    Attributes:
        kind: which of the two.
        session_id: the session that holds it; ids of sessions have no ``/``, those of entries may.
        entry_id: the message's or the call's id.
    """

    kind: SourceKind
    session_id: str
    entry_id: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.session_id}/{self.entry_id}"

    @classmethod
    def parse(cls, text: str) -> Reference | None:
        """Reads a reference; None for one that can name nothing that a session holds."""
        kind, _, rest = text.partition(":")
        session_id, _, entry_id = rest.partition("/")
        try:
            check_session_id(session_id)
            check_entry_id(entry_id, "reference")
            return cls(SourceKind(kind), session_id, entry_id)
        except (Refusal, ValueError):
            return None
