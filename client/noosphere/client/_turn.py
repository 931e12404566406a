"""Turns: one round of a conversation, with any number of steps."""

from __future__ import annotations

from types import TracebackType

from noosphere.v1 import session_service_pb2 as pb

from ._errors import NoosphereError, SessionClosed, TurnNotOpen
from ._session_data import EndedTurn
from ._session_link import Link
from ._session_wire import to_transition
from ._transport import LOG


class Turn:
    """A turn that this agent has begun.

    Attributes:
        number: the turn's number, from 1.
    """

    def __init__(self, link: Link, number: int, timeout: float | None = None) -> None:
        self._link = link
        self._timeout = timeout
        self._ended: EndedTurn | None = None
        self.number: int = number

    @property
    def ended(self) -> EndedTurn | None:
        """What its end has brought about: the checkpoint, and what the controller decided; None before."""
        return self._ended

    async def end(self, *, request_id: str | None = None, timeout: float | None = None) -> EndedTurn:
        """Ends the turn, as leaving its block does. Ending it again changes nothing.

        Args:
            request_id: a UUID of your own; None uses the client's sequence.
            timeout: the deadline with all retries, in seconds.

        Raises:
            TurnNotOpen: somebody else has ended it.
            SessionClosed: the session is closed.
            NoosphereError: anything else, see the tree.
        """
        if self._ended is None:
            link = self._link
            request = pb.EndTurnRequest(session_id=link.id, turn=self.number)
            reply: pb.EndTurnResponse
            reply, _ = await link.write(
                link.sessions.EndTurn, request, request_id, self._timeout if timeout is None else timeout
            )
            self._ended = EndedTurn(reply.turn, reply.checkpoint_id, tuple(map(to_transition, reply.transitions)))
        return self._ended

    def __repr__(self) -> str:
        return f"Turn({self._link.id!r}, {self.number}, {'open' if self._ended is None else 'ended'})"


class TurnScope:
    """The ``async with`` block of a turn; made by ``Session.turn``, for one use."""

    def __init__(self, link: Link, timeout: float | None) -> None:
        self._link = link
        self._timeout = timeout
        self._turn: Turn | None = None

    async def __aenter__(self) -> Turn:
        """Begins the turn."""
        if self._turn is not None:
            raise RuntimeError("a turn's block is for one use; call session.turn again")
        self._turn = await begin_turn(self._link, None, self._timeout)
        return self._turn

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends the turn, unless it has ended or its session was closed in the block."""
        assert self._turn is not None
        try:
            await self._turn.end()
        except (SessionClosed, TurnNotOpen) as gone:
            # Somebody has decided that already, and the block's own outcome matters more.
            LOG.debug("turn %d had ended: %s", self._turn.number, gone)
        except NoosphereError as failed:
            if error is None:
                raise
            LOG.debug("could not end turn %d: %s", self._turn.number, failed)


async def begin_turn(link: Link, request_id: str | None, timeout: float | None) -> Turn:
    """Begins a turn; see ``Session.begin_turn``."""
    reply: pb.BeginTurnResponse
    reply, _ = await link.write(link.sessions.BeginTurn, pb.BeginTurnRequest(session_id=link.id), request_id, timeout)
    return Turn(link, reply.turn, timeout)
