"""The coordinator port: incarnations, epochs, rules and grants by name pattern, tables, locks and presence.

What must be agreed on by every replica and changes rarely. The embedded driver serves one process;
etcd serves a fleet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple, Protocol

from noosphere.consistency import NamePattern, NamespacePolicy

from .grants import GrantKey, Verb
from .locks import Locks, Presence
from .tables import ANY, Expected, Table


class Incarnation(NamedTuple):
    """One life of an agent. Numbers come from one persisted counter, so they order all incarnations."""

    agent_id: str
    number: int


class PolicyTable(NamedTuple):
    """Rules and grants by pattern, with the version of the whole table."""

    config_version: int
    entries: Mapping[NamePattern, NamespacePolicy]
    grants: Mapping[GrantKey, frozenset[Verb]]


class EpochRecord(NamedTuple):
    """When and why an epoch began, and what was recovered, in words."""

    epoch: int
    started_ms: int
    cause: str
    recovered: str


def fleet_of(records: Sequence[EpochRecord]) -> str:
    """Returns what stands for whoever shares a coordinator, "" before the first epoch.

    The first record stays for ever, and another coordinator has another one.
    """
    return blake2b(repr(tuple(records[0])).encode(), digest_size=10).hexdigest() if records else ""


class Coordinator(Protocol):
    """What every coordination backend provides.

    A lapsed lease makes an agent no longer *active*, so somebody else may open it; it does not end
    the incarnation. What ends one is CloseAgent, or a newer incarnation of the same agent.

    Every call may be refused with ENGINE_UNAVAILABLE; of one that changes something the outcome is then unknown.
    """

    @property
    def locks(self) -> Locks:
        """Locks with fencing tokens, and elections."""
        ...

    @property
    def presence(self) -> Presence:
        """Groups of members."""
        ...

    async def open_agent(self, agent_id: str, takeover: bool, request_id: str = "") -> Incarnation:
        """Begins an incarnation, ending any earlier one.

        While it is the present one, a call with the same ``request_id`` (not empty) is a retry and returns it.

        Raises:
            Refusal: AGENT_ACTIVE, if the present incarnation's lease is alive and not ``takeover``; LIMIT_EXCEEDED,
                with too many active agents; CONTENTION, if other processes were always faster.
        """
        ...

    async def keep_agent(self, incarnation: Incarnation) -> None:
        """Renews a lease.

        Raises:
            Refusal: STALE_INCARNATION.
        """
        ...

    async def close_agent(self, incarnation: Incarnation) -> None:
        """Ends an incarnation.

        Raises:
            Refusal: STALE_INCARNATION.
        """
        ...

    def touch(self, incarnation: Incarnation) -> bool:
        """Renews the lease if the incarnation is current, as far as is known here; returns whether it is. Never waits.

        One that another process has just begun may be unknown for a moment: ``keep_agent`` knows for certain.
        """
        ...

    async def latest(self, agent_id: str) -> int:
        """Returns the number of the agent's newest incarnation, 0 if it was never opened."""
        ...

    def is_active(self, incarnation: Incarnation) -> bool:
        """Tells whether an incarnation has not ended and its lease lives, as this process knows it. Renews nothing."""
        ...

    def active_count(self) -> int:
        """Returns how many agents have a living lease."""
        ...

    def policies(self) -> PolicyTable:
        """Returns the rules and grants as this process knows them. Never waits."""
        ...

    async def refresh(self) -> PolicyTable:
        """Reads the rules anew; used when a commit says that they are out of date."""
        ...

    async def set_policy(self, pattern: NamePattern, policy: NamespacePolicy | None) -> int:
        """Sets or (None) removes a pattern's rules; returns the new configuration version.

        Raises:
            Refusal: LIMIT_EXCEEDED, above 10,000 patterns; CONTENTION, if other processes were always faster.
        """
        ...

    async def set_grant(self, key: GrantKey, verbs: frozenset[Verb]) -> int:
        """Grants these verbs and no others, or (none) takes a grant back; returns the new configuration version.

        Raises:
            Refusal: LIMIT_EXCEEDED, above 10,000 grants; CONTENTION, if other processes were always faster.
        """
        ...

    def table(self, name: str) -> Table:
        """Returns a table as this process knows it; one that nothing was written to is empty. Never waits.

        What another process writes is seen within a second, as long as the engine can be reached.

        Raises:
            ValueError: not a table's name.
        """
        ...

    async def put_entry(self, table: str, key: str, value: bytes | None, *, expected: Expected = ANY) -> None:
        """Writes an entry or (None) removes it; once this returns, :meth:`table` shows it here.

        Args:
            table: 1 to 32 of ``a-z``, ``0-9`` and ``_``.
            key: at most 512 bytes, without NUL.
            value: at most 16 KiB.
            expected: what has to be there now (None: nothing).

        Raises:
            Refusal: INVALID_FIELD; LIMIT_EXCEEDED, too large a value, or above 100,000 entries (which processes that
                write at the same time may pass by one each); CONTENTION, if ``expected`` is not what is there, or other
                processes were always faster.
            ValueError: not a table's name.
        """
        ...

    async def epochs(self) -> tuple[EpochRecord, ...]:
        """Returns every epoch, oldest first."""
        ...

    async def begin_epoch(self, cause: str, recovered: str, at_least: int, expected: int | None = None) -> int:
        """Begins an epoch above every earlier one and not below ``at_least``; returns it.

        Args:
            cause: why, in words.
            recovered: what of the state before is there, in words.
            at_least: the lowest that is wanted.
            expected: if given, one is begun only if this is the newest (0: there is none). Of several processes that
                noticed the same, one begins it then.

        Raises:
            Refusal: CONTENTION, if the newest is not ``expected``, or other processes were always faster.
        """
        ...

    async def counted(self) -> int:
        """Returns a number that is not below any that was ever given: to an incarnation, a lock or a member."""
        ...

    async def resume(self, number: int, table: PolicyTable) -> None:
        """Goes on where another coordinator was: for a restore, while nobody else uses this one.

        Numbers that are given from now on are above ``number``. Rules and grants are those of ``table`` and no others;
        the configuration version rises above its own and that of ``table``. If it fails, it can be done again.
        """
        ...

    async def close(self) -> None:
        """Releases what this process holds. Leases that are kept elsewhere live on until they lapse."""
        ...
