"""How summaries are stored, and which of them stand for a branch's history."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from noosphere.consistency import Scalar

from ..memory.codec import decode_record
from ..ports.models import SummaryText
from ..ports.store import StoredEntry
from .branches import Stretch
from .codec import encode, value_of
from .keys import slot_revision
from .types import Summary

PRODUCER_ATTRIBUTE = "producer"


class SummaryData(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a summary's record holds; see :class:`~.types.Summary`.

    Attributes:
        first: key of the first message that it covers.
        last: key of the last one.
        messages: how many it covers.
        last_session: the session in which ``last`` lies, if it is another: a fork's summary may cover what its parent
            said.
        number: how many summaries the session had before.
        stand_in: whether rules made it until a model will have made a better one.
        goals: see there, and so on.
    """

    first: str
    last: str
    messages: int
    last_session: str = ""
    number: int = 0
    stand_in: bool = False
    producer: str = ""
    tokens: int = 0
    goals: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    open_questions: tuple[str, ...] = ()
    entities: tuple[str, ...] = ()
    narrative: str = ""


class StoredSummary(NamedTuple):
    """A summary as it is stored: at a key, made at a revision."""

    key: str
    data: SummaryData

    @property
    def revision(self) -> int:
        """When it was made."""
        return slot_revision(self.key)

    @property
    def text(self) -> SummaryText:
        """What it says."""
        data = self.data
        return SummaryText(data.goals, data.decisions, data.open_questions, data.entities, data.narrative)

    @property
    def summary(self) -> Summary:
        """The summary as others know it."""
        data = self.data
        return Summary(
            self.key, data.first, data.last, data.messages, *self.text, producer=data.producer, tokens=data.tokens
        )


class Place(NamedTuple):
    """Where a message lies in a branch's history: in which stretch, at which key. Places compare in that order."""

    stretch: int
    key: str


BEGINNING = Place(0, "")
"""Before all messages."""

_decoder = msgspec.json.Decoder(SummaryData)


def encode_summary(data: SummaryData) -> bytes:
    """Returns a summary's JSON."""
    return encode(data)


def decode_summary(entry: StoredEntry) -> StoredSummary:
    """Returns a stored summary that is live."""
    return StoredSummary(entry.key, _decoder.decode(value_of(decode_record(entry.data, entry.revision))))


def summary_attributes(data: SummaryData) -> tuple[tuple[str, Scalar], ...]:
    """Returns what a list of summaries can be filtered by."""
    return ((PRODUCER_ATTRIBUTE, data.producer),)


def place_of(parts: Sequence[Stretch], key: str, session: str = "") -> Place | None:
    """Returns where a message lies in a branch's history, None if it is not part of it.

    Args:
        parts: the branch, see ``branches.stretches``.
        key: the message's key.
        session: the session in which it lies, empty for the branch's own.
    """
    for index, stretch in enumerate(parts):
        if stretch.session == session and stretch.holds(key):
            return Place(index, key)
    return None


def reached(parts: Sequence[Stretch], stored: StoredSummary) -> Place | None:
    """Returns up to where a summary covers a branch's history, None if it tells of another.

    A message belongs to the stretch of one branch only, and what came before it is the same for all that have it. So
    a summary whose last message is part of a branch tells of this branch and of nothing else, whichever branch it was
    made on.
    """
    return place_of(parts, stored.data.last, stored.data.last_session)


def farthest_first(parts: Sequence[Stretch], found: Iterable[StoredSummary]) -> tuple[StoredSummary, ...]:
    """Returns the summaries that tell of a branch: first those that cover most, of these the newest first."""
    placed = [(place, stored) for stored in found if (place := reached(parts, stored)) is not None]
    placed.sort(key=lambda entry: (entry[0], entry[1].key), reverse=True)
    return tuple(stored for _, stored in placed)
