"""What the demo and its agent processes say to each other: JSON lines over the agent's stdin and stdout."""

from __future__ import annotations

import msgspec

GO = b"go\n"
"""Begin to work; all agents get it at once."""
PAUSE = b"pause\n"
"""Stop in the middle of the next section and say so."""


class Orders(msgspec.Struct, frozen=True):
    """The first line to an agent.

    Attributes:
        agent: its name.
        server: where the server is.
        namespace: where the job is.
        journal: the file in which the agent records its calls.
        seed: decides how long it thinks.
        think_ms: the median of that, in milliseconds.
        lease_ms: for how long it claims a section.
        limit_s: after so many seconds it gives up.
        chaos: whether a failover will lose writes: the agent makes its own good, and ends only after that.
    """

    agent: str
    server: str
    namespace: str
    journal: str
    seed: int
    think_ms: float
    lease_ms: int
    limit_s: float
    chaos: bool = False


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The agent is connected."""


class Claimed(msgspec.Struct, frozen=True, tag="claimed"):
    """The agent has a section; ``attempt`` counts how often it was handed out."""

    section: str
    attempt: int


class Conflicted(msgspec.Struct, frozen=True, tag="conflicted"):
    """A write was refused because somebody else had written; ``text`` explains it, if it is the first."""

    record: str
    text: str = ""


class Updated(msgspec.Struct, frozen=True, tag="updated"):
    """A read-modify-write succeeded at the given attempt."""

    record: str
    attempts: int


class Counted(msgspec.Struct, frozen=True, tag="counted"):
    """The section is in the tally; ``again`` if a predecessor had put it there."""

    section: str
    again: bool


class Overwrote(msgspec.Struct, frozen=True, tag="overwrote"):
    """The control: one blind read-modify-write was acknowledged."""


class Holding(msgspec.Struct, frozen=True, tag="holding"):
    """The agent paused in the middle of a section."""

    section: str


class Completed(msgspec.Struct, frozen=True, tag="completed"):
    """The section was marked as done."""

    section: str


class Lost(msgspec.Struct, frozen=True, tag="lost"):
    """The claim went to somebody else."""

    section: str


class Dropped(msgspec.Struct, frozen=True, tag="dropped"):
    """The agent left a section because something that it had seen of it is gone; empty without one."""

    section: str


class Told(msgspec.Struct, frozen=True, tag="told"):
    """The agent was told that revisions above ``after`` up to ``through`` are gone.

    Attributes:
        after: the newest revision that survived.
        through: the last one that is gone.
        by: ``epoch`` if a watch said so, ``error`` if a call was refused.
        writes: which of its own writes its client named: key, operation and revision.
    """

    after: int
    through: int
    by: str
    writes: tuple[tuple[str, str, int], ...] = ()


class Recovered(msgspec.Struct, frozen=True, tag="recovered"):
    """What became of the agent's own lost writes: calls that were written again, done again, or left to others."""

    resubmitted: int
    redone: int
    left: int


class Settled(msgspec.Struct, frozen=True, tag="settled"):
    """The agent knows of the failover, and has made good what it had lost."""


class Finished(msgspec.Struct, frozen=True, tag="finished"):
    """Every section is done; the agent ends."""


Event = (
    Ready
    | Claimed
    | Conflicted
    | Updated
    | Counted
    | Overwrote
    | Holding
    | Completed
    | Lost
    | Dropped
    | Told
    | Recovered
    | Settled
    | Finished
)

EVENTS = msgspec.json.Decoder(Event)
ORDERS = msgspec.json.Decoder(Orders)


def to_line(message: Event | Orders) -> bytes:
    """Returns a message as one line."""
    return msgspec.json.encode(message) + b"\n"
