"""Erasing an owner: facts, sessions and private namespaces, until no file and no engine holds a byte of them.

First it is noted what was begun, so that upkeep goes on with it after a crash. Then facts are forgotten in every scope,
while what they rest on can still be read; then sessions and namespaces go as a whole; then the working store is written
anew. In the end facts are looked for once more: what waited in a session that was just going may have become one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec
import structlog

from noosphere.consistency import NamespaceKind, Reason, Refusal, exhausted

from ..facts.forgetting import Forgetting
from ..facts.forgot import BACKUPS
from ..facts.ledger import Ledger
from ..facts.scopes import Kind, check_owner, check_scope
from ..memory.access import OPERATOR_PREFIX
from ..memory.admission import require_writer
from ..memory.cache_drops import CacheDrops
from ..memory.codec import forget_decoded
from ..memory.types import Call
from ..ports.grants import Verb
from ..ports.runtime import Clock
from ..ports.store import Dropped, NamespaceRef
from ..sessions.keys import is_ephemeral
from ..sessions.scribe import Scribe
from .sessions import sessions_of

log = structlog.get_logger(__name__)

TABLE = "erasures"
"""The coordinator's table of erasures that were begun."""

ROUNDS_MAX = 8
"""Sessions that are opened meanwhile are found by another round."""

IDS_MAX = 1_000
UNDER_WAY_MAX = 64
"""Owners that one server erases at a time."""

RESUME_SECONDS = 10.0
GIVEN_UP_MS = 60_000
"""So long after an erasure was begun upkeep takes it for one that was cut off; doing it twice does no harm."""

LATE_MS = 180_000
"""So long after an erasure the queue's files are written anew once more: what a slow job still submitted was refused,
but had been in them."""

_BATCH = 64


class Erased(NamedTuple):
    """What was erased, or would be.

    Attributes:
        session_ids: the sessions, at most 1,000.
        fact_ids: the facts, at most 1,000.
        namespaces: the private namespaces, at most 1,000.
        places: how many entries were removed or overwritten, by place.
        remaining: what may still hold something, in words.
    """

    session_ids: tuple[str, ...]
    fact_ids: tuple[str, ...]
    namespaces: tuple[str, ...]
    places: tuple[tuple[str, int], ...]
    remaining: tuple[str, ...]


class _Begun(msgspec.Struct, frozen=True):
    """An erasure in the table: since when, and whether all is done but a last look."""

    begun_ms: int
    done: bool = False


def _begun(data: bytes) -> _Begun | None:
    """Returns what was noted, None if another version of the program wrote it in a way that this one cannot read."""
    try:
        return msgspec.json.decode(data, type=_Begun)
    except msgspec.MsgspecError:
        return None


