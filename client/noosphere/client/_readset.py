"""What a view has read, collected from the tokens that come with its reads."""

from __future__ import annotations

from collections.abc import Iterable

from noosphere.consistency import (
    NOTHING_READ,
    Guard,
    NamespaceSeen,
    ReadSet,
    Refusal,
    check_guards,
    decode_read_set,
    encode_read_set,
)
from noosphere.v1 import types_pb2 as pb

from ._errors import InvalidArgument, ServerError
from ._wire import local_refusal

KNOWN_MAX = 4096


class Readings:
    """What was read so far; it records each read that carries it. Not thread-safe, but open to concurrent reads.

    Of a key that was read twice, the older state counts: whatever else of it was read, that state is not what
    the commit will find.
    """

    def __init__(self, read_set: ReadSet = NOTHING_READ) -> None:
        self.read_set = read_set
        # The head at which each key was read; unknown for those of a resumed token.
        self._heads: dict[tuple[str, str], int] = {}
        self._known: dict[tuple[str, str], int] = {}

    def attach(self, call: pb.CallContext) -> None:
        """Asks a read for a token of what it reads, and of nothing else."""
        call.record_read_set = True

    def accept(self, reply: pb.CallReply) -> None:
        """Adds what a read has read.

        Raises:
            InvalidArgument: more was read than a read set holds.
            ServerError: the server has not recorded it.
        """
        if not reply.read_set_token:
            raise ServerError("the server's answer does not say what was read")
        for namespace, part in decode(reply.read_set_token).namespaces.items():
            self._add(namespace, part)

    def knows(self, namespace: str, key: str, version: int | None) -> None:
        """Takes note of a version that is no part of the read set: of a listed record, or of an own write.

        Args:
            namespace: the namespace.
            key: the key.
            version: the version; None if there are values that nobody has read.
        """
        self._known.pop((namespace, key), None)
        if version is not None:
            self._known[namespace, key] = version
        if len(self._known) > KNOWN_MAX:
            del self._known[next(iter(self._known))]

    def version(self, namespace: str, key: str) -> int | None:
        """Returns the version of a key that was read, listed or written, None if it was neither."""
        part = self.read_set.namespaces.get(namespace)
        seen = part.keys.get(key) if part is not None else None
        return seen.version if seen is not None else self._known.get((namespace, key))

    def advance(self, sent: ReadSet, token: bytes) -> None:
        """Takes the token that came back for ``sent``: advanced over a write, or refreshed.

        Raises:
            InvalidArgument: more was read meanwhile than a read set holds.
        """
        meanwhile, self.read_set = self.read_set, decode(token)
        if meanwhile is sent:
            return
        with_reads = self.read_set
        try:
            for namespace, part in meanwhile.namespaces.items():
                with_reads = with_reads.with_keys(namespace, part.revision, part.keys)
                for (collection, mode), seen in part.collections.items():
                    with_reads = with_reads.with_collection(namespace, part.revision, collection, mode, seen)
        except Refusal as refusal:
            raise local_refusal(refusal) from None
        self.read_set = with_reads

    def token(self) -> bytes:
        """Returns the token of all that was read.

        Raises:
            InvalidArgument: it is larger than a token may be.
        """
        try:
            return encode_read_set(self.read_set)
        except Refusal as refusal:
            raise local_refusal(refusal) from None

    def _add(self, namespace: str, part: NamespaceSeen) -> None:
        held = self.read_set.namespaces.get(namespace, part)
        older = {key: seen for key, seen in part.keys.items() if self._is_older(namespace, key, part, held)}
        stamps = {
            name: seen.stamp
            for name, seen in part.collections.items()
            if name in held.collections and seen.stamp < held.collections[name].stamp
        }
        try:
            found = self.read_set.with_keys(namespace, part.revision, part.keys)
            for (collection, mode), listed in part.collections.items():
                found = found.with_collection(namespace, part.revision, collection, mode, listed)
        except Refusal as refusal:
            raise local_refusal(refusal) from None
        self.read_set = found.advanced(namespace, older, stamps) if older or stamps else found
        for key in part.keys:
            name = (namespace, key)
            self._heads[name] = min(self._heads.get(name, part.revision), part.revision)

    def _is_older(self, namespace: str, key: str, part: NamespaceSeen, held: NamespaceSeen) -> bool:
        # Without a value the version is 0, so versions alone do not tell which of two reads was first.
        return key in held.keys and part.revision < self._heads.get((namespace, key), 0)


def decode(token: bytes) -> ReadSet:
    """Returns the read set in a token.

    Raises:
        InvalidArgument: it is damaged, no read-set token, or of a newer format.
    """
    try:
        return decode_read_set(token)
    except Refusal as refusal:
        raise local_refusal(refusal) from None


def checked_guards(guard: str | Guard | Iterable[str | Guard]) -> tuple[Guard, ...]:
    """Returns guards as they may be used again and again; a text is a name in any namespace.

    Raises:
        InvalidArgument: one is malformed.
    """
    if isinstance(guard, (str, Guard)):
        guard = (guard,)
    elif not isinstance(guard, Iterable):
        raise InvalidArgument(f"guard: expected a key, a collection, a Guard or several, got {type(guard).__name__}")
    guards = tuple(Guard(one) if isinstance(one, str) else one for one in guard)
    for one in guards:
        if not isinstance(one, Guard):
            raise InvalidArgument(f"guard: expected keys, collections or Guards, got {type(one).__name__}")
    try:
        check_guards(guards)
    except Refusal as refusal:
        raise local_refusal(refusal) from None
    return guards


def to_guards(guard: str | Guard | Iterable[str | Guard], read_set: ReadSet) -> list[pb.Guard]:
    """Returns guards as sent; a text guards what was read under that name in any namespace.

    Raises:
        InvalidArgument: one is malformed, or covers nothing that was read: it would guard nothing.
    """
    guards = checked_guards(guard)
    for one in guards:
        if not read_set.guarded((one,)).namespaces:
            where = f" in {one.namespace}" if one.namespace else ""
            raise InvalidArgument(f"guard: {one.prefix!r}{where} covers nothing that was read")
    return [pb.Guard(prefix=one.prefix, namespace=one.namespace) for one in guards]
