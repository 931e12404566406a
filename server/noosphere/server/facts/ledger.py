r"""The ledger: what is decided about facts, as records of the namespace ``facts/<scope>``. It holds no claim's words.

It is the only place where anything is decided, each time by one atomic commit that checks what the decision rests on.
The words stand in the fact store, written before under a number that only the ledger makes valid.

All keys begin with NUL, so nobody reads or writes them but this service:

    \0f/<fact>        what a fact is now, and which versions it had (of an id, what follows its scope)
    \0k/<key>         which fact holds this claim
    \0s/<slot>        which facts are current in this slot
    \0c/<candidate>   what became of a candidate
    \0d/<$REV>        the order of decisions
    \0n/<$REV>        facts that were written anew without one
    \0p/<owner>/<fact>   a fact of the owner's profile
    \0x/<hash>        what must not be learnt again from the same evidence
    \0j/<job>         an extraction
    \0w/<fact>        what was forgotten here, and still has to be removed elsewhere
    \0r/<request>     what a request to forget was answered
    \0q/<candidate or job>   what waits in a queue that may lose it
    \0policy, \0secret, \0upkeep, \0settled
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from noosphere.consistency import NEVER_MS, Reason, Refusal

from ..memory.core import Core, check_tokens
from ..memory.expiry import key_check
from ..memory.types import Call
from ..ports.store import (
    Commit,
    Committed,
    Failed,
    FailureKind,
    KeyCheck,
    Mutation,
    NamespaceRef,
    NamespaceView,
    ScanResult,
    StoredEntry,
)
from .scopes import NAMESPACES, digits_of
from .types import Decision, FactState, MemoryType

FACTS = "\0f/"
KEYS = "\0k/"
SLOTS = "\0s/"
CANDIDATES = "\0c/"
DECISIONS = "\0d/"
NEWS = "\0n/"
PINNED = "\0p/"
SUPPRESSED = "\0x/"
JOBS = "\0j/"
FORGOTTEN = "\0w/"
REQUESTS = "\0r/"
PENDING = "\0q/"
POLICY = "\0policy"
SECRET = "\0secret"
UPKEEP = "\0upkeep"
SETTLED = "\0settled"

ATTEMPTS_MAX = 64
CANDIDATE_RETENTION_MS = 30 * 24 * 3600 * 1000
"""How long it is remembered what became of a candidate."""

DECISION_MS_MAX = 5 * 60 * 1000
"""A decision that is older is made again: words that no ledger names are swept when they are twice as old."""

SOURCES_MAX = 256
"""Most sources that a fact has on record, so that forgetting finds them; more are counted."""

SOURCES_LISTED_MAX = 32
"""So many of them are shown, the newest."""

VERSIONS_MAX = 64
"""Most versions that a fact lists; the oldest go first."""

SLOT_FACTS_MAX = 64
"""Most facts that are current in one slot; the oldest of more no longer take part in conflicts."""

_PAGE = 256

T = TypeVar("T")


class SourceNote(msgspec.Struct, frozen=True, array_like=True):
    """One source of a fact.

    Attributes:
        reference: what it is; that of a candidate without evidence is ``candidate:<id>``.
        content_hash: SHA-256 of its content, where it is known.
        trust: 0 to 1.
        confidence: what its producer gave.
        producer: what produced it.
        candidate: the candidate that named it.
        time_ms: when that was submitted.
        agent: who submitted that; empty for the server itself.
    """

    reference: str
    content_hash: bytes
    trust: float
    confidence: float
    producer: str
    candidate: str
    time_ms: int
    agent: str = ""


class VersionNote(msgspec.Struct, frozen=True, array_like=True):
    """One version of a fact.

    Attributes:
        number: from 1.
        content: under which version number the fact store has its words.
        recorded_ms: store time at which it was recorded.
        valid_from_ms: since when it is so in the world.
        valid_to_ms: until when it was so.
    """

    number: int
    content: int
    recorded_ms: int
    valid_from_ms: int
    valid_to_ms: int


class FactNote(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the ledger says of a fact.

    Attributes:
        id: its id.
        owner: whose it is.
        state: where it stands.
        versions: its versions, the newest last.
        key: its claim's key.
        slot: its claim's slot; empty if unknown.
        value: digest of its claim's value; empty if unknown.
        predicate: digest of its predicate, for the half-life; empty if unknown.
        memory_type: what kind of memory.
        trust: 0 to 1, of its most trusted source.
        confidence: 0 to 1.
        importance: 0 to 1.
        expires_at_ms: when it ends.
        sources: what supports it, the newest last.
        source_count: how many distinct ones there are.
        superseded_by: the fact that superseded it.
        contested_by: facts that contradict it and are kept beside it.
        pinned: whether it belongs to the owner's profile.
        decayed_ms: store time up to which its confidence has decayed.
    """

    id: str
    owner: str
    state: FactState
    versions: tuple[VersionNote, ...]
    key: str
    slot: str = ""
    value: str = ""
    predicate: str = ""
    memory_type: MemoryType = MemoryType.SEMANTIC
    trust: float = 0.0
    confidence: float = 0.0
    importance: float = 0.0
    expires_at_ms: int = NEVER_MS
    sources: tuple[SourceNote, ...] = ()
    source_count: int = 0
    superseded_by: str = ""
    contested_by: tuple[str, ...] = ()
    pinned: bool = False
    decayed_ms: int = 0

    @property
    def newest(self) -> VersionNote:
        """Its newest version."""
        return self.versions[-1]


