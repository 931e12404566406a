"""Facts as the ranking of hits gets them, for suites of pure rules."""

from __future__ import annotations

from functools import lru_cache

from noosphere.consistency import NEVER_MS
from noosphere.server.facts.contents import Body, content_of
from noosphere.server.facts.hits import Option
from noosphere.server.facts.ledger import FactNote, VersionNote
from noosphere.server.facts.prepared import Prepared
from noosphere.server.facts.standing import Standing
from noosphere.server.facts.types import FactState, MemoryType
from noosphere.server.models.tokenizers import TokenizerRegistry
from noosphere.server.ports.models import Tokenizer

SCOPE = "user/42"


@lru_cache(1)
def tokenizer() -> Tokenizer:
    """Counts as searches do."""
    return TokenizerRegistry(()).named("o200k_base")


def fact_id(number: int) -> str:
    """The id of a fact of the scope."""
    return f"{SCOPE}#{number:024x}"


def option(
    number: int,
    text: str,
    *,
    subject: str = "",
    predicate: str = "",
    object: str = "",
    kind: MemoryType = MemoryType.SEMANTIC,
    since_ms: int = 1_000,
    trust: float = 0.5,
    confidence: float = 0.9,
    contested_by: tuple[int, ...] = (),
    similarity: float | None = None,
) -> Option:
    """A current fact that a search has found."""
    version = VersionNote(1, (1 << 40) + number, since_ms, since_ms, NEVER_MS)
    note = FactNote(
        id=fact_id(number),
        owner=SCOPE,
        state=FactState.CURRENT,
        versions=(version,),
        key=f"key-{number}",
        memory_type=kind,
        trust=trust,
        confidence=confidence,
        contested_by=tuple(map(fact_id, contested_by)),
    )
    body = Body(text, subject, predicate, object)
    content = content_of(SCOPE, note, version, body, None, now_ms=since_ms)
    return Option(Standing(SCOPE, note, version), Prepared(content, tokenizer()), similarity)