class OwnerEraser:
    """Erases owners.

    Args:
        scribe: reads sessions.
        ledger: knows the scopes of facts.
        forgetting: forgets facts.
        clock: the source of time.
        forget: each is told the id of a session that is gone, to forget what it holds of it.
        cache_drops: has other processes hold nothing of it either.
    """

    def __init__(
        self,
        scribe: Scribe,
        ledger: Ledger,
        forgetting: Forgetting,
        clock: Clock,
        forget: Sequence[Callable[[str], None]],
        cache_drops: CacheDrops,
    ) -> None:
        self._scribe = scribe
        self._core = scribe.core
        self._ledger = ledger
        self._forgetting = forgetting
        self._clock = clock
        self._forget = tuple(forget)
        self._cache_drops = cache_drops
        self._under_way: set[str] = set()
        self._unreadable = 0

    async def erase(self, call: Call, owner: str, *, dry_run: bool) -> Erased:
        """Erases an owner for good.

        Args:
            call: who calls: an administrator, the agent whose ``agent/<id>`` it is, or one who may act for the owner.
            owner: ``user/<id>``, ``agent/<id>`` or ``shared/<name>``.
            dry_run: only tell what would be erased.

        Raises:
            Refusal: INVALID_FIELD, VALUE_TOO_LARGE, PERMISSION_DENIED, STALE_INCARNATION, LIMIT_EXCEEDED (too many at
                a time). CONTENTION, ENGINE_UNAVAILABLE: what was begun goes on by itself, and the call may be repeated.
        """
        require_writer(call)
        self._core.require_current(call)
        check_owner(owner)
        _require(call, owner)
        if dry_run:
            return await self._would(owner)
        if len(self._under_way) >= UNDER_WAY_MAX and owner not in self._under_way:
            raise exhausted("owner", len(self._under_way) + 1, UNDER_WAY_MAX, "too many owners are being erased")
        await self._note(owner, done=False)
        return await self._erase(owner)

    async def resume(self) -> int:
        """Goes on with erasures that were cut off; returns how many owners that was about.

        Raises:
            Refusal: one of them is refused; all others were gone on with.
        """
        finished, unreadable = 0, 0
        refused: Refusal | None = None
        for owner, data in sorted(self._core.coordinator.table(TABLE).items()):
            begun = _begun(data)
            if begun is None:
                unreadable += 1
                continue
            try:
                finished += await self._resume(owner, data, begun)
            except Refusal as refusal:
                refused = refusal
        if unreadable != self._unreadable:
            self._unreadable = unreadable
            if unreadable:
                log.error("erasures that this version cannot read are not gone on with: repeat them", count=unreadable)
        if refused is not None:
            raise refused
        return finished

    async def _resume(self, owner: str, data: bytes, begun: _Begun) -> bool:
        """Goes on with one erasure if it is time; returns whether it was finished by that."""
        waits_ms = LATE_MS if begun.done else GIVEN_UP_MS
        if owner in self._under_way or begun.begun_ms + waits_ms > self._clock.wall_ms():
            return False
        if begun.done:
            await self._forgetting.sweep(owner)
            # Unless it is being erased again.
            await self._core.coordinator.put_entry(TABLE, owner, None, expected=data)
            return False
        check_owner(owner)
        await self._erase(owner)
        log.info("an erasure of an owner that was cut off has been finished")
        return True

    async def run(self) -> None:
        """Goes on with what was cut off, again and again until cancelled; one server does it for all."""
        refused = ""
        while True:
            try:
                await self.resume()
                refused = ""
            except Refusal as refusal:
                if refusal.reason != refused:
                    log.warning("erasing an owner is refused", reason=refusal.reason, message=refusal.message)
                refused = refusal.reason
            await self._clock.sleep(RESUME_SECONDS)

    async def _would(self, owner: str) -> Erased:
        places: Counter[str] = Counter()
        facts: list[str] = []
        remaining = [BACKUPS]
        async for scope in self._ledger.scopes():
            found = await self._forgetting.of_owner(owner, scope, dry_run=True)
            facts += found.fact_ids
            remaining += found.remaining
            places.update(dict(found.places))
        sessions = await sessions_of(self._scribe, owner)
        for session_id in sessions:
            places["session_records"] += await self._records(await self._scribe.living(session_id))
        namespaces = await self._namespaces(owner)
        for name in namespaces:
            places["namespace_records"] += await self._records(await self._core.locate(name))
        return _report(sessions, facts, namespaces, places, (*remaining, *_stays(owner)))

    async def _erase(self, owner: str) -> Erased:
        self._under_way.add(owner)
        try:
            places: Counter[str] = Counter()
            facts: dict[str, None] = {}
            remaining: dict[str, None] = {BACKUPS: None}
            sessions: dict[str, None] = {}
            namespaces: dict[str, None] = {}
            await self._forget_facts(owner, facts, places, remaining)
            for _ in range(ROUNDS_MAX):
                gone = [
                    *await self._drop_sessions(await sessions_of(self._scribe, owner), sessions, places),
                    *await self._drop_namespaces(await self._namespaces(owner), namespaces, places),
                ]
                if not gone:
                    break
                await self._erase_files(gone)
            else:
                raise Refusal(Reason.CONTENTION, f"{owner!r} gets new sessions faster than they can be erased")
            await self._forget_facts(owner, facts, places, remaining)
            # Also what an earlier attempt has dropped: it may have been cut off before it was erased.
            await self._erase_files([await self._core.locate(self._ledger_of(owner))])
            self._drop_caches(sessions)
            await self._cache_drops.tell()
            await self._note(owner, done=True)
            return _report(tuple(sessions), tuple(facts), tuple(namespaces), places, (*remaining, *_stays(owner)))
        finally:
            self._under_way.discard(owner)

    async def _forget_facts(
        self, owner: str, facts: dict[str, None], places: Counter[str], remaining: dict[str, None]
    ) -> None:
        own = {scope async for scope in self._ledger.scopes() if _is_own(scope, owner)} | {owner}
        others = [scope async for scope in self._ledger.scopes() if scope not in own]
        for scope in (*sorted(own), *others):
            # Elsewhere nothing is noted of who is not there.
            if scope not in own and not (await self._forgetting.of_owner(owner, scope, dry_run=True)).places:
                continue
            found = await self._forgetting.of_owner(owner, scope, dry_run=False)
            facts |= dict.fromkeys(found.fact_ids)
            places.update(dict(found.places))
            remaining |= dict.fromkeys(found.remaining)

    async def _drop_sessions(
        self, ids: Iterable[str], gone: dict[str, None], places: Counter[str]
    ) -> list[NamespaceRef]:
        dropped: list[NamespaceRef] = []
        for session_id in ids:
            ref = await self._scribe.living(session_id)
            if (records := await self._drop(ref)) is None:
                continue
            gone[session_id] = None
            places["sessions"] += 1
            places["session_records"] += records
            self._drop_caches((session_id,))
            if not is_ephemeral(session_id):
                dropped.append(ref)
        return dropped

    async def _drop_namespaces(
        self, names: Iterable[str], gone: dict[str, None], places: Counter[str]
    ) -> list[NamespaceRef]:
        dropped: list[NamespaceRef] = []
        for name in names:
            ref = await self._core.directory.reload(name)
            if (records := await self._drop(ref)) is not None:
                gone[name] = None
                places["namespaces"] += 1
                places["namespace_records"] += records
                dropped.append(ref)
        return dropped

    async def _drop(self, ref: NamespaceRef) -> int | None:
        """Drops a namespace; returns how many records it had, None if it was gone."""
        dropped = await self._core.store.drop(ref, None)
        return dropped.record_count if isinstance(dropped, Dropped) else None

    async def _namespaces(self, owner: str) -> tuple[str, ...]:
        """Returns the private namespace of an agent, if there is one."""
        parts = check_owner(owner)
        if parts.kind is not Kind.AGENT:
            return ()
        name = f"{NamespaceKind.AGENT}/{parts.name}"
        view = (await self._core.store.read(await self._core.directory.reload(name), ())).view
        return (name,) if view.exists and not view.deleted else ()

    async def _note(self, owner: str, *, done: bool) -> None:
        entry = msgspec.json.encode(_Begun(self._clock.wall_ms(), done))
        await self._core.coordinator.put_entry(TABLE, owner, entry)

    async def _records(self, ref: NamespaceRef) -> int:
        return (await self._core.store.stats(ref)).record_count

    async def _erase_files(self, refs: Sequence[NamespaceRef]) -> None:
        for start in range(0, len(refs), _BATCH):
            await asyncio.gather(*map(self._core.store.erase, refs[start : start + _BATCH]))

    def _drop_caches(self, sessions: Iterable[str]) -> None:
        forget_decoded()
        for session_id in sessions:
            for forget in self._forget:
                forget(session_id)

    def _ledger_of(self, owner: str) -> str:
        return f"{NamespaceKind.FACTS}/{owner}"


