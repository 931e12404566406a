r"""Names of keys in etcd, and the parts of transactions.

format                what the layout is
base                  what is added to revisions to make numbers of them; another coordinator's were as high
last/<agent>          written with every incarnation, for ever: its revision is the agent's newest number
epoch/<16 hex digits> a record of each epoch
here/<group>\0<name>  a member of a group
mine/<agent>#<number> what an incarnation holds: under the same leases
live/                 what every replica watches
    config            the version of all rules and grants
    grant/<=|^><principal>\0<=|^><namespace>  what is granted to whom there
    lease/<agent>     gone when the agent's lease has lapsed
    open/<agent>      not closed; its revision is the present incarnation's number, its value the request's id
    rule/<=|^><text>  the rules of one exact name, or of a prefix
    seat/<lock>\0…    everybody who wants a lock; the oldest has it
    table/<name>/<key> an entry of a table
"""

from __future__ import annotations

from hashlib import blake2b

from noosphere.consistency import NamePattern, actor_name

from ...ports.coordinator import Incarnation
from ...ports.grants import GrantKey
from . import wire_pb2 as wire

FORMAT = b"1"
"""Another one is another layout, written by another version of the program."""


class Layout:
    """The keys below one root.

    Args:
        root: ends in a slash; two fleets on one etcd have two roots.
    """

    def __init__(self, root: str) -> None:
        base = root.encode()
        self.format = base + b"format"
        self.base = base + b"base"
        self.epochs = base + b"epoch/"
        self.live = base + b"live/"
        self.config = self.live + b"config"
        self.leases = self.live + b"lease/"
        self.opens = self.live + b"open/"
        self.rules = self.live + b"rule/"
        self.grants = self.live + b"grant/"
        self.seats = self.live + b"seat/"
        self.tables = self.live + b"table/"
        self._here = base + b"here/"
        self._mine = base + b"mine/"
        self._last = base + b"last/"

    def last(self, agent_id: str) -> bytes:
        """Returns the key of an agent's newest number."""
        return self._last + agent_id.encode()

    def lease(self, agent_id: str) -> bytes:
        """Returns the key that lives as long as an agent's lease."""
        return self.leases + agent_id.encode()

    def open(self, agent_id: str) -> bytes:
        """Returns the key of an agent's present incarnation."""
        return self.opens + agent_id.encode()

    def epoch(self, epoch: int) -> bytes:
        """Returns the key of an epoch; keys sort as the epochs do."""
        return self.epochs + f"{epoch:016x}".encode()

    def epoch_of(self, key: bytes) -> int:
        """Returns the epoch of a key."""
        return int(key.removeprefix(self.epochs), 16)

    def rule(self, pattern: NamePattern) -> bytes:
        """Returns the key of a pattern's rules."""
        return self.rules + _told(pattern)

    def pattern_of(self, key: bytes) -> NamePattern:
        """Returns the pattern of a key."""
        return _pattern_in(key.removeprefix(self.rules))

    def grant(self, key: GrantKey) -> bytes:
        """Returns the key of a grant. Names have no NUL, so no two have the same."""
        return self.grants + _told(key.principal) + b"\0" + _told(key.namespace)

    def grant_of(self, key: bytes) -> GrantKey:
        """Returns the grant of a key."""
        principal, _, namespace = key.removeprefix(self.grants).partition(b"\0")
        return GrantKey(_pattern_in(principal), _pattern_in(namespace))

    def entry(self, table: str, key: str) -> bytes:
        """Returns the key of a table's entry. Names of tables have no slash."""
        return self.tables + table.encode() + b"/" + key.encode()

    def entry_of(self, key: bytes) -> tuple[str, str]:
        """Returns the table and the entry of a key."""
        table, _, entry = key.removeprefix(self.tables).decode().partition("/")
        return table, entry

    def lock(self, name: str) -> bytes:
        """Returns what the keys of all begin with who want a lock. Names have no NUL, so nobody else's do."""
        return self.seats + name.encode() + b"\0"

    def seat(self, name: str, who: bytes) -> bytes:
        """Returns the key of one who wants a lock."""
        return self.lock(name) + who

    def lock_of(self, key: bytes) -> str:
        """Returns which lock's a seat is."""
        return key.removeprefix(self.seats).partition(b"\0")[0].decode()

    def mine(self, life: Incarnation, kind: str = "") -> bytes:
        """Returns what the keys begin with of what an incarnation holds: all of it, or of one kind."""
        return self._mine + f"{actor_name(*life)}\0{kind and kind + '/'}".encode()

    def holding(self, life: Incarnation, kind: str, lease: int) -> bytes:
        """Returns the key of one thing that an incarnation holds."""
        return self.mine(life, kind) + f"{lease:016x}".encode()

    def group(self, group: str) -> bytes:
        """Returns what the keys of a group's members begin with."""
        return self._here + group.encode() + b"\0"

    def member(self, group: str, name: str) -> bytes:
        """Returns the key of a member."""
        return self.group(group) + name.encode()


