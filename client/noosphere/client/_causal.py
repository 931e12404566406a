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
    LostRange,
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


_ORDERED_FROM = 32
"""With fewer entries their order does not matter yet: none is about to be dropped."""


class Demand(NamedTuple):
    """What a read asks for.

    Attributes:
        level: the level on the wire.
        presented: what the answer must reflect, by one namespace's entries; None to present nothing.
    """

    level: pb.ReadConsistency.ValueType
    presented: CausalToken | None = None

    @property
    def token(self) -> bytes:
        """What to present, as sent."""
        return b"" if self.presented is None else encode_causal(self.presented)


class CausalState:
    """What one client has seen: at most 64 entries. Changed on the client's event loop only.

    Almost every answer moves one entry on within its epoch. That is done in place; whatever else happens is
    decided by the pure rules, on the token.
    """

    def __init__(self) -> None:
        self._newest: dict[str, int] = {}
        self._rest = NOTHING_SEEN

    @property
    def token(self) -> CausalToken:
        """What has been seen, to be told to others."""
        return self._rest._replace(revisions=dict(self._newest))

    def needed(self, namespace: str) -> int | None:
        """Returns the revision that a cache must have applied to answer a causal read; None: ask the server."""
        newest = self._newest.get(namespace)
        if newest is None or namespace in self._rest.earlier:
            return self.token.needed(namespace)
        return newest

    def saw(self, namespace: str, revision: int, *, linearizable: bool = False) -> None:
        """Takes note of a revision that a server or cache has shown.

        Args:
            namespace: the namespace.
            revision: the head of the answer.
            linearizable: whether the answer reflects all that was acknowledged before. Only then it stands for
                what was once seen of a namespace and dropped.
        """
        held = self._newest.get(namespace)
        if held is None:
            if linearizable or not self._rest.incomplete:
                self._become(self.token.seen(namespace, revision))
        elif revision > held:
            same_epoch = epoch_of(revision) == epoch_of(held)
            if same_epoch and len(self._newest) < _ORDERED_FROM:
                self._newest[namespace] = revision
            elif same_epoch and namespace not in self._rest.earlier:
                self._become(self.token.seen(namespace, revision))
            else:
                # Of what was seen in an earlier epoch nobody knows whether it survived: the merge keeps it.
                self._become(merge_tokens((self.token, CausalToken({namespace: revision}))))

    def take(self, token: CausalToken) -> None:
        """Takes note of what somebody else has seen, once a server has accepted every entry of it."""
        self._become(merge_tokens((self.token, token._replace(earlier={}))))

    def demand(self, consistency: Consistency, namespace: str) -> Demand:
        """Returns what a read of ``namespace`` asks for.

        Raises:
            InvalidArgument: there is no such level.
        """
        level = _LEVELS[checked_consistency(consistency)]
        if consistency != "causal":
            return Demand(level)
        needed = self.needed(namespace)
        if needed is None:
            level = pb.READ_CONSISTENCY_LINEARIZABLE
        return Demand(level, entries_of(self.token, namespace))

    def accepted(self, namespace: str, demand: Demand, head: int) -> None:
        """Takes note that a server has answered a demand, at ``head``: nothing that it presented was lost."""
        if demand.presented is None:
            return
        presented = frozenset(demand.presented.named(namespace))
        newest = self._newest.get(namespace, 0)
        # The answer's own head has been taken note of meanwhile, perhaps a later one of the same epoch: those were
        # not presented, and need not be. What was seen in another epoch and not presented is still open.
        unpresented = {*self._rest.earlier.get(namespace, ()), newest} - presented
        if all(epoch_of(revision) == epoch_of(head) for revision in unpresented):
            self._become(self.token.seen(namespace, head))

    def forget(self, namespace: str, lost: LostRange) -> None:
        """Drops what is known of a namespace as far as it lies in a lost range."""
        token = self.token
        named = tuple(token.named(namespace))
        survived = [revision for revision in named if not lost.after < revision <= lost.through]
        if len(survived) < len(named):
            left = [CausalToken({namespace: revision}) for revision in survived]
            self._become(merge_tokens((token.without(namespace), *left)))

    def doubt(self, namespace: str, lost: LostRange) -> None:
        """Takes note that something in a lost range was seen, so that presenting it is refused."""
        self._become(merge_tokens((self.token, CausalToken({namespace: lost.through}))))

    def drop(self, namespace: str) -> None:
        """Drops what is known of a namespace that is gone, so that nobody is told of it."""
        self._become(self.token.without(namespace))

    def _become(self, token: CausalToken) -> None:
        # In this order, and a new dictionary: a near cache is also read by other threads, which must not take
        # the first revision of a new epoch for one that stands for all before it.
        self._rest = token
        self._newest = dict(token.revisions)


def checked_consistency(consistency: Consistency) -> Consistency:
    """Returns ``consistency``.

    Raises:
        InvalidArgument: there is no such level.
    """
    if consistency not in _LEVELS:
        raise InvalidArgument(f"consistency: {consistency!r} is not one of {', '.join(_LEVELS)}")
    return consistency


def entries_of(token: CausalToken, namespace: str) -> CausalToken | None:
    """Returns the part of a token that is about one namespace, None if there is none."""
    newest = token.revisions.get(namespace)
    if newest is None:
        return None
    earlier = token.earlier.get(namespace)
    return CausalToken({namespace: newest}, earlier={namespace: earlier} if earlier else {})


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
