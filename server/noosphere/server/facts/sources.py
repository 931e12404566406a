"""The sources of a fact: which are kept, which count as distinct, and how sure they make it together."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from .contents import OWN_WORD
from .ledger import SOURCES_LISTED_MAX, SOURCES_MAX, FactNote, SourceNote
from .trust import USER_TRUST

CONFIDENCE_MAX = 0.99


def distinct(known: Sequence[SourceNote], named: Iterable[SourceNote]) -> tuple[SourceNote, ...]:
    """Returns those that are neither known nor say word for word what another says: these make a fact surer."""
    references = {source.reference for source in known}
    contents = {source.content_hash for source in known}
    found: list[SourceNote] = []
    for source in named:
        if source.reference in references or (source.content_hash and source.content_hash in contents):
            continue
        references.add(source.reference)
        contents.add(source.content_hash)
        found.append(source)
    return tuple(found)


def joined(
    known: Sequence[SourceNote], named: Sequence[SourceNote], *, supports: bool = True
) -> tuple[SourceNote, ...]:
    """Returns the sources of a fact with some more, as far as there is room; none that is known makes room for another.

    What repeats a known source is kept, too, since forgetting has to find it; an agent's own word is kept once.

    Args:
        known: the fact's, the oldest first.
        named: what else says so.
        supports: whether these are trusted enough to count. Others only fill up what is listed: whoever names evidence
            that is worth nothing must not crowd out what the fact rests on.
    """
    new = distinct(known, named)
    references = {source.reference for source in known}
    kept = [
        source
        for source in dict.fromkeys(named)
        if source.reference not in references and (source in new or not source.reference.startswith(OWN_WORD))
    ]
    room = (SOURCES_MAX if supports else SOURCES_LISTED_MAX) - len(known)
    return (*known, *kept[: max(room, 0)])


def rests_on(note: FactNote, is_of: Callable[[SourceNote], bool]) -> bool:
    """Tells whether a fact would be none without some sources: nobody else says so who is trusted enough."""
    others = [source.trust for source in note.sources if not is_of(source)]
    return not others or max(others) < min(USER_TRUST, note.trust)


def surety(sources: Iterable[SourceNote]) -> float:
    """Returns how sure sources make a fact together: those that count, each candidate once, and no repetition."""
    everything = tuple(sources)
    least = min(USER_TRUST, max(source.trust for source in everything))
    counted = distinct((), (source for source in everything if source.trust >= least))
    # Evidence of one candidate does not make it surer than the candidate is.
    unsure = math.prod(1 - confidence for confidence in {one.candidate: one.confidence for one in counted}.values())
    return min(CONFIDENCE_MAX, 1 - unsure)
