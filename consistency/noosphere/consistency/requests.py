"""Request memory: a retry of an applied call is answered, not executed again.

Two kinds of id. Our client numbers its calls and says up to which one it has the answers, so the
memory holds only what is under way. Any other client may send a UUID, remembered for two minutes.
What is remembered is small (at most 256 bytes) and written in the same atomic step as the commit.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Container
from typing import NamedTuple

from .errors import Reason, Refusal, exhausted
from .limits import CLIENT_REQUEST_AGE_MS, REQUESTS_PER_CLIENT_MAX, UUID_REQUEST_AGE_MS, UUID_REQUESTS_MAX


class RequestRef(NamedTuple):
    """Identifies a mutating call.

    Attributes:
        client: the caller's ``agent#incarnation``, or empty for a UUID.
        sequence: position in the client's sequence, from 1; 0 for a UUID.
        answered_through: every call up to this one has been answered.
        uuid: the UUID, empty for a sequence.
    """

    client: str = ""
    sequence: int = 0
    answered_through: int = 0
    uuid: str = ""


class Remembered(NamedTuple):
    """An applied call. After an erasure, that there was one is all that is left: both texts are empty."""

    revision: int
    fingerprint: bytes
    reply: bytes
    time_ms: int

    @property
    def erased(self) -> bool:
        """Whether what the call meant and what it was answered was erased. Every request means something."""
        return not self.fingerprint and not self.reply


def fingerprint(*parts: object) -> bytes:
    """Returns 16 bytes that stand for a request's meaning: no tokens, no deadlines.

    Parts are length-prefixed by their ``repr``, so no two different requests share one.
    """
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        text = repr(part).encode()  # In a repr lone surrogates are escaped.
        digest.update(len(text).to_bytes(4, "big"))
        digest.update(text)
    return digest.digest()


class _Client:
    """One incarnation's unanswered calls. Every sequence up to ``answered_through`` was answered."""

    __slots__ = ("answered_through", "calls")

    def __init__(self) -> None:
        self.answered_through = 0
        self.calls: dict[int, Remembered] = {}


