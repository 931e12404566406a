"""Evidence of one context: what is given for it, and what is carried on from the contexts before."""

from __future__ import annotations

from collections.abc import Sequence

from . import entries
from .candidates import Evidence, of_evidence
from .types import WHY, Candidate, Entry, Fate, SectionKind


def of_given(evidence: Sequence[Evidence], *, stays_at: int = 0) -> tuple[tuple[Candidate, ...], tuple[Entry, ...]]:
    """Returns evidence as candidates, and what of the carried pieces may not enter beside the fresh ones.

    A fresh piece comes before a carried one of the same id or the same text. If nothing about it is new, it takes the
    other's place, so that a search that finds the same once more leaves a prompt's bytes as they are.

    Args:
        evidence: fresh and carried pieces.
        stays_at: the revision at which fresh pieces stand if they will be given again; 0 if they will not.
    """
    fresh = [one for one in evidence if not one.carried_from]
    by_id = {one.id: one for one in fresh}
    texts = {one.text for one in fresh}
    places: dict[str, int] = {}
    carried: list[Candidate] = []
    refused: list[Entry] = []
    for one in evidence:
        if not one.carried_from:
            continue
        candidate = of_evidence(one, SectionKind.EVIDENCE)
        newer = by_id.get(one.id)
        if newer is None and one.text not in texts:
            carried.append(candidate)
            continue
        same = newer is None or newer.text == one.text
        if newer is not None and newer == one._replace(carried_from="", carried_revision=newer.carried_revision):
            places[one.id] = one.carried_revision
        refused.append(entries.of_candidate(candidate, Fate.DROPPED, WHY.duplicate if same else WHY.superseded, 0, 0))
    given = [of_evidence(one, SectionKind.EVIDENCE)._replace(since=places.get(one.id, stays_at)) for one in fresh]
    # What stays is tried for room in the same order in each context, so that the same of it is shown.
    together = sorted((*given, *carried), key=lambda one: (one.since, one.id if one.since else ""))
    return tuple(together), tuple(refused)
