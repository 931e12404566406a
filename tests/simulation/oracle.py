"""The safety oracle: it knows no rule, only what was promised.

It watches what callers are shown and what happens to values, and objects when something was lost in
silence: a value replaced by somebody who had neither seen nor been told of it, a delete undone unseen, a
task with two holders or done twice, a revision issued twice, an acknowledged write lost unannounced.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from tests.simulation.calls import (
    Add,
    Call,
    Caller,
    Claim,
    Complete,
    Delete,
    Put,
    Release,
    Renew,
    Reply,
    Resolve,
    View,
    presented,
)

Dots = frozenset[int]


class SafetyViolation(AssertionError):
    """Something that was promised did not hold."""


class Lease(NamedTuple):
    """What the oracle knows of a claim: who was told that the task is theirs, and until when."""

    holder: str
    fence: int
    until_ms: int
    done: bool = False

    def held(self, now_ms: int) -> bool:
        return not self.done and now_ms < self.until_ms


@dataclass
class Past:
    """What happened, as far as it was not lost. Never changed in place but by :class:`Oracle`.

    Attributes:
        head: the newest revision.
        events: per key, every dot that was written: values and deletes.
        deleted: keys whose last life was ended by a delete, with its revision.
        leases: keys that are being or have been worked on in this life.
        tallies: the sums of counters.
    """

    head: int = 0
    events: dict[str, list[int]] = field(default_factory=dict)
    deleted: dict[str, int] = field(default_factory=dict)
    leases: dict[str, Lease] = field(default_factory=dict)
    tallies: dict[str, int] = field(default_factory=dict)

    def copy(self) -> Past:
        return Past(
            self.head,
            {key: list(dots) for key, dots in self.events.items()},
            dict(self.deleted),
            dict(self.leases),
            dict(self.tallies),
        )


class Oracle:
    """Watches one namespace."""

    def __init__(self) -> None:
        self.past = Past()
        self._issued: set[int] = set()
        self._lost: set[int] = set()

    def everything(self, key: str) -> Dots:
        """Returns what a reader of the key has seen now."""
        return frozenset(self.past.events.get(key, ()))

    def snapshot(self) -> Past:
        return self.past.copy()

    def rollback(self, past: Past) -> None:
        self._lost |= {revision for revision in self._issued if past.head < revision <= self.past.head}
        self.past = past.copy()

    def saw(self, view: View, now_ms: int) -> None:
        """Checks what a reader is shown."""
        for value in view.values:
            if value.ends_ms is not None and value.ends_ms <= now_ms:
                raise SafetyViolation(f"a value that ended at {value.ends_ms} is shown at {now_ms}")
        if (view.version == 0) != (not view.values):
            raise SafetyViolation(f"version {view.version} with {len(view.values)} values")

    def ended(self, key: str, reply: Reply, after: View) -> None:
        """Notes the commit of an expiry or a reaping."""
        self._note_revision(reply.revision)
        if not after.values:
            self.past.leases.pop(key, None)
            if reply.events:
                self.past.deleted.pop(key, None)

    def wrote(
        self, caller: Caller, call: Call, reply: Reply, before: View, after: View, known: Dots, policy: str, now_ms: int
    ) -> Dots:
        """Checks a write that was answered.

        Args:
            caller: who wrote.
            call: what was asked.
            reply: the answer.
            before: the key before, if it was applied.
            after: the key after, if it was applied.
            known: dots of the key that the caller has seen, by what it presents.
            policy: the key's conflict policy.
            now_ms: store time.

        Returns:
            The dots that the caller has seen now, by this answer.
        """
        if reply.outcome == "unchanged":
            return self.everything(reply.key)
        if reply.outcome != "applied":
            return known
        if lost := [revision for revision in presented(call) if revision in self._lost]:
            raise SafetyViolation(f"executed although {lost} were lost")
        key = reply.key
        if not before.values:
            # A new life: what was claimed or counted in the last one is over.
            self.past.leases.pop(key, None)
            self.past.tallies.pop(key, None)
        self._note_revision(reply.revision)
        match call:
            case Claim() | Renew() | Release() | Complete():
                self._check_work(caller, call, reply, now_ms)
                return self.everything(key)
            case Put() | Delete() | Resolve():
                self._check_loss(call, reply, before, after, known)
            case _:
                pass
        if isinstance(call, Put) and not before.values:
            self._check_resurrection(call, reply, known, policy)
        self.past.events.setdefault(key, []).append(reply.revision)
        self.past.deleted.pop(key, None)
        if not after.values:
            self.past.leases.pop(key, None)
            if isinstance(call, Delete | Resolve):
                self.past.deleted[key] = reply.revision
        if isinstance(call, Add):
            self._check_tally(call, after)
        elif after.kind == "COUNTER":
            self.past.tallies[key] = int(after.values[0].data)
        return self._knows_now(call, reply, before, after, known)

    def _note_revision(self, revision: int) -> None:
        if revision in self._issued or revision <= self.past.head:
            raise SafetyViolation(f"revision {revision} was issued before, or below the head {self.past.head}")
        self._issued.add(revision)
        self.past.head = revision

    def _check_loss(self, call: Put | Delete | Resolve, reply: Reply, before: View, after: View, known: Dots) -> None:
        gone = {value.dot for value in before.values} - {value.dot for value in after.values}
        says = isinstance(call, Resolve) or call.when.seen is not None or call.when.version is not None
        informed = known if says else frozenset()
        if silent := gone - informed - set(reply.overwritten):
            raise SafetyViolation(f"silent loss of {sorted(silent)}")

    def _check_resurrection(self, call: Put, reply: Reply, known: Dots, policy: str) -> None:
        end = self.past.deleted.get(call.key)
        if call.when.seen is None or end is None or end in known:
            return
        if call.when.version is None and policy != "REJECT" and (reply.concurrent_delete or end in reply.overwritten):
            return
        raise SafetyViolation(f"the unseen delete at {end} was undone")

    def _check_tally(self, call: Add, after: View) -> None:
        total = self.past.tallies.get(call.key, 0) + call.delta
        if int(after.values[0].data) != total:
            raise SafetyViolation(f"the counter shows {after.values[0].data!r}, what was added is {total}")
        self.past.tallies[call.key] = total

    def _check_work(self, caller: Caller, call: Call, reply: Reply, now_ms: int) -> None:
        key = reply.key
        lease = self.past.leases.get(key)
        if isinstance(call, Claim):
            if lease is not None and (lease.done or lease.held(now_ms)):
                raise SafetyViolation(f"{key} was handed out although {lease} at {now_ms}")
            self.past.leases[key] = Lease(caller.actor, reply.revision, now_ms + call.lease_ms)
            return
        assert isinstance(call, Renew | Release | Complete)
        if lease is None or not lease.held(now_ms) or (lease.holder, lease.fence) != (caller.actor, call.fence):
            raise SafetyViolation(f"{caller.actor} worked on {key} under {call.fence} although {lease} at {now_ms}")
        match call:
            case Renew():
                lease = lease._replace(until_ms=now_ms + call.lease_ms)
            case Release():
                lease = lease._replace(until_ms=now_ms)
            case Complete():
                lease = lease._replace(done=True)
        self.past.leases[key] = lease

    def _knows_now(self, call: Call, reply: Reply, before: View, after: View, known: Dots) -> Dots:
        """Returns what the caller knows of the key: by what is there and what it was told, not by its new context."""
        live = {value.dot for value in after.values}
        if isinstance(call, Put | Delete | Resolve):
            return self.everything(call.key) if live <= {reply.revision} else known | {reply.revision}
        shown = reply.merged is not None or not before.values
        return self.everything(reply.key) if shown else known
