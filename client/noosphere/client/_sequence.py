"""Request ids: what makes a retry of an applied call an answer instead of a second execution.

The server remembers a client's applied calls until the client says that it has the answers. A call
that fails with an unknown outcome may still be retried, so its number counts as answered only once
nobody will retry it: when it is *abandoned* at the end of its deadline. A number is never reused.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

from noosphere.consistency.limits import CLIENT_REQUEST_AGE_MS, UUID_REQUEST_AGE_MS
from noosphere.v1 import types_pb2 as pb

from ._arguments import shown
from ._errors import InvalidArgument

WINDOW_MAX = 960
"""Numbers between the oldest open call and the newest; the server keeps at most 1,024 per client."""

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

    @property
    def answered_through(self) -> int:
        """Every call up to this number has been answered or abandoned."""
        return next(iter(self._open)) - 1 if self._open else self._issued

    def begin(self) -> RequestTicket:
        """Returns the id of a new call; :meth:`RequestTicket.close` must follow.

        While one call hangs and hundreds pass it, the server must remember them all. Before that
        memory is full, new calls get a UUID, which it remembers by time instead.
        """
        if self._issued - self.answered_through >= WINDOW_MAX:
            return RequestTicket(None, 0, str(self._new_uuid()))
        self._issued += 1
        self._open[self._issued] = None
        return RequestTicket(self, self._issued, "")

    def _close(self, sequence: int) -> None:
        self._open.pop(sequence, None)


class RequestTicket:
    """The id of one mutating call, the same for all its attempts.

    Attributes:
        doubtful_since: when the first attempt was sent that may have been executed although it failed, on the
            client's clock in seconds; None if there was none.
    """

    __slots__ = ("_sequence", "_sequencer", "_uuid", "doubtful_since")

    def __init__(self, sequencer: Sequencer | None, sequence: int, uuid_text: str) -> None:
        self._sequencer = sequencer
        self._sequence = sequence
        self._uuid = uuid_text
        self.doubtful_since: float | None = None

    @property
    def seconds_max(self) -> float:
        """For how long the server certainly knows an attempt that it has executed."""
        return UUID_SECONDS_MAX if self._sequencer is None else SEQUENCE_SECONDS_MAX

    def doubt(self, sent: float) -> None:
        """Takes note of an attempt that may have been executed, and of when it was sent."""
        if self.doubtful_since is None:
            self.doubtful_since = sent

    def repeatable_until(self, sent: float) -> float:
        """Returns until when to repeat the call if the attempt ``sent`` then turns out to be in doubt, in seconds."""
        return (sent if self.doubtful_since is None else self.doubtful_since) + self.seconds_max

    def wire(self) -> pb.RequestId:
        """Returns the id as sent."""
        if self._sequencer is None:
            return pb.RequestId(uuid=self._uuid)
        answered = self._sequencer.answered_through
        return pb.RequestId(sequence=pb.ClientSequence(sequence=self._sequence, answered_through=answered))

    def describe(self, actor: str) -> str:
        """Returns the id for errors and logs."""
        return self._uuid if self._sequencer is None else f"{actor}/{self._sequence}"

    def close(self) -> None:
        """Says that nobody will retry the call: it was answered, refused, or is abandoned."""
        if self._sequencer is not None:
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