def _told(pattern: NamePattern) -> bytes:
    return (b"=" if pattern.exact else b"^") + pattern.text.encode()


def _pattern_in(told: bytes) -> NamePattern:
    text = told.decode()
    return NamePattern(text[1:], text[0] == "=")


def asker(owner: str, request: str, lease: int) -> bytes:
    """Returns who sits on a seat: whoever asks again under the same id finds it, wherever that is."""
    if not request:
        return f"{lease:016x}".encode()
    return b"r" + blake2b(f"{owner}\0{request}".encode(), digest_size=16).hexdigest().encode()


def put(key: bytes, value: bytes = b"", lease: int = 0) -> wire.RequestOp:
    """Returns the operation that writes a key."""
    return wire.RequestOp(request_put=wire.PutRequest(key=key, value=value, lease=lease))


def delete(key: bytes) -> wire.RequestOp:
    """Returns the operation that removes a key."""
    return wire.RequestOp(request_delete_range=wire.DeleteRangeRequest(key=key))


def oldest(prefix: bytes) -> wire.RangeRequest:
    """Returns the reading of the key that has been there for longest."""
    return wire.RangeRequest(
        key=prefix,
        range_end=end_of(prefix),
        limit=1,
        sort_target=wire.RangeRequest.CREATE,
        sort_order=wire.RangeRequest.ASCEND,
    )


def before(prefix: bytes, create_revision: int) -> wire.RangeRequest:
    """Returns the reading of the youngest key that is older than one."""
    return wire.RangeRequest(
        key=prefix,
        range_end=end_of(prefix),
        limit=1,
        sort_target=wire.RangeRequest.CREATE,
        sort_order=wire.RangeRequest.DESCEND,
        max_create_revision=create_revision - 1,
    )


def get(key: bytes) -> wire.RequestOp:
    """Returns the operation that reads a key."""
    return wire.RequestOp(request_range=wire.RangeRequest(key=key))


def end_of(prefix: bytes) -> bytes:
    """Returns the first key after all that begin with a prefix, whose last byte is not 255."""
    return prefix[:-1] + bytes((prefix[-1] + 1,))


def created(key: bytes, create_revision: int) -> wire.Compare:
    """Returns the condition that a key has been there since a revision; 0: that it is not there."""
    return wire.Compare(key=key, target=wire.Compare.CREATE, result=wire.Compare.EQUAL, create_revision=create_revision)


def none_at(prefix: bytes) -> wire.Compare:
    """Returns the condition that there is no key with a prefix."""
    return wire.Compare(
        key=prefix,
        range_end=end_of(prefix),
        target=wire.Compare.CREATE,
        result=wire.Compare.EQUAL,
        create_revision=0,
    )


def unchanged(key: bytes, mod_revision: int) -> wire.Compare:
    """Returns the condition that a key was last written at a revision; 0: that it is not there."""
    return wire.Compare(key=key, target=wire.Compare.MOD, result=wire.Compare.EQUAL, mod_revision=mod_revision)


def none_after(prefix: bytes, end: bytes, revision: int) -> wire.Compare:
    """Returns the condition that no key of a range was written after a revision."""
    return wire.Compare(
        key=prefix, range_end=end, target=wire.Compare.MOD, result=wire.Compare.LESS, mod_revision=revision + 1
    )
