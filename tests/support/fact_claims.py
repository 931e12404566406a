"""What an operator has claimed, was told and has had forgotten, and what must hold of the facts at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from noosphere.consistency import LostRange

BECAME_FACT = frozenset({"written", "merged", "superseded", "contested"})


class Known(Protocol):
    """A fact as it is listed, or as much of it as is judged."""

    @property
    def text(self) -> str: ...
    @property
    def source_count(self) -> int: ...
    @property
    def superseded_by(self) -> str: ...


@dataclass(slots=True, eq=False)
class Claim:
    """One claim, in words that are nobody else's.

    Attributes:
        text: the words.
        home: of the only value that somebody's home has at a time, its number, which grows; 0 for any other claim.
        sent: how many candidates say it, whether they were acknowledged or not.
        acknowledged: for each candidate that was, how far the ledger was known then; its own revision is not above.
        fact_id: the fact that it became, once that is known.
        found_at: how far the ledger was known when a search last found it; 0 if none has.
        forgetting: whether it was asked to be forgotten.
        forgotten_at: how far the ledger was known when that was acknowledged; 0 if it was not.
    """

    text: str
    home: int = 0
    sent: int = 0
    acknowledged: dict[str, int] = field(default_factory=dict)
    fact_id: str = ""
    found_at: int = 0
    forgetting: bool = False
    forgotten_at: int = 0


class Claims:
    """All claims of a scope in which nobody else says anything.

    Attributes:
        by_text: the claims.
        losses: which revisions of the ledger its operator was told are lost.
    """

    def __init__(self) -> None:
        self.by_text: dict[str, Claim] = {}
        self.losses: list[LostRange] = []

    def add(self, text: str, home: int = 0) -> Claim:
        """Takes note of a claim, before it is sent the first time."""
        return self.by_text.setdefault(text, Claim(text, home))

    def is_lost(self, revision: int) -> bool:
        """Tells whether what was acknowledged when the ledger was known so far may be gone, as was told."""
        return any(loss.after < revision <= loss.through for loss in self.losses)

    def kept(self, claim: Claim) -> int:
        """Returns how many candidates that say this were acknowledged and not told to be lost."""
        return sum(not self.is_lost(at) for at in claim.acknowledged.values())

    def is_gone(self, claim: Claim) -> bool:
        """Tells whether it has been forgotten for good."""
        return claim.forgotten_at > 0 and not self.is_lost(claim.forgotten_at)

    def judge(self, decided: Sequence[tuple[str, str]], known: Sequence[Known]) -> list[str]:
        """Returns what is wrong once nothing waits any more.

        Args:
            decided: each decision that is listed: the candidate's id and its status.
            known: each fact that is listed, those that were superseded included.
        """
        return [*self._of_decisions(decided), *self._of_facts(known), *self._of_homes(known)]

    def _of_decisions(self, decided: Sequence[tuple[str, str]]) -> Iterator[str]:
        times, statuses = Counter(id for id, _ in decided), dict(decided)
        yield from (f"decided {count} times: candidate {id}" for id, count in times.items() if count > 1)
        for claim in self.by_text.values():
            fates = BECAME_FACT | {"suppressed"} if claim.forgetting else BECAME_FACT
            for id, at in claim.acknowledged.items():
                if id not in statuses:
                    if not self.is_lost(at):
                        yield f"acknowledged, not decided and not told to be lost: candidate {id}, {claim}"
                elif statuses[id] not in fates:
                    yield f"became {statuses[id]}: candidate {id}, {claim}"

    def _of_facts(self, known: Sequence[Known]) -> Iterator[str]:
        times = Counter(fact.text for fact in known)
        yield from (f"nobody has claimed: {text!r}" for text in times.keys() - self.by_text.keys())
        yield from (f"{count} facts: {text!r}" for text, count in times.items() if count > 1)
        for claim in self.by_text.values():
            if self.is_gone(claim):
                if times[claim.text]:
                    yield f"forgotten, and there again: {claim}"
            elif self.kept(claim) and not claim.forgetting and not times[claim.text]:
                yield f"acknowledged, and no fact: {claim}"
        for fact in known:
            one = self.by_text.get(fact.text)
            if one is not None and not one.forgetting and not self.kept(one) <= fact.source_count <= one.sent:
                yield f"{fact.source_count} sources, of {self.kept(one)} acknowledged and {one.sent} sent: {one}"

    def _of_homes(self, known: Sequence[Known]) -> Iterator[str]:
        homes = {claim.text: claim.home for claim in self.by_text.values() if claim.home}
        newest = max((claim.home for claim in self.by_text.values() if claim.home and self.kept(claim)), default=0)
        now = [homes[fact.text] for fact in known if fact.text in homes and not fact.superseded_by]
        if len(now) > 1 or (newest and (not now or now[0] < newest)):
            yield f"the newest home that was acknowledged is {newest}, and those that count are {now}"
