"""What a driver must offer so that the contract suites can run against it, and the embedded driver's answer.

A driver to come joins by a class like :class:`EmbeddedLab` and one more parameter of the ``lab`` fixture. What
it cannot offer it says in its capabilities; the tests that need it are then skipped for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import pytest

from noosphere.server.ports.coordinator import Coordinator
from noosphere.server.ports.store import WorkingStore
from noosphere.server.storage.embedded import EmbeddedCoordinator, EmbeddedStore
from noosphere.server.storage.embedded.folder import StoreFailed
from noosphere.server.storage.embedded.namespace import Pending
from noosphere.server.storage.embedded.sqlite import SqliteJournal
from noosphere.testing import ManualClock

FIRST_EPOCH = 9_000
"""Contract tests never begin at epoch 1: code that takes an epoch for a small number would go unnoticed."""

HOLD_SECONDS_MAX = 60.0
"""A test that forgets to let syncs go fails by this instead of hanging."""


class Gate(Protocol):
    """Power over syncs."""

    async def let_one(self) -> None:
        """Lets one group of commits be synced; returns when that is visible."""
        ...


class StoreLab(Protocol):
    """A store under test and power over its surroundings."""

    @property
    def store(self) -> WorkingStore:
        """The present store."""
        ...

    @property
    def coordinator(self) -> Coordinator:
        """The present coordinator."""
        ...

    @property
    def loads_when_asked(self) -> bool:
        """Whether a namespace comes into the driver's memory when it is first used, and may leave it."""
        ...

    @property
    def awake_ms(self) -> int:
        """The time that calls are remembered in: store time, or as much of it as passed while the store was open."""
        ...

    def advance(self, by_ms: int) -> None:
        """Moves store time on, or skips the test if the driver takes its time from elsewhere."""
        ...

    def set_wall_back(self, by_ms: int) -> None:
        """Moves the wall clock back, or skips."""
        ...

    def holding(self) -> contextlib.AbstractAsyncContextManager[Gate]:
        """Inside, no sync ends that the gate does not let; or skips, if the driver syncs within its commits."""
        ...

    async def reopen(self) -> None:
        """Closes in order and opens again."""
        ...

    async def crash(self) -> None:
        """Ends without warning and opens what is durable."""
        ...

    def bytes_at_rest(self) -> bytes:
        """Returns everything that is on disk, or skips the test if the driver's files are elsewhere."""
        ...


class GatedJournal:
    """The real journal behind a gate: syncs can be held or made to fail, and the files copied at rest."""

    def __init__(self, folder: Path, durability: Any = "os") -> None:
        self.inner = SqliteJournal(folder, durability)
        self.still = threading.RLock()
        self.failure: Exception | None = None
        self.syncs = 0
        self._gate = threading.Condition()
        self._permits: int | None = None

    def hold(self) -> None:
        """Lets no sync end from now on."""
        with self._gate:
            self._permits = 0

    def let(self, count: int | None = None) -> None:
        """Lets ``count`` more syncs end, or all."""
        with self._gate:
            self._permits = None if count is None or self._permits is None else self._permits + count
            self._gate.notify_all()

    def sync(self) -> None:
        with self._gate:
            if not self._gate.wait_for(lambda: self._permits != 0, HOLD_SECONDS_MAX):
                raise AssertionError("a test held syncs and never let them go")
            if self._permits is not None:
                self._permits -= 1
        if self.failure is not None:
            raise self.failure
        with self.still:
            self.inner.sync()
        self.syncs += 1

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if not callable(found) or name == "copy":
            # A copy is made beside everything else, also beside a crash.
            return found

        def still(*args: Any, **kwargs: Any) -> Any:
            with self.still:
                return found(*args, **kwargs)

        return still


