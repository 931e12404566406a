"""Takes dumps: goes over everything that makes the state, through the ports, a little at a time.

Each namespace is as it was at one moment, its own; those of facts are read before the words of these facts, which are
written before them. What comes meanwhile may be in the dump or not.
"""

from __future__ import annotations

import base64
import hashlib
import struct
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

import msgspec

from ..ports.coordinator import Coordinator
from ..ports.factqueue import FactQueue
from ..ports.factstore import NO_STORE, FactContent, FactStore
from ..ports.images import NamespaceImage
from ..ports.runtime import Clock
from ..ports.store import NamespaceRef, WorkingStore
from .bodies import body_of
from .lines import (
    FORMAT,
    Counters,
    End,
    Entry,
    FactLine,
    FenceLine,
    Granted,
    Header,
    JobLine,
    Line,
    RecordLine,
    Rule,
    Space,
    line_of,
)

PAGE_NAMESPACES = 256

TABLES = ("erasures", "fenced", "limits")
"""Tables of the coordinator that every dump has."""

TOKENS = "tokens"
"""The one that is in a dump on request only: whoever restores it makes every token of then good again."""


class Dumper:
    """See the module. May take several dumps at once.

    Args:
        store: the working store.
        coordinator: incarnations, rules and grants.
        fact_store: words of facts.
        fact_queue: work for the fact pipeline.
        clock: when a dump is taken.
        version: of this program.
    """

    def __init__(
        self,
        store: WorkingStore,
        coordinator: Coordinator,
        fact_store: FactStore,
        fact_queue: FactQueue,
        clock: Clock,
        version: str,
    ) -> None:
        self._store = store
        self._coordinator = coordinator
        self._fact_store = fact_store
        self._fact_queue = fact_queue
        self._clock = clock
        self._version = version

    async def lines(self, *, tokens: bool = False) -> AsyncGenerator[bytes, None]:
        """Yields the lines of a dump, each with its newline; the last one is there only if all are.

        Args:
            tokens: whether to take the hashes of API tokens too.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        digest = hashlib.sha256()
        count = 0
        async for line in self._lines((*TABLES, TOKENS) if tokens else TABLES):
            text = line_of(line)
            digest.update(text)
            count += 1
            yield text
        yield line_of(End(count, digest.hexdigest()))

    async def _lines(self, tables: tuple[str, ...]) -> AsyncIterator[Line]:
        yield await self._header(tables)
        table = await self._coordinator.refresh()
        for pattern, policy in sorted(table.entries.items()):
            yield Rule(pattern.text, pattern.exact, msgspec.to_builtins(policy))
        for key, verbs in sorted(table.grants.items()):
            yield Granted(*key.principal, *key.namespace, tuple(sorted(verbs)))
        for name in tables:
            for entry, value in sorted(self._coordinator.table(name).items()):
                yield Entry(name, entry, body_of(value))
        after = ""
        while page := await self._store.namespaces("", after, PAGE_NAMESPACES):
            for summary in page:
                if not summary.ref.volatile:
                    async for line in self._namespace(summary.ref):
                        yield line
            after = page[-1].ref.name
        if self._fact_store.engine != NO_STORE:
            async for content in self._fact_store.everything():
                yield _fact(content)
        async for queued in self._fact_queue.everything():
            job = queued.job
            yield JobLine(job.id, job.priority, job.group, body_of(job.body), queued.dead, queued.reason)
        # At last, so that nothing above was given later.
        version = (await self._coordinator.refresh()).config_version
        yield Counters(await self._coordinator.counted(), version, self._store.now_ms())

    async def _header(self, tables: tuple[str, ...]) -> Header:
        model, dimension = "", 0
        if self._fact_store.engine != NO_STORE:
            model, dimension = (await self._fact_store.stats()).model
        return Header(
            FORMAT,
            self._version,
            self._clock.wall_ms(),
            self._store.epoch,
            self._store.engine,
            model,
            dimension,
            tables,
        )

    async def _namespace(self, ref: NamespaceRef) -> AsyncIterator[Line]:
        async with aclosing(self._store.export(ref)) as parts:
            async for part in parts:
                if isinstance(part, NamespaceImage):
                    cuts = tuple((cut.epoch, cut.cut) for cut in part.cuts)
                    yield Space(
                        ref.name,
                        ref.generation,
                        ref.origin,
                        part.deleted,
                        part.head,
                        part.config_version,
                        part.floor_context,
                        cuts,
                    )
                    for lock, token in part.fences:
                        yield FenceLine(lock, token)
                else:
                    for record in part:
                        yield RecordLine(
                            record.key, record.revision, record.live_until_ms, record.due_ms, body_of(record.data)
                        )


def _fact(content: FactContent) -> FactLine:
    vector = content.vector
    packed = None if vector is None else base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
    return FactLine(*content[:13], body_of(content.body), packed)
