"""The embedded coordinator: incarnations, epochs and rules of one process, in a file of its own."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec

from noosphere.consistency import NamePattern, NamespacePolicy, Reason, Refusal, exhausted

from ...ports.coordinator import EpochRecord, Incarnation, PolicyTable
from ...ports.grants import GrantKey, Verb
from ...ports.runtime import Clock
from ...ports.tables import ANY, Expected, Table
from ..leasing import ended, outrun
from .database import damaged, open_database
from .folder import DataFolderError, StoreFailed, log_failure
from .grants import load_grants
from .locks import EmbeddedLocks
from .presence import EmbeddedPresence
from .sqlite import FILE as WORKING
from .tables import EmbeddedTables, load_tables
from .worker import ThreadWorker, Worker, run

FILE = "coordination.sqlite3"

AGENT_LEASE_MS = 15_000
AGENTS_OPEN_MAX = 100_000
"""Agents that were opened and not closed. Above it, opening one ends the one whose lease lapsed first."""

PATTERNS_MAX = 10_000
GRANTS_MAX = 10_000

_SCHEMA = """
CREATE TABLE state(name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE agents(agent_id TEXT PRIMARY KEY, newest INTEGER NOT NULL, open INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE policies(
    text TEXT NOT NULL, exact INTEGER NOT NULL, policy TEXT NOT NULL, PRIMARY KEY(text, exact)
) WITHOUT ROWID;
CREATE TABLE epochs(
    epoch INTEGER PRIMARY KEY, started_ms INTEGER NOT NULL, cause TEXT NOT NULL, recovered TEXT NOT NULL
);
"""

T = TypeVar("T")
Statement = tuple[str, tuple[Any, ...]]


class _Lease:
    """The present incarnation of an agent that was not closed."""

    __slots__ = ("ends_ms", "number", "request_id")

    def __init__(self, number: int, ends_ms: int, request_id: str = "") -> None:
        self.number = number
        self.ends_ms = ends_ms
        # Not on disk: leases end with the process, and whose lease has ended is in nobody's way.
        self.request_id = request_id


class _Loaded:
    """The contents of the file."""

    def __init__(self, db: sqlite3.Connection, path: Path) -> None:
        try:
            state: dict[str, int] = dict(db.execute("SELECT name, value FROM state"))
            self.counter = state.get("counter", 0)
            self.config_version = state.get("config_version", 0)
            self.open_agents: dict[str, int] = dict(db.execute("SELECT agent_id, newest FROM agents WHERE open"))
            self.policies = {
                NamePattern(text, bool(exact)): msgspec.json.decode(policy, type=NamespacePolicy)
                for text, exact, policy in db.execute("SELECT text, exact, policy FROM policies ORDER BY text")
            }
            self.grants = load_grants(db)
            self.tables = load_tables(db)
            self.epochs = [EpochRecord(*row) for row in db.execute("SELECT * FROM epochs ORDER BY epoch")]
        except (sqlite3.DatabaseError, msgspec.MsgspecError) as error:
            raise damaged(path, error) from None


class EmbeddedCoordinator:
    """See :class:`~noosphere.server.ports.coordinator.Coordinator`. Lives on one event loop.

    Leases are in memory, on the monotonic clock, so all of them end with the process; whose turn it is does
    not. Everything else is on disk before a call returns. The present incarnation changes in memory first:
    a fenced predecessor must not write while the disk is busy.
    """

    def __init__(
        self,
        path: Path,
        db: sqlite3.Connection,
        loaded: _Loaded,
        worker: Worker,
        clock: Clock,
        agent_lease_ms: int,
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self._path = path
        self._db = db
        self._worker = worker
        self._clock = clock
        self._lease_ms = agent_lease_ms
        self._on_fatal = on_fatal
        self._counter = loaded.counter
        # Insertion order is the order of opening, which is about the order of lapsing.
        self._leases = {agent_id: _Lease(number, 0) for agent_id, number in loaded.open_agents.items()}
        self._policies = loaded.policies
        self._grants = loaded.grants
        self._config_version = loaded.config_version
        self._table = self._make_table()
        self._tables = EmbeddedTables(loaded.tables, self._write)
        self._epochs = loaded.epochs
        self._queued: deque[list[Statement]] = deque()
        self._torn: sqlite3.Error | None = None
        self._loop = asyncio.get_running_loop()
        self._failure: StoreFailed | None = None
        self._closed = False
        self.locks = EmbeddedLocks(clock, self._next_number, self._is_current)
        self.presence = EmbeddedPresence(clock, self._next_number, self._is_current)

    @classmethod
    async def open(
        cls,
        folder: Path,
        *,
        clock: Clock,
        agent_lease_ms: int = AGENT_LEASE_MS,
        on_fatal: Callable[[BaseException], None] = log_failure,
        worker: Callable[[str], Worker] = ThreadWorker,
    ) -> EmbeddedCoordinator:
        """Opens the coordinator in a locked data folder, or creates it.

        Raises:
            DataFolderError: damaged, unreadable, or of a newer format; nothing was changed.
        """
        path = folder / FILE
        thread = worker("noosphere-coordinator")

        def load() -> tuple[sqlite3.Connection, _Loaded]:
            if not path.exists() and (folder / WORKING).exists():
                raise unfit(f"{path} is missing, though there is a {WORKING}")
            db, _ = open_database(path, _SCHEMA)
            try:
                return db, _Loaded(db, path)
            except BaseException:
                db.close()
                raise

        try:
            db, loaded = await run(thread, load)
        except BaseException:
            thread.stop()
            raise
        return cls(path, db, loaded, thread, clock, agent_lease_ms, on_fatal)

    async def open_agent(self, agent_id: str, takeover: bool, request_id: str = "") -> Incarnation:
        """Begins an incarnation, ending any earlier one; a retry under the same id returns the one it began.

        Raises:
            Refusal: AGENT_ACTIVE; LIMIT_EXCEEDED with 100,000 active agents.
        """
        self._check()
        now_ms = self._clock.monotonic_ms()
        held = self._leases.pop(agent_id, None)
        if held is not None and request_id and held.request_id == request_id:
            self._leases[agent_id] = held
            # Queued behind the first attempt's write, which may still be under way.
            await self._write(
                [("UPDATE agents SET open = 1 WHERE agent_id = ? AND newest = ?", (agent_id, held.number))]
            )
            held.ends_ms = max(held.ends_ms, self._clock.monotonic_ms() + self._lease_ms)
            return Incarnation(agent_id, held.number)
        if held is not None and held.ends_ms > now_ms and not takeover:
            self._leases[agent_id] = held
            raise Refusal(
                Reason.AGENT_ACTIVE,
                f"agent {agent_id!r} is active as incarnation {held.number} "
                f"for another {held.ends_ms - now_ms} ms; takeover ends it",
            )
        statements: list[Statement] = []
        if len(self._leases) >= AGENTS_OPEN_MAX:
            lapsed = self._first_lapsed(now_ms)
            self._end(Incarnation(lapsed, self._leases.pop(lapsed).number))
            statements.append(("UPDATE agents SET open = 0 WHERE agent_id = ?", (lapsed,)))
        if held is not None:
            self._end(Incarnation(agent_id, held.number))
        self._counter = number = self._counter + 1
        lease = self._leases[agent_id] = _Lease(number, now_ms + self._lease_ms, request_id)
        statements += [
            ("INSERT OR REPLACE INTO state VALUES ('counter', ?)", (number,)),
            ("INSERT OR REPLACE INTO agents VALUES (?, ?, 1)", (agent_id, number)),
        ]
        await self._write(statements)
        lease.ends_ms = max(lease.ends_ms, self._clock.monotonic_ms() + self._lease_ms)
        return Incarnation(agent_id, number)

    async def keep_agent(self, incarnation: Incarnation) -> None:
        """Renews a lease.

        Raises:
            Refusal: STALE_INCARNATION.
        """
        self._check()
        if not self.touch(incarnation):
            raise ended(incarnation)

    async def close_agent(self, incarnation: Incarnation) -> None:
        """Ends an incarnation.

        Raises:
            Refusal: STALE_INCARNATION.
        """
        self._check()
        held = self._leases.get(incarnation.agent_id)
        if held is None or held.number != incarnation.number:
            raise ended(incarnation)
        del self._leases[incarnation.agent_id]
        self._end(incarnation)
        await self._write(
            [("UPDATE agents SET open = 0 WHERE agent_id = ? AND newest = ?", (incarnation.agent_id, held.number))]
        )

    def touch(self, incarnation: Incarnation) -> bool:
        """Renews the lease if the incarnation is current; returns whether it is."""
        held = self._leases.get(incarnation.agent_id)
        if held is None or held.number != incarnation.number:
            return False
        held.ends_ms = self._clock.monotonic_ms() + self._lease_ms
        return True

    async def latest(self, agent_id: str) -> int:
        """Returns the number of the agent's newest incarnation, 0 if it was never opened."""
        self._check()
        held = self._leases.get(agent_id)
        if held is not None:
            return held.number

        def look() -> int:
            row = self._db.execute("SELECT newest FROM agents WHERE agent_id = ?", (agent_id,)).fetchone()
            return int(row[0]) if row is not None else 0

        return await self._run(look)

    def is_active(self, incarnation: Incarnation) -> bool:
        """Tells whether an incarnation has not ended and its lease lives."""
        held = self._leases.get(incarnation.agent_id)
        return held is not None and held.number == incarnation.number and held.ends_ms > self._clock.monotonic_ms()

    def active_count(self) -> int:
        """Returns how many agents have a living lease."""
        now_ms = self._clock.monotonic_ms()
        return sum(lease.ends_ms > now_ms for lease in self._leases.values())

    def policies(self) -> PolicyTable:
        """Returns the rules."""
        return self._table

    async def refresh(self) -> PolicyTable:
        """Returns the rules; nobody else changes them."""
        self._check()
        return self._table

    async def set_policy(self, pattern: NamePattern, policy: NamespacePolicy | None) -> int:
        """Sets or (None) removes a pattern's rules; returns the new configuration version.

        Raises:
            Refusal: LIMIT_EXCEEDED, above 10,000 patterns.
        """
        self._check()
        if policy is not None and pattern not in self._policies and len(self._policies) >= PATTERNS_MAX:
            raise exhausted("pattern", len(self._policies) + 1, PATTERNS_MAX, "too many patterns")
        self._config_version = version = self._config_version + 1
        if policy is None:
            self._policies.pop(pattern, None)
            change: Statement = ("DELETE FROM policies WHERE text = ? AND exact = ?", (pattern.text, pattern.exact))
        else:
            self._policies[pattern] = policy
            change = _policy_row(pattern, policy)
        await self._show(change, version)
        return version

    async def set_grant(self, key: GrantKey, verbs: frozenset[Verb]) -> int:
        """Grants these verbs and no others, or (none) takes a grant back; returns the new configuration version.

        Raises:
            Refusal: LIMIT_EXCEEDED, above 10,000 grants.
        """
        self._check()
        if verbs and key not in self._grants and len(self._grants) >= GRANTS_MAX:
            raise exhausted("grant", len(self._grants) + 1, GRANTS_MAX, "too many grants")
        self._config_version = version = self._config_version + 1
        if verbs:
            self._grants[key] = verbs
            change: Statement = _grant_row(key, verbs)
        else:
            self._grants.pop(key, None)
            change = (
                "DELETE FROM grants WHERE principal = ? AND principal_exact = ? AND namespace = ? "
                "AND namespace_exact = ?",
                (*key.principal, *key.namespace),
            )
        await self._show(change, version)
        return version

    def table(self, name: str) -> Table:
        """Returns a table."""
        return self._tables.table(name)

    async def put_entry(self, table: str, key: str, value: bytes | None, *, expected: Expected = ANY) -> None:
        """Writes an entry or (None) removes it.

        Raises:
            Refusal: INVALID_FIELD, LIMIT_EXCEEDED or CONTENTION.
        """
        self._check()
        await self._tables.put(table, key, value, expected)

    async def _show(self, change: Statement, version: int) -> None:
        """Writes a change of rules or grants, and only then shows it."""
        table = self._make_table()
        await self._write([change, ("INSERT OR REPLACE INTO state VALUES ('config_version', ?)", (version,))])
        # Calls end in the order in which they began.
        self._table = table

    async def epochs(self) -> tuple[EpochRecord, ...]:
        """Returns every epoch, oldest first."""
        self._check()
        return tuple(self._epochs)

    async def begin_epoch(self, cause: str, recovered: str, at_least: int, expected: int | None = None) -> int:
        """Begins an epoch above every earlier one and not below ``at_least``; returns it.

        Raises:
            Refusal: CONTENTION, if the newest is not ``expected``.
        """
        self._check()
        newest = self._epochs[-1].epoch if self._epochs else 0
        if expected is not None and newest != expected:
            raise outrun(newest, expected)
        epoch = max(at_least, newest + 1)
        record = EpochRecord(epoch, self._clock.wall_ms(), cause, recovered)
        self._epochs.append(record)
        await self._write([("INSERT INTO epochs VALUES (?, ?, ?, ?)", tuple(record))])
        return epoch

    async def counted(self) -> int:
        """Returns the number that was given last."""
        self._check()
        return self._counter

    async def resume(self, number: int, table: PolicyTable) -> None:
        """Goes on where another coordinator was, in one transaction; see the port."""
        self._check()
        self._counter = max(self._counter, number)
        self._config_version = version = max(self._config_version, table.config_version) + 1
        self._policies, self._grants = dict(table.entries), dict(table.grants)
        shown = self._make_table()
        statements: list[Statement] = [
            ("INSERT OR REPLACE INTO state VALUES ('counter', ?)", (self._counter,)),
            ("INSERT OR REPLACE INTO state VALUES ('config_version', ?)", (version,)),
            ("DELETE FROM policies", ()),
            ("DELETE FROM grants", ()),
        ]
        statements += [_policy_row(pattern, policy) for pattern, policy in self._policies.items()]
        statements += [_grant_row(key, verbs) for key, verbs in self._grants.items()]
        await self._write(statements)
        self._table = shown

    async def close(self) -> None:
        """Ends leases and closes the file."""
        if self._closed:
            return
        self._closed = True
        await run(self._worker, self._db.close)
        self._worker.stop()

    def _is_current(self, incarnation: Incarnation) -> bool:
        held = self._leases.get(incarnation.agent_id)
        return held is not None and held.number == incarnation.number

    def _end(self, incarnation: Incarnation) -> None:
        """Ends what goes with an incarnation."""
        self.locks.end(incarnation)
        self.presence.end(incarnation)

    async def _next_number(self) -> int:
        """Counts on, for what a restart must not number again."""
        self._check()
        self._counter = number = self._counter + 1
        await self._write([("INSERT OR REPLACE INTO state VALUES ('counter', ?)", (number,))])
        return number

    def _make_table(self) -> PolicyTable:
        return PolicyTable(
            self._config_version, MappingProxyType(dict(self._policies)), MappingProxyType(dict(self._grants))
        )

    def _first_lapsed(self, now_ms: int) -> str:
        for agent_id, lease in self._leases.items():
            if lease.ends_ms <= now_ms:
                return agent_id
        raise exhausted("agent_id", len(self._leases) + 1, AGENTS_OPEN_MAX, "too many active agents")

    def _check(self) -> None:
        if self._failure is not None:
            raise _failed()
        if self._closed:
            raise Refusal(Reason.ENGINE_UNAVAILABLE, "the coordinator is closed")

    async def _write(self, statements: list[Statement]) -> None:
        """Runs statements in a durable transaction, together with what others are waiting to write."""
        self._queued.append(statements)
        await self._run(self._write_queued)

    def _write_queued(self) -> None:
        if self._torn is not None:
            raise self._torn
        statements: list[Statement] = []
        while self._queued:
            statements += self._queued.popleft()
        if not statements:
            # They went with an earlier caller's, and that has ended.
            return
        try:
            self._db.execute("BEGIN IMMEDIATE")
            for sql, values in statements:
                self._db.execute(sql, values)
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            self._torn = error
            raise

    async def _run(self, call: Callable[[], T]) -> T:
        def watched() -> T:
            try:
                return call()
            except sqlite3.Error as error:
                # Told to the process even if the caller is gone by now.
                self._loop.call_soon_threadsafe(self._fail, StoreFailed(f"cannot use {self._path}: {error}"))
                raise

        try:
            return await run(self._worker, watched)
        except sqlite3.Error as error:
            raise _failed() from error

    def _fail(self, failure: StoreFailed) -> None:
        if self._failure is None:
            self._failure = failure
            self._on_fatal(failure)


def _policy_row(pattern: NamePattern, policy: NamespacePolicy) -> Statement:
    text = msgspec.json.encode(policy).decode()
    return "INSERT OR REPLACE INTO policies VALUES (?, ?, ?)", (pattern.text, pattern.exact, text)


def _grant_row(key: GrantKey, verbs: frozenset[Verb]) -> Statement:
    text = msgspec.json.encode(sorted(verbs)).decode()
    return "INSERT OR REPLACE INTO grants VALUES (?, ?, ?, ?, ?)", (*key.principal, *key.namespace, text)


def unfit(problem: str) -> DataFolderError:
    """Returns the error of a coordinator that is not the working store's.

    To go on would number incarnations anew: an old one would be taken for a new one, and its calls for retries.
    """
    return DataFolderError(f"{problem}: restore all files of the data folder from the same copy")


def _failed() -> Refusal:
    # What has failed, and where, is for the server's log: callers may be anybody.
    return Refusal(Reason.ENGINE_UNAVAILABLE, "the coordinator has failed, the outcome of this call is unknown")
