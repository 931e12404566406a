"""What a client learns from every answer: how far it has seen, and which of its writes live."""

from __future__ import annotations

import asyncio
from typing import Any
from weakref import WeakValueDictionary

from noosphere.consistency import LostRange

from ._acked import AckedWrites
from ._causal import CausalState
from ._errors import AckedWritesLost, NoosphereError


class Progress:
    """One client's progress. Not thread-safe.

    Attributes:
        causal: how far each namespace was seen.
        acked: the last acknowledged writes.
        resubmitting: held while lost writes are written again, so that nobody else writes them too.
        thinking: one lock for each key that a task of this client reserves. To the server all tasks of a
            client are one holder.
    """

    def __init__(self) -> None:
        self.causal = CausalState()
        self.acked = AckedWrites()
        self.resubmitting = asyncio.Lock()
        self.thinking: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    def answered(self, namespace: str, reply: Any) -> None:
        """Takes note of a reply about a namespace."""
        self.causal.saw(namespace, reply.head)

    def refused(self, namespace: str, error: NoosphereError) -> None:
        """Takes note of a refusal; a loss gets the names of this client's own writes that died."""
        if isinstance(error, AckedWritesLost):
            error.namespace = error.namespace or namespace
            lost = LostRange(error.lost_after, error.lost_through)
            self.causal.forget(error.namespace, *lost)
            error.own_writes = self.acked.mark_lost(error.namespace, lost)
            namespace = error.namespace
        if error.head and namespace:
            self.causal.saw(namespace, error.head)
