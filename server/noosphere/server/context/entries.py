"""Lines of a manifest: what became of candidates, messages, and what the caller says."""

from __future__ import annotations

from ..sessions.toolcall import ToolCallStatus
from ..sessions.types import Message, Role
from .calls import CallState
from .fence import one_line
from .types import TRUST_OUTSIDE, TRUST_OWN, TRUST_USER, WHY, Candidate, Entry, Fate, SectionKind

_CALLER = "given by the caller"


def of_candidate(candidate: Candidate, fate: Fate, why: str, tokens: int, full: int) -> Entry:
    """Returns the line of a candidate that takes ``tokens``, and in full would take ``full``."""
    return Entry(
        candidate.id,
        candidate.section,
        fate,
        why,
        # A manifest has no text, and the caller could put any amount of it here.
        one_line(candidate.source),
        candidate.version,
        tokens,
        full,
        candidate.trust,
        round(candidate.value, 4),
        candidate.carried_from,
    )


def of_message(
    message: Message, section: SectionKind, fate: Fate, why: str, tokens: int, state: CallState | None = None
) -> Entry:
    """Returns the line of a message; ``state`` is that of the call that it answers, if there is something to say."""
    trust = {Role.SYSTEM: TRUST_OWN, Role.TOOL: TRUST_OUTSIDE}.get(message.role, TRUST_USER)
    full = max(tokens, message.tokens)
    line = Entry(f"message:{message.id}", section, fate, why, message.author, 0, tokens, full, trust)
    return line if state is None else _late(line, state)


def of_call(call_id: str, author: str, section: SectionKind, state: CallState) -> Entry:
    """Returns the line of a call whose result does not count, and is not shown."""
    why = WHY.parked if state.status is ToolCallStatus.PARKED else WHY.rejected
    line = Entry(f"call:{call_id}", section, Fate.DROPPED, why, author, 0, 0, state.tokens, TRUST_OUTSIDE)
    return _late(line, state)


def _late(line: Entry, state: CallState) -> Entry:
    return line._replace(late=True, changed=tuple(change.key for change in state.lateness.changes))


def of_tool(name: str, tokens: int, *, inside: bool) -> Entry:
    """Returns the line of a tool's schema."""
    fate, why, took = (Fate.INCLUDED, WHY.fits, tokens) if inside else (Fate.DROPPED, WHY.no_room, 0)
    return Entry(f"tool:{name}", SectionKind.TOOLS, fate, why, _CALLER, 0, took, tokens, TRUST_OWN)


def required(name: str, section: SectionKind, tokens: int) -> Entry:
    """Returns the line of something that the caller says and that every context holds."""
    return Entry(name, section, Fate.INCLUDED, WHY.required, _CALLER, 0, tokens, tokens, TRUST_OWN, 1.0)