class EmbeddedLab:
    """The embedded drivers under a clock that the test moves. Durability ``os``: these tests never cut the power."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self._root = folder
        self._lives = 0
        self._options = options
        self.folder = folder / "life-0"
        self.folder.mkdir()
        self.clock = ManualClock()
        self.fatal: list[BaseException] = []
        self._store: EmbeddedStore | None = None
        self._coordinator: EmbeddedCoordinator | None = None
        self._journal: GatedJournal | None = None

    @property
    def store(self) -> EmbeddedStore:
        assert self._store is not None
        return self._store

    @property
    def coordinator(self) -> EmbeddedCoordinator:
        assert self._coordinator is not None
        return self._coordinator

    @property
    def journal(self) -> GatedJournal:
        assert self._journal is not None
        return self._journal

    @property
    def loads_when_asked(self) -> bool:
        return True

    @property
    def awake_ms(self) -> int:
        return self.store._time.awake_ms(self.store.now_ms())

    async def open(self) -> None:
        self._coordinator = await EmbeddedCoordinator.open(self.folder, clock=self.clock)
        if not await self._coordinator.epochs():
            await self._coordinator.begin_epoch("contract test", "nothing", FIRST_EPOCH)
        self._journal = GatedJournal(self.folder)
        self._store = await EmbeddedStore.open(
            self.folder,
            self._coordinator,
            clock=self.clock,
            journal=self._journal,
            on_fatal=self.fatal.append,
            **self._options,
        )

    async def close(self) -> None:
        self.journal.let()
        await self.store.close()
        await self.coordinator.close()

    def advance(self, by_ms: int) -> None:
        self.clock.advance(by_ms)

    async def keep_time(self) -> None:
        """Returns once store time is on disk, which on a real clock it never is by more than two seconds later."""
        self.store._pipeline.submit(Pending(None, None, 0))
        await until(lambda: not self.store._time.overdue)

    def set_wall_back(self, by_ms: int) -> None:
        self.clock.set_wall_back(by_ms)

    @contextlib.asynccontextmanager
    async def holding(self) -> AsyncIterator[Gate]:
        self.journal.hold()
        try:
            yield self
        finally:
            self.journal.let()

    async def let_one(self) -> None:
        pipeline = self.store._pipeline
        applied = pipeline.applied_batch
        self.journal.let(1)
        await until(lambda: pipeline.applied_batch > applied)

    async def reopen(self) -> None:
        await self.close()
        await self.open()

    def bytes_at_rest(self) -> bytes:
        with self.journal.still:
            return b"\n".join(file.read_bytes() for file in sorted(self.folder.iterdir()))

    def copy(self, name: str) -> Path:
        """Copies the files as they are at this moment, as a crash would leave them."""
        target = self._root / name
        with self.journal.still:
            shutil.copytree(self.folder, target, ignore=shutil.ignore_patterns("*-shm"))
        return target

    async def crash(self) -> None:
        self._lives += 1
        copy = self.copy(f"life-{self._lives}")
        # The old life still has to end; whatever it does now, it does to files that nobody reads again.
        self.journal.failure = StoreFailed("crashed by the test")
        await self.close()
        self.fatal.clear()
        self.folder = copy
        await self.open()


@contextlib.contextmanager
def expect_log(caplog: pytest.LogCaptureFixture, text: str) -> Iterator[None]:
    """Checks that the store logs ``text`` inside the block."""
    caplog.clear()
    with caplog.at_level(logging.INFO, "noosphere.storage"):
        yield
    assert any(text in record.getMessage() for record in caplog.records), [r.getMessage() for r in caplog.records]


async def turns(count: int = 20) -> None:
    """Lets everything run that can run without the disk or the clock."""
    for _ in range(count):
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool]) -> None:
    """Lets the loop turn until ``condition`` holds, because another thread is about to make it so."""
    for _ in range(200_000):
        if condition():
            return
        await asyncio.sleep(0.0005)
    raise AssertionError("the condition never came to hold")


async def done(tasks: Sequence[asyncio.Future[Any]]) -> list[Any]:
    """Waits for tasks and returns their results or exceptions."""
    return await asyncio.gather(*tasks, return_exceptions=True)