def _require(call: Call, owner: str) -> None:
    """Checks who asks.

    Raises:
        Refusal: PERMISSION_DENIED; it does not tell whether there is anything of the owner.
    """
    principal = call.principal
    narrowed = principal.session or (principal.verbs is not None and Verb.DELETE not in principal.verbs)
    own = f"{Kind.AGENT}/{call.agent_id}" == owner
    may = own or call.agent_id.startswith(OPERATOR_PREFIX) or principal.admin or owner in principal.owners
    if narrowed or not may:
        raise Refusal(Reason.PERMISSION_DENIED, f"erasing {owner!r} is not permitted")


def _is_own(scope: str, owner: str) -> bool:
    """Tells whether a scope is an owner's own, in one application or in all."""
    parts = check_scope(scope)
    return f"{parts.kind}/{parts.name}" == owner


def _stays(owner: str) -> tuple[str, ...]:
    """Returns what an erasure cannot know of, in words."""
    parts = check_owner(owner)
    found = [
        f"the name {owner!r} and the names of its sessions, namespaces and facts, in lists, notes and the audit log",
        "what agents have copied from it into namespaces, sessions and facts that are not its own",
        "copies that a Redis replica, or a file system's free blocks, keep for a while",
    ]
    if parts.kind is Kind.SHARED:
        found.append(f"the namespace {owner!r}; DeleteNamespace removes it")
    if parts.kind is Kind.AGENT:
        found.append("what the agent has written into shared namespaces; `agent revert` takes it back")
    return tuple(found)


def _report(
    sessions: Sequence[str],
    facts: Iterable[str],
    namespaces: Sequence[str],
    places: Counter[str],
    remaining: Sequence[str],
) -> Erased:
    return Erased(
        tuple(sessions)[:IDS_MAX],
        tuple(facts)[:IDS_MAX],
        tuple(namespaces)[:IDS_MAX],
        tuple(sorted((+places).items())),
        tuple(dict.fromkeys(remaining)),
    )
