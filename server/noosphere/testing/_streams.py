"""The watches of clients in this process, as both ends see them: what was sent, and has it arrived?"""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Any

import grpc

from ._reading import ReadCall

ID_KEY = "noosphere-test-stream"
"""The request's metadata that tells the server's end which client's end it belongs to."""


class Stream:
    """One watch.

    Attributes:
        begun: whether the server serves it, or has.
        serving: whether the server serves it now.
        sent: messages that the server has sent.
        reading: whether the client waits for a message.
        received: messages that the client has read.
        ended: whether the client's end is closed.
    """

    def __init__(self) -> None:
        self.begun = False
        self.serving = False
        self.sent = 0
        self.reading = False
        self.received = 0
        self.ended = False

    @property
    def at_rest(self) -> bool:
        """Whether nothing is on its way between the two ends, as far as anybody waits for it."""
        if self.ended:
            return not self.serving
        if not self.begun:
            return False
        return not self.reading or (self.serving and self.received == self.sent)


class Streams:
    """Watches under way.

    Args:
        changed: called, on any thread, whenever something about one changes.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._numbers = itertools.count(1)
        self._by_id: dict[str, Stream] = {}

    @property
    def at_rest(self) -> bool:
        """Whether nothing is on its way on any of them."""
        # A copy, because clients may live on other threads.
        return all(stream.at_rest for stream in list(self._by_id.values()))

    def open(self, method: Callable[..., Any], request: Any, options: dict[str, Any]) -> WatchedCall:
        """Opens a watch from a client's end."""
        name, stream = str(next(self._numbers)), Stream()
        self._by_id[name] = stream
        metadata = (*(options.pop("metadata", None) or ()), (ID_KEY, name))
        call = method(request, metadata=metadata, **options)

        def ended(_: Any) -> None:
            stream.ended = True
            self._tidy(name)

        call.add_done_callback(ended)
        self._changed()
        return WatchedCall(call, stream, self._changed)

    async def serve(
        self, metadata: Iterable[tuple[str, str | bytes]] | None, responses: AsyncGenerator[Any, None]
    ) -> AsyncGenerator[Any, None]:
        """Passes on what a server answers; the watches of clients elsewhere are none of ours."""
        name = str(next((value for key, value in metadata or () if key == ID_KEY), ""))
        stream = self._by_id.get(name) or Stream()
        stream.begun = stream.serving = True
        self._changed()
        try:
            async for response in responses:
                stream.sent += 1
                self._changed()
                yield response
        finally:
            stream.serving = False
            self._tidy(name)

    def _tidy(self, name: str) -> None:
        stream = self._by_id.get(name)
        if stream is not None and stream.ended and not stream.serving:
            del self._by_id[name]
        self._changed()


class WatchedCall(ReadCall):
    """A client's end of a watch."""

    def __init__(self, call: Any, stream: Stream, changed: Callable[[], None]) -> None:
        super().__init__(call)
        self._stream = stream
        self._changed = changed

    async def read(self) -> Any:
        """Returns the next message; see ``grpc.aio.UnaryStreamCall``."""
        self._stream.reading = True
        self._changed()
        try:
            message = await self._call.read()
            if message is not grpc.aio.EOF:
                self._stream.received += 1
            return message
        finally:
            self._stream.reading = False
            self._changed()
