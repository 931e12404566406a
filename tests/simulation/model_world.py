"""The model of a whole server: several namespaces, transactions, read sets, sweeps, loss.

Each namespace is a :class:`~tests.simulation.model.Model`; here is what concerns more than one call, key or
namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, cast

from tests.simulation.calls import (
    ANY,
    Call,
    Caller,
    Condition,
    Delete,
    Merge,
    Put,
    Refused,
    Reply,
    presented,
    refuse,
    sizes,
)
from tests.simulation.model import Model
from tests.simulation.model_readsets import Grounds, Listed, Part, ReadSet, Sight, Stale, advanced, first
from tests.simulation.model_requests import check_unanswered, remember
from tests.simulation.model_state import Entry, State

HOUR_MS = 3_600_000
LOG_AGE_MS = 600_000
NAMED_MAX = 16


class Transact(NamedTuple):
    """A transaction: versions by key, and one call for each key that is written.

    As a ``commit``, a put or delete without a condition replaces what the caller's read set saw of its key.
    """

    compares: tuple[tuple[str, int], ...]
    calls: tuple[Put | Delete | Merge, ...]
    commit: bool = False


class Batch(NamedTuple):
    """One commit as a log tells of it: ``(key, kind, actor)`` of each event, and the keys whose lives it ended."""

    revision: int
    time_ms: int
    events: tuple[tuple[str, str, str], ...]
    ended: frozenset[str]


class Together(NamedTuple):
    """The answer to a transaction: of each part if it was applied, else the failed parts' keys and reasons."""

    outcome: str
    reason: str = ""
    revision: int = 0
    replies: tuple[Reply, ...] = ()
    failures: tuple[tuple[int, bool, str, str], ...] = ()
    lost: tuple[int, int] | None = None
    space: str = ""
    stale: tuple[Stale, ...] = ()
    seen_now: ReadSet | None = None


class Kept(NamedTuple):
    """A namespace as it was at some moment; everything in it is immutable."""

    generation: int
    exists: bool
    deleted: bool
    state: State
    lost: tuple[tuple[int, int], ...]
    log: tuple[Batch, ...]
    floor: int
    stamps: Mapping[str, tuple[int, int]]
    faded: Mapping[str, tuple[int, int]]


