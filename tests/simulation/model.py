"""A second statement of the write rules of ``docs/consistency.md``, against which the real ones are held.

Small, slow and obvious: values are Python objects, nothing is encoded, nothing is folded, every question
is answered by looking at everything. It shares no code with the product. One :class:`Model` is one
namespace; its calls are served one after the other.

It grew out of a model of put, delete, reaping and rollback alone; where that one differed from the page, the
page won. So neither version nor context creates in a shared namespace and is refused over a live value;
version and context together make anything unseen a conflict under every policy; a key without a live value
has version 0, a read of it covers the head, and the acknowledgement of its delete has version 0; an unseen
delete among siblings is a flag of the reply, not an overwritten dot; reaping takes a revision, and the floor
rises to the highest reaped *dot*, which an expiry or a claim does not move; revisions that a rollback lost
are refused when they are presented.

What the page leaves open is decided here as the product decides it: a delete that leaves siblings alive
leaves the claim, a recreated key's clock includes everything up to the floor, and a conflict that is
resolved by a value keeps the attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tests.simulation.calls import (
    Attributes,
    Call,
    Caller,
    Claim,
    Complete,
    Condition,
    Delete,
    Merge,
    Put,
    Refused,
    Release,
    Renew,
    Reply,
    Resolve,
    Seen,
    Shown,
    Task,
    Update,
    View,
    kind_of,
    presented,
    refuse,
    sizes,
)
from tests.simulation.model_merges import merged, render, typed
from tests.simulation.model_requests import check_unanswered, forget, remember, remembered
from tests.simulation.model_state import Entry, State, Value, Wait, fits

SIBLINGS_MAX = 16
SHOWN_BYTES_MAX = 128


class Model:
    """One namespace.

    Attributes:
        private: whether it is the callers' own, where the last writer wins.
        policies: collection to policy; the longest one that contains a key decides, "" for all others.
        lost: every ``(cut, end]`` of revisions that rollbacks lost.
        holds: refuses a caller whose read set no longer holds.
    """

    def __init__(
        self,
        *,
        epoch: int = 1,
        private: bool = False,
        policies: dict[str, str] | None = None,
        item_bytes_max: int = 1024,
        retention_ms: int = 3_600_000,
    ) -> None:
        self.epoch = epoch
        self.now_ms = 1_000_000
        self.private = private
        self.policies = policies or {"": "REJECT"}
        self.item_bytes_max = item_bytes_max
        self.retention_ms = retention_ms
        self.lost = [(0, epoch * 2**40)]
        self.state = State(0, {}, 0, {}, {}, {})
        self.holds: Callable[[Caller], None] = lambda caller: None
        self._conflicts = 0

    # -- time, loss ----------------------------------------------------------------------------

    def rollback(self, snapshot: State) -> None:
        """Goes back to an earlier state, as a failover or a torn log does, and begins a new epoch."""
        self.state = snapshot
        self.epoch += 1
        self.lost.append((snapshot.head, self.epoch * 2**40))

    def forget_client(self, actor: str) -> None:
        """Drops what is remembered of an incarnation that has ended."""
        self.state = forget(self.state, actor)

    def sweep(self, key: str) -> Reply | None:
        """Commits the expiry of what has expired; None if nothing has."""
        entry = self.state.entries.get(key)
        if entry is None:
            return None
        values = tuple(value.at(self.now_ms) for value in entry.values)
        if values == entry.values:
            return None
        alive = any(value.content is not None for value in values)
        entry = entry._replace(values=values, changes=entry.changes + 1)
        if not alive:
            entry = entry._replace(kind="", attributes=(), claim=None, ended_ms=self.now_ms)
        revision = self._write(key, entry)
        return Reply("applied", revision=revision, events=(("EXPIRE", ""),), members=not alive, key=key)

    def reap(self, key: str) -> Reply | None:
        """Drops a tombstone for good; None if there is none, or it is too young."""
        entry = self.state.entries.get(key)
        if entry is None or any(value.content is not None for value in entry.values):
            return None
        if self.now_ms < entry.ended_ms + self.retention_ms:
            return None
        state = self.state
        revision = self.next()
        entries = {k: v for k, v in state.entries.items() if k != key}
        floor = max(state.floor, *(value.dot for value in entry.values))
        self.state = state._replace(head=revision, entries=entries, floor=floor)
        return Reply("applied", revision=revision, key=key)

    # -- reads ---------------------------------------------------------------------------------

    def read(self, key: str) -> View:
        entry = self.state.entries.get(key)
        if entry is None:
            return View(0, Seen(self.state.head))
        live = self._live(entry)
        if not live:
            return View(0, Seen(self.state.head), changes=entry.changes)
        shown = tuple(Shown(v.dot, v.writer, v.written_ms, render(entry.kind, v.content), v.ends_ms) for v in live)
        return View(
            entry.changed,
            Seen(entry.changed),
            shown,
            entry.kind,
            entry.attributes,
            entry.claim,
            entry.born_ms,
            entry.changes,
        )

    def conflicts(self, collection: str) -> list[tuple[str, Wait]]:
        """Returns the keys that have several values, the longest waiting first."""
        waiting = [
            (entry.waits, key)
            for key, entry in self.state.entries.items()
            if entry.waits is not None and key.startswith(collection) and len(self._live(entry)) > 1
        ]
        return [(key, wait) for wait, key in sorted(waiting)]

    def has_ended(self, key: str) -> bool:
        """Tells whether a key's last value has ended by time, and nobody has committed that yet."""
        entry = self.state.entries[key]
        return any(value.content is not None for value in entry.values) and not self._live(entry)

    def _live(self, entry: Entry | None) -> list[Value]:
        return [v for v in self._values(entry) if v.content is not None]

    def _values(self, entry: Entry | None) -> list[Value]:
        """Returns live values and ends of values as of now."""
        return [value.at(self.now_ms) for value in entry.values] if entry is not None else []

    # -- writes: what comes before the record ---------------------------------------------------

    def do(self, caller: Caller, call: Call) -> Reply:
        """Serves a write."""
        try:
            replay = self.admit(caller, call, presented(call), sizes(call))
            if replay is not None:
                return replay._replace(outcome="replayed")
            if not isinstance(call, Claim):
                # Whether there is anything to claim, and so to decide, shows first.
                self.holds(caller)
            return self.serve(caller, call)
        except Refused as refused:
            return refused.reply

    def admit(self, caller: Caller, call: Call, revisions: Iterable[int], bytes_written: Iterable[int]) -> Reply | None:
        """Does what comes before any record and any read set; returns what is remembered if this is a replay."""
        if not caller.permitted:
            refuse("PERMISSION_DENIED")
        if (known := remembered(self.state, caller, self.now_ms)) is not None:
            meant, reply, _ = known
            if meant != call:
                refuse("REQUEST_ID_REUSED")
            return reply
        self.check_presented((*revisions, *caller.presents))
        if any(token < self.state.fences.get(lock, 0) for lock, token in caller.fences):
            refuse("STALE_FENCE")
        if not caller.current:
            refuse("STALE_INCARNATION")
        if any(size > self.item_bytes_max for size in bytes_written):
            refuse("VALUE_TOO_LARGE")
        return None

    def check_presented(self, revisions: Iterable[int]) -> None:
        """Refuses what was lost, the lowest of it first, and what was never issued."""
        revisions = sorted(revisions)
        for revision in revisions:
            for cut, end in self.lost:
                if cut < revision <= end:
                    raise Refused("ACKED_WRITES_LOST", lost=(cut, end))
        if any(revision > self.state.head for revision in revisions):
            refuse("FUTURE_REVISION")

    def serve(self, caller: Caller, call: Call) -> Reply:
        match call:
            case Put():
                return self._put(caller, call)
            case Delete():
                return self._delete(caller, call)
            case Resolve():
                return self._resolve(caller, call)
            case Claim():
                return self._claim(caller, call)
            case Renew() | Release() | Complete():
                return self._work(caller, call)
            case _:
                return self._merge(caller, call)

    # -- put and delete -------------------------------------------------------------------------

    def _put(self, caller: Caller, call: Put) -> Reply:
        key, when = call.key, call.when
        if call.until_ms is not None and call.until_ms <= self.now_ms:
            refuse("INVALID_FIELD")
        entry = self.state.entries.get(key)
        live = self._live(entry)
        self._check_version(entry, when)
        content: Any = call.data
        kind = entry.kind if entry is not None and live else ""
        if kind:
            if when.version is None:
                refuse("PRECONDITION_REQUIRED", [v.dot for v in live])
            content = typed(kind, call.data, self.next(), self.item_bytes_max)
        kept, overwritten, undone = self._judge(key, when)
        if len(kept) + 1 > SIBLINGS_MAX:
            refuse("SIBLING_LIMIT", [v.dot for v in kept])
        ends_ms = self.now_ms + call.ttl_ms if call.ttl_ms is not None else call.until_ms
        mine = Value(self.next(), caller.actor, self.now_ms, content, ends_ms)
        return self._commit(
            caller,
            call,
            self._rewritten(key, caller.actor, [*kept, mine], kind, call.attributes),
            "PUT",
            sole=not kept,
            sent=when.seen or Seen(),
            overwritten=overwritten,
            concurrent_delete=undone,
            members=not live,
        )

    def _delete(self, caller: Caller, call: Delete) -> Reply:
        key, when = call.key, call.when
        entry = self.state.entries.get(key)
        self._check_version(entry, when)
        if entry is None or not self._live(entry):
            return Reply("unchanged", version=0, seen=Seen(self.state.head), key=key)
        kept, overwritten, _ = self._judge(key, when)
        if kept:
            rewritten = self._rewritten(key, caller.actor, kept, entry.kind, entry.attributes)
        else:
            end = Value(self.next(), caller.actor, self.now_ms, None)
            rewritten = self._rewritten(key, caller.actor, [end], "", ())
        return self._commit(
            caller,
            call,
            rewritten,
            "DELETE",
            sole=not kept,
            sent=when.seen or Seen(),
            mine=False,
            overwritten=overwritten,
            members=not kept,
        )

    def _resolve(self, caller: Caller, call: Resolve) -> Reply:
        """One value, or none, in the place of several; whoever resolves must have seen them all."""
        entry = self.state.entries.get(call.key)
        live = self._live(entry)
        if entry is None or len(live) < 2:
            refuse("NO_CONFLICT")
        kept = next((value for value in live if value.dot == call.keep), None)
        if call.keep and kept is None:
            refuse("INVALID_FIELD")
        if unseen := [v.dot for v in self._values(entry) if not call.seen.covers(v.dot)]:
            refuse("CONFLICT", unseen)
        data = kept.content if kept is not None else call.data
        mine = Value(self.next(), caller.actor, self.now_ms, data, kept.ends_ms if kept is not None else None)
        rewritten = self._rewritten(call.key, caller.actor, [mine], "", entry.attributes if data is not None else ())
        kind = "PUT" if data is not None else "DELETE"
        return self._commit(caller, call, rewritten, kind, mine=data is not None, members=data is None)

    def _check_version(self, entry: Entry | None, when: Condition) -> None:
        version = entry.changed if entry is not None and self._live(entry) else 0
        if when.version is not None and when.version != version:
            refuse("VERSION_MISMATCH", [v.dot for v in self._values(entry) if v.dot > when.version])

    def _judge(self, key: str, when: Condition) -> tuple[list[Value], list[int], bool]:
        """Returns the values that stay beside the new one, the dots that are reported as overwritten, and whether
        an unseen delete is undone.
        """
        entry = self.state.entries.get(key)
        values, live = self._values(entry), self._live(entry)
        dots = [v.dot for v in live]
        if when.blind:
            return [], dots, False
        if when.seen is None:
            if when.version is not None:
                return [], [], False
            if live and not self.private:
                refuse("PRECONDITION_REQUIRED", dots)
            return [], dots, False
        if entry is None and when.seen.prefix < self.state.floor:
            refuse("CONTEXT_TOO_OLD")
        unseen = [v for v in values if not when.seen.covers(v.dot)]
        policy = self.policy(key)
        if unseen and (when.version is not None or policy == "REJECT"):
            refuse("CONFLICT", [v.dot for v in unseen])
        if policy == "LAST_WRITER_WINS":
            return [], [v.dot for v in unseen], False
        return [v for v in unseen if v.content is not None], [], any(v.content is None for v in unseen)

    def policy(self, key: str) -> str:
        return self.policies[max((c for c in self.policies if key.startswith(c)), key=len)]

    # -- merges ---------------------------------------------------------------------------------

    def _merge(self, caller: Caller, call: Merge) -> Reply:
        entry = self.state.entries.get(call.key)
        live = self._live(entry)
        kind = kind_of(call)
        if entry is not None and live and entry.kind != kind:
            refuse("MERGE_TYPE_MISMATCH")
        before = live[0].content if live else None
        content = merged(call, before, self.next(), self.item_bytes_max)
        rendered = render(kind, content)
        if len(rendered) > self.item_bytes_max:
            refuse("VALUE_TOO_LARGE")
        mine = Value(self.next(), caller.actor, self.now_ms, content, live[0].ends_ms if live else None)
        shown = len(rendered) <= SHOWN_BYTES_MAX
        known = shown or not live
        return self._commit(
            caller,
            call,
            self._rewritten(call.key, caller.actor, [mine], kind, entry.attributes if entry and live else ()),
            "MERGE",
            sole=known,
            mine=known,
            sent=(call.seen if isinstance(call, Update) else None) or Seen(),
            merged=rendered if shown else None,
            trimmed=content[1] if kind == "LOG" else 0,
            members=not live,
        )

    # -- claims ---------------------------------------------------------------------------------

    def _claim(self, caller: Caller, call: Claim) -> Reply:
        for key in sorted(self.state.entries):
            entry = self.state.entries[key]
            task = entry.claim
            free = task is None or not (task.done_by or task.held(self.now_ms))
            if key.startswith(call.prefix) and len(self._live(entry)) == 1 and free and fits(entry, call.where):
                self.holds(caller)
                attempts = task.attempts + 1 if task is not None else 1
                taken = Task(caller.actor, self.now_ms + call.lease_ms, self.next(), attempts)
                return self._commit(caller, call, self._worked(key, caller.actor, taken), "CLAIM")
        return Reply("none")

    def _work(self, caller: Caller, call: Renew | Release | Complete) -> Reply:
        entry = self.state.entries.get(call.key)
        task = entry.claim if entry is not None and self._live(entry) else None
        if task is None or not task.held(self.now_ms) or (task.holder, task.fence) != (caller.actor, call.fence):
            refuse("CLAIM_LOST")
        match call:
            case Renew():
                task, kind = task._replace(until_ms=self.now_ms + call.lease_ms), "RENEW"
            case Release():
                task, kind = task._replace(holder="", until_ms=0), "RELEASE"
            case Complete():
                task, kind = task._replace(holder="", until_ms=0, done_by=caller.actor, result=call.result), "COMPLETE"
        return self._commit(caller, call, self._worked(call.key, caller.actor, task), kind)

    def _worked(self, key: str, actor: str, task: Task) -> tuple[str, Entry]:
        """A claim moves the record's version, but no dot; what has expired is left to the sweep."""
        entry = self.state.entries[key]
        return key, entry._replace(claim=task, changes=entry.changes + 1, writers=entry.writers | {actor: self.next()})

    # -- commits --------------------------------------------------------------------------------

    def next(self) -> int:
        """Returns the revision of the next commit."""
        return max(self.state.head, self.epoch * 2**40) + 1

    def _rewritten(
        self, key: str, actor: str, values: list[Value], kind: str, attributes: Attributes
    ) -> tuple[str, Entry]:
        """Returns the key with other values. Its life goes on if it had a live value and has one now."""
        old = self.state.entries.get(key)
        lived, lives = bool(self._live(old)), any(v.content is not None for v in values)
        entry = Entry(
            changed=0,
            values=tuple(values),
            kind=kind,
            attributes=attributes,
            claim=old.claim if old is not None and lived and lives else None,
            born_ms=old.born_ms if old is not None and lived else self.now_ms,
            ended_ms=0 if lives else self.now_ms,
            changes=(old.changes if old is not None else 0) + 1,
            writers=(old.writers if old is not None else {}) | {actor: self.next()},
            reaped_through=old.reaped_through if old is not None else self.state.floor,
            waits=None,
        )
        return key, entry

    def _commit(
        self,
        caller: Caller,
        call: Call,
        rewritten: tuple[str, Entry],
        kind: str,
        *,
        sole: bool = True,
        mine: bool = True,
        sent: Seen = Seen(),  # noqa: B008 # immutable
        overwritten: Iterable[int] = (),
        concurrent_delete: bool = False,
        merged: bytes | None = None,
        trimmed: int = 0,
        members: bool = False,
    ) -> Reply:
        """Writes, remembers and acknowledges.

        Args:
            caller: who writes.
            call: what was asked.
            rewritten: key and its new entry.
            kind: the event.
            sole: whether the writer knows all that is live now.
            mine: whether the new dot is a live value that the writer knows.
            sent: the context that was sent.
            overwritten: dots to report, in any order.
            concurrent_delete: to report.
            merged: to report.
            trimmed: to report.
            members: to report.
        """
        check_unanswered(self.state, caller)
        key, entry = rewritten
        expired = kind in ("PUT", "DELETE", "MERGE") and self._has_expired(key)
        revision = self._write(key, entry)
        if sole:
            version, seen = revision if mine else 0, Seen(revision)
        else:
            # A context's extra dots are kept only while they live; of what was sent, none does.
            version, seen = None, Seen(sent.prefix, (revision,) if mine else ())
        reply = Reply(
            "applied",
            revision=revision,
            version=version,
            seen=seen,
            overwritten=tuple(sorted(overwritten, reverse=True)),
            concurrent_delete=concurrent_delete,
            merged=merged,
            trimmed=trimmed,
            events=((("EXPIRE", ""),) if expired else ()) + ((kind, caller.actor),),
            members=members,
            key=key,
        )
        self.state = remember(self.state, caller, call, reply, self.now_ms)
        fences = dict(self.state.fences)
        for lock, token in caller.fences:
            fences[lock] = max(token, fences.get(lock, 0))
        self.state = self.state._replace(fences=fences)
        return reply

    def _has_expired(self, key: str) -> bool:
        entry = self.state.entries.get(key)
        return entry is not None and tuple(self._values(entry)) != entry.values

    def _write(self, key: str, entry: Entry) -> int:
        revision = self.next()
        old = self.state.entries.get(key)
        waits = None
        if len(self._live(entry)) > 1:
            # It has waited since the commit that made one value several; whether a sweep came between says nothing.
            waits = old.waits if old is not None and len(self._live(old)) > 1 else None
            self._conflicts += waits is None
            waits = waits or Wait(revision, self._conflicts, self.now_ms)
        entries = self.state.entries | {key: entry._replace(changed=revision, waits=waits)}
        self.state = self.state._replace(head=revision, entries=entries)
        return revision
