"""Revisions: positions in a namespace's log, and what an epoch change did to them.

A revision is ``epoch << 40 | seq``: unique, increasing and never reused within a namespace. An epoch
begins when acknowledged commits may have been lost (a crash, a failover), so every revision tells
under which history it was issued.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

SEQ_BITS = 40
SEQ_MAX = (1 << SEQ_BITS) - 1
EPOCH_MAX = (1 << 23) - 1
REVISION_MAX = (1 << 63) - 1
NEVER_MS = REVISION_MAX
"""A store time in milliseconds that never comes."""


def make_revision(epoch: int, seq: int) -> int:
    """Returns the revision at position ``seq`` of ``epoch``.

    Raises:
        ValueError: a part is out of range.
    """
    if not 0 <= epoch <= EPOCH_MAX or not 0 <= seq <= SEQ_MAX:
        raise ValueError(f"epoch {epoch} or seq {seq} out of range")
    return epoch << SEQ_BITS | seq


def epoch_of(revision: int) -> int:
    """Returns the epoch in which ``revision`` was issued."""
    return revision >> SEQ_BITS


def seq_of(revision: int) -> int:
    """Returns the position of ``revision`` within its epoch."""
    return revision & SEQ_MAX


def next_revision(head: int, epoch: int) -> int:
    """Returns the revision of the commit after ``head`` in ``epoch`` (at least ``head``'s epoch)."""
    first = epoch << SEQ_BITS | 1
    return head + 1 if head >= first else first


def to_hex(revision: int) -> str:
    """Returns 16 hex digits that order as text exactly as the revisions order as numbers."""
    return f"{revision:016x}"


class Cut(NamedTuple):
    """What survived the beginning of an epoch in one namespace."""

    epoch: int
    cut: int
    """The namespace's head at its first access in ``epoch``: the last revision that survived."""


class LostRange(NamedTuple):
    """Revisions in ``(after, through]`` were issued before an epoch change and did not survive it."""

    after: int
    through: int


def find_lost(revision: int, cuts: Iterable[Cut]) -> LostRange | None:
    """Tells whether a presented revision was lost.

    Args:
        revision: what a caller presents (a context, an expected version, a watch start).
        cuts: every cut of the namespace, oldest first.

    Returns:
        The lost range that holds ``revision``, or None if it survived.
    """
    for epoch, cut in cuts:
        if cut < revision <= epoch << SEQ_BITS:
            return LostRange(cut, epoch << SEQ_BITS)
    return None


def revisions_back(head: int, count: int, cuts: Sequence[Cut]) -> int:
    """Returns the revision after which ``count`` revisions up to ``head`` were issued and survived, at least 0.

    Args:
        head: the namespace's newest revision.
        count: how far to go back.
        cuts: every cut of the namespace, oldest first; between two epochs lie numbers that nobody issued.
    """
    newest = head
    for epoch, cut in reversed(cuts):
        issued = newest - (epoch << SEQ_BITS)
        if issued >= count:
            break
        if issued >= 0:
            count -= issued
            newest = cut
    return max(0, newest - count)
