"""Request ids: what makes a retry of an applied call an answer instead of a second execution.

The server remembers a client's applied calls until the client says that it has the answers. A call
that fails with an unknown outcome may still be retried, so its number counts as answered only once
nobody will retry it: when it is *abandoned* at the end of its deadline. A number is never reused.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import OrderedDict
from collections.abc import Callable

from noosphere.consistency.limits import CLIENT_REQUEST_AGE_MS, UUID_REQUEST_AGE_MS
from noosphere.v1 import types_pb2 as pb

from ._arguments import shown
from ._errors import InvalidArgument

WINDOW_MAX = 960
"""Numbers between the oldest open call and the newest; the server keeps at most 1,024 per client."""
OPEN_MAX = 512
"""Calls under way at a time. The window is wider, because they do not end in the order in which they began."""

# A minute, and 20 s, are left for a request that is on its way for long.
SEQUENCE_SECONDS_MAX = CLIENT_REQUEST_AGE_MS / 1000 - 60
"""How long a call with a number may be repeated; the server forgets an applied one after 10 minutes."""
UUID_SECONDS_MAX = UUID_REQUEST_AGE_MS / 1000 - 20
"""How long a call with a UUID may be repeated; the server forgets an applied one after 2 minutes."""


class Sequencer:
    """Numbers the mutating calls of one incarnation. Not thread-safe.

    Args:
        new_uuid: source of ids for calls that get no number.
    """

    def __init__(self, new_uuid: Callable[[], uuid.UUID] = uuid.uuid4) -> None:
        self._new_uuid = new_uuid
        self._issued = 0
        # Insertion order is numeric order, so the first key is the oldest open call.
        self._open: dict[int, None] = {}
        self._under_way = 0
        self._waiting: OrderedDict[asyncio.Future[None], None] = OrderedDict()

    @property
    def answered_through(self) -> int:
        """Every call up to this number has been answered or abandoned."""
        return next(iter(self._open)) - 1 if self._open else self._issued

    @property
    def has_room(self) -> bool:
        """Whether a call can begin without waiting for others to end."""
        return self._under_way < OPEN_MAX

    def begin(self) -> RequestTicket:
        """Returns the id of a new call; :meth:`RequestTicket.close` must follow.

        While one call hangs and hundreds pass it, the server must remember them all. Before that
        memory is full, new calls get a UUID, which it remembers by time instead. It has room for 10,000 of
        them in two minutes, for all clients of a namespace together: so many calls at once :meth:`admit` each
        other one by one, and one that is to hang is begun :meth:`apart`.
        """
        self._under_way += 1
        return self._issue()

    async def admit(self) -> RequestTicket:
        """Returns the id of a new call once there is room for it, first come, first served; as :meth:`begin`."""
        if self.has_room:
            return self.begin()
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[turn] = None
        try:
            await turn
        except BaseException:
            self._waiting.pop(turn, None)
            if turn.done() and not turn.cancelled():
                # A place was handed over in this very moment.
                self._free()
            raise
        return self._issue()

    def apart(self) -> RequestTicket:
        """Returns the id of a call that the server is asked to keep waiting: hundreds of others may pass it."""
        return RequestTicket(None, 0, str(self._new_uuid()))

    def _issue(self) -> RequestTicket:
        if self._issued - self.answered_through >= WINDOW_MAX:
            return RequestTicket(self, 0, str(self._new_uuid()))
        self._issued += 1
        self._open[self._issued] = None
        return RequestTicket(self, self._issued, "")

    def _close(self, sequence: int) -> None:
        self._open.pop(sequence, None)
        self._free()

    def _free(self) -> None:
        """Hands the place of a call that has ended to whoever waits longest."""
        while self._waiting:
            turn, _ = self._waiting.popitem(last=False)
            if not turn.done():
                turn.set_result(None)
                return
        self._under_way -= 1


class RequestTicket:
    """The id of one mutating call, the same for all its attempts.

    Attributes:
        doubtful_since: when the first attempt was sent that may have been executed although it failed, on the
            client's clock in seconds; None if there was none.
    """

    __slots__ = ("_closed", "_sequence", "_sequencer", "_uuid", "doubtful_since")

    def __init__(self, sequencer: Sequencer | None, sequence: int, uuid_text: str) -> None:
        self._sequencer = sequencer
        self._sequence = sequence
        self._uuid = uuid_text
        self._closed = False
        self.doubtful_since: float | None = None

    @property
    def seconds_max(self) -> float:
        """For how long the server certainly knows an attempt that it has executed."""
        return UUID_SECONDS_MAX if self._uuid else SEQUENCE_SECONDS_MAX

    def doubt(self, sent: float) -> None:
        """Takes note of an attempt that may have been executed, and of when it was sent."""
        if self.doubtful_since is None:
            self.doubtful_since = sent

    def repeatable_until(self, sent: float) -> float:
        """Returns until when to repeat the call if the attempt ``sent`` then turns out to be in doubt, in seconds."""
        return (sent if self.doubtful_since is None else self.doubtful_since) + self.seconds_max

    def wire(self) -> pb.RequestId:
        """Returns the id as sent."""
        if self._uuid or self._sequencer is None:
            return pb.RequestId(uuid=self._uuid)
        answered = self._sequencer.answered_through
        return pb.RequestId(sequence=pb.ClientSequence(sequence=self._sequence, answered_through=answered))

    def describe(self, actor: str) -> str:
        """Returns the id for errors and logs."""
        return self._uuid or f"{actor}/{self._sequence}"

    def close(self) -> None:
        """Says that nobody will retry the call: it was answered, refused, or is abandoned."""
        if self._sequencer is not None and not self._closed:
            self._closed = True
            self._sequencer._close(self._sequence)


def explicit(request_id: str) -> RequestTicket:
    """Returns the id that a caller chose.

    Raises:
        InvalidArgument: it is not a UUID.
    """
    try:
        return RequestTicket(None, 0, str(uuid.UUID(request_id)))
    except (ValueError, AttributeError, TypeError):
        raise InvalidArgument(f"request_id: {shown(request_id)} is not a UUID") from None
