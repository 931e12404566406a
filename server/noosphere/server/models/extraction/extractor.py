"""The extractor that needs no model: what users say of themselves, decide, and want to be remembered."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Sequence

from ...ports.models import EXTRACTED_CLAIMS_MAX, ExtractedClaim, Extraction, ExtractionSource
from . import chinese, english
from .statements import statements

TEXT_CHARS_MAX = 16_384
"""Of longer texts the beginning is read."""

SUBJECT = "user"
"""What claims are about that a user makes about himself."""

_CHINESE = re.compile(r"[\u4e00-\u9fff]")


class RulesExtractor:
    """Finds statements of users, in English and Chinese, in the order in which they were made.

    It listens to users only: what assistants and tools say, and what a document says of its author, is not theirs. It
    never takes a question, a quotation or a supposition for a claim.
    """

    name = "rules/1"

    async def extract(self, sources: Sequence[ExtractionSource], owner: str) -> Extraction:
        """Returns what users said; see the port. Of more than 100 claims the first 100."""
        return await asyncio.to_thread(self._extract, tuple(sources))

    def _extract(self, sources: Sequence[ExtractionSource]) -> Extraction:
        # Said twice in one source, it is one claim.
        found: dict[tuple[str, str], ExtractedClaim] = {}
        for source in sources:
            if source.role != "user":
                continue
            for claim in _claims(source):
                found.setdefault((claim.reference, claim.text), claim)
                if len(found) >= EXTRACTED_CLAIMS_MAX:
                    return Extraction(tuple(found.values()))
        return Extraction(tuple(found.values()))


def _claims(source: ExtractionSource) -> Iterator[ExtractedClaim]:
    for statement in statements(source.text[:TEXT_CHARS_MAX]):
        language = chinese if _CHINESE.search(statement.text) else english
        for said in language.said(statement.text):
            known = bool(said.predicate and said.value)
            yield ExtractedClaim(
                text=said.text,
                subject=SUBJECT if known else "",
                predicate=said.predicate if known else "",
                object=json.dumps(said.value, ensure_ascii=False) if known else "",
                quote=statement.quote,
                reference=source.reference,
                confidence=said.confidence,
                importance=said.importance,
                memory_type=said.memory_type,
            )
