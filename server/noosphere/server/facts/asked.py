"""What a search for facts is asked, and its limits."""

from __future__ import annotations

import math
from typing import NamedTuple

from noosphere.consistency import invalid, too_large

from ..ports.factstore import FactFilter
from .scopes import check_owner, check_scope
from .types import MemoryType

QUERY_BYTES_MAX = 4 * 1024
OWNERS_MAX = 8
SCOPES_MAX = 8
HITS_DEFAULT = 10
HITS_MAX = 100
NAME_BYTES_MAX = 256
EMBED_MS_DEFAULT = 50
EMBED_MS_MAX = 10_000


class SearchAsked(NamedTuple):
    """A search.

    Attributes:
        query: the question; empty ranks what the filters leave, the surest first.
        owners: whose facts, at least one.
        scopes: in which scopes; empty for the owners' own.
        limit: most hits; 0 for 10.
        tokens_max: most tokens of all hits together; 0 for no limit.
        memory_types: only these; empty for any.
        trust_min: facts below this trust stay out.
        subject: only facts about this; empty for any.
        predicate: only facts with this predicate; empty for any.
        valid_after_ms: only facts that were so at some time after then; None for any.
        valid_before_ms: only facts that became so before then; None for any.
        as_of_ms: what was known at that store time; None for now.
        include_superseded: also what was superseded.
        expand: also what else is known of the subjects and objects of the hits.
        embed_ms_max: how long embedding the query may take before it is left out; None for 50 ms.
    """

    query: str
    owners: tuple[str, ...]
    scopes: tuple[str, ...] = ()
    limit: int = 0
    tokens_max: int = 0
    memory_types: tuple[MemoryType, ...] = ()
    trust_min: float = 0.0
    subject: str = ""
    predicate: str = ""
    valid_after_ms: int | None = None
    valid_before_ms: int | None = None
    as_of_ms: int | None = None
    include_superseded: bool = False
    expand: bool = False
    embed_ms_max: int | None = None

    def checked(self) -> SearchAsked:
        """Returns the same with defaults filled in.

        Raises:
            Refusal: INVALID_FIELD or VALUE_TOO_LARGE, naming field, value and limit.
        """
        check_size("query", self.query, QUERY_BYTES_MAX)
        if not self.owners:
            raise invalid("owners", "must not be empty; a search is for the facts of 1 to 8 owners")
        for field, names, count_max, check in (
            ("owners", self.owners, OWNERS_MAX, check_owner),
            ("scopes", self.scopes, SCOPES_MAX, check_scope),
        ):
            if len(names) > count_max:
                raise too_large(field, len(names), count_max, "entries")
            for at, name in enumerate(names):
                check(name, f"{field}[{at}]")
        if not 0 <= self.limit <= HITS_MAX:
            raise invalid("limit", f"{self.limit} is not from 1 to {HITS_MAX}, or 0 for {HITS_DEFAULT}")
        if self.tokens_max < 0:
            raise invalid("tokens_max", f"{self.tokens_max} is negative")
        if not (math.isfinite(self.trust_min) and 0 <= self.trust_min <= 1):
            raise invalid("trust_min", f"{self.trust_min} is not from 0 to 1")
        check_size("subject", self.subject, NAME_BYTES_MAX)
        check_size("predicate", self.predicate, NAME_BYTES_MAX)
        for field in ("valid_after_ms", "valid_before_ms", "as_of_ms"):
            time_ms = getattr(self, field)
            if time_ms is not None and time_ms < 0:
                raise invalid(field.removesuffix("_ms"), "lies before 1970")
        embed_ms_max = EMBED_MS_DEFAULT if self.embed_ms_max is None else self.embed_ms_max
        if not 0 <= embed_ms_max <= EMBED_MS_MAX:
            raise invalid("embed_timeout", f"{embed_ms_max} ms is not from 0 to {EMBED_MS_MAX} ms")
        return self._replace(
            owners=tuple(dict.fromkeys(self.owners)),
            scopes=tuple(dict.fromkeys(self.scopes or self.owners)),
            limit=self.limit or HITS_DEFAULT,
            embed_ms_max=embed_ms_max,
        )

    def filter(self, now_ms: int) -> FactFilter:
        """Returns what is left of a store before anything is ranked, at a store time."""
        return FactFilter(
            scopes=self.scopes,
            owners=self.owners,
            memory_types=tuple(kind.value for kind in self.memory_types),
            trust_min=self.trust_min,
            alive_at_ms=self.alive_at_ms(now_ms),
            valid_after_ms=self.valid_after_ms,
            valid_before_ms=self.valid_before_ms,
            subject=self.subject,
            predicate=self.predicate,
        )

    def alive_at_ms(self, now_ms: int) -> int:
        """Returns by when nothing may have ended."""
        return now_ms if self.as_of_ms is None else min(self.as_of_ms, now_ms)


def check_size(field: str, text: str, bytes_max: int) -> None:
    """Checks the size of a text.

    Raises:
        Refusal: VALUE_TOO_LARGE.
    """
    if (size := len(text.encode("utf-8", "surrogatepass"))) > bytes_max:
        raise too_large(field, size, bytes_max)
