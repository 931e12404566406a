"""What is to go wrong next: faults that wait for the call that they are meant for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from noosphere.consistency import Reason, Refusal
from noosphere.v1 import (
    context_service_pb2,
    coordination_service_pb2,
    fact_service_pb2,
    memory_service_pb2,
    session_service_pb2,
)

from ._calls import Call, ServerClock

_SERVICES = {
    "MemoryService": memory_service_pb2,
    "SessionService": session_service_pb2,
    "ContextService": context_service_pb2,
    "FactService": fact_service_pb2,
    "CoordinationService": coordination_service_pb2,
}
METHODS_OF = {
    name: frozenset(
        method.name
        for method in module.DESCRIPTOR.services_by_name[name].methods
        if not method.client_streaming and not method.server_streaming
    )
    for name, module in _SERVICES.items()
}
"""Methods whose calls are answered once, be it alone or in a pipeline, by service. No name is in two services."""
METHODS = frozenset().union(*METHODS_OF.values())

_NEVER_MS = 1 << 62
"""A moment on the server's clock that does not come."""

CHANGING = frozenset(
    {
        *("Put", "Delete", "Merge", "Transact", "Commit", "ResolveConflict"),
        *("ClaimNext", "Renew", "Release", "Complete", "Reserve", "CancelReservation"),
        *("OpenSession", "UpdateSession", "CloseSession", "PurgeSession", "ForkSession", "Handoff"),
        *("AppendMessages", "RetractMessage", "BeginTurn", "EndTurn", "SetControl", "SummarizeSession"),
        *("StartToolCall", "FinishToolCall", "ReviewToolCall", "CreateCheckpoint", "RestoreCheckpoint"),
        *("RunTransitions", "SubmitCandidates", "ReviewCandidate", "ForgetFacts", "ExtractFacts"),
        *("RunFactUpkeep", "SetFactPolicy", "AcquireLock"),
    }
)
"""Methods whose calls carry a request id."""


@dataclass(slots=True)
class Which:
    """The calls that a fault is meant for.

    Attributes:
        methods: by these names.
        agent: of this agent; None for any.
        left: how many of them.
    """

    methods: frozenset[str]
    agent: str | None
    left: int

    def take(self, call: Call) -> bool:
        """Counts a call; returns whether the fault is meant for it."""
        if not self.left or call.method not in self.methods or self.agent not in (None, call.agent):
            return False
        self.left -= 1
        return True

    def describe(self, what: str) -> str:
        """Returns what has not happened."""
        name = next(iter(self.methods)) if len(self.methods) == 1 else "any call that changes something"
        by = f" by {self.agent}" if self.agent is not None else ""
        return f"{what} of {name}{by}" + (f", {self.left} times" if self.left > 1 else "")


@dataclass(slots=True)
class Delay:
    """Calls that are held back, by the server's clock."""

    which: Which
    seconds: float

    def __str__(self) -> str:
        return self.which.describe(f"a delay of {self.seconds:g} s")


@dataclass(slots=True)
class LostReply:
    """Calls that are executed and whose replies are lost."""

    which: Which

    def __str__(self) -> str:
        return self.which.describe("a lost reply")


@dataclass(slots=True)
class Interference:
    """What another agent does just before the next write of a key is looked at."""

    namespace: str
    key: str
    rival: str
    act: Callable[[], Coroutine[Any, Any, None]]

    def __str__(self) -> str:
        return f"{self.rival} coming before a write of {self.key!r} in {self.namespace}"


Waiting = TypeVar("Waiting", Delay, LostReply)


