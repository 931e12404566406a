"""What is asked of one namespace and answered: the words that the model, the real rules and histories share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, NoReturn

from tests.simulation.model_readsets import Grounds, ReadSet, Stale

# -- what is asked ---------------------------------------------------------------------------------


class Seen(NamedTuple):
    """A causal context."""

    prefix: int = 0
    extras: tuple[int, ...] = ()

    def covers(self, dot: int) -> bool:
        return dot <= self.prefix or dot in self.extras


class Condition(NamedTuple):
    """What must hold for a put or delete."""

    version: int | None = None
    seen: Seen | None = None
    blind: bool = False


ANY = Condition()
Attributes = tuple[tuple[str, str | int | float | bool], ...]


class Put(NamedTuple):
    key: str
    data: bytes
    when: Condition = ANY
    attributes: Attributes = ()
    ttl_ms: int | None = None
    until_ms: int | None = None


class Delete(NamedTuple):
    key: str
    when: Condition = ANY


class Add(NamedTuple):
    """Adds to a counter."""

    key: str
    delta: int


class Update(NamedTuple):
    """Removes from and adds to a set, elements as JSON texts."""

    key: str
    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    seen: Seen | None = None


class Extreme(NamedTuple):
    """Raises a maximum or lowers a minimum to a JSON number or text."""

    key: str
    value: str
    largest: bool


class Fields(NamedTuple):
    """Removes from and sets fields of a map."""

    key: str
    fields: tuple[tuple[str, str], ...] = ()
    remove: tuple[str, ...] = ()


class Append(NamedTuple):
    """Appends to a log; ``keep`` of the newest, 0 for as many as fit."""

    key: str
    entries: tuple[str, ...]
    keep: int = 0


Merge = Add | Update | Extreme | Fields | Append


class Resolve(NamedTuple):
    """Puts a value, the sibling with a dot, or (neither) nothing in the place of the siblings that were seen."""

    key: str
    seen: Seen
    data: bytes | None = None
    keep: int = 0


class Claim(NamedTuple):
    prefix: str
    lease_ms: int
    where: Attributes = ()


class Renew(NamedTuple):
    key: str
    fence: int
    lease_ms: int


class Release(NamedTuple):
    key: str
    fence: int


class Complete(NamedTuple):
    key: str
    fence: int
    result: bytes | None


Call = Put | Delete | Resolve | Merge | Claim | Renew | Release | Complete


class Request(NamedTuple):
    """Identifies a call: a position in the caller's sequence, or a UUID."""

    sequence: int = 0
    answered_through: int = 0
    uuid: str = ""


class Caller(NamedTuple):
    """Who calls.

    Attributes:
        actor: as ``agent#incarnation``.
        request: the call's id.
        fences: locks with their tokens.
        current: whether the incarnation is the agent's living one.
        permitted: whether the agent may use the namespace.
        grounds: what the caller has seen and what of it must hold.
        presents: revisions of the called namespace that the grounds name.
    """

    actor: str
    request: Request | None = None
    fences: tuple[tuple[str, int], ...] = ()
    current: bool = True
    permitted: bool = True
    grounds: Grounds | None = None
    presents: tuple[int, ...] = ()


# -- what is answered ------------------------------------------------------------------------------


class Task(NamedTuple):
    """The claim on a record."""

    holder: str
    until_ms: int
    fence: int
    attempts: int
    done_by: str = ""
    result: bytes | None = None

    def held(self, now_ms: int) -> bool:
        return not self.done_by and self.holder != "" and now_ms < self.until_ms


class Shown(NamedTuple):
    """A live value as its readers see it."""

    dot: int
    writer: str
    written_ms: int
    data: bytes
    ends_ms: int | None


class View(NamedTuple):
    """A key as its readers see it."""

    version: int
    seen: Seen
    values: tuple[Shown, ...] = ()
    kind: str = ""
    attributes: Attributes = ()
    claim: Task | None = None
    born_ms: int = 0
    changes: int = 0


class Reply(NamedTuple):
    """The answer to a write.

    ``outcome`` is applied, replayed, unchanged (nothing to delete), none (nothing to claim) or refused. In a
    refusal ``unseen`` lists dots, ``lost`` the bounds of what did not survive, and ``space`` is the namespace
    that it is about, empty for the one that was called. ``stale`` is what was overruled or is the reason of the
    refusal; ``seen_now`` what the caller has seen by now, None without a read set.
    """

    outcome: str
    reason: str = ""
    revision: int = 0
    version: int | None = None
    seen: Seen = Seen()
    overwritten: tuple[int, ...] = ()
    concurrent_delete: bool = False
    merged: bytes | None = None
    trimmed: int = 0
    events: tuple[tuple[str, str], ...] = ()
    members: bool = False
    key: str = ""
    unseen: tuple[int, ...] = ()
    lost: tuple[int, int] | None = None
    space: str = ""
    stale: tuple[Stale, ...] = ()
    seen_now: ReadSet | None = None


class Refused(Exception):
    """Carries a refusal to where the model answers."""

    def __init__(
        self,
        reason: str,
        unseen: Iterable[int] = (),
        lost: tuple[int, int] | None = None,
        space: str = "",
        stale: tuple[Stale, ...] = (),
    ) -> None:
        super().__init__(reason)
        dots = tuple(sorted(unseen, reverse=True))
        self.reply = Reply("refused", reason, unseen=dots, lost=lost, space=space, stale=stale)


def refuse(reason: str, unseen: Iterable[int] = ()) -> NoReturn:
    raise Refused(reason, unseen)


def presented(call: Call) -> Iterator[int]:
    """Yields every revision that a call presents."""
    match call:
        case Put(when=when) | Delete(when=when):
            yield when.version or 0
            if when.seen is not None:
                yield from (when.seen.prefix, *when.seen.extras)
        case Update(seen=Seen() as seen) | Resolve(seen=seen):
            yield from (seen.prefix, *seen.extras)
        case Renew() | Release() | Complete():
            yield call.fence
        case _:
            pass


def sizes(call: Call) -> Iterator[int]:
    """Yields the size of every plain value that a call writes."""
    match call:
        case Put(data=bytes(data)) | Resolve(data=bytes(data)) | Complete(result=bytes(data)):
            yield len(data)
        case _:
            pass


def kind_of(call: Merge) -> str:
    match call:
        case Add():
            return "COUNTER"
        case Update():
            return "SET"
        case Extreme():
            return "MAX" if call.largest else "MIN"
        case Fields():
            return "MAP"
        case Append():
            return "LOG"
