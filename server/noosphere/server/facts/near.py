"""Finds known claims that say the same as a claim, or the contrary, in other words."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from ..ports.factstore import FactContent, FactFilter, FactKey, FactStore
from ..text import terms
from ..together import each
from .canonical import canonical
from .contents import decode_body, read_all
from .fresh import Fresh
from .likeness import Compared, Likeness, compared, relation
from .types import Claim, Policy

NEAR_MAX = 8
"""Most known claims that each kind of search gives a new one to be compared with."""

KEPT_MAX = 16_384
"""Most known claims in memory, of about 1 KiB each."""

SHARED_TERMS_MIN = 0.5
"""Of the terms of the shorter of two claims: with fewer in common they are not compared any closer."""


class Probe(NamedTuple):
    """A claim, and where to look for its like.

    Attributes:
        scope: in which scope.
        owner: among whose facts.
        text: its words.
        claim: the claim.
        vector: what it means; None searches by words alone.
    """

    scope: str
    owner: str
    text: str
    claim: Claim
    vector: Sequence[float] | None


class Near(NamedTuple):
    """A known claim that is like the new one, or its contrary, in the words in which it was found."""

    fact_id: str
    likeness: Likeness
    content: FactContent


class Known(NamedTuple):
    """What a fact claims under some rules of its scope, and the terms by which it is found."""

    rules: bytes
    compared: Compared
    terms: frozenset[str]


class KnownClaims:
    """What facts claim, in canonical form, kept in memory for those used last."""

    def __init__(self) -> None:
        self._kept: OrderedDict[FactKey, Known] = OrderedDict()

    def of(self, content: FactContent, policy: Policy) -> Claim:
        """Returns what a fact claims."""
        return self.learn(content, policy, _rules(policy)).compared.claim

    def recall(self, key: FactKey, rules: bytes) -> Known | None:
        """Returns what a fact claims if it is in memory."""
        known = self._kept.get(key)
        if known is None or known.rules != rules:
            return None
        self._kept.move_to_end(key)
        return known

    def learn(self, content: FactContent, policy: Policy, rules: bytes) -> Known:
        """Returns what a fact claims, and keeps it in memory."""
        known = self.recall(content.key, rules)
        return known or self._keep(content, rules, compared(_claim(content, policy)))

    def keep(self, content: FactContent, policy: Policy, claim: Claim) -> None:
        """Keeps what a fact claims that was just written; see :func:`_claim`, which would find the same."""
        self._keep(content, _rules(policy), compared(claim))

    def forget(self, keys: Iterable[FactKey]) -> None:
        """Drops what is kept of contents that are gone."""
        for key in keys:
            self._kept.pop(key, None)

    def forget_all(self) -> None:
        """Drops everything."""
        self._kept.clear()

    def _keep(self, content: FactContent, rules: bytes, made: Compared) -> Known:
        known = self._kept[content.key] = Known(rules, made, frozenset(content.terms))
        if len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)
        return known


def _rules(policy: Policy) -> bytes:
    if not policy.aliases and not policy.single_valued:
        return b""
    return msgspec.json.encode((policy.aliases, policy.single_valued), order="deterministic")


def _claim(content: FactContent, policy: Policy) -> Claim:
    body = decode_body(content)
    return canonical(
        content.owner,
        content.scope,
        body.text,
        subject=body.subject,
        predicate=body.predicate,
        object=body.object,
        policy=policy,
    )


async def find_near(
    store: FactStore, fresh: Fresh, claims: KnownClaims, probe: Probe, policy: Policy, now_ms: int
) -> tuple[Near, ...]:
    """Finds current claims of the owner that say the same or the contrary; what becomes of that checks their notes.

    Args:
        store: finds them.
        fresh: tells of those that it may miss.
        claims: what known facts claim.
        probe: the claim.
        policy: that of its scope.
        now_ms: store time.
    """
    where = FactFilter((probe.scope,), (probe.owner,), alive_at_ms=now_ms, valid_after_ms=now_ms)
    words = terms(probe.text, singles=True)
    vector = probe.vector
    missed = await fresh.keys(probe.scope)
    searches = [store.by_keywords(words, where, NEAR_MAX)] if words else []
    searches += [store.by_vector(vector, where, NEAR_MAX)] if vector is not None else []
    keys = dict.fromkeys([*(hit.key for hits in await each(searches) for hit in hits), *missed])
    if not keys:
        return ()
    mine, own, rules = compared(probe.claim), frozenset(words), _rules(policy)
    # Few are like it, so most that are in memory need not be read.
    recalled = ((key, claims.recall(key, rules)) for key in keys)
    close = [key for key, known in recalled if known is None or _may_be_like(mine, own, known)]
    found: list[Near] = []
    for content in await read_all(store, close):
        if content is None or content.owner != probe.owner:
            continue
        if not _may_be_like(mine, own, known := claims.learn(content, policy, rules)):
            continue
        similarity = None
        if probe.vector is not None and content.vector is not None:
            similarity = sum(a * b for a, b in zip(probe.vector, content.vector, strict=True))
        kind = relation(mine, known.compared, similarity)
        if kind is not Likeness.DIFFERENT:
            found.append(Near(content.fact_id, kind, content))
    return tuple(found)


def _may_be_like(mine: Compared, words: frozenset[str], known: Known) -> bool:
    """Tells whether a claim is like a known one, unless their vectors speak against it."""
    if len(words & known.terms) < SHARED_TERMS_MIN * min(len(words), len(known.terms)):
        return False
    return relation(mine, known.compared, None) is not Likeness.DIFFERENT
