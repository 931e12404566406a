"""The model of a whole server: several namespaces, agents' incarnations, transactions, sweeps, loss.

Each namespace is a :class:`~tests.simulation.model.Model`; here is what concerns more than one call or key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, cast

from tests.simulation.calls import Call, Caller, Delete, Merge, Put, Refused, Reply, Seen, Update, presented
from tests.simulation.model import Model
from tests.simulation.model_state import Entry, State

HOUR_MS = 3_600_000
LOG_AGE_MS = 600_000


class Transact(NamedTuple):
    """A transaction: versions by key, and one call for each key that is written."""

    compares: tuple[tuple[str, int], ...]
    calls: tuple[Put | Delete | Merge, ...]


class Batch(NamedTuple):
    """One commit as a log tells of it: ``(key, kind, actor)`` of each event."""

    revision: int
    time_ms: int
    events: tuple[tuple[str, str, str], ...]


class Together(NamedTuple):
    """The answer to a transaction: of each part if it was applied, else the failed parts' keys and reasons."""

    outcome: str
    reason: str = ""
    revision: int = 0
    replies: tuple[Reply, ...] = ()
    failures: tuple[tuple[int, bool, str, str], ...] = ()
    lost: tuple[int, int] | None = None


class Kept(NamedTuple):
    """A namespace as it was at some moment; everything in it is immutable."""

    generation: int
    exists: bool
    deleted: bool
    state: State
    lost: tuple[tuple[int, int], ...]
    log: tuple[Batch, ...]
    floor: int


class Space:
    """One namespace over its generations.

    Attributes:
        model: the present generation's rules and records.
        log: what watchers and readers of the history are told.
        floor: the log holds everything after this revision.
    """

    def __init__(self, name: str, epoch: int, *, private: bool) -> None:
        self.name = name
        self.model = Model(epoch=epoch, private=private, retention_ms=HOUR_MS)
        self.generation = 1
        self.exists = False
        self.deleted = False
        self.log: tuple[Batch, ...] = ()
        self.floor = 0

    @property
    def head(self) -> int:
        return self.model.state.head

    # -- writes --------------------------------------------------------------------------------

    def do(self, caller: Caller, call: Call) -> Reply:
        """Serves a call."""
        if caller.permitted and self.deleted:
            return Reply("refused", "NAMESPACE_DELETED")
        before = self.head
        reply = self.model.do(caller, call)
        if self.head > before:
            self._logged([(reply.key, *event) for event in reply.events])
        return reply

    def transact(self, caller: Caller, call: Transact) -> Together:
        """Serves a transaction: every part is decided on what was there before, and all get one revision."""
        if not caller.permitted:
            return Together("refused", "PERMISSION_DENIED")
        if self.deleted:
            return Together("refused", "NAMESPACE_DELETED")
        try:
            known = self._admit(caller, call)
            if known is not None:
                return known._replace(outcome="replayed")
            return self._together(caller, call)
        except Refused as refused:
            return Together("refused", refused.reply.reason, lost=refused.reply.lost)

    def _admit(self, caller: Caller, call: Transact) -> Together | None:
        found = self.model._remembered(caller)
        if found is not None:
            meant, reply, _ = found
            if cast("object", meant) != call:
                raise Refused("REQUEST_ID_REUSED")
            return cast("Together", reply)
        revisions = [version for _, version in call.compares]
        revisions += [revision for part in call.calls for revision in presented(part)]
        # Presents them all, in this order, as one call.
        self.model._admit(caller._replace(request=None), Update("", seen=Seen(0, tuple(revisions))))
        for part in call.calls:
            if isinstance(part, Put) and len(part.data) > self.model.item_bytes_max:
                raise Refused("VALUE_TOO_LARGE")
        return None

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
            try:
                reply = model._serve(anonymous, part)
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
        model._check_unanswered(caller)
        revision = model._next()
        fences = base.fences | {lock: max(token, base.fences.get(lock, 0)) for lock, token in caller.fences}
        model.state = base._replace(head=revision, entries=entries, fences=fences)
        told = tuple(
            reply if reply.outcome == "applied" else reply._replace(seen=reply.seen._replace(prefix=revision))
            for reply in replies
        )
        answer = Together("applied", revision=revision, replies=told)
        model._remember(caller, cast("Call", call), cast("Reply", answer))
        self._logged([(reply.key, *event) for reply in replies for event in reply.events])
        return answer

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
            model.state = base._replace(head=model._next(), entries=entries, floor=floor)
            self._logged([(reply.key, *event) for reply in done for event in reply.events])

    def _logged(self, events: Sequence[tuple[str, str, str]]) -> None:
        self.exists = True
        if events:
            self.log = (*self.log, Batch(self.head, self.model.now_ms, tuple(events)))

    # -- life and loss -------------------------------------------------------------------------

    def ensure(self) -> None:
        """Makes it live; a deleted one begins its next generation above everything that anybody has read."""
        self.exists = True
        if not self.deleted:
            return
        origin = self.model._next()
        self.deleted = False
        self.generation += 1
        self.model.state = State(origin, {}, origin, {}, {}, {})
        self.model.lost = []
        self.log, self.floor = (), origin

    def delete(self) -> None:
        self.deleted = True
        state = self.model.state
        self.model.state = State(state.head, {}, state.floor, {}, {}, {})
        self.log, self.floor = (), state.head

    def keep(self) -> Kept:
        return Kept(
            self.generation,
            self.exists,
            self.deleted,
            self.model.state,
            tuple(self.model.lost),
            self.log,
            self.floor,
        )

    def fall_back(self, kept: Kept, epoch: int) -> None:
        """Begins an epoch with what an earlier moment had; ``keep()`` itself if nothing was lost."""
        self.generation, self.exists, self.deleted = kept.generation, kept.exists, kept.deleted
        self.log, self.floor = kept.log, kept.floor
        self.model.lost = list(kept.lost)
        self.model.epoch = epoch - 1
        self.model.rollback(kept.state)
