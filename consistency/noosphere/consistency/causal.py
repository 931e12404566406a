"""Causal tokens: how far somebody has seen each namespace, to be handed from agent to agent.

A token orders reads: "answer from at least here". It authorises nothing, above all no overwrite: what a
writer has seen of one key is the business of that record's own context.

A revision of a later epoch does not say that one of an earlier epoch survived, so a merge keeps the newest of
each epoch until a server has accepted them all; otherwise a larger number would hide a loss for ever.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from .errors import Refusal, invalid, too_large
from .limits import CAUSAL_ENTRIES_MAX
from .names import check_namespace
from .revision import REVISION_MAX, epoch_of
from .tokens import TokenKind, seal, unseal

_NOTHING: Mapping[str, int] = MappingProxyType({})
_NOTHING_EARLIER: Mapping[str, tuple[int, ...]] = MappingProxyType({})
_HEAD = struct.Struct(">HQ")


class CausalToken(NamedTuple):
    """What has been seen, by namespace; at most 64 entries, those of earlier epochs included.

    Attributes:
        revisions: the newest revision seen of each namespace, the most recently seen last.
        incomplete: older entries were dropped; a namespace that is missing must then be read
            linearizably.
        earlier: the newest revision of each earlier epoch, ascending, that no server has confirmed since.
    """

    revisions: Mapping[str, int] = _NOTHING
    incomplete: bool = False
    earlier: Mapping[str, tuple[int, ...]] = _NOTHING_EARLIER

    def seen(self, namespace: str, revision: int) -> CausalToken:
        """Returns the token after a call that presented it was answered at head ``revision`` of ``namespace``.

        The answer must reflect all that the token demands, as every linearizable one does: it confirms what
        the token names of earlier epochs, and stands for what an incomplete token has dropped.
        """
        revisions = dict(self.revisions)
        revisions[namespace] = max(revisions.pop(namespace, 0), revision)
        return _bounded(revisions, self.incomplete, {n: e for n, e in self.earlier.items() if n != namespace})

    def needed(self, namespace: str) -> int | None:
        """Returns the revision that a read must reflect, None if only a linearizable read will do."""
        if namespace in self.earlier:
            return None
        found = self.revisions.get(namespace)
        if found is None:
            return None if self.incomplete else 0
        return found

    def named(self, namespace: str) -> Iterator[int]:
        """Yields every revision of ``namespace`` that the token names; each may have been lost."""
        yield from self.earlier.get(namespace, ())
        newest = self.revisions.get(namespace)
        if newest is not None:
            yield newest

    def without(self, namespace: str) -> CausalToken:
        """Returns the token after an entry was found to name lost revisions."""
        return self._replace(
            revisions={n: r for n, r in self.revisions.items() if n != namespace},
            earlier={n: e for n, e in self.earlier.items() if n != namespace},
        )


NOTHING_SEEN = CausalToken()


def merge_tokens(tokens: Iterable[CausalToken]) -> CausalToken:
    """Returns one token that demands what all of ``tokens`` demand, in at most 64 entries.

    Up to that bound the order of the tokens is only that in which their entries are dropped later: merging
    is commutative, associative and idempotent in what it demands. A namespace that an incomplete token lacks
    is left out of the result, because whatever the others know of it may be less than what was dropped.
    """
    named: dict[str, dict[int, int]] = {}
    incomplete: list[CausalToken] = []
    for token in tokens:
        if token.incomplete:
            incomplete.append(token)
        for namespace in token.revisions:
            # Moves to the end: what was seen last is dropped last.
            by_epoch = named[namespace] = named.pop(namespace, {})
            for revision in token.named(namespace):
                epoch = epoch_of(revision)
                by_epoch[epoch] = max(by_epoch.get(epoch, 0), revision)
    revisions: dict[str, int] = {}
    earlier: dict[str, tuple[int, ...]] = {}
    for namespace, by_epoch in named.items():
        if all(namespace in token.revisions for token in incomplete):
            *older, revisions[namespace] = sorted(by_epoch.values())
            # Revision 0 names nothing that could be lost.
            if older := [revision for revision in older if revision]:
                earlier[namespace] = tuple(older)
    return _bounded(revisions, bool(incomplete), earlier)


def _bounded(revisions: dict[str, int], incomplete: bool, earlier: dict[str, tuple[int, ...]]) -> CausalToken:
    count = len(revisions) + sum(map(len, earlier.values()))
    while count > CAUSAL_ENTRIES_MAX:
        oldest = next(iter(revisions))
        del revisions[oldest]
        count -= 1 + len(earlier.pop(oldest, ()))
        incomplete = True
    return CausalToken(revisions, incomplete, earlier)


def encode_causal(token: CausalToken) -> bytes:
    """Returns the token's bytes."""
    parts = [bytes((token.incomplete,))]
    for namespace in token.revisions:
        name = namespace.encode()
        parts += [_HEAD.pack(len(name), revision) + name for revision in token.named(namespace)]
    return seal(TokenKind.CAUSAL, b"".join(parts))


def decode_causal(data: bytes, field: str = "causal_token") -> CausalToken:
    """Returns the token in ``data``.

    Raises:
        Refusal: INVALID_FIELD (damaged, not a causal token, of a newer format) or VALUE_TOO_LARGE.
    """
    payload = unseal(TokenKind.CAUSAL, data, field)
    revisions: dict[str, int] = {}
    earlier: dict[str, tuple[int, ...]] = {}
    last = ""
    try:
        if payload[0] > 1:
            raise ValueError
        at = count = 1
        while at < len(payload):
            size, revision = _HEAD.unpack_from(payload, at)
            at += _HEAD.size + size
            namespace = payload[at - size : at].decode()
            check_namespace(namespace)
            if at > len(payload) or revision > REVISION_MAX:
                raise ValueError
            if namespace in revisions:
                # Of one namespace the epochs follow each other, ascending.
                if namespace != last or epoch_of(revision) <= epoch_of(revisions[namespace]):
                    raise ValueError
                earlier[namespace] = (*earlier.get(namespace, ()), revisions[namespace])
                if not revisions[namespace]:
                    raise ValueError
            revisions[namespace] = revision
            last = namespace
            count += 1
    except (ValueError, IndexError, struct.error, Refusal):
        raise invalid(field, "is damaged or not a token") from None
    if count - 1 > CAUSAL_ENTRIES_MAX:
        raise too_large(field, count - 1, CAUSAL_ENTRIES_MAX, "entries")
    return CausalToken(revisions, bool(payload[0]), earlier)
