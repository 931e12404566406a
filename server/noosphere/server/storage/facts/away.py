"""The fact store of a server that has none."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import NoReturn

from noosphere.consistency import Reason, Refusal

from ...ports.factstore import (
    NO_STORE,
    FactContent,
    FactFilter,
    FactKey,
    FactStoreStats,
    RawHit,
    TermStatistics,
)


class AwayFactStore:
    """See :class:`~noosphere.server.ports.factstore.FactStore`. Every call is refused, with the reason.

    Args:
        why: what a caller is told, as one line.
    """

    def __init__(self, why: str) -> None:
        self._why = why

    @property
    def engine(self) -> str:
        """Says that there is none."""
        return NO_STORE

    async def write(self, contents: Sequence[FactContent]) -> None:
        """Is refused."""
        self._refuse()

    async def read(self, keys: Sequence[FactKey]) -> tuple[FactContent | None, ...]:
        """Is refused."""
        self._refuse()

    async def by_keywords(self, terms: Sequence[str], where: FactFilter, limit: int) -> tuple[RawHit, ...]:
        """Is refused."""
        self._refuse()

    async def by_vector(self, vector: Sequence[float], where: FactFilter, limit: int) -> tuple[RawHit, ...]:
        """Is refused."""
        self._refuse()

    async def near(self, vector: Sequence[float], keys: Sequence[FactKey]) -> tuple[float | None, ...]:
        """Is refused."""
        self._refuse()

    async def statistics(self, terms: Sequence[str], where: FactFilter) -> TermStatistics:
        """Is refused."""
        self._refuse()

    async def matching(self, where: FactFilter, after: FactKey | None, limit: int) -> tuple[FactKey, ...]:
        """Is refused."""
        self._refuse()

    async def watermark(self) -> int:
        """Is refused."""
        self._refuse()

    async def remove(self, keys: Sequence[FactKey]) -> int:
        """Is refused."""
        self._refuse()

    async def versions(self, scope: str) -> AsyncIterator[FactKey]:
        """Is refused, by the first step."""
        self._refuse()
        yield FactKey("", "", 0)

    async def everything(self) -> AsyncIterator[FactContent]:
        """Is refused, by the first step."""
        self._refuse()
        yield FactContent("", 0, "", "", "", 0, 0, 0, 0, 0, "", "", (), b"")

    async def stats(self) -> FactStoreStats:
        """Is refused."""
        self._refuse()

    async def close(self) -> None:
        """Does nothing."""

    def _refuse(self) -> NoReturn:
        raise Refusal(Reason.ENGINE_UNAVAILABLE, self._why)