class Plan:
    """Faults that have not happened yet.

    Args:
        clock: the server's.

    Attributes:
        rivals: agents that make trouble for others, and have none themselves.
        failed: what could not be made to go wrong.
    """

    def __init__(self, clock: ServerClock) -> None:
        self._clock = clock
        self._delays: list[Delay] = []
        self._lost: list[LostReply] = []
        self._interferences: list[Interference] = []
        self.rivals: set[str] = set()
        self._stopping: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._acts: set[asyncio.Task[None]] = set()
        self.failed: list[BaseException] = []

    def add(self, fault: Delay | LostReply | Interference) -> None:
        """Adds a fault behind those that are waiting."""
        match fault:
            case Delay():
                self._delays.append(fault)
            case LostReply():
                self._lost.append(fault)
            case Interference():
                self._interferences.append(fault)
                self.rivals.add(fault.rival)

    @property
    def unmet(self) -> tuple[str, ...]:
        """What has not happened, in words."""
        waiting = [*self._interferences, *self._lost, *self._delays]
        return tuple(str(fault) for fault in waiting)

    def begin_life(self) -> None:
        """Holds calls back again, after :meth:`end_life`."""
        self._stopping = asyncio.get_running_loop().create_future()

    def end_life(self) -> None:
        """Lets go of calls that are held back, because the server stops."""
        self._stopping.set_result(None)

    async def before(self, call: Call, request: Any) -> None:
        """Does what is to happen before a call is executed.

        Raises:
            Refusal: DRAINING, if the server stops while the call is held back.
        """
        if call.agent in self.rivals:
            return
        if (delay := _take(self._delays, call)) is not None:
            stopping = self._stopping
            await self._clock.wait(stopping, delay.seconds, call=call)
            if stopping.done():
                raise _stopped()
        written = set(_written(call.method, request)) if self._interferences else set()
        for meddling in [m for m in self._interferences if (m.namespace, m.key) in written]:
            self._interferences.remove(meddling)
            await self._let_act(meddling, call)

    async def _let_act(self, meddling: Interference, call: Call) -> None:
        """Returns once the other agent has done what it does; what it does goes on even if the call is given up.

        Raises:
            Refusal: DRAINING, if the server stops meanwhile; perhaps that is just what it does.
        """
        acting = asyncio.create_task(self._act(meddling))
        self._acts.add(acting)
        acting.add_done_callback(self._acts.discard)
        waiting = asyncio.wait({acting, self._stopping}, return_when=asyncio.FIRST_COMPLETED)
        # Held back like a delayed call: what it does may take time, and move it.
        await self._clock.calls.parked(call, _NEVER_MS, waiting)
        if not acting.done():
            raise _stopped()

    async def _act(self, meddling: Interference) -> None:
        try:
            await meddling.act()
        except Exception as error:
            error.add_note(f"while the test's server had {meddling}")
            self.failed.append(error)

    async def give_up(self) -> None:
        """Ends what other agents are still doing."""
        for acting in self._acts:
            acting.cancel()
        await asyncio.gather(*self._acts, return_exceptions=True)

    def after(self, call: Call) -> None:
        """Does what is to happen once a call was executed.

        Raises:
            Refusal: ENGINE_UNAVAILABLE in place of a reply that is lost.
        """
        if call.agent not in self.rivals and _take(self._lost, call) is not None:
            # To a client this is what a connection that breaks is: nobody knows whether the call was executed.
            raise Refusal(Reason.ENGINE_UNAVAILABLE, "the reply was lost, as the test wished")


def _stopped() -> Refusal:
    return Refusal(Reason.DRAINING, "the server stops; the call was held back until then")


def _take(faults: list[Waiting], call: Call) -> Waiting | None:
    """Returns the first fault that is meant for a call, which only that one has then met."""
    # Lazily: whoever is asked after the first would count the call as met, and never happen.
    found = next((fault for fault in faults if fault.which.take(call)), None)
    faults[:] = [fault for fault in faults if fault.which.left]
    return found


def _written(method: str, request: Any) -> Iterator[tuple[str, str]]:
    """Yields namespace and key of everything that a request writes, or whose version it compares."""
    match method:
        case "Put":
            yield request.namespace, request.put.key
        case "Delete":
            yield request.namespace, request.delete.key
        case "ResolveConflict":
            yield request.namespace, request.key
        case "Transact" | "Commit":
            for operation in request.operations:
                kind = operation.WhichOneof("kind")
                # The key of a message is the server's to choose.
                if kind not in (None, "append"):
                    yield request.namespace, getattr(operation, kind).key
            for compare in request.compares:
                yield request.namespace, compare.key
