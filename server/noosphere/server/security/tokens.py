"""API tokens: what they look like, what is kept of them, and whom one stands for.

A token is ``noo_<id>_<secret>``. The id is public: logs and lists show it. The secret has 256 random bits, of which the
table keeps the SHA-256 alone. A hash that is slow on purpose, as for passwords, would make nothing safer: nobody tries
2^256 secrets, however fast the hash.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from hashlib import sha256
from hmac import compare_digest
from typing import Annotated, NamedTuple

import msgspec

from noosphere.consistency import NamePattern

from ..ports.grants import Verb
from .principal import Principal

TOKENS = "tokens"
"""The coordinator's table of them, by id."""

PREFIX = "noo_"
ID_BYTES = 8
SECRET_BYTES = 32
DEPTH_MAX = 4
"""How often a token may be narrowed from one that was narrowed itself."""

_ID = re.compile(rf"[0-9a-f]{{{2 * ID_BYTES}}}", re.ASCII)
_FORM = re.compile(rf"{PREFIX}([0-9a-f]{{{2 * ID_BYTES}}})_([0-9a-f]{{{2 * SECRET_BYTES}}})", re.ASCII)


class StoredToken(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the table keeps of a token.

    Attributes:
        digest: SHA-256 of the secret, in hexadecimal digits.
        principal: whom it stands for.
        created_ms: when it was made, in milliseconds since 1970.
        admin: whether it may do everything.
        agents: see :class:`~.principal.Principal`; as pairs of text and whether it is all of the name.
        owners: see there.
        session: see there.
        verbs: see there.
        expires_ms: see there.
        only_agents: see there.
        only_owners: see there.
        granted_owner: see there.
        parent: the id of the token that it was narrowed from, with which it ends; "" for none.
        by_grant: the agent that its principal may act as by a grant alone, with which it ends, too; "" for none.
        creator: the name of the principal that made it.
        note: what it is for, in words.
        format: of this entry; a newer one is not valid here.
    """

    digest: str
    principal: str
    created_ms: Annotated[int, msgspec.Meta(ge=0)]
    admin: bool = False
    agents: tuple[tuple[str, bool], ...] = ()
    owners: tuple[str, ...] = ()
    session: str = ""
    verbs: tuple[Verb, ...] | None = None
    expires_ms: Annotated[int, msgspec.Meta(ge=0)] = 0
    only_agents: bool = False
    only_owners: bool = False
    granted_owner: str = ""
    parent: str = ""
    by_grant: str = ""
    creator: str = ""
    note: str = ""
    format: int = 1

    def identity(self, token_id: str) -> Principal:
        """Returns whom a token of this entry stands for."""
        return Principal(
            self.principal,
            self.admin,
            tuple(NamePattern(text, exact) for text, exact in self.agents),
            self.owners,
            self.session,
            None if self.verbs is None else frozenset(self.verbs),
            self.expires_ms,
            f"{PREFIX}{token_id}",
            only_agents=self.only_agents,
            only_owners=self.only_owners,
            granted_owner=self.granted_owner,
        )


class Minted(NamedTuple):
    """A new token.

    Attributes:
        token_id: its public part.
        text: all of it: shown once, and kept nowhere.
        digest: what is kept of its secret.
    """

    token_id: str
    text: str
    digest: str

    def __repr__(self) -> str:
        return f"Minted({self.token_id!r})"


class Found(NamedTuple):
    """A token that is valid, unless its time is over.

    Attributes:
        principal: whom it stands for.
        entries: the entries on which that depends, by their ids; it ends when one of them goes or changes.
        by_grant: agents that the principal must be granted to act as, or it ends.
        expires_ms: when the first of them ends, in milliseconds since 1970; 0 for never.
    """

    principal: Principal
    entries: tuple[tuple[str, bytes], ...]
    by_grant: tuple[str, ...]
    expires_ms: int


def mint(entropy: Callable[[int], bytes]) -> Minted:
    """Makes a token.

    Args:
        entropy: returns so many random bytes, which nobody can foretell.
    """
    token_id, secret = entropy(ID_BYTES).hex(), entropy(SECRET_BYTES).hex()
    return Minted(token_id, f"{PREFIX}{token_id}_{secret}", digest_of(secret))


def digest_of(secret: str) -> str:
    """Returns what is kept of a secret."""
    return sha256(secret.encode()).hexdigest()


def is_token_id(text: str) -> bool:
    """Tells whether a text is of the form of a token's public part."""
    return _ID.fullmatch(text) is not None


def looks_like_token(credential: str) -> bool:
    """Tells whether a credential means to be an API token."""
    return credential.startswith(PREFIX)


def find(credential: str, table: Mapping[str, bytes]) -> Found | None:
    """Returns what a token stands for, None if it is not valid.

    Args:
        credential: the whole token.
        table: entries by id.
    """
    parts = _FORM.fullmatch(credential)
    if parts is None:
        return None
    token_id, secret = parts.groups()
    entry = table.get(token_id)
    if entry is None:
        return None
    stored = read(entry)
    # Compared in the same time wherever the first difference is.
    if stored is None or not compare_digest(stored.digest.encode(), digest_of(secret).encode()):
        return None
    entries, by_grant = [(token_id, entry)], {stored.by_grant}
    expires_ms, parent = stored.expires_ms, stored.parent
    while parent:
        above = table.get(parent)
        found = None if above is None else read(above)
        if above is None or found is None or len(entries) > DEPTH_MAX:
            return None
        entries.append((parent, above))
        by_grant.add(found.by_grant)
        expires_ms = min(filter(None, (expires_ms, found.expires_ms)), default=0)
        parent = found.parent
    return Found(stored.identity(token_id), tuple(entries), tuple(filter(None, by_grant)), expires_ms)


def read(entry: bytes) -> StoredToken | None:
    """Returns an entry, None if a newer version of the program wrote it in another way."""
    try:
        stored = msgspec.json.decode(entry, type=StoredToken)
    except msgspec.MsgspecError:
        return None
    return stored if stored.format == 1 else None


def write(stored: StoredToken) -> bytes:
    """Returns a token as the table keeps it."""
    return msgspec.json.encode(stored)
