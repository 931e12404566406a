"""What agents were told, and what must be true of it in the end. The oracle of simulations, beside the checkers.

It believes no server: an answer that an agent got is written down here, and in the end it is compared with what a
reader finds. What a crash has lost may be missing, if the server says that it is lost.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from msgspec.structs import replace

from noosphere.server.checking import Call, History, Reply, check_calls, new_header

Cuts = Mapping[str, Sequence[tuple[int, int]]]
"""What survived each epoch's beginning, by namespace: the epoch, and the newest revision before it."""


class Noted(NamedTuple):
    """One thing that an agent wants to be there, under a name that nobody uses twice.

    Attributes:
        name: of the thing.
        revision: at which it was told to be there; 0 if it does not know whether it is.
    """

    name: str
    revision: int


class Journal:
    """The calls of recorded clients, as a :class:`~noosphere.server.checking.Recorder` writes them."""

    def __init__(self) -> None:
        self._begun: list[Call] = []
        self._ended: dict[tuple[str, int], Reply] = {}

    def begin(self, call: Call) -> None:
        """A call is sent."""
        self._begun.append(call)

    def end(self, reply: Reply) -> None:
        """It was answered."""
        self._ended[reply.process, reply.call] = reply

    def calls(self) -> tuple[Call, ...]:
        """Returns the calls with their replies, by their start."""
        found = (replace(call, reply=self._ended.get((call.process, call.call))) for call in self._begun)
        return tuple(sorted(found, key=lambda call: call.start_ns))


class Witness:
    """Takes note of what agents were told.

    Attributes:
        journal: what recorded clients have called.
        problems: what must not be, in words.
        steps: what was done, and how it ended.
    """

    def __init__(self) -> None:
        self.journal = Journal()
        self.problems: list[str] = []
        self.steps: Counter[str] = Counter()
        self._noted: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
        self._fenced: list[tuple[int, int, str]] = []
        self._watched: list[tuple[str, list[int]]] = []

    def wrong(self, what: str) -> None:
        """Something is as it must not be."""
        if len(self.problems) < 50:
            self.problems.append(what)

    def wants(self, space: str, place: str, name: str) -> None:
        """An agent is about to put something into a collection of things; it does not know yet what comes of it."""
        self._noted[space, place][name] = 0

    def has(self, space: str, place: str, name: str, revision: int) -> None:
        """It was told that it is there."""
        self._noted[space, place][name] = revision

    def refused(self, space: str, place: str, name: str) -> None:
        """It was told that it is not, and will not be."""
        del self._noted[space, place][name]

    def fenced(self, space: str, revision: int, token: int) -> None:
        """A write under a lock was acknowledged."""
        self._fenced.append((revision, token, space))

    def watching(self, space: str) -> list[int]:
        """Returns a list for the commits that a watcher is told of, one by one, from here until it is reset."""
        told: list[int] = []
        self._watched.append((space, told))
        return told

    @property
    def places(self) -> list[tuple[str, str]]:
        """Where agents have put things: namespace, and collection."""
        return list(self._noted)

    def check_place(self, space: str, place: str, found: Sequence[str], cuts: Cuts) -> None:
        """Compares what agents were told with what is there.

        Args:
            space: the namespace.
            place: the collection.
            found: the names of the things in it, in their order.
            cuts: what survived.
        """
        noted = self._noted[space, place]
        for name, count in Counter(found).items():
            if count > 1:
                self.wrong(f"{space} {place}: {name} is there {count} times")
            if name not in noted:
                self.wrong(f"{space} {place}: {name} is there though it was refused")
        there = set(found)
        for name, revision in noted.items():
            if revision and name not in there and not is_lost(revision, cuts.get(space, ())):
                self.wrong(f"{space} {place}: {name} was acknowledged at {revision:#x} and is gone without a word")

    def check_fences(self, cuts: Cuts) -> None:
        """Nobody has written under a lock after somebody with a later token."""
        newest = 0
        for revision, token, space in sorted(self._fenced):
            if is_lost(revision, cuts.get(space, ())):
                continue
            if token < newest:
                self.wrong(f"{space}: token {token} wrote at {revision:#x} after token {newest}")
            newest = max(newest, token)

    def check_history(self, complete: Sequence[str], told: Cuts, cuts: Cuts, may_lose: bool) -> None:
        """Has the checkers judge all recorded calls, and compares watchers with what was acknowledged.

        Args:
            complete: namespaces in which only recorded clients write.
            told: what the server says has survived.
            cuts: what has.
            may_lose: whether acknowledged commits may be lost, if that is told.
        """
        calls = self.journal.calls()
        verdict = check_calls(History(new_header(complete=complete, cuts=cuts), calls))
        self.steps["calls judged"] += len(calls)
        for violation in verdict.violations:
            self.wrong(f"{violation.kind}: {violation.text} ({', '.join(violation.keys)})")
        acked: dict[str, set[int]] = defaultdict(set)
        for call in calls:
            lost = call.reply is not None and is_lost(call.reply.head, cuts.get(call.namespace, ()))
            if lost and not may_lose:
                self.wrong(f"shown before it was safe, with a disk that syncs: {call.describe()}")
            if call.applied is None or not call.applied.revision:
                continue
            if not is_lost(call.applied.revision, cuts.get(call.namespace, ())):
                acked[call.namespace].add(call.applied.revision)
            elif not is_lost(call.applied.revision, told.get(call.namespace, ())):
                self.wrong(f"acknowledged and lost, and nobody is told: {call.describe()}")
            elif not may_lose:
                self.wrong(f"acknowledged and lost, with a disk that syncs: {call.describe()}")
        for space, revisions in self._watched:
            if any(later <= earlier for earlier, later in pairwise(revisions)):
                self.wrong(f"{space}: a watcher was told out of order")
            if revisions:
                first, last = revisions[0], revisions[-1]
                missed = {one for one in acked[space] if first <= one <= last} - set(revisions)
                for one in sorted(missed)[:3]:
                    self.wrong(f"{space}: a watcher never heard of {one:#x}")


def is_lost(revision: int, cuts: Sequence[tuple[int, int]]) -> bool:
    """Tells whether a server says that a revision is lost."""
    return any(cut < revision <= epoch << 40 for epoch, cut in cuts)
