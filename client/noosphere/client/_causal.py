"""How far this client has seen each namespace: what its causal reads ask for, and what it tells other agents.

A causal token orders reads. What a writer has seen of a key is the business of that key's record alone, so
nothing here is ever sent with a write to justify it.
"""

from __future__ import annotations

import base64
import binascii
from typing import Literal, NamedTuple

from noosphere.consistency import (
    NOTHING_SEEN,
    CausalToken,
    Refusal,
    decode_causal,
    encode_causal,
    epoch_of,
    merge_tokens,
)
from noosphere.v1 import types_pb2 as pb

from ._errors import InvalidArgument
from ._wire import local_refusal

Consistency = Literal["linearizable", "causal", "stale"]
"""How fresh an answer must be.

``linearizable``: it reflects every write acknowledged before the call began. ``causal``: it reflects at
least what this client has seen or was told by :meth:`Client.observe`, so a cache or a replica may give it.
``stale``: any state; ``record.head`` says which.
"""

_LEVELS: dict[Consistency, pb.ReadConsistency.ValueType] = {
    "linearizable": pb.READ_CONSISTENCY_LINEARIZABLE,
    "causal": pb.READ_CONSISTENCY_CAUSAL,
    "stale": pb.READ_CONSISTENCY_STALE,
}


class Demand(NamedTuple):
    """What a read asks for.

    Attributes:
        level: the level on the wire.
        token: the causal token to present, empty for none.
        presented: the revision in it, 0 for none.
    """

    level: pb.ReadConsistency.ValueType
    token: bytes = b""
    presented: int = 0


class CausalState:
    """What one client has seen: at most 64 namespaces. Not thread-safe.

    A revision of a later epoch does not replace an earlier one: the earlier one may be among those that the
    change of epoch has lost, and a larger number in its place would hide that for ever. It stays until a
    server has accepted it (:meth:`confirm`) or said that it was lost (:meth:`forget`).
    """

    def __init__(self) -> None:
        self._token = NOTHING_SEEN
        # The newest revision of a later epoch, for the entries that wait to be accepted.
        self._later: dict[str, int] = {}

    @property
    def token(self) -> CausalToken:
        """What has been seen, to be told to others."""
        return self._token

    def needed(self, namespace: str) -> int | None:
        """Returns the revision that a cache must have applied to answer a causal read; None: ask the server."""
        return None if namespace in self._later else self._token.needed(namespace)

    def saw(self, namespace: str, revision: int) -> None:
        """Takes note of a revision that a server has shown."""
        held = self._token.revisions.get(namespace, 0)
        if revision <= held:
            return
        if held and epoch_of(revision) > epoch_of(held):
            self._later[namespace] = max(revision, self._later.get(namespace, 0))
            return
        self._token = self._token.seen(namespace, revision)
        for dropped in self._later.keys() - self._token.revisions.keys():
            del self._later[dropped]

    def take(self, token: CausalToken) -> None:
        """Takes note of what somebody else has seen, after a server has accepted every entry of it."""
        if token.incomplete:
            self._token = merge_tokens((self._token, CausalToken(incomplete=True)))
        for namespace, revision in token.revisions.items():
            self.saw(namespace, revision)

    def demand(self, consistency: Consistency, namespace: str) -> Demand:
        """Returns what a read of ``namespace`` asks for.

        Raises:
            InvalidArgument: there is no such level.
        """
        level = _LEVELS.get(consistency)
        if level is None:
            raise InvalidArgument(f"consistency: {consistency!r} is not one of {', '.join(_LEVELS)}")
        if consistency != "causal":
            return Demand(level)
        held = self._token.needed(namespace)
        if held is None:
            return Demand(pb.READ_CONSISTENCY_LINEARIZABLE)
        if not held:
            return Demand(level)
        if namespace in self._later:
            # Only the earlier revision is presented; what was seen later, a linearizable read reflects anyway.
            level = pb.READ_CONSISTENCY_LINEARIZABLE
        return Demand(level, encode_causal(CausalToken({namespace: held})), held)

    def confirm(self, namespace: str, revision: int) -> None:
        """Takes note that a server has accepted ``revision``: it was not lost."""
        later = self._later.get(namespace)
        if later is not None and self._token.revisions.get(namespace) == revision:
            del self._later[namespace]
            self._token = self._token.seen(namespace, later)

    def forget(self, namespace: str, lost_after: int, lost_through: int) -> None:
        """Drops an entry that names a revision in ``(lost_after, lost_through]``, which were lost."""
        if lost_after < self._token.revisions.get(namespace, 0) <= lost_through:
            self._token = self._token.without(namespace)
            if later := self._later.pop(namespace, 0):
                self.saw(namespace, later)


def to_text(token: CausalToken) -> str:
    """Returns a token as text that fits in a message or a URL."""
    return base64.urlsafe_b64encode(encode_causal(token)).decode().rstrip("=")


def from_text(text: str) -> CausalToken:
    """Returns the token in a text.

    Raises:
        InvalidArgument: it is damaged, no causal token, or of a newer format.
    """
    try:
        return decode_causal(unpack("token", text), "token")
    except Refusal as refusal:
        raise local_refusal(refusal) from None


def unpack(field: str, text: str) -> bytes:
    """Returns the bytes of a token that was handed around as text.

    Raises:
        InvalidArgument: it is not such a text.
    """
    try:
        data = text.strip().encode("ascii")
        return base64.b64decode(data + b"=" * (-len(data) % 4), altchars=b"-_", validate=True)
    except (AttributeError, UnicodeEncodeError, binascii.Error):
        raise InvalidArgument(f"{field}: is damaged or not a token") from None
