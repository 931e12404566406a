"""What is remembered of a session's use: which items were asked for in which turns, and how its contexts fared.

Kept in one internal record, so that it changes no version and no read set. What happens within a turn is collected
in memory and written at its end; a crash loses at most that.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ..ports.store import StoredEntry
from .facts import WINDOW_TURNS

CONTEXTS_KEPT = 10
TURN_TOKENS_KEPT = 6
LIFESPANS_KEPT = 50
_MASK = (1 << WINDOW_TURNS) - 1


class Use(msgspec.Struct, array_like=True, frozen=True):
    """One item's use.

    Attributes:
        created_ms: when its life began, which tells a new item of the same key from the old one.
        created_turn: the turn in which it was first seen.
        access_turn: the newest turn in which it was asked for.
        mask: bit n is set if it was asked for n turns before ``access_turn``.
    """

    created_ms: int
    created_turn: int
    access_turn: int
    mask: int

    def accesses(self, turn: int) -> int:
        """Returns in how many of the 20 turns up to ``turn`` it was asked for."""
        return ((self.mask << max(0, turn - self.access_turn)) & _MASK).bit_count()

    def accessed(self, turn: int) -> Use:
        """Returns the use after an access in ``turn``."""
        if turn < self.access_turn:
            return msgspec.structs.replace(self, mask=self.mask | ((1 << (self.access_turn - turn)) & _MASK))
        mask = ((self.mask << (turn - self.access_turn)) | 1) & _MASK
        return msgspec.structs.replace(self, access_turn=turn, mask=mask)


class ContextNote(msgspec.Struct, array_like=True, frozen=True):
    """One context of the session.

    Attributes:
        context_id: which.
        turn: in which turn.
        used_tokens: what it took.
        allowed_tokens: what it was allowed.
        working_tokens: what it left for working memory.
        recalled: how many entries it recalled; 0 as long as nobody has said what was used.
        used: how many of these were used.
        reported: whether the use was reported; else it was estimated.
    """

    context_id: str
    turn: int
    used_tokens: int
    allowed_tokens: int
    working_tokens: int
    recalled: int = 0
    used: int = 0
    reported: bool = False

    def newest(self, other: ContextNote | None) -> ContextNote:
        """Returns which of two notes of one context was made later: what is known of its use only grows."""
        if other is None or (self.reported, self.recalled, self.used) >= (
            other.reported,
            other.recalled,
            other.used,
        ):
            return self
        return other


class Chronicle(msgspec.Struct, frozen=True, omit_defaults=True):
    """The record.

    Attributes:
        judged_turn: the newest turn at whose end the controller has run.
        uses: by key.
        contexts: the newest, the oldest first.
        turn_tokens: tokens of the newest context of each of the newest turns, the oldest first.
        lifespans: how many turns items lived that have left lately.
        tokens_spent: tokens of all contexts.
    """

    judged_turn: int = 0
    uses: dict[str, Use] = msgspec.field(default_factory=dict)
    contexts: tuple[ContextNote, ...] = ()
    turn_tokens: tuple[tuple[int, int], ...] = ()
    lifespans: tuple[int, ...] = ()
    tokens_spent: int = 0

    def with_uses(self, alive: Mapping[str, int], accessed: frozenset[str], turn: int) -> Chronicle:
        """Returns the record after a turn.

        Args:
            alive: the items that there are, with the time at which their life began.
            accessed: what was asked for.
            turn: the turn.
        """
        uses: dict[str, Use] = {}
        for key, created_ms in alive.items():
            use = self.uses.get(key)
            if use is None or use.created_ms != created_ms:
                use = Use(created_ms, turn, turn, 1)
            uses[key] = use.accessed(turn) if key in accessed else use
        return msgspec.structs.replace(self, uses=uses)

    def with_contexts(self, notes: tuple[ContextNote, ...]) -> Chronicle:
        """Returns the record with what has become known of contexts; of one context the newest note counts."""
        contexts = {note.context_id: note for note in self.contexts}
        turns = dict(self.turn_tokens)
        spent = self.tokens_spent
        for note in notes:
            if note.context_id not in contexts:
                spent += note.used_tokens
                turns[note.turn] = note.used_tokens
            contexts[note.context_id] = note.newest(contexts.get(note.context_id))
        return msgspec.structs.replace(
            self,
            contexts=tuple(contexts.values())[-CONTEXTS_KEPT:],
            turn_tokens=tuple(sorted(turns.items()))[-TURN_TOKENS_KEPT:],
            tokens_spent=spent,
        )

    def without(self, gone: Mapping[str, int], turn: int) -> Chronicle:
        """Returns the record after items have left in ``turn``; ``gone`` holds their keys."""
        lived = tuple(max(0, turn - self.uses[key].created_turn) for key in sorted(gone) if key in self.uses)
        uses = {key: use for key, use in self.uses.items() if key not in gone}
        return msgspec.structs.replace(self, uses=uses, lifespans=(*self.lifespans, *lived)[-LIFESPANS_KEPT:])


_decoder = msgspec.json.Decoder(Chronicle)


def encode_chronicle(chronicle: Chronicle) -> bytes:
    """Returns the record's bytes."""
    return msgspec.json.encode(chronicle)


def decode_chronicle(entry: StoredEntry | None) -> Chronicle:
    """Returns the record; an empty one if there is none."""
    return Chronicle() if entry is None else _decoder.decode(entry.data)
