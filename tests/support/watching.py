"""Reading watches in tests: with bounds against hanging, and closed at the end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from tests.support.api import Agent
from tests.support.transport import Stream

from noosphere.v1 import memory_service_pb2 as pb

MESSAGE_SECONDS_MAX = 60.0
"""A bound against hanging, far above what any message takes."""


class Watcher:
    """A running watch.

    Attributes:
        resume: the newest resume token.
        heads: the head of every message so far.
    """

    def __init__(self, stream: Stream[pb.WatchResponse]) -> None:
        self._stream = stream
        self.resume = b""
        self.heads: list[int] = []

    async def message(self) -> pb.WatchResponse:
        """Returns the next message.

        Raises:
            Refused: the stream ended with an error.
            StopAsyncIteration: it ended in order.
        """
        message = await asyncio.wait_for(anext(self._stream), MESSAGE_SECONDS_MAX)
        self.resume = message.resume_token or self.resume
        self.heads.append(message.head)
        return message

    async def batch(self) -> pb.ChangeBatch:
        """Returns the next changes, past any bookmark."""
        while True:
            message = await self.message()
            match message.WhichOneof("event"):
                case "changes":
                    return message.changes
                case "bookmark":
                    continue
                case other:
                    raise AssertionError(f"wanted changes, got {other}")

    async def batches(self, count: int) -> list[pb.ChangeBatch]:
        """Returns the next so many changes."""
        return [await self.batch() for _ in range(count)]

    async def bookmark(self) -> pb.WatchResponse:
        """Returns the next message, which must be a bookmark."""
        message = await self.message()
        assert message.WhichOneof("event") == "bookmark", message
        return message

    async def snapshot(self) -> list[pb.SnapshotPage]:
        """Returns every page of the snapshot, which must come first."""
        pages = []
        while True:
            message = await self.message()
            assert message.WhichOneof("event") == "snapshot", message
            pages.append(message.snapshot)
            if message.snapshot.last:
                assert message.resume_token, "a complete snapshot can be resumed from"
                return pages
            assert not message.resume_token, "half a snapshot cannot be resumed from"

    async def ended(self) -> None:
        """Reads on until the stream ends, which raises what it ended with."""
        while True:
            await self.message()


@contextlib.asynccontextmanager
async def watching(
    agent: Agent,
    namespace: str,
    collection: str = "",
    *,
    after: int | None = None,
    resume: bytes | None = None,
    snapshot: bool = False,
) -> AsyncIterator[Watcher]:
    """Watches, and cancels the watch at the end."""
    stream = agent.watch(namespace, collection, after=after, resume=resume, snapshot=snapshot)
    try:
        yield Watcher(stream)
    finally:
        await stream.aclose()