class Space:
    """One namespace over its generations.

    Attributes:
        model: the present generation's rules and records.
        log: what watchers and readers of the history are told.
        floor: the log holds everything after this revision.
        stamps: when each collection last changed, and when keys last appeared in it or vanished.
        faded: what the server says instead of collections in which nothing is stored. It may forget them, and then
            takes them for changed later than they were: a read set may be called stale then, but never current.
    """

    def __init__(self, name: str, epoch: int, world: Mapping[str, Space]) -> None:
        self.name = name
        self.model = Model(epoch=epoch, private=name.startswith("agents/"), retention_ms=HOUR_MS)
        self.model.holds = self._check_grounds
        self.generation = 1
        self.exists = False
        self.deleted = False
        self.log: tuple[Batch, ...] = ()
        self.floor = 0
        self.stamps: Mapping[str, tuple[int, int]] = {}
        self.faded: Mapping[str, tuple[int, int]] = {}
        self._world = world
        self._overruled: tuple[Stale, ...] = ()

    @property
    def head(self) -> int:
        return self.model.state.head

    # -- writes --------------------------------------------------------------------------------

    def do(self, caller: Caller, call: Call) -> Reply:
        """Serves a call."""
        if caller.permitted and self.deleted:
            return Reply("refused", "NAMESPACE_DELETED")
        before, was = self.head, self._before(caller)
        reply = self.model.do(self._presenting(caller), call)
        if self.head > before:
            self._logged([reply])
        if reply.outcome == "refused":
            return reply
        stale = self._overruled if reply.outcome in ("applied", "unchanged") else ()
        return reply._replace(stale=stale, seen_now=self._after(caller, was, [reply]))

    def transact(self, caller: Caller, call: Transact) -> Together:
        """Serves a transaction: every part is decided on what was there before, and all get one revision."""
        if caller.permitted and self.deleted:
            return Together("refused", "NAMESPACE_DELETED")
        was = self._before(caller)
        try:
            answer = self._transact(self._presenting(caller), call)
        except Refused as refused:
            reply = refused.reply
            return Together("refused", reply.reason, lost=reply.lost, space=reply.space, stale=reply.stale)
        if answer.outcome == "refused":
            return answer
        if answer.outcome == "replayed":
            return answer._replace(seen_now=self._after(caller, was, []))
        return answer._replace(stale=self._overruled, seen_now=self._after(caller, was, answer.replies))

    def _transact(self, caller: Caller, call: Transact) -> Together:
        model = self.model
        revisions = [version for _, version in call.compares]
        revisions += [revision for part in call.calls for revision in presented(part)]
        size = [size for part in call.calls for size in sizes(part)]
        replay = model.admit(caller, cast("Call", call), revisions, size)
        if replay is not None:
            return cast("Together", replay)._replace(outcome="replayed")
        model.holds(caller)
        return self._together(caller, call)

    def _together(self, caller: Caller, call: Transact) -> Together:
        model, base = self.model, self.model.state
        failures: list[tuple[int, bool, str, str]] = []
        for index, (key, version) in enumerate(call.compares):
            if model.read(key).version != version:
                failures.append((index, False, key, "VERSION_MISMATCH"))
        replies: list[Reply] = []
        entries = dict(base.entries)
        anonymous = caller._replace(request=None)
        for index, part in enumerate(call.calls):
            model.state = base
            if call.commit:
                part = self._on_what_was_seen(caller, part)
            try:
                reply = model.serve(anonymous, part)
            except Refused as refused:
                failures.append((index, True, part.key, refused.reply.reason))
                continue
            replies.append(reply)
            if reply.outcome == "applied":
                entries[part.key] = model.state.entries[part.key]
        model.state = base
        if failures:
            return Together("refused", failures[0][3], failures=tuple(failures))
        if all(reply.outcome == "unchanged" for reply in replies):
            return Together("unchanged", replies=tuple(replies))
        check_unanswered(base, caller)
        revision = model.next()
        fences = base.fences | {lock: max(token, base.fences.get(lock, 0)) for lock, token in caller.fences}
        model.state = base._replace(head=revision, entries=entries, fences=fences)
        told = tuple(
            reply if reply.outcome == "applied" else reply._replace(seen=reply.seen._replace(prefix=revision))
            for reply in replies
        )
        answer = Together("applied", revision=revision, replies=told)
        model.state = remember(model.state, caller, cast("Call", call), cast("Reply", answer), model.now_ms)
        self._logged(replies)
        return answer

    def _on_what_was_seen(self, caller: Caller, part: Put | Delete | Merge) -> Put | Delete | Merge:
        """Who names no condition replaces what was seen; who is only to be warned, whatever is there."""
        seen = caller.grounds.seen.get(self.name) if caller.grounds is not None else None
        if seen is None or part.key not in seen.keys or not isinstance(part, Put | Delete) or part.when != ANY:
            return part
        version = seen.keys[part.key].at
        assert caller.grounds is not None
        blind = caller.grounds.warn and self.model.read(part.key).version != version
        return part._replace(when=Condition(blind=True) if blind else Condition(version))

    # -- read sets -----------------------------------------------------------------------------

    def see(self, key: str) -> Sight:
        """Returns what a key is like."""
        view = self.model.read(key)
        return Sight(view.version, first(*(value.ends_ms for value in view.values)))

    def see_list(self, listed: Listed) -> Sight:
        """Returns what a collection is like."""
        collection, mode = listed
        stamps = self.faded.get(collection) or self.stamps.get(collection, (0, 0))
        ends_ms = first(*(self.see(key).ends_ms for key in self.model.state.entries if key.startswith(collection)))
        return Sight(stamps[mode == "members"], ends_ms)

    def see_again(self, part: Part) -> Part:
        """Returns what everything in a part of a read set is like now."""
        keys = {key: self.see(key) for key in part.keys}
        return Part(self.head, keys, {listed: self.see_list(listed) for listed in part.lists})

    def stale(self, part: Part) -> list[Stale]:
        """Returns what is not as it was seen."""
        now, now_ms = self.see_again(part), self.model.now_ms
        found = [
            (key, False, was.at, now.keys[key].at)
            for key, was in part.keys.items()
            if now.keys[key].at != was.at or was.over(now_ms)
        ]
        found += [
            (listed[0], True, was.at, now.lists[listed].at)
            for listed, was in part.lists.items()
            if not self._is_as_listed(part, listed)
        ]
        return [Stale(self.name, *entry, self._changes(*entry[:3], part.since)) for entry in found]

    def _is_as_listed(self, part: Part, listed: Listed) -> bool:
        """Tells whether a list is as it was: nothing was committed and nothing has ended, swept or not."""
        entries = self.model.state.entries
        ended = any(key.startswith(listed[0]) and self.model.has_ended(key) for key in entries)
        if ended or part.lists[listed].over(self.model.now_ms):
            return False
        return part.knows(listed, self.see_list(listed).at)

    def _changes(self, name: str, is_list: bool, seen: int, since: int) -> tuple[tuple[str, str, int], ...]:
        """Returns who changed a key, or what is in a collection, as far as the log reaches back."""
        found: list[tuple[str, str, int]] = []
        for batch in self.log:
            if batch.revision <= max(seen, since):
                continue
            last = {key: actor for key, _, actor in batch.events if key == name or (is_list and key.startswith(name))}
            if not is_list and seen == 0 and name in batch.ended:
                # It was absent when it was seen, so whoever came before it was absent has not surprised anybody.
                found = []
            else:
                found += [(key, actor, batch.revision) for key, actor in last.items()]
        return tuple(reversed(found))[:NAMED_MAX]

    def refresh(self, part: Part, held: Part) -> tuple[list[Stale], Part]:
        """Returns what of ``held`` differs, and the part as it is now: what has not changed stays as it was."""
        for entry in self.stale(held):
            if entry.is_list:
                self.expire(entry.name)
        stale, now = self.stale(held), self.see_again(held)
        lists = dict(part.lists)
        for listed, was in held.lists.items():
            ends_ms = was.ends_ms if self._is_as_listed(held, listed) else now.lists[listed].ends_ms
            lists[listed] = Sight(now.lists[listed].at, ends_ms)
        keys = {**part.keys, **now.keys}
        whole = (len(held.keys), len(held.lists)) == (len(part.keys), len(part.lists))
        return stale, Part(self.head if whole else part.since, keys, lists)

    def check_reader(self, actor: str) -> None:
        """Refuses somebody who may not look here, or cannot."""
        if not may_use(actor, self.name):
            raise Refused("PERMISSION_DENIED", space=self.name)
        if self.deleted:
            raise Refused("NAMESPACE_DELETED", space=self.name)

    def check_seen(self, part: Part) -> None:
        """Refuses what was seen and lost."""
        try:
            self.model.check_presented(part.revisions())
        except Refused as refused:
            raise Refused(refused.reply.reason, lost=refused.reply.lost, space=self.name) from None

    def _check_grounds(self, caller: Caller) -> None:
        """Refuses a call whose read set no longer holds, or notes what it overrules."""
        self._overruled = ()
        grounds = caller.grounds
        if grounds is None:
            return
        held = grounds.held
        elsewhere = [space for space in held if space != self.name]
        if elsewhere and not (grounds.warn or grounds.allow_checked):
            refuse("UNCHECKABLE_GUARD")
        stale: list[Stale] = []
        for space in elsewhere:
            self._world[space].check_reader(caller.actor)
            self._world[space].check_seen(held[space])
            stale += self._world[space].stale(held[space])
        if self.name in held:
            stale += self.stale(held[self.name])
        if stale and not grounds.warn:
            raise Refused("STALE_READ_SET", stale=tuple(stale))
        self._overruled = tuple(stale)

    def _presenting(self, caller: Caller) -> Caller:
        self._overruled = ()
        part = caller.grounds.seen.get(self.name) if caller.grounds is not None else None
        return caller if part is None else caller._replace(presents=tuple(part.revisions()))

    def _before(self, caller: Caller) -> Part | None:
        part = caller.grounds.seen.get(self.name) if caller.grounds is not None else None
        return None if part is None else self.see_again(part)

    def _after(self, caller: Caller, was: Part | None, replies: Iterable[Reply]) -> ReadSet | None:
        """Returns what the caller has seen once its own commit is made."""
        if caller.grounds is None:
            return None
        seen = caller.grounds.seen
        written = [reply.key for reply in replies if reply.outcome == "applied"]
        if was is None or not written:
            return seen
        part = seen[self.name]
        keys = {**part.keys, **dict.fromkeys(written, Sight(0))}
        now = self.see_again(part._replace(keys=keys))
        return {**seen, self.name: advanced(part, was, now, written)}

    # -- upkeep --------------------------------------------------------------------------------

    def expire(self, collection: str) -> None:
        """Commits the end of what has wholly expired in a collection, at one revision, as a scan does."""
        model = self.model
        keys = [
            key for key in sorted(model.state.entries) if key.startswith(collection) and model.read(key).version == 0
        ]
        self._settle([partial(model.sweep, key) for key in keys])

    def sweep(self) -> None:
        """Does a round of the sweeper: expiry and reaping at one revision, then the log."""
        if self.deleted:
            return
        self._settle([partial(self._look_after, key) for key in self.model.state.entries])
        oldest_ms = self.model.now_ms - LOG_AGE_MS
        gone = [batch for batch in self.log if batch.time_ms <= oldest_ms]
        if gone:
            self.floor = gone[-1].revision
            self.log = self.log[len(gone) :]

    def _look_after(self, key: str) -> Reply | None:
        return self.model.sweep(key) or self.model.reap(key)

    def _settle(self, steps: Sequence[Callable[[], Reply | None]]) -> None:
        model, base = self.model, self.model.state
        entries: dict[str, Entry] = dict(base.entries)
        floor, done = base.floor, []
        for step in steps:
            model.state = base
            reply = step()
            if reply is None:
                continue
            done.append(reply)
            floor = max(floor, model.state.floor)
            if reply.key in model.state.entries:
                entries[reply.key] = model.state.entries[reply.key]
            else:
                del entries[reply.key]
        model.state = base
        if done:
            model.state = base._replace(head=model.next(), entries=entries, floor=floor)
            self._logged(done)

    def _logged(self, replies: Sequence[Reply]) -> None:
        """Tells of a commit, and moves the stamps of the collections above what it wrote."""
        self.exists = True
        replies = [reply for reply in replies if reply.events]
        stamps = dict(self.stamps)
        touched = {collection for reply in replies for collection in above(reply.key)}
        for reply in replies:
            for collection in above(reply.key):
                members = self.head if reply.members else stamps.get(collection, (0, 0))[1]
                stamps[collection] = self.head, members
        self.stamps = stamps
        self.faded = {name: stamp for name, stamp in self.faded.items() if name not in touched}
        if replies:
            events = tuple((reply.key, *event) for reply in replies for event in reply.events)
            ended = frozenset(r.key for r in replies if r.members and r.events[-1][0] in ("DELETE", "EXPIRE"))
            self.log = (*self.log, Batch(self.head, self.model.now_ms, events, ended))

    # -- life and loss -------------------------------------------------------------------------

    def ensure(self) -> None:
        """Makes it live; a deleted one begins its next generation above everything that anybody has read."""
        self.exists = True
        if not self.deleted:
            return
        origin = self.model.next()
        self.deleted = False
        self.generation += 1
        self.model.state = State(origin, {}, origin, {}, {}, {})
        self.model.lost = []
        self.log, self.floor, self.stamps, self.faded = (), origin, {}, {}

    def delete(self) -> None:
        self.deleted = True
        state = self.model.state
        self.model.state = State(state.head, {}, state.floor, {}, {}, {})
        self.log, self.floor, self.stamps, self.faded = (), state.head, {}, {}

    def fade(self, collection: str, stamps: tuple[int, int]) -> None:
        """Notes what the server says of an empty collection."""
        wanted = self.stamps.get(collection, (0, 0))
        assert wanted <= stamps <= (self.head, self.head)
        assert wanted[1] <= stamps[1]
        self.faded = {**self.faded, collection: stamps}

    def is_empty(self, collection: str) -> bool:
        """Tells whether nothing is stored in a collection, not even a tombstone."""
        return not any(key.startswith(collection) for key in self.model.state.entries)

    def keep(self) -> Kept:
        return Kept(
            self.generation,
            self.exists,
            self.deleted,
            self.model.state,
            tuple(self.model.lost),
            self.log,
            self.floor,
            self.stamps,
            self.faded,
        )

    def put_back(self, kept: Kept) -> None:
        """Forgets what happened since."""
        self.generation, self.exists, self.deleted = kept.generation, kept.exists, kept.deleted
        self.log, self.floor, self.stamps, self.faded = kept.log, kept.floor, kept.stamps, kept.faded
        self.model.lost = list(kept.lost)
        self.model.state = kept.state

    def fall_back(self, kept: Kept, epoch: int) -> None:
        """Begins an epoch with what an earlier moment had; ``keep()`` itself if nothing was lost."""
        self.put_back(kept)
        self.faded = {}
        self.model.epoch = epoch - 1
        self.model.rollback(kept.state)


def above(key: str) -> list[str]:
    """Returns every collection that contains a key."""
    return ["", *(key[: at + 1] for at, letter in enumerate(key) if letter == "/")]


def may_use(actor: str, space: str) -> bool:
    """Tells whether a namespace is open to somebody: an agent's own is closed to all others."""
    return not space.startswith("agents/") or space == f"agents/{actor.partition('#')[0]}"


def refresh(world: Mapping[str, Space], actor: str, grounds: Grounds) -> tuple[list[Stale], ReadSet]:
    """Returns what of a read set differs from the present, and the read set of the present.

    Raises:
        Refused: somebody may not look, or what was seen was lost.
    """
    stale: list[Stale] = []
    seen = dict(grounds.seen)
    for space, held in grounds.held.items():
        world[space].check_reader(actor)
        world[space].check_seen(held)
        differs, seen[space] = world[space].refresh(seen[space], held)
        stale += differs
    return stale, seen