class CandidateNote(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the ledger says of a candidate that was decided.

    Attributes:
        decision: what became of it.
        owner: whose fact it would be.
        actor: who submitted it.
        producer: what produced it.
        trust: what the server assigned.
        submitted_ms: store time at which it was submitted.
        content: the number under which the fact store keeps its words, of one that is kept apart; 0 for none.
        meaning: the fingerprint of the request that brought it; empty if it had no id.
    """

    decision: Decision
    owner: str
    actor: str = ""
    producer: str = ""
    trust: float = 0.0
    submitted_ms: int = 0
    content: int = 0
    meaning: bytes = b""


class Suppression(msgspec.Struct, frozen=True, array_like=True):
    """Something was forgotten, at which store time."""

    time_ms: int


class Page(NamedTuple):
    """Entries of a ledger at one head."""

    view: NamespaceView
    entries: Mapping[str, StoredEntry | None]

    def get(self, key: str, kind: type[T]) -> T | None:
        """Returns a record that was read and has not ended, None if there is none."""
        entry = self.entries[key]
        if entry is None or entry.live_until_ms <= self.view.now_ms:
            return None
        return msgspec.json.decode(entry.data, type=kind)

    def check(self, key: str) -> KeyCheck:
        """Returns the check that a record is as it was read."""
        return key_check(key, self.entries[key], self.view.now_ms)


def encode(value: object) -> bytes:
    """Returns a record's stored form."""
    return msgspec.json.encode(value)


def put(key: str, value: object, *, until_ms: int = NEVER_MS, rev_slot: bool = False) -> Mutation:
    """Writes a record, which goes by itself when its time has come."""
    return Mutation(key, encode(value), until_ms, until_ms, False, b"", rev_slot=rev_slot)


def remove(key: str) -> Mutation:
    """Removes a record."""
    return Mutation(key, None, 0, 0, False, b"")


def digest(*parts: str) -> str:
    """Returns 128 bits, as hex, that stand for texts."""
    hashed = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        hashed.update(len(data).to_bytes(8, "big") + data)
    return hashed.hexdigest()


def fact_key(fact_id: str) -> str:
    """Returns where a fact stands in its scope's ledger."""
    return FACTS + digits_of(fact_id)


def candidate_key(candidate_id: str) -> str:
    """Returns where it is noted what became of a candidate."""
    return CANDIDATES + digits_of(candidate_id)


def pending_key(id: str) -> str:
    """Returns where it is noted that a candidate or an extraction waits."""
    return PENDING + digits_of(id)


def pinned_of(owner: str) -> str:
    """Returns the collection in which an owner's profile is noted."""
    return f"{PINNED}{digest(owner)}/"


def pinned_key(owner: str, fact_id: str) -> str:
    """Returns where it is noted that a fact belongs to an owner's profile; the record is the fact's id."""
    return pinned_of(owner) + digits_of(fact_id)


def content_number(version: int, *said: str) -> int:
    """Returns the number under which the content of a version is stored; equal ones only for equal contents.

    Two candidates that are decided at once may both want to write the next version of a fact. Each writes its own
    content, and the ledger says whose it is.
    """
    return (version << 40) | int(digest(*said)[:10], 16)


class Ledger:
    """Reads and commits records of ledgers."""

    def __init__(self, core: Core) -> None:
        self._core = core

    @property
    def now_ms(self) -> int:
        """Store time."""
        return self._core.store.now_ms()

    async def locate(self, scope: str) -> NamespaceRef:
        """Returns the living generation of a scope's ledger, opened anew if it was deleted."""
        ref = await self._core.locate(NAMESPACES + scope)
        view = (await self._core.store.read(ref, (), accepted=True)).view
        if view.deleted:
            ref = await self._core.relocate(ref) or await self._core.directory.reopen(ref, view.head)
        return ref

    async def read(self, scope: str, keys: Iterable[str], *, accepted: bool = False) -> Page:
        """Reads records; ``accepted`` for a decision that a commit will check, otherwise what is durable."""
        wanted = tuple(dict.fromkeys(keys))
        result = await self._core.store.read(await self._core.locate(NAMESPACES + scope), wanted, accepted=accepted)
        if result.view.deleted:
            result = await self._core.store.read(await self.locate(scope), wanted, accepted=accepted)
        return Page(result.view, dict(zip(wanted, result.entries, strict=True)))

    async def check_presented(self, call: Call, scope: str) -> None:
        """Checks what a caller's tokens name of a scope's ledger.

        Raises:
            Refusal: ACKED_WRITES_LOST, FUTURE_REVISION.
        """
        if call.tokens is not None:
            check_tokens(call, NAMESPACES + scope, (await self.read(scope, ())).view)

    async def scan(
        self, scope: str, collection: str, *, after: str | None = None, limit: int, reverse: bool = False
    ) -> ScanResult:
        """Reads entries of a collection in key order; ``after`` is the exclusive bound to begin at."""
        ref = await self.locate(scope)
        if reverse:
            return await self._core.store.scan(ref, collection, before=after, limit=limit, reverse=True)
        return await self._core.store.scan(ref, collection, after=after, limit=limit)

    async def scopes(self) -> AsyncIterator[str]:
        """Streams the scopes that have a ledger, by name."""
        after = ""
        while True:
            page = await self._core.store.namespaces(NAMESPACES, after, _PAGE)
            for summary in page:
                after = summary.ref.name
                if not summary.deleted:
                    yield after[len(NAMESPACES) :]
            if len(page) < _PAGE:
                return

    async def all_facts(self, scope: str) -> AsyncIterator[FactNote]:
        """Streams what a ledger says of every fact; those that change meanwhile may be told of before or after."""
        after: str | None = None
        while True:
            page = await self.scan(scope, FACTS, after=after, limit=_PAGE)
            for entry in page.entries:
                after = entry.key
                yield msgspec.json.decode(entry.data, type=FactNote)
            if not page.more:
                return

    async def facts(self, scope: str, ids: Sequence[str]) -> dict[str, FactNote]:
        """Returns what is known of facts, by id; those that are not there are left out."""
        page = await self.read(scope, map(fact_key, ids))
        notes = (page.get(fact_key(fact_id), FactNote) for fact_id in ids)
        return {note.id: note for note in notes if note is not None}

    async def commit(
        self, scope: str, view: NamespaceView, checks: Iterable[KeyCheck], mutations: Sequence[Mutation]
    ) -> Committed | None:
        """Commits a decision; None if what it rests on has changed or was read long ago: it has to be made again.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        if self.now_ms - view.now_ms > DECISION_MS_MAX:
            # The process was suspended, or time was set. What was written for this may have been swept by now.
            return None
        ref = await self.locate(scope)
        rules = self._core.rules(ref.name)
        version = max(rules.config_version, view.config_version)
        result = await self._core.store.commit(ref, Commit(view.epoch, version, tuple(checks), tuple(mutations)))
        if isinstance(result, Committed):
            return result
        if isinstance(result, Failed) and any(f.kind is FailureKind.REQUEST_ROOM for f in result.failures):
            raise AssertionError("a ledger's commit carries no request")
        return None

    async def change(self, scope: str, keys: Iterable[str], decide: Callable[[Page], Sequence[Mutation]]) -> int:
        """Reads, decides and commits until nobody was faster; returns the revision, 0 if nothing had to change.

        Args:
            scope: whose ledger.
            keys: what the decision rests on; all of it is checked.
            decide: returns what to write. It may run several times.

        Raises:
            Refusal: CONTENTION, or what ``decide`` raises.
        """
        wanted = tuple(dict.fromkeys(keys))
        for _ in range(ATTEMPTS_MAX):
            page = await self.read(scope, wanted, accepted=True)
            mutations = decide(page)
            if not mutations:
                return 0
            done = await self.commit(scope, page.view, map(page.check, wanted), mutations)
            if done is not None:
                return done.revision
        raise contended(scope)


def contended(scope: str) -> Refusal:
    """Returns the refusal of what others were always faster at."""
    return Refusal(Reason.CONTENTION, f"the facts of {scope!r} changed under each of {ATTEMPTS_MAX} attempts")
