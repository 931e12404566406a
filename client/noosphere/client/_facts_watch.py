"""Watches of decisions about candidates: each once, in order, across lost connections."""

from __future__ import annotations

from types import TracebackType
from typing import NamedTuple

import grpc

from noosphere.consistency import Reason
from noosphere.v1 import fact_service_pb2 as pb

from ._arguments import shown
from ._errors import InvalidArgument
from ._facts_data import FactDecision
from ._facts_link import FactsLink, ledger_of
from ._facts_wire import to_decision
from ._mapping import to_error
from ._status import Failure
from ._stream import ResumedStream, is_passing


class WatchedDecision(NamedTuple):
    """A decision as a watch delivers it.

    Attributes:
        decision: what became of a candidate.
        resume: give it to ``facts.watch(resume=…)`` to continue after this decision.
    """

    decision: FactDecision
    resume: bytes


class DecisionWatch:
    """A watch of decisions; made by ``Facts.watch``, for one use.

    It remembers where it is by the resume token of the last message, and continues there after a lost connection.
    Decisions are kept for 30 days: whoever resumes after a longer time gets those that are left.
    """

    def __init__(self, link: FactsLink, scope: str, *, resume: bytes | None, patience: float) -> None:
        if resume is not None and not isinstance(resume, bytes):
            raise InvalidArgument(f"resume: {shown(resume)} is {type(resume).__name__}, not bytes")
        self._link = link
        self._scope = scope
        self._resume = resume or b""
        self._stream: ResumedStream[pb.WatchCandidatesResponse] = ResumedStream(
            link.transport, self._open, ledger_of(scope), patience=patience
        )
        self._first: WatchedDecision | None = None
        self._entered = False
        self._closed = False

    async def __aenter__(self) -> DecisionWatch:
        """Begins the watch. Without a start point, everything decided from here on is delivered.

        Raises:
            Unavailable: the server could not be reached for ``patience`` seconds.
            NoosphereError: the watch cannot begin, see the tree.
        """
        if self._entered:
            raise RuntimeError("a watch is for one use; call watch again")
        self._entered = True
        try:
            # "From now on" must be a place in the order: a connection lost before the first decision would otherwise
            # begin again at a later now. The server names it at once.
            while not self._resume:
                self._first = self._told_by(await self._stream.next())
        except BaseException:
            await self._stream.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends the watch."""
        self._closed = True
        await self._stream.close()

    def __aiter__(self) -> DecisionWatch:
        """Returns the watch itself."""
        return self

    async def __anext__(self) -> WatchedDecision:
        """Returns the next decision, waiting for it. A cancelled wait loses nothing: ask again.

        Raises:
            StopAsyncIteration: the block was left.
            InvalidArgument: ``resume`` is damaged, or of another scope.
            Unavailable: the watch could not be resumed for ``patience`` seconds.
            StaleIncarnation: the agent's incarnation has ended; connect again and give ``resume``.
            NoosphereError: the watch cannot continue, see the tree.
        """
        if not self._entered:
            raise RuntimeError("the watch has not begun: enter its block first")
        if self._first is not None and not self._closed:
            first, self._first = self._first, None
            return first
        while not self._closed:
            found = self._told_by(await self._stream.next())
            if found is not None:
                return found
        raise StopAsyncIteration

    def _told_by(self, message: pb.WatchCandidatesResponse | Failure) -> WatchedDecision | None:
        if isinstance(message, Failure):
            if is_passing(message) or message.reason == Reason.SLOW_CONSUMER:
                return None
            raise to_error(message, request_id=None, outcome="not_applied", namespace=ledger_of(self._scope))
        if message.resume_token:
            self._resume = message.resume_token
        if not message.HasField("decision"):
            return None
        return WatchedDecision(to_decision(message.decision), self._resume)

    def _open(self) -> grpc.aio.UnaryStreamCall[pb.WatchCandidatesRequest, pb.WatchCandidatesResponse]:
        request = pb.WatchCandidatesRequest(scope=self._scope, resume_token=self._resume)
        request.call.actor.CopyFrom(self._link.transport.actor)
        return self._link.stub.WatchCandidates(request)
