"""What a client learns from every answer: how far it has seen, and which of its writes live."""

from __future__ import annotations

import asyncio
from typing import Any
from weakref import WeakValueDictionary

from noosphere.consistency import LostRange
from noosphere.v1 import types_pb2 as pb

from ._acked import AckedWrites
from ._causal import CausalState
from ._errors import AckedWritesLost, NoosphereError

_LINEARIZABLE = frozenset({pb.READ_CONSISTENCY_UNSPECIFIED, pb.READ_CONSISTENCY_LINEARIZABLE})


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

    def answered(self, namespace: str, reply: Any, consistency: int = 0) -> None:
        """Takes note of a reply about a namespace.

        Args:
            namespace: the namespace.
            reply: the reply, with its ``head`` if it has one.
            consistency: the level that the request asked for; 0 for the default.
        """
        if head := getattr(reply, "head", 0):
            self.causal.saw(namespace, head, linearizable=consistency in _LINEARIZABLE)

    def refused(self, namespace: str, error: NoosphereError) -> None:
        """Takes note of a refusal; a loss gets the names of this client's own writes that died."""
        if isinstance(error, AckedWritesLost):
            error.namespace = error.namespace or namespace
            lost = LostRange(error.lost_after, error.lost_through)
            self.causal.forget(error.namespace, lost)
            error.own_writes = self.acked.mark_lost(error.namespace, lost)
            namespace = error.namespace
        if error.head:
            self.causal.saw(namespace, error.head)

    def untold(self, error: NoosphereError) -> None:
        """Takes back that a loss was told: the caller has not heard of it. A later causal read is refused, too."""
        if isinstance(error, AckedWritesLost) and error.lost_through:
            self.causal.doubt(error.namespace, LostRange(error.lost_after, error.lost_through))
