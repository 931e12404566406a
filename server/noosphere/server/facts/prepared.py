"""Contents of facts, prepared for the ranking once for all searches, and forgotten when the fact is."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from functools import lru_cache

from ..ports.factstore import FactContent, FactKey, FactStore
from ..ports.models import Tokenizer
from .contents import NAMED_CHARS_MAX, Body, decode_body, read_all
from .ranking import Document, indexed
from .slots import subject_form
from .wording import readable

KEPT_MAX = 16_384
"""So many stay in memory: a fact of one sentence takes about 3 KiB."""

KEPT_BYTES_MAX = 16 * 1024 * 1024
"""And no more words than that."""


class Prepared:
    """One version's content.

    Args:
        content: what the store has.
        tokenizer: counts.

    Attributes:
        content: without what only the store's index needs.
        body: its words.
        document: as the ranking needs it; confidence and trust are the ledger's to say.
    """

    __slots__ = ("_tokenizer", "_tokens", "body", "content", "document")

    def __init__(self, content: FactContent, tokenizer: Tokenizer) -> None:
        self.content = content._replace(terms=(), vector=None)
        self.body: Body = decode_body(content)
        self.document: Document = indexed(
            content.fact_id, self.body.text, content.terms, name=content.subject, time_ms=content.valid_from_ms
        )
        self._tokenizer = tokenizer
        self._tokens: int | None = None

    @property
    def tokens(self) -> int:
        """The size of its text; counted once, and only for what may be shown."""
        if self._tokens is None:
            self._tokens = self._tokenizer.count(self.body.text)
        return self._tokens

    @property
    def names(self) -> frozenset[str]:
        """What the fact is about, and what it says of it if that may be a name, too; in canonical form."""
        named = _object_name(self.body.object)
        return frozenset({self.body.subject, named} - {""})


@lru_cache(4_096)
def _object_name(object: str) -> str:
    if not object.startswith('"') or len(object) > NAMED_CHARS_MAX:
        return ""
    return subject_form(readable(json.loads(object)))


class PreparedContents:
    """Reads and prepares contents, and keeps those used last.

    Args:
        store: where contents are.
        tokenizer: counts.
        kept_max: most versions that stay in memory.
        bytes_max: most bytes of their words.
    """

    def __init__(
        self,
        store: FactStore,
        tokenizer: Tokenizer,
        *,
        kept_max: int = KEPT_MAX,
        bytes_max: int = KEPT_BYTES_MAX,
    ) -> None:
        self._store = store
        self._tokenizer = tokenizer
        self._kept_max = kept_max
        self._bytes_max = bytes_max
        self._kept: OrderedDict[FactKey, Prepared] = OrderedDict()
        self._bytes = 0
        # What was read before something was forgotten must not be kept after it.
        self._forgotten = 0

    def __len__(self) -> int:
        return len(self._kept)

    async def of(self, keys: Sequence[FactKey]) -> dict[FactKey, Prepared]:
        """Returns contents by key; those that are not there are left out."""
        found: dict[FactKey, Prepared] = {}
        missing: list[FactKey] = []
        for key in dict.fromkeys(keys):
            kept = self._kept.get(key)
            if kept is None:
                missing.append(key)
            else:
                self._kept.move_to_end(key)
                found[key] = kept
        forgotten = self._forgotten
        for content in await read_all(self._store, missing):
            if content is None:
                continue
            made = found[content.key] = Prepared(content, self._tokenizer)
            if forgotten == self._forgotten:
                self._keep(content.key, made)
        return found

    def forget(self, keys: Iterable[FactKey]) -> None:
        """Drops contents that are gone from the store."""
        self._forgotten += 1
        for key in keys:
            self._drop(key)

    def forget_all(self) -> None:
        """Drops everything."""
        self.forget(list(self._kept))
        _object_name.cache_clear()

    def _keep(self, key: FactKey, made: Prepared) -> None:
        self._drop(key)
        self._kept[key] = made
        self._bytes += len(made.content.body)
        while len(self._kept) > self._kept_max or self._bytes > self._bytes_max:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: FactKey) -> None:
        gone = self._kept.pop(key, None)
        if gone is not None:
            self._bytes -= len(gone.content.body)
