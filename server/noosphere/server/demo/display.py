"""What the demo shows: live progress on a terminal, plain lines elsewhere, and the final table."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Protocol, Self

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from noosphere.server.checking import show_revision

from .chaos.losses import LISTED_MAX, Losses
from .figures import Figures, Tally
from .protocol import Claimed, Completed, Conflicted, Dropped, Event, Finished, Holding, Lost, Ready, Updated

_LINES = 8
_REFRESHES_PER_SECOND = 8


class Display(Protocol):
    """Shows how the demo goes."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def begin(self, text: str, agents: Sequence[str], sections: int) -> None:
        """The work begins."""
        ...

    def event(self, agent: str, event: Event, tally: Tally) -> None:
        """An agent reported something."""
        ...

    def killed(self, agent: str, section: str) -> None:
        """An agent was killed."""
        ...

    def happened(self, what: str) -> None:
        """Something was done to the servers."""
        ...


class Silence:
    """Shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def begin(self, text: str, agents: Sequence[str], sections: int) -> None:
        """Shows nothing."""

    def event(self, agent: str, event: Event, tally: Tally) -> None:
        """Shows nothing."""

    def killed(self, agent: str, section: str) -> None:
        """Shows nothing."""

    def happened(self, what: str) -> None:
        """Shows nothing."""


class Lines(Silence):
    """Prints a line now and then."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._sections = 0
        self._step = 1

    def begin(self, text: str, agents: Sequence[str], sections: int) -> None:
        """Prints what the job is."""
        self._sections = sections
        self._step = max(1, sections // _LINES)
        self._print(f"{len(agents)} agents on {sections} sections of {text}")

    def event(self, agent: str, event: Event, tally: Tally) -> None:
        """Prints every eighth of the way, and what is out of the ordinary."""
        match event:
            case Completed() if tally.completions.total() % self._step == 0:
                done = len(tally.completions)
                self._print(
                    f"{done} of {self._sections} sections done, {tally.conflict_count} conflicts met on the way"
                )
            case Claimed(section, attempt) if attempt > 1:
                self._print(f"{agent} took over section {section}")
            case Lost(section):
                self._print(f"{agent} lost its claim on section {section}")

    def killed(self, agent: str, section: str) -> None:
        """Prints who was killed."""
        self._print(f"{agent} killed in the middle of section {section}")

    def happened(self, what: str) -> None:
        """Prints what was done."""
        self._print(what)

    def _print(self, line: str) -> None:
        self._console.print(line, highlight=False, soft_wrap=True)


class Screen(Silence):
    """Shows a table of the agents that changes as they work."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, refresh_per_second=_REFRESHES_PER_SECOND, transient=True)
        self._states: dict[str, str] = {}
        self._text = ""
        self._sections = 1

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def begin(self, text: str, agents: Sequence[str], sections: int) -> None:
        """Shows the agents."""
        self._text, self._sections = text, sections
        self._states = dict.fromkeys(agents, "starting")
        self._live.update(self._draw(Tally()))

    def event(self, agent: str, event: Event, tally: Tally) -> None:
        """Shows what the agent does now."""
        match event:
            case Ready():
                self._states[agent] = "ready"
            case Claimed(section, attempt):
                self._states[agent] = f"section {section}" + (" (taken over)" if attempt > 1 else "")
            case Conflicted(record):
                self._states[agent] = f"conflict on {record}, deciding again"
            case Updated(record):
                self._states[agent] = f"wrote {record}"
            case Completed(section):
                self._states[agent] = f"completed {section}"
            case Holding(section):
                self._states[agent] = f"holds {section} …"
            case Lost(section):
                self._states[agent] = f"lost its claim on {section}"
            case Dropped():
                self._states[agent] = "makes good what the failover has lost"
            case Finished():
                self._states[agent] = "finished"
        self._live.update(self._draw(tally))

    def killed(self, agent: str, section: str) -> None:
        """Shows who was killed."""
        self._states[agent] = f"[bold red]killed[/] in the middle of {section}"

    def happened(self, what: str) -> None:
        """Shows what was done, above the table."""
        self._live.console.print(Text(what, style="bold red"))

    def _draw(self, tally: Tally) -> Group:
        done = len(tally.completions)
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("agent")
        table.add_column("sections", justify="right")
        table.add_column("conflicts", justify="right")
        table.add_column("now", min_width=44)
        for agent, state in self._states.items():
            table.add_row(agent, str(tally.by_agent[agent]), str(tally.conflicts_by_agent[agent]), state)
        return Group(
            Text(f"{len(self._states)} agents on {self._sections} sections of {self._text}"),
            ProgressBar(total=self._sections, completed=done, width=60),
            table,
            Text(
                f"{done} sections done, {tally.conflict_count} conflicts met, "
                f"{tally.blind_writes} blind writes of the control"
            ),
        )


def print_figures(figures: Figures, console: Console) -> None:
    """Prints the comparison with the serial result and what it took."""
    serial, shared, tally = figures.serial, figures.shared, figures.tally
    comparison = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    comparison.add_column("result")
    comparison.add_column("serial", justify="right")
    comparison.add_column(f"{figures.agents} agents", justify="right")
    comparison.add_column("")
    for name, alone, together in (
        ("outline: sections", len(serial.outline), len(shared.outline)),
        ("index: terms", len(serial.index), len(shared.index)),
        ("index: sections under them", _postings(serial.index), _postings(shared.index)),
        ("tally: words", serial.words, shared.words),
        ("tally: sections", serial.sections, shared.sections),
        ("tally: words of the longest section", serial.longest, shared.longest),
    ):
        comparison.add_row(name, f"{alone:,}", f"{together:,}", "equal" if alone == together else "DIFFERS")
    console.print(comparison)
    facts = Table(box=None, pad_edge=False, show_header=False)
    facts.add_column(no_wrap=True, style="bold")
    facts.add_column(overflow="fold")
    for name, fact in _facts(figures):
        facts.add_row(name, fact)
    console.print(facts)
    if figures.losses is not None:
        _print_losses(figures.losses, console)
    if tally.explanation:
        console.print()
        console.print(Text("A conflict, as a model reads it:", style="bold"))
        console.print(Text(f"  {tally.explanation}"))
    console.print()
    if figures.failures:
        for failure in figures.failures:
            console.print(Text(f"FAILED: {failure}", style="bold red"))
    else:
        console.print(Text(f"All of it holds ({figures.seconds:.1f} s).", style="bold green"))


def _print_losses(losses: Losses, console: Console) -> None:
    console.print()
    console.print(Text("Lost writes, each with what its writer was told:", style="bold"))
    for write in losses.lost[:LISTED_MAX]:
        console.print(Text(f"  {write.describe()}", overflow="fold"))
    if len(losses.lost) > LISTED_MAX:
        console.print(Text(f"  … and {len(losses.lost) - LISTED_MAX} more (--json lists all)"))


def _disaster(figures: Figures) -> list[tuple[str, str]]:
    losses, damage = figures.losses, figures.damage
    if losses is None or damage is None:
        return []
    signals = losses.signals
    by = ", ".join(f"{count} by {'a watch' if how == 'epoch' else 'an error'}" for how, count in signals.by.items())
    return [
        (
            "failover",
            f"{damage.server} killed; {damage.old} killed and {damage.new} promoted, which lacks {losses.only_old} "
            f"commits past revision {show_revision(losses.cut)}",
        ),
        ("acknowledged writes", f"{losses.acknowledged}, of which the failover has lost {len(losses.lost)}"),
        ("unsignalled losses", str(losses.unsignalled)),
        ("  agents told first", by),
        (
            "  made good",
            f"{signals.resubmitted} calls written again, {signals.redone} decided anew, {signals.left} left to whoever "
            "does the section again",
        ),
    ]


def _facts(figures: Figures) -> list[tuple[str, str]]:
    tally, verdict = figures.tally, figures.verdict
    attempts = ", ".join(f"{count} at attempt {n}" for n, count in sorted(tally.attempts.items())[:6])
    most = max(tally.attempts, default=0)
    records = ", ".join(f"{count} on {record}" for record, count in tally.conflicts.most_common())
    takeover = "none"
    if figures.takeover is not None:
        found = figures.takeover
        takeover = f"section {found.section}: {found.killed} killed"
        takeover += f", taken over by {found.by} {found.after_s:.1f} s later" if found.by else ", not taken over"
    return [
        ("lost updates", str(figures.lost_updates)),
        ("duplicate completions", str(figures.duplicate_completions)),
        *_disaster(figures),
        ("conflicts met", f"{tally.conflict_count} ({records})" if records else "0"),
        (
            "  how resolved",
            f"the writer saw what it had missed, added its part to that, and wrote again: {tally.resolved}",
        ),
        ("  updates that succeeded", f"{attempts}{f', at most {most}' if most > 6 else ''}"),
        ("claim taken over", takeover),
        ("  found in the tally already", f"{tally.counted_again} (not counted twice)"),
        (
            "control, written blindly",
            f"{tally.blind_writes} writes acknowledged, {figures.control} left, {figures.control_lost} lost",
        ),
        (
            "recorded history",
            f"{verdict.figures.calls} calls, {verdict.status}"
            + (" by revisions and, independently, by values" if verdict.ok else ""),
        ),
    ]


def _postings(index: dict[str, list[str]]) -> int:
    return sum(map(len, index.values()))
