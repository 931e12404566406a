"""Compress on arrival as sessions ask for it: in threads, a few at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from ..ports.models import Tokenizer
from ..sessions.compacting import Before, Compacted
from ..sessions.toolcall import Compaction
from .compaction import Compressed, Stage, Task, compress, parse_paths

AT_ONCE_MAX = 2
"""How many results are made smaller at once; it is work of the processor, so more would only delay everything else."""

_COMPACTIONS: Mapping[Stage, Compaction] = {
    Stage.WHOLE: Compaction.NONE,
    Stage.FIELDS: Compaction.FIELDS,
    Stage.LOSSLESS: Compaction.LOSSLESS,
    Stage.RELEVANT: Compaction.RELEVANT,
    Stage.CUT: Compaction.CUT,
}


class ResultCompactor:
    """Makes tool results fit, see :func:`.compaction.compress`."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(AT_ONCE_MAX)

    def check_keep(self, keep: Sequence[str]) -> None:
        """Checks the form of paths.

        Raises:
            Refusal: INVALID_FIELD, naming the path as ``keep[…]``.
        """
        parse_paths(keep)

    async def compact(
        self, output: str, tokenizer: Tokenizer, *, tokens_max: int, before: Before, keep: Sequence[str]
    ) -> Compacted:
        """Makes a result fit, in a thread."""
        task = Task(before.tool, before.arguments, before.goals, before.messages)
        await self._turns.acquire()
        work = asyncio.ensure_future(
            asyncio.to_thread(compress, output, tokenizer, tokens_max=tokens_max, task=task, keep=keep)
        )
        work.add_done_callback(self._done)
        # A caller that goes away leaves the thread at work, so its turn is not over either.
        found = await asyncio.shield(work)
        return Compacted(found.text, _COMPACTIONS[found.stage], found.tokens)

    def _done(self, work: asyncio.Future[Compressed]) -> None:
        self._turns.release()
        if not work.cancelled():
            # Looked at even if nobody waits for it any more.
            work.exception()
