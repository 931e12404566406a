"""Makes, lists, narrows and revokes API tokens, in the coordinator's table of them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, Protocol

from noosphere.consistency import NamePattern, Reason, Refusal, exhausted, invalid, too_large
from noosphere.consistency.limits import AGENT_ID_BYTES_MAX

from ..ports.grants import Verb
from ..ports.runtime import Clock
from ..ports.tables import TABLE_ENTRIES_MAX, Expected, Table
from .permissions import FACTS, deciding
from .principal import OPERATOR_PREFIX, Principal
from .tokens import DEPTH_MAX, PREFIX, TOKENS, StoredToken, is_token_id, mint, read, write

PRINCIPAL_BYTES_MAX = 512
OWNER_BYTES_MAX = 256
NOTE_BYTES_MAX = 256
LIST_MAX = 64
"""Most agents, or owners, of one token."""

SCOPED_TTL_MS_DEFAULT = 60 * 60 * 1000
SCOPED_TTL_MS_MAX = 24 * 60 * 60 * 1000
TTL_MS_MAX = 10 * 365 * 24 * 60 * 60 * 1000
LOOKED_AT_MAX = 64
"""Tokens that one new token has looked at, whether their time is over, where room runs out."""
TURN_TOKENS = 1_000
"""After so many tokens whoever goes through all of them lets others have their turn."""

AGENTS = "agents/"


class Tables(Protocol):
    """The part of the coordinator that is needed here."""

    def table(self, name: str) -> Table:
        """See the port."""
        ...

    async def put_entry(self, table: str, key: str, value: bytes | None, *, expected: Expected = ...) -> None:
        """See the port."""
        ...


class Wanted(NamedTuple):
    """What a new token is to be for; see :class:`~.principal.Principal`.

    Attributes:
        principal: whom it stands for.
        admin: whether it may do everything.
        agents: namespaces ``agents/…`` of the agents that it may act as.
        owners: for whom it may act.
        session: the only session that it may touch; "" does not narrow.
        verbs: at most these; None does not narrow.
        ttl_ms: how long it is valid; 0 for ever.
        note: what it is for, in words.
    """

    principal: str
    admin: bool = False
    agents: tuple[NamePattern, ...] = ()
    owners: tuple[str, ...] = ()
    session: str = ""
    verbs: frozenset[Verb] | None = None
    ttl_ms: int = 0
    note: str = ""


class Narrowed(NamedTuple):
    """How a token is narrowed from whoever asks for it.

    Attributes:
        agent: the only agent that it may act as; "" for all of them.
        owner: the only one for whom it may act; "" for all of them.
        session: the only session that it may touch; "" for all of them.
        verbs: at most these; None for all of them.
        ttl_ms: how long it is valid; 0 for an hour.
    """

    agent: str = ""
    owner: str = ""
    session: str = ""
    verbs: frozenset[Verb] | None = None
    ttl_ms: int = 0


class Made(NamedTuple):
    """A new token: the only time that its text is seen.

    Attributes:
        token_id: its public part.
        text: what its holder presents.
        stored: what is kept.
    """

    token_id: str
    text: str
    stored: StoredToken

    def __repr__(self) -> str:
        return f"Made({self.token_id!r})"


class ApiTokens:
    """See the module.

    Args:
        tables: the coordinator.
        clock: the source of time.
        entropy: returns so many random bytes, which nobody can foretell.
        taken: whether the server takes API tokens; where it does not, none can be narrowed.
    """

    def __init__(self, tables: Tables, clock: Clock, entropy: Callable[[int], bytes], *, taken: bool = True) -> None:
        self._tables = tables
        self._clock = clock
        self._entropy = entropy
        self._taken = taken
        self._sweeping: Iterator[str] = iter(())

    async def create(self, wanted: Wanted, creator: str) -> Made:
        """Makes a token.

        Args:
            wanted: what it is to be for.
            creator: the name of the principal that asks for it.

        Raises:
            Refusal: INVALID_FIELD, VALUE_TOO_LARGE, LIMIT_EXCEEDED or ENGINE_UNAVAILABLE.
        """
        _check(wanted)
        now_ms = self._clock.wall_ms()
        return await self._keep(
            lambda digest: StoredToken(
                digest,
                wanted.principal,
                now_ms,
                admin=wanted.admin,
                agents=tuple(wanted.agents),
                owners=wanted.owners,
                session=wanted.session,
                verbs=None if wanted.verbs is None else tuple(sorted(wanted.verbs)),
                expires_ms=now_ms + wanted.ttl_ms if wanted.ttl_ms else 0,
                creator=creator,
                note=wanted.note,
            )
        )

    async def narrow(self, holder: Principal, narrowed: Narrowed) -> Made:
        """Makes a token that may do less than its holder, and ends with the token that the holder has presented.

        What it may do by grants, it may do as long as the holder may. If the holder may act as the agent by a grant
        alone, it ends with that.

        Raises:
            Refusal: PERMISSION_DENIED, for more than the holder may do; TOKENS_OFF; INVALID_FIELD, VALUE_TOO_LARGE,
                LIMIT_EXCEEDED or ENGINE_UNAVAILABLE.
        """
        if not self._taken or holder.open:
            raise Refusal(Reason.TOKENS_OFF, "this server takes no API tokens (its setting `tokens`)")
        _check_texts(narrowed.agent and (narrowed.agent,), "agent", AGENT_ID_BYTES_MAX)
        _check_texts(narrowed.owner and (narrowed.owner,), "owner", OWNER_BYTES_MAX)
        _check_texts(narrowed.session and (narrowed.session,), "session", OWNER_BYTES_MAX)
        if not 0 <= narrowed.ttl_ms <= SCOPED_TTL_MS_MAX:
            raise invalid("ttl", f"{narrowed.ttl_ms} ms is not between 0 and {SCOPED_TTL_MS_MAX} ms")
        parent = holder.credential.removeprefix(PREFIX) if holder.credential.startswith(PREFIX) else ""
        if self._depth(parent) >= DEPTH_MAX:
            raise exhausted("tokens", DEPTH_MAX + 1, DEPTH_MAX, "narrowed too often")
        now_ms = self._clock.wall_ms()
        expires_ms = now_ms + (narrowed.ttl_ms or SCOPED_TTL_MS_DEFAULT)
        if holder.expires_ms:
            expires_ms = min(expires_ms, holder.expires_ms)
        agents, only_agents, by_grant = _fewer_agents(holder, narrowed.agent)
        owners, only_owners, granted_owner = _fewer_owners(holder, narrowed.owner)
        session = _fewer(holder.session, narrowed.session, "session")
        verbs = _fewer_verbs(holder.verbs, narrowed.verbs)
        return await self._keep(
            lambda digest: StoredToken(
                digest,
                holder.name,
                now_ms,
                agents=tuple(agents),
                owners=owners,
                session=session,
                verbs=None if verbs is None else tuple(sorted(verbs)),
                expires_ms=expires_ms,
                only_agents=only_agents,
                only_owners=only_owners,
                granted_owner=granted_owner,
                parent=parent,
                by_grant=by_grant,
                creator=holder.name,
            )
        )

    def list(self, *, after: str, count_max: int) -> tuple[list[tuple[str, StoredToken]], str | None]:
        """Returns tokens by their ids, and where to go on; those whose time is over are not among them.

        Args:
            after: the last id that was seen.
            count_max: how many at most.
        """
        now_ms = self._clock.wall_ms()
        table = self._table
        found: list[tuple[str, StoredToken]] = []
        for token_id in sorted(one for one in table if one > after):
            stored = read(table[token_id])
            if stored is None or _is_over(stored, now_ms):
                continue
            if len(found) == count_max:
                return found, found[-1][0]
            found.append((token_id, stored))
        return found, None

    async def revoke(self, token_id: str) -> int:
        """Ends a token, and those that were narrowed from it; returns how many.

        Raises:
            Refusal: INVALID_FIELD, ENTRY_NOT_FOUND or ENGINE_UNAVAILABLE.
        """
        table = self._table
        if not is_token_id(token_id):
            # Not repeated: somebody may have pasted all of a token.
            raise invalid("token_id", "is not 16 hexadecimal digits, the public part of a token")
        if token_id not in table:
            raise Refusal(Reason.ENTRY_NOT_FOUND, f"there is no token {PREFIX}{token_id}")
        # It alone decides: those that were narrowed from it are not valid without it.
        await self._tables.put_entry(TOKENS, token_id, None)
        below = await _below(token_id, table)
        for one in below:
            await self._tables.put_entry(TOKENS, one, None)
        return 1 + len(below)

    @property
    def _table(self) -> Table:
        return self._tables.table(TOKENS)

    def _depth(self, token_id: str) -> int:
        depth = 0
        while token_id and depth <= DEPTH_MAX:
            entry = self._table.get(token_id)
            stored = None if entry is None else read(entry)
            token_id = stored.parent if stored is not None else ""
            depth += 1 if token_id else 0
        return depth

    async def _keep(self, make: Callable[[str], StoredToken]) -> Made:
        await self._sweep()
        minted = mint(self._entropy)
        stored = make(minted.digest)
        await self._tables.put_entry(TOKENS, minted.token_id, write(stored), expected=None)
        return Made(minted.token_id, minted.text, stored)

    async def _sweep(self) -> None:
        """Makes room where it runs out: tokens whose time is over are of no use to anybody."""
        table, now_ms = self._table, self._clock.wall_ms()
        if len(table) < TABLE_ENTRIES_MAX // 2:
            return
        seen = list(itertools.islice(self._sweeping, LOOKED_AT_MAX))
        if len(seen) < LOOKED_AT_MAX:
            self._sweeping = iter(tuple(table))
        for token_id in seen:
            entry = table.get(token_id)
            stored = None if entry is None else read(entry)
            if stored is not None and _is_over(stored, now_ms):
                await self._tables.put_entry(TOKENS, token_id, None)


def _is_over(stored: StoredToken, now_ms: int) -> bool:
    return bool(stored.expires_ms) and stored.expires_ms <= now_ms


async def _below(token_id: str, table: Mapping[str, bytes]) -> list[str]:
    """Returns the tokens that were narrowed from one, or from those."""
    children: dict[str, list[str]] = {}
    for number, (one, entry) in enumerate(tuple(table.items()), 1):
        stored = read(entry)
        if stored is not None and stored.parent:
            children.setdefault(stored.parent, []).append(one)
        if number % TURN_TOKENS == 0:
            await asyncio.sleep(0)
    found: list[str] = []
    left = [token_id]
    while left:
        below = children.pop(left.pop(), [])
        found += below
        left += below
    return found


def _fewer_agents(holder: Principal, agent: str) -> tuple[tuple[NamePattern, ...], bool, str]:
    """Returns the agents of a narrowed token, whether they are all, and which of them depends on a grant."""
    if not agent:
        # An administrator's token is narrowed to the agent of its name and grants: nothing of it is an administrator's.
        return holder.agents, holder.only_agents, ""
    permissions = deciding.get()
    own = holder.may_act_as(agent)
    if agent.startswith(OPERATOR_PREFIX) or not (own or (permissions and permissions.may_act_as(holder, agent))):
        raise _wider("agent", agent)
    return (NamePattern(f"{AGENTS}{agent}", True),), True, "" if own else agent


def _fewer_owners(holder: Principal, owner: str) -> tuple[tuple[str, ...], bool, str]:
    """Returns the owners of a narrowed token, whether they are all, and to whom grants add all the same."""
    if not owner:
        return holder.owners, holder.only_owners, holder.granted_owner
    if holder.admin or owner in holder.owners:
        return (owner,), True, ""
    permissions = deciding.get()
    by_grant = permissions is not None and permissions.granted(holder.name, FACTS + owner)
    if not by_grant or (holder.only_owners and owner != holder.granted_owner):
        raise _wider("owner", owner)
    # What may be done there is what grants say when it is done.
    return (), True, owner


def _fewer(held: str, wanted: str, field: str) -> str:
    if held and wanted and held != wanted:
        raise _wider(field, wanted)
    return held or wanted


def _fewer_verbs(held: frozenset[Verb] | None, wanted: frozenset[Verb] | None) -> frozenset[Verb] | None:
    if held is None or wanted is None:
        return wanted if held is None else held
    if not wanted <= held:
        raise _wider("verbs", ", ".join(sorted(wanted - held)))
    return wanted


def _wider(field: str, value: str) -> Refusal:
    return Refusal(
        Reason.PERMISSION_DENIED, f"{field}: {value!r} is more than this credential may do; a token is only narrowed"
    )


def _check(wanted: Wanted) -> None:
    _check_texts((wanted.principal,), "principal", PRINCIPAL_BYTES_MAX)
    _check_texts(wanted.session and (wanted.session,), "session", OWNER_BYTES_MAX)
    _check_texts(wanted.note and (wanted.note,), "note", NOTE_BYTES_MAX)
    _check_texts(wanted.owners, "owners", OWNER_BYTES_MAX)
    _check_texts([one.text for one in wanted.agents], "agents", len(AGENTS) + AGENT_ID_BYTES_MAX)
    for pattern in wanted.agents:
        if not pattern.text.startswith(AGENTS) or (pattern.exact and pattern.text == AGENTS):
            raise invalid("agents", f"{pattern.text!r} is not of the form {AGENTS}<agent>")
    if not 0 <= wanted.ttl_ms <= TTL_MS_MAX:
        raise invalid("ttl", f"{wanted.ttl_ms} ms is not between 0 and {TTL_MS_MAX} ms")


def _check_texts(texts: str | tuple[str, ...] | list[str], field: str, bytes_max: int) -> None:
    """Checks some texts, each not empty; "" stands for none of them."""
    if len(texts) > LIST_MAX:
        raise too_large(field, len(texts), LIST_MAX, "entries")
    for text in texts:
        try:
            size = len(text.encode())
        except UnicodeEncodeError:
            raise invalid(field, "is not Unicode text") from None
        if not text or any(ord(one) < 32 or ord(one) == 127 for one in text):
            raise invalid(field, f"{text!r} is empty, or has control characters")
        if size > bytes_max:
            raise too_large(field, size, bytes_max)
