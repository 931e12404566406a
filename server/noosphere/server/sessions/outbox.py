"""The outbox: what left working memory to become a fact, in the commit that removed it, and what was learned.

The outbox is the truth about candidates until something takes them from there; nothing else remembers them.
"""

from __future__ import annotations

import msgspec

from noosphere.consistency import Encoding, MergeType, Record, Scalar, Sibling
from noosphere.consistency.merge import render

from .draft import Draft
from .keys import OUTBOX

KEY_ATTRIBUTE = "item"
REASON_ATTRIBUTE = "reason"
OTHERS_BYTES_MAX = 128 * 1024
"""Of the values beside the newest one, so that a candidate fits the commit that removes its item."""


class CandidateValue(msgspec.Struct, frozen=True, omit_defaults=True):
    """A value that an item had: JSON as it is, or bytes."""

    json: msgspec.Raw = msgspec.Raw(b"")
    data: bytes = b""
    actor: str = ""
    time_ms: int = 0


class Candidate(msgspec.Struct, frozen=True, omit_defaults=True):
    """What may become a fact.

    Attributes:
        item: the key that the item had.
        version: its version when it was removed.
        value: its value, the newest if there were several.
        others: the other values, as many as there is room for.
        attributes: its attributes.
        created_ms: when its life began.
        reason: why it left working memory, or why it is proposed, as a word.
        turn: the newest turn at that time.
        evidence: keys of what it rests on, messages for example; what lies in several sessions is named by
            references, ``tool:<session>/<call id>``.
        memory_type: what kind of memory it is, as the word that facts have for it; empty if nobody has said.
    """

    item: str
    version: int
    value: CandidateValue
    others: tuple[CandidateValue, ...] = ()
    attributes: dict[str, Scalar] = msgspec.field(default_factory=dict)
    created_ms: int = 0
    reason: str = ""
    turn: int = 0
    evidence: tuple[str, ...] = ()
    memory_type: str = ""


_decoder = msgspec.json.Decoder(Candidate)


def decode_candidate(data: bytes) -> Candidate:
    """Returns what an outbox record holds."""
    return _decoder.decode(data)


def propose(draft: Draft, candidate: Candidate, *, entry_id: tuple[str, str]) -> int:
    """Records a candidate that was no item, in the draft.

    Args:
        draft: of a commit that has read the id's key.
        candidate: what may become a fact.
        entry_id: kind and id by which the commit and later ones tell that it was proposed, see ``keys.id_key``.

    Returns:
        The index for ``keys.slot``.
    """
    attributes = ((KEY_ATTRIBUTE, candidate.item), (REASON_ATTRIBUTE, candidate.reason))
    return draft.append(OUTBOX, msgspec.json.encode(candidate), attributes, entry_id=entry_id)


def archive(
    draft: Draft, key: str, record: Record, now_ms: int, *, reason: str, turn: int, evidence: tuple[str, ...] = ()
) -> int:
    """Removes a live item and records its candidate, both in the draft.

    Args:
        draft: of a commit that has read the item.
        key: the item's key.
        record: what is stored there.
        now_ms: store time.
        reason: why, as a word.
        turn: the newest turn.
        evidence: keys of what it rests on.

    Returns:
        The index for ``keys.slot``, which names the candidate once the commit's revision is known.
    """
    *older, newest = (_value(record.merge_type, sibling) for sibling in record.live(now_ms))
    others: list[CandidateValue] = []
    room = OTHERS_BYTES_MAX
    for value in reversed(older):
        room -= len(bytes(value.json)) + len(value.data)
        if room < 0:
            break
        others.append(value)
    candidate = Candidate(
        key,
        record.version(now_ms),
        newest,
        tuple(others),
        dict(record.attributes),
        record.created_ms,
        reason,
        turn,
        evidence,
    )
    draft.remove(key)
    attributes = ((KEY_ATTRIBUTE, key), (REASON_ATTRIBUTE, reason))
    return draft.append(OUTBOX, msgspec.json.encode(candidate), attributes)


def _value(merge_type: MergeType, sibling: Sibling) -> CandidateValue:
    assert sibling.data is not None, "asked of live values only"
    if sibling.encoding is Encoding.BYTES:
        return CandidateValue(data=sibling.data, actor=sibling.actor, time_ms=sibling.time_ms)
    json = msgspec.Raw(render(merge_type, sibling.data))
    return CandidateValue(json=json, actor=sibling.actor, time_ms=sibling.time_ms)
