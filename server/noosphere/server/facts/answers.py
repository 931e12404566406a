"""What requests to forget were answered: one that comes again is answered the same, and forgets nothing more."""

from __future__ import annotations

import msgspec

from noosphere.consistency.limits import CLIENT_REQUEST_AGE_MS

from .forgot import Forgot
from .ledger import Ledger, put
from .requests import reused


class _Answer(msgspec.Struct, frozen=True, array_like=True):
    """What a request meant, and what it was answered."""

    meaning: bytes
    forgot: Forgot


class Answers:
    """Remembers answers.

    Args:
        ledger: where they stand.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def known(self, scope: str, key: str, meaning: bytes) -> Forgot | None:
        """Returns what a request was answered; None if it is new.

        Raises:
            Refusal: REQUEST_ID_REUSED, if it meant something else.
        """
        page = await self._ledger.read(scope, (key,), accepted=True)
        known = page.get(key, _Answer)
        if known is None:
            return None
        if known.meaning != meaning:
            raise reused("to forget something else", scope, page.view.head)
        return known.forgot

    async def remember(self, scope: str, key: str, meaning: bytes, forgot: Forgot) -> None:
        """Notes what a request was answered, for as long as it may come again."""
        answer = _Answer(meaning, forgot)
        await self._ledger.change(
            scope, (key,), lambda page: [put(key, answer, until_ms=page.view.now_ms + CLIENT_REQUEST_AGE_MS)]
        )
