"""What an agent does when a failover has lost acknowledged writes: it finds out, and makes its own good.

It finds out from whatever comes first: a call that presents a lost revision is refused, and a watch says that an epoch
has begun. The client names those of the agent's writes that are gone. It writes them again where nothing else was
written since; where something was, or where no copy was kept, the agent does that part of its work again on what is
there now. Each part is worth doing twice (see ``agent``), so nothing has to be known about what others do meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from noosphere.client import AckedWritesLost, ClaimLost, Client, Namespace

from .protocol import Dropped, Event, Recovered, Settled, Told

Redo = Callable[[], Awaitable[None]]

_EPOCH_BITS = 40


class Recovery:
    """One agent's. Its parts of work are done in one task, which asks here whether anything was lost.

    Args:
        client: the agent's client.
        space: where the job is.
        say: tells the demo.
    """

    def __init__(self, client: Client, space: Namespace, say: Callable[[Event], None]) -> None:
        self._client = client
        self._space = space
        self._say = say
        self._redo: dict[int, Redo] = {}
        self._found: AckedWritesLost | None = None
        self._told = asyncio.Event()
        self._settled = False

    @property
    def settled(self) -> bool:
        """Whether the failover is known here, and made good."""
        return self._settled and self._found is None

    async def watch(self) -> None:
        """Watches for the failover until it is cancelled."""
        async with self._space.watch() as batches:
            async for batch in batches:
                if batch.kind == "epoch":
                    through = ((batch.revision >> _EPOCH_BITS) + 1) << _EPOCH_BITS
                    self._say(Told(batch.revision, through - 1, "epoch"))
                    await self._ask()
                    self._told.set()

    async def _ask(self) -> None:
        """Presents what was seen, so that the client names what is gone of it."""
        try:
            await self._client.observe(self._client.causal_token())
        except AckedWritesLost as lost:
            self._found = lost

    def made(self, revision: int, redo: Redo) -> None:
        """Remembers how a part of the work that was committed at a revision is done again."""
        self._redo[revision] = redo

    def check(self) -> None:
        """Stops the work if the watch has found something.

        Raises:
            AckedWritesLost: it has.
        """
        if self._found is not None:
            raise self._found

    def cause_of(self, error: AckedWritesLost | ClaimLost) -> AckedWritesLost | None:
        """Returns the loss behind an error, None if it has another reason."""
        found = error if isinstance(error, AckedWritesLost) else error.__cause__
        return found if isinstance(found, AckedWritesLost) else None

    async def recover(self, lost: AckedWritesLost, section: str) -> None:
        """Makes good what was lost of this agent's.

        Args:
            lost: what was.
            section: the section that the agent has left for it.
        """
        self._found = None
        self._say(Dropped(section))
        writes = tuple((write.key, str(write.operation), write.revision) for write in lost.own_writes)
        self._say(Told(lost.lost_after, lost.lost_through, "error", writes))
        try:
            await self._make_good(lost)
        except AckedWritesLost as again:
            # Another failover came in between; it is faced next.
            self._found = again

    async def _make_good(self, lost: AckedWritesLost) -> None:
        outcomes = await self._client.resubmit(lost)
        failed = dict.fromkeys(outcome.write.revision for outcome in outcomes if outcome.error is not None)
        resubmitted = {outcome.write.revision for outcome in outcomes} - failed.keys()
        redone = 0
        for revision in failed:
            redo = self._redo.pop(revision, None)
            if redo is not None:
                await redo()
                redone += 1
        self._say(Recovered(len(resubmitted), redone, len(failed) - redone))

    async def settle(self) -> None:
        """Returns once the failover is known here; what it has lost is found by :meth:`check`."""
        await self._told.wait()
        if not self._settled:
            self._settled = True
            self._say(Settled())
