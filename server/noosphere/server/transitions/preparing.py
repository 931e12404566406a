"""What a run of the controller needs to have ready before it commits: summaries of items, and facts to promote."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import structlog

from noosphere.consistency import Reason, Refusal, Scalar

from ..facts.scopes import digits_of
from ..ports.facts import FactRecall, RecalledFact
from ..ports.models import SourceMessage, Summariser, SummariserError, Tokenizer
from ..sessions.draft import Look
from ..sessions.keys import NOTES
from ..sessions.summary_text import summary_text
from .rules import COMPRESSED_KIND
from .states import LiveItem

log = structlog.get_logger(__name__)

FACTS = "facts/"
PROMOTED_MAX = 3
PROMOTED_SCORE_MIN = 0.1
"""The facts that help with a goal share its likelihood, and a goal may need several of them."""

TRUST_MIN = 0.5
RECALL_SECONDS = 1.0
EMBED_SECONDS = 0.05
"""As in a context: without a vector in time, facts are recalled by their words."""

SUMMARY_SECONDS = 10.0
_TOKENS_MIN = 48
_RATIO = 5
_QUERY_CHARS_MAX = 2_000


class SummaryItem(NamedTuple):
    """An item that takes the place of several."""

    key: str
    data: bytes
    attributes: tuple[tuple[str, Scalar], ...]


class Promotion(NamedTuple):
    """A fact that enters working memory."""

    key: str
    data: bytes
    attributes: tuple[tuple[str, Scalar], ...]
    score: float
    explanation: str


async def summary_items(
    summariser: Summariser, tokenizer: Tokenizer, groups: Mapping[str, Sequence[LiveItem]], turn: int, bytes_max: int
) -> dict[str, SummaryItem]:
    """Returns for each group of items the one that takes their place, of at most ``bytes_max`` bytes.

    A summariser that is slow, wrong or away leaves the beginnings of the items: their whole text is in the outbox.
    """
    made: dict[str, SummaryItem] = {}
    for number, (group, items) in enumerate(sorted(groups.items())):
        text = await _summary(summariser, tokenizer, items, bytes_max)
        body = {"kind": group, "items": len(items), "text": ""}
        data = _fitted(body, text, bytes_max)
        attributes: tuple[tuple[str, Scalar], ...] = (("kind", COMPRESSED_KIND), ("of", group[:64]))
        made[group] = SummaryItem(f"{NOTES}summary-{turn}-{number}", data, attributes)
    return made


async def promotions(
    recall: FactRecall | None, look: Look, items: Sequence[LiveItem], bytes_max: int
) -> tuple[Promotion, ...]:
    """Returns the facts that are close to the open goals and not in working memory yet, at most 3."""
    goals = "\n".join(item.text for item in items if item.open_goal)[:_QUERY_CHARS_MAX]
    if recall is None or not goals:
        return ()
    owner = look.session.owner
    try:
        vector = await _vector(recall, goals)
        async with asyncio.timeout(RECALL_SECONDS):
            found = await recall.recall(
                owner, (f"agent/{owner}",), goals, vector=vector, limit=10, tokens_max=bytes_max
            )
    except Exception as error:  # the port may fail in any way, and a turn ends without facts, too
        if not isinstance(error, (TimeoutError, Refusal)):
            log.exception("recalling facts for promotion failed")
            return ()
        log.info("no facts could be recalled for promotion", error=type(error).__name__)
        return ()
    held = {item.key for item in items}
    chosen = []
    for fact in found:
        # A scope's name may be longer and deeper than a key.
        key = f"{FACTS}{digits_of(fact.id)}"
        if fact.trust < TRUST_MIN or fact.score < PROMOTED_SCORE_MIN or key in held:
            continue
        made = _promotion(key, fact, bytes_max)
        if made is not None:
            chosen.append(made)
        if len(chosen) == PROMOTED_MAX:
            break
    return tuple(chosen)


async def _vector(recall: FactRecall, goals: str) -> Sequence[float] | None:
    """Returns the goals as a vector, None if that takes long, as while a model is being loaded."""
    try:
        async with asyncio.timeout(EMBED_SECONDS):
            return await recall.embed(goals)
    except TimeoutError:
        return None


def _promotion(key: str, fact: RecalledFact, bytes_max: int) -> Promotion | None:
    value = {"id": fact.id, "text": fact.text, "source": fact.source, "trust": fact.trust, "version": fact.version}
    data = msgspec.json.encode(value)
    if len(data) > bytes_max:
        return None
    attributes: tuple[tuple[str, Scalar], ...] = (("importance", round(fact.score, 3)), ("kind", "fact"))
    explanation = f"A known fact is close to an open goal (relevance {fact.score:.2f}, trust {fact.trust:.2f})."
    return Promotion(key, data, attributes, fact.score, explanation)


async def _summary(summariser: Summariser, tokenizer: Tokenizer, items: Sequence[LiveItem], bytes_max: int) -> str:
    sources = [SourceMessage("user", item.key, item.text) for item in items]
    size = sum(len(item.text) for item in items)
    tokens = max(_TOKENS_MIN, min(size // 4 // _RATIO, bytes_max // 4))
    try:
        async with asyncio.timeout(SUMMARY_SECONDS):
            return summary_text(await summariser.summarise(None, sources, tokens, tokenizer))
    except (SummariserError, TimeoutError) as error:
        log.warning("items could not be summarised; their beginnings stand for them", error=type(error).__name__)
        share = max(16, bytes_max // max(1, len(items)))
        return "\n".join(f"{item.key}: {' '.join(item.text.split())}"[:share] for item in items)


def _fitted(body: dict[str, object], text: str, bytes_max: int) -> bytes:
    """Returns the JSON of ``body`` with as much of ``text`` as fits."""
    low, high = 0, len(text)
    best = msgspec.json.encode(body)
    if len(best) > bytes_max:
        raise Refusal(Reason.VALUE_TOO_LARGE, f"item_bytes_max: {bytes_max} bytes are too few for a summary")
    while low <= high:
        middle = (low + high) // 2
        data = msgspec.json.encode({**body, "text": text[:middle]})
        if len(data) <= bytes_max:
            best, low = data, middle + 1
        else:
            high = middle - 1
    return best
