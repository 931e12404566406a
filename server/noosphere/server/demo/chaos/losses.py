"""Accounts for every acknowledged write of a run with a failover: it survived, or its writer was told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from noosphere.server.checking import Call, Op, show_revision

from ..protocol import Event, Recovered, Settled, Told
from .held import Held

LISTED_MAX = 20
_NAMED = frozenset({Op.PUT, Op.DELETE, Op.MERGE, Op.TRANSACT, Op.COMPLETE})
"""What a client can name when it is lost; of claims it is told by the range alone."""


class LostWrite(NamedTuple):
    """An acknowledged call whose commit did not survive.

    Attributes:
        agent: whose.
        op: what it was.
        keys: what it wrote.
        revision: at which it was acknowledged.
        told: whether its writer was told that the revision is gone.
        named: whether its writer's client has named the write.
    """

    agent: str
    op: str
    keys: tuple[str, ...]
    revision: int
    told: bool
    named: bool

    def describe(self) -> str:
        """Returns one line for people."""
        told = "named by its client" if self.named else "in the range told to its client" if self.told else "NOT TOLD"
        return f"{show_revision(self.revision)} {self.agent} {self.op} {', '.join(self.keys)}: {told}"


@dataclass(slots=True)
class Signals:
    """What the agents said about the failover, event by event.

    Attributes:
        told: what each was told to be gone: after which revision, up to which one.
        named: revisions of own writes that each agent's client named.
        completed: sections whose completion was lost.
        settled: agents that have made good what they had lost.
        resubmitted, redone, left: what became of their lost calls.
        by: how they were told first.
    """

    told: dict[str, set[tuple[int, int]]] = field(default_factory=dict)
    named: dict[str, set[int]] = field(default_factory=dict)
    completed: Counter[str] = field(default_factory=Counter)
    settled: set[str] = field(default_factory=set)
    resubmitted: int = 0
    redone: int = 0
    left: int = 0
    by: Counter[str] = field(default_factory=Counter)

    def add(self, agent: str, event: Event) -> None:
        """Takes note of one event."""
        match event:
            case Told(after, through, by, writes):
                if agent not in self.told:
                    self.by[by] += 1
                self.told.setdefault(agent, set()).add((after, through))
                named = self.named.setdefault(agent, set())
                for key, operation, revision in writes:
                    if operation == "complete" and revision not in named:
                        self.completed[key.rpartition("/")[2]] += 1
                named.update(revision for _, _, revision in writes)
            case Recovered(resubmitted, redone, left):
                self.resubmitted += resubmitted
                self.redone += redone
                self.left += left
            case Settled():
                self.settled.add(agent)


@dataclass(frozen=True, slots=True)
class Losses:
    """What the failover has lost, and who was told.

    Attributes:
        wanted: how many acknowledged writes it was to lose at least.
        acknowledged: acknowledged writes of the whole run.
        lost: those that did not survive.
        nowhere: acknowledged revisions that neither Redis holds.
        false_alarms: acknowledged revisions that survived although somebody was told that they had not.
        cut: the newest revision of the old primary that survived.
        only_old: commits that the old primary held and the new one does not, whoever made them.
        signals: what the agents said.
        unsettled: agents that were there to the end and did not make good what they had lost.
        trimmed: whether a log does not reach back to the beginning, so that what it lacks may have been there.
    """

    wanted: int
    acknowledged: int
    lost: tuple[LostWrite, ...]
    nowhere: tuple[int, ...]
    false_alarms: tuple[int, ...]
    cut: int
    only_old: int
    signals: Signals
    unsettled: tuple[str, ...]
    trimmed: bool = False

    @property
    def unsignalled(self) -> int:
        """Lost writes of which their writers were not told."""
        return sum(not write.told for write in self.lost) + len(self.nowhere)

    @property
    def failures(self) -> list[str]:
        """Everything that does not hold, one sentence each."""
        found = []
        if self.trimmed:
            found.append("the logs were trimmed before they could be compared: take fewer sections")
        if len(self.lost) < self.wanted:
            found.append(f"the failover lost {len(self.lost)} acknowledged writes, at least {self.wanted} were wanted")
        for revision in self.nowhere[:1]:
            found.append(f"neither Redis holds the acknowledged revision {show_revision(revision)}")
        untold = [write for write in self.lost if not write.told]
        if untold:
            found.append(f"{len(untold)} acknowledged writes were lost unsignalled, first {untold[0].describe()}")
        unnamed = [write for write in self.lost if write.op in _NAMED and not write.named]
        if unnamed:
            found.append(f"{len(unnamed)} lost writes were not named by their client, first {unnamed[0].describe()}")
        if self.false_alarms:
            first = show_revision(self.false_alarms[0])
            found.append(f"{len(self.false_alarms)} acknowledged writes were said to be lost and are there ({first})")
        if self.unsettled:
            found.append(f"{', '.join(self.unsettled)} did not learn of the failover")
        return found

    def as_dict(self) -> dict[str, Any]:
        """Returns all of it as plain data for JSON."""
        return {
            "wanted": self.wanted,
            "acknowledged": self.acknowledged,
            "lost": len(self.lost),
            "unsignalled": self.unsignalled,
            "false_alarms": len(self.false_alarms),
            "cut": str(self.cut),
            "only_in_old": self.only_old,
            "told_by": dict(sorted(self.signals.by.items())),
            "resubmitted": self.signals.resubmitted,
            "redone": self.signals.redone,
            "left": self.signals.left,
            "writes": [
                {
                    "agent": write.agent,
                    "op": write.op,
                    "keys": list(write.keys),
                    "revision": str(write.revision),
                    "told": write.told,
                    "named": write.named,
                }
                for write in self.lost
            ],
        }


def account(
    calls: Iterable[Call], old: Held, new: Held, signals: Signals, wanted: int, agents: Sequence[str]
) -> Losses:
    """Compares what was acknowledged with what both Redis servers hold, and with what the writers were told.

    Args:
        calls: the calls of the run in its namespace.
        old: what the old primary held when it died.
        new: what the new one holds in the end.
        signals: what the agents said.
        wanted: how many acknowledged writes were to be lost at least.
        agents: those that were there to the end.
    """
    acknowledged: Mapping[int, Call] = {
        call.applied.revision: call for call in calls if call.applied is not None and call.applied.revision
    }
    lost, nowhere, alarms = [], [], []
    for revision, call in sorted(acknowledged.items()):
        told = any(after < revision <= through for after, through in signals.told.get(call.process, ()))
        if revision in new.revisions:
            if told:
                alarms.append(revision)
        elif revision not in old.revisions:
            nowhere.append(revision)
        else:
            named = revision in signals.named.get(call.process, ())
            lost.append(LostWrite(call.process, str(call.op), call.written_keys, revision, told, named))
    shared = old.revisions & new.revisions
    return Losses(
        wanted=wanted,
        acknowledged=len(acknowledged),
        lost=tuple(lost),
        nowhere=tuple(nowhere),
        false_alarms=tuple(alarms),
        cut=max(shared, default=0),
        only_old=len(old.revisions - new.revisions),
        signals=signals,
        unsettled=tuple(agent for agent in agents if agent not in signals.settled),
        trimmed=bool(old.floor or new.floor),
    )