class RequestMemory:
    """The remembered requests of one namespace. Not thread-safe."""

    def __init__(self) -> None:
        self._clients: OrderedDict[str, _Client] = OrderedDict()
        self._uuids: OrderedDict[str, Remembered] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def find(self, ref: RequestRef, now_ms: int) -> Remembered | None:
        """Returns the remembered call, None if it is unknown or too old."""
        if ref.uuid:
            found = self._uuids.get(ref.uuid)
            age_max = UUID_REQUEST_AGE_MS
        else:
            client = self._clients.get(ref.client)
            found = client.calls.get(ref.sequence) if client is not None else None
            age_max = CLIENT_REQUEST_AGE_MS
        return found if found is not None and found.time_ms + age_max > now_ms else None

    def check_room(self, ref: RequestRef, now_ms: int) -> None:
        """Checks that an unknown call may be executed and can be remembered.

        Raises:
            Refusal: LIMIT_EXCEEDED, or REQUEST_ID_REUSED for a call that was answered before. The caller has
                its answer, so this is a late copy (a lost attempt of a retried call): it must not execute.
        """
        if ref.uuid:
            self._expire(now_ms)
            if len(self._uuids) >= UUID_REQUESTS_MAX:
                raise exhausted(
                    "request_id.uuid", len(self._uuids), UUID_REQUESTS_MAX, "too many requests in 2 minutes"
                )
            return
        client = self._clients.get(ref.client)
        answered_through = max(ref.answered_through, client.answered_through if client is not None else 0)
        if ref.sequence <= answered_through:
            raise Refusal(
                Reason.REQUEST_ID_REUSED,
                f"request_id.sequence: {ref.sequence} was answered, as was every call up to {answered_through}",
            )
        if client is not None and len(client.calls) >= REQUESTS_PER_CLIENT_MAX:
            waiting = sum(1 for sequence in client.calls if sequence > answered_through)
            if waiting >= REQUESTS_PER_CLIENT_MAX:
                raise exhausted("request_id.sequence", waiting, REQUESTS_PER_CLIENT_MAX, "too many unanswered requests")

    def remember(self, ref: RequestRef, call: Remembered) -> None:
        """Remembers an applied call and forgets what its client has answers to."""
        if ref.uuid:
            # Anew at the end: the order is that of the times.
            self._count += self._uuids.pop(ref.uuid, None) is None
            self._uuids[ref.uuid] = call
        else:
            client = self._clients.setdefault(ref.client, _Client())
            self._clients.move_to_end(ref.client)
            if ref.answered_through > client.answered_through:
                client.answered_through = ref.answered_through
                answered = [sequence for sequence in client.calls if sequence <= ref.answered_through]
                for sequence in answered:
                    del client.calls[sequence]
                self._count -= len(answered)
            if ref.sequence > client.answered_through:
                self._count += client.calls.pop(ref.sequence, None) is None
                client.calls[ref.sequence] = call
        self._expire(call.time_ms)

    def forget_client(self, client: str) -> None:
        """Drops everything of an incarnation that has ended."""
        if (found := self._clients.pop(client, None)) is not None:
            self._count -= len(found.calls)

    def erase(self, revision: int, time_ms: int, spared: Container[str | tuple[str, int]] = ()) -> int:
        """Empties what is remembered of calls up to a revision and a time; their ids stay, so none executes again.

        Not even the fingerprint is left: whoever guesses what a short text was could prove it by that.

        Args:
            revision: the head at the erasure.
            time_ms: its time.
            spared: UUIDs and (client, sequence) of calls that came later all the same.

        Returns:
            How many calls were emptied.
        """
        count = 0
        for uuid, call in self._uuids.items():
            if call.revision <= revision and call.time_ms <= time_ms and uuid not in spared and not call.erased:
                self._uuids[uuid] = Remembered(call.revision, b"", b"", call.time_ms)
                count += 1
        for name, client in self._clients.items():
            for sequence, call in client.calls.items():
                if call.revision > revision or call.time_ms > time_ms or (name, sequence) in spared or call.erased:
                    continue
                client.calls[sequence] = Remembered(call.revision, b"", b"", call.time_ms)
                count += 1
        return count

    def items(self) -> list[tuple[RequestRef, Remembered]]:
        """Returns everything, for persisting; :meth:`remember` in this order restores it."""
        found = [
            (RequestRef(name, sequence, client.answered_through), call)
            for name, client in self._clients.items()
            for sequence, call in client.calls.items()
        ]
        return found + [(RequestRef(uuid=uuid), call) for uuid, call in self._uuids.items()]

    def _expire(self, now_ms: int) -> None:
        while self._uuids:
            uuid, call = next(iter(self._uuids.items()))
            if call.time_ms + UUID_REQUEST_AGE_MS > now_ms:
                break
            del self._uuids[uuid]
            self._count -= 1
        # Clients are ordered by their newest call: the first one is the one idle longest.
        while self._clients:
            name, client = next(iter(self._clients.items()))
            newest_ms = next(reversed(client.calls.values())).time_ms if client.calls else 0
            if newest_ms + CLIENT_REQUEST_AGE_MS > now_ms:
                break
            self.forget_client(name)


def check_replay(found: Remembered, wanted: bytes) -> None:
    """Checks that a remembered call is the one that is being retried.

    Raises:
        Refusal: REQUEST_ID_REUSED.
    """
    if found.erased:
        raise Refusal(
            Reason.REQUEST_ID_REUSED,
            f"request_id: was applied at revision {found.revision}; what it was and what it answered has been erased",
        )
    if found.fingerprint != wanted:
        raise Refusal(Reason.REQUEST_ID_REUSED, "request_id: already used by a different request")
