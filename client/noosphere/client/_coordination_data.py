"""What locks and groups are made of, as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from noosphere.consistency import split_actor
from noosphere.v1 import coordination_service_pb2 as pb

from ._values import dump_json, load_json
from ._wire import span_seconds


class Fence(NamedTuple):
    """Under which lock something is written: ``client.fenced(fence)`` sends it along. Can be handed to others.

    Attributes:
        lock: the lock's name.
        token: its fencing token.
    """

    lock: str
    token: int


@dataclass(frozen=True, slots=True)
class LockInfo:
    """A lock that somebody holds; in an election, who leads.

    Attributes:
        name: the lock's name.
        holder: the holding incarnation, as ``agent#incarnation``.
        token: the fencing token; larger means later.
        lease: how long it is held without a renewal, in seconds.
        raw: what the holder wants to be known, as bytes.
    """

    name: str
    holder: str
    token: int
    lease: float
    raw: bytes = field(default=b"", repr=False)

    @property
    def agent(self) -> str:
        """The holding agent."""
        return split_actor(self.holder)[0]

    @property
    def data(self) -> Any:
        """What the holder wants to be known, a JSON value; None if it said nothing.

        Raises:
            ValueMismatch: it is not JSON; see ``raw``.
        """
        return read_data(self.raw)


@dataclass(frozen=True, slots=True)
class Member:
    """One agent in a group.

    Attributes:
        agent: its name.
        number: grows with every joining; tells two lives of one member apart.
        lease: how long it is there without a renewal, in seconds.
        raw: what the others should know of it, as bytes.
    """

    agent: str
    number: int
    lease: float
    raw: bytes = field(default=b"", repr=False)

    @property
    def data(self) -> Any:
        """What the others should know of it, a JSON value; None if it said nothing.

        Raises:
            ValueMismatch: it is not JSON; see ``raw``.
        """
        return read_data(self.raw)


@dataclass(frozen=True, slots=True)
class GroupChange:
    """Who is in a group, and what has changed since a watch told the last time.

    Attributes:
        members: who is there now, by name.
        joined: who has come, or come anew; at first, everybody.
        left: the agents who have gone.
    """

    members: tuple[Member, ...]
    joined: tuple[Member, ...]
    left: tuple[str, ...]


def read_data(raw: bytes) -> Any:
    """Returns what somebody wants to be known.

    Raises:
        ValueMismatch: it is not JSON.
    """
    return load_json(raw) if raw else None


def write_data(data: Any) -> bytes:
    """Returns what somebody wants to be known, as sent; nothing for None.

    Raises:
        InvalidArgument: it is not a JSON value.
    """
    return b"" if data is None else dump_json(data, "data")


def to_lock(lock: pb.Lock) -> LockInfo:
    """Returns a lock."""
    return LockInfo(lock.name, lock.holder, lock.token, span_seconds(lock.lease), lock.data)


def to_member(member: pb.Member) -> Member:
    """Returns a member."""
    return Member(member.agent_id, member.number, span_seconds(member.lease), member.data)
