"""The demo's figures: what the agents reported, and how the shared result compares with the serial one."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from noosphere.server.checking import Verdict

from .chaos import Damage, Losses
from .job import JobResult
from .protocol import Completed, Conflicted, Counted, Dropped, Event, Lost, Overwrote, Updated


@dataclass(slots=True)
class Takeover:
    """A killed agent's section in other hands.

    Attributes:
        section: the section.
        killed: the agent that was killed while it held the claim.
        by: who took it over; empty as long as nobody has.
        after_s: how long after the kill, in seconds.
    """

    section: str
    killed: str
    by: str = ""
    after_s: float = 0.0

    def awaits(self, section: str) -> bool:
        """Tells whether a claim on a section is the one that takes it over."""
        return section == self.section and not self.by


@dataclass(slots=True)
class Tally:
    """What the agents reported, event by event.

    Attributes:
        conflicts: conflicts met, by record.
        open: conflicts of each agent's present update.
        moot: conflicts of updates that ended because the claim had gone to somebody else, or what they rest on.
        attempts: how many updates succeeded at which attempt.
        completions: how often each section was completed.
        counted_again: sections whose part of the tally was there already.
        lost_claims: claims that went to somebody else while their holder worked.
        blind_writes: acknowledged writes of the control.
        by_agent: sections completed by each agent.
        conflicts_by_agent: conflicts met by each agent.
        explanation: a conflict, as a model would read it.
    """

    conflicts: Counter[str] = field(default_factory=Counter)
    open: Counter[str] = field(default_factory=Counter)
    moot: int = 0
    attempts: Counter[int] = field(default_factory=Counter)
    completions: Counter[str] = field(default_factory=Counter)
    counted_again: int = 0
    lost_claims: int = 0
    blind_writes: int = 0
    by_agent: Counter[str] = field(default_factory=Counter)
    conflicts_by_agent: Counter[str] = field(default_factory=Counter)
    explanation: str = ""

    def add(self, agent: str, event: Event) -> None:
        """Counts one event."""
        match event:
            case Conflicted(record, text):
                self.conflicts[record] += 1
                self.open[agent] += 1
                self.conflicts_by_agent[agent] += 1
                self.explanation = self.explanation or text
            case Updated(_, attempts):
                self.attempts[attempts] += 1
                self.open[agent] = 0
            case Completed(section):
                self.completions[section] += 1
                self.by_agent[agent] += 1
            case Counted(_, again):
                self.counted_again += again
            case Overwrote():
                self.blind_writes += 1
            case Dropped():
                self.moot += self.open[agent]
                self.open[agent] = 0
            case Lost():
                self.lost_claims += 1
                self.moot += self.open[agent]
                self.open[agent] = 0

    @property
    def conflict_count(self) -> int:
        """Conflicts met, on every record."""
        return self.conflicts.total()

    @property
    def resolved(self) -> int:
        """Conflicts that an update survived: each was followed by another attempt, the last of which succeeded."""
        return sum((attempt - 1) * count for attempt, count in self.attempts.items())

    @property
    def abandoned(self) -> int:
        """Conflicts that an agent gave up on although the section was its own."""
        return self.conflict_count - self.resolved - self.moot


@dataclass(frozen=True, slots=True)
class Figures:
    """How the demo went.

    Attributes:
        source: where the text came from.
        agents: how many agents worked.
        seconds: how long that took.
        serial: the result computed without a server.
        shared: what the agents left behind.
        done: tasks that are marked as done on the board.
        tally: what the agents reported.
        takeover: the killed agent's section; None if nobody could be killed in time.
        control: the final value of the control.
        verdict: what the checkers say about the recorded history.
        conflicts_min: how many conflicts it takes to show something.
        servers: how many servers the agents used.
        losses: what a failover has lost; None if there was none to be.
        damage: what was done to the fleet; None if nothing was to be.
    """

    source: str
    agents: int
    seconds: float
    serial: JobResult
    shared: JobResult
    done: int
    tally: Tally
    takeover: Takeover | None
    control: int
    verdict: Verdict
    conflicts_min: int
    servers: int = 1
    losses: Losses | None = None
    damage: Damage | None = None

    @property
    def missing(self) -> list[str]:
        """What the serial result has and the shared one has not, or not so."""
        serial, shared = self.serial, self.shared
        found = [f"outline {name}" for name, entry in serial.outline.items() if shared.outline.get(name) != entry]
        found += [
            f"index {term} {name}"
            for term, names in serial.index.items()
            for name in names
            if name not in shared.index.get(term, ())
        ]
        found += ["tally"] * max(0, serial.sections - shared.sections)
        return found

    @property
    def lost_updates(self) -> int:
        """Updates of which the shared result shows nothing, or that the checkers found to be lost."""
        return max(len(self.missing), self.verdict.figures.lost_updates)

    @property
    def duplicate_completions(self) -> int:
        """Completions of a section beyond its first."""
        # A completion that was lost is no completion.
        lost = self.losses.signals.completed if self.losses is not None else Counter[str]()
        reported = sum(max(0, count - 1 - lost[section]) for section, count in self.tally.completions.items())
        return max(reported, self.verdict.figures.duplicate_completions)

    @property
    def control_lost(self) -> int:
        """Acknowledged writes of the control that its final value does not show."""
        return self.tally.blind_writes - self.control

    @property
    def failures(self) -> list[str]:
        """Everything that does not hold, one sentence each; empty if all is well."""
        found = []
        sections = self.serial.sections
        if self.lost_updates:
            examples = ", ".join(self.missing[:3])
            found.append(f"{self.lost_updates} updates were lost{f' ({examples})' if examples else ''}")
        elif self.shared != self.serial:
            found.append("the shared result has more than the serial one: something was applied twice")
        if self.duplicate_completions:
            found.append(f"{self.duplicate_completions} sections were completed more than once")
        if self.done != sections or len(self.tally.completions) != sections:
            found.append(f"{self.done} of {sections} sections are marked as done")
        if self.tally.abandoned:
            found.append(f"{self.tally.abandoned} of {self.tally.conflict_count} conflicts were not resolved")
        if self.takeover is None:
            found.append("no agent could be killed while it held a claim")
        elif not self.takeover.by:
            found.append(f"nobody took over section {self.takeover.section} from {self.takeover.killed}")
        if self.tally.conflict_count < self.conflicts_min:
            conflicts = f"{self.tally.conflict_count} conflicts, at least {self.conflicts_min} are needed"
            found.append(f"contention was not real: {conflicts}")
        if self.control_lost <= 0:
            found.append("contention was not real: the control wrote blindly and lost nothing")
        if self.losses is not None:
            found += self.losses.failures
        if self.damage is not None and not self.damage.restarted:
            found.append("no server was killed and started again")
        if not self.verdict.ok:
            first = [f"{v.kind} on {', '.join(v.keys)}: {v.text}" for v in self.verdict.violations[:1]]
            why = "; ".join([*first, *self.verdict.undecided[:1]])
            found.append(f"the recorded history is {self.verdict.status}: {why}")
        return found

    def as_dict(self) -> dict[str, Any]:
        """Returns the figures as plain data for JSON."""
        serial, shared, tally = self.serial, self.shared, self.tally
        history = self.verdict.figures
        return {
            "ok": not self.failures,
            "failures": self.failures,
            "source": self.source,
            "agents": self.agents,
            "seconds": round(self.seconds, 3),
            "lost_updates": self.lost_updates,
            "duplicate_completions": self.duplicate_completions,
            "conflicts": {
                "met": tally.conflict_count,
                "resolved": tally.resolved,
                "ended_with_claim": tally.moot,
                "abandoned": tally.abandoned,
                "by_record": dict(sorted(tally.conflicts.items())),
                "updates_by_attempts": {str(n): count for n, count in sorted(tally.attempts.items())},
            },
            "serial": _totals(serial),
            "shared": _totals(shared),
            "completed": self.done,
            "completed_by_agent": dict(sorted(tally.by_agent.items())),
            "takeover": {
                "section": self.takeover.section,
                "killed": self.takeover.killed,
                "by": self.takeover.by,
                "after_seconds": round(self.takeover.after_s, 3),
            }
            if self.takeover is not None
            else None,
            "servers": self.servers,
            "chaos": self._chaos(),
            "counted_again": tally.counted_again,
            "claims_lost": tally.lost_claims,
            "control": {
                "blind_writes": tally.blind_writes,
                "final": self.control,
                "lost": self.control_lost,
            },
            "history": {
                "status": str(self.verdict.status),
                "calls": history.calls,
                "commits": history.commits,
                "conflicts": history.conflict_count,
                "lost_updates": history.lost_updates,
                "duplicate_completions": history.duplicate_completions,
                "blind_losses": history.blind_losses,
                "takeovers": history.takeovers,
            },
        }

    def _chaos(self) -> dict[str, Any] | None:
        if self.losses is None or self.damage is None:
            return None
        damage = self.damage
        names = {"killed_server": damage.server, "old_primary": damage.old, "new_primary": damage.new}
        return {**names, **self.losses.as_dict()}


def _totals(result: JobResult) -> dict[str, int]:
    return {
        "outline_entries": len(result.outline),
        "index_terms": len(result.index),
        "index_postings": sum(map(len, result.index.values())),
        "words": result.words,
        "sections": result.sections,
        "longest_section": result.longest,
    }
