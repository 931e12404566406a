"""Reads a stream of messages across lost connections; where to go on after one is its user's business."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

import grpc

from ._arguments import shown
from ._errors import InvalidArgument, Unavailable
from ._status import Failure, read_failure
from ._transport import LOG, Transport, is_elsewhere

Reply = TypeVar("Reply")

PATIENCE = 300.0


class ResumedStream(Generic[Reply]):
    """One stream after another, each opened where its user has got to. Reads one message ahead at most.

    Args:
        transport: the client's way to the server.
        open_: begins a stream.
        what: what is watched, for messages.
        patience: how long to try to resume after a lost connection, in seconds.
        on_failure: told of every lost connection.
    """

    def __init__(
        self,
        transport: Transport,
        open_: Callable[[], grpc.aio.UnaryStreamCall[Any, Reply]],
        what: str,
        *,
        patience: float,
        on_failure: Callable[[], None] | None = None,
    ) -> None:
        self._transport = transport
        self._open = open_
        self._what = what
        self._patience = checked_patience(patience)
        self._on_failure = on_failure
        self._failures = 0
        self._turn = 0
        self._trouble_since = 0.0
        self._delay = 0.0
        self._call: grpc.aio.UnaryStreamCall[Any, Reply] | None = None
        self._pending: asyncio.Task[Reply | Failure] | None = None

    async def next(self) -> Reply | Failure:
        """Returns the next message, or why a stream ended: asked again, it opens another, after a while.

        A cancelled wait loses nothing: ask again.

        Raises:
            Unavailable: no stream brought anything for ``patience`` seconds.
            ClientClosed: the client was closed.
        """
        transport = self._transport
        transport.check_open()
        if self._call is None:
            if self._failures:
                await transport.sleep(max(transport.retry.backoff(self._failures), self._delay))
            self._turn = transport.turn
            self._call = self._open()
        if self._pending is None:
            self._pending = asyncio.ensure_future(self._read(self._call))
        try:
            # Shielded, so that a cancelled wait leaves the message for the next one.
            message = await asyncio.shield(self._pending)
        except asyncio.CancelledError:
            transport.reraise_cancelled()
        self._pending = None
        if isinstance(message, Failure):
            if message.code == "UNAUTHENTICATED" and not self._failures and transport.renew_token():
                # It was begun with a token that has ended; another one may go on with the present one.
                message = Failure("UNAVAILABLE", message.message)
            self._call = None
            self._fail(message)
        else:
            self._failures = 0
        return message

    def abandon(self) -> None:
        """Ends the present stream; the next message comes from another."""
        if self._call is not None:
            self._call.cancel()
            self._call = None

    async def close(self) -> None:
        """Ends it for good."""
        self.abandon()
        if self._pending is not None:
            pending, self._pending = self._pending, None
            pending.cancel()
            await asyncio.wait([pending])

    async def _read(self, call: grpc.aio.UnaryStreamCall[Any, Reply]) -> Reply | Failure:
        try:
            message = await call.read()
        except grpc.aio.AioRpcError as error:
            return read_failure(error)
        except grpc.aio.UsageError:
            return Failure("UNAVAILABLE", "the channel is closed")
        if message is grpc.aio.EOF:
            # The server ended the stream in good order: it goes on elsewhere, or later.
            return Failure("UNAVAILABLE", "the server ended the stream")
        return cast("Reply", message)

    def _fail(self, failure: Failure) -> None:
        transport = self._transport
        if self._failures == 0:
            self._trouble_since = transport.clock()
        self._failures += 1
        if self._on_failure is not None:
            self._on_failure()
        self._delay = failure.retry_delay or 0.0
        if is_elsewhere(failure):
            transport.leave(self._turn)
        if transport.clock() - self._trouble_since > self._patience:
            raise Unavailable(
                f"the watch could not be resumed within {self._patience:g} s: {failure.message}",
                reason=failure.reason,
            )
        LOG.debug("watch of %s ended: %s: %s", self._what, failure.code, failure.message)


def checked_patience(patience: float) -> float:
    """Returns ``patience``.

    Raises:
        InvalidArgument: it is no number of seconds.
    """
    if isinstance(patience, bool) or not isinstance(patience, (int, float)) or not patience >= 0:
        raise InvalidArgument(f"patience: {shown(patience)} is not a number of seconds")
    return float(patience)


def is_passing(failure: Failure) -> bool:
    """Tells whether a stream that ended so is opened again as a matter of course."""
    return failure.code in {"UNAVAILABLE", "CANCELLED"}
