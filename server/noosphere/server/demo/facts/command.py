"""What ``noosphere demo facts`` does: plays sessions, prints what came of them, and leaves it to be read back."""

from __future__ import annotations

from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..staging import Stage, perform, print_checks, print_commands
from .checks import check_files
from .play import play
from .script import default_script, read_script
from .told import Played, ToldSession, day_of, reasons_of

PLAIN_COLUMNS = 120

_NOTHING = Text(" nothing\n", style="dim")

_GOOD = frozenset({"written", "merged", "superseded", "found", "forgotten", "contested"})


def run_facts(
    server: str | None = None,
    data: Path | None = None,
    script: Path | None = None,
    as_json: bool = False,
    console: Console | None = None,
) -> bool:
    """Plays sessions and prints what is known, why, and what was refused, on stdout.

    Args:
        server: ``host:port`` of a running server; None starts one for the time of the demo.
        data: where that one keeps its data, which stay; None means ``./noosphere-demo``.
        script: a script of one's own; None plays the one that comes with the demo.
        as_json: print one JSON object and nothing else.
        console: where it goes; stdout if None.

    Returns:
        Whether everything is as it must be.

    Raises:
        InputError: the script or the folder cannot be used.
        DemoError: the server could not be started or does not answer, or somebody interrupted.
        NoosphereError: the server refuses something, or went away.
    """
    stage = Stage(server, data, as_json, console, PLAIN_COLUMNS)

    def tell(played: Played, serve: str | None, console: Console) -> None:
        print_played(played, serve, server, console)

    return perform(
        stage, lambda: default_script() if script is None else read_script(script), play, tell, afterwards=check_files
    )


def print_played(played: Played, serve: str | None, server: str | None, console: Console) -> None:
    """Prints what was played for people."""
    console.print(Text(f"{played.title}: facts of {played.owner}", style="bold"))
    for number, told in enumerate(played.sessions, 1):
        title = f": {told.title}" if told.title else ""
        console.print(Text(f"\nSession {number}, {told.day.isoformat()}{title}", style="bold"))
        console.print(_steps(told))
    console.print(Text("What is known", style="bold"))
    console.print(_known(played) if played.known else _NOTHING)
    if played.answers:
        console.print(Text("Why", style="bold"))
        for text in _why(played):
            console.print(text)
    console.print(Text("What was refused", style="bold"))
    console.print(_refused(played) if played.refused else _NOTHING)
    print_checks(played, console)
    console.print("The facts stay. Read them back from another shell:")
    print_commands(serve, server, _commands(played), console)


def _steps(told: ToldSession) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("who")
    table.add_column("what", overflow="fold", ratio=3)
    table.add_column("outcome")
    table.add_column("why", overflow="fold", ratio=2)
    for step in told.steps:
        style = "" if not step.outcome else "green" if step.outcome in _GOOD else "yellow"
        table.add_row(step.who, Text(step.text), Text(step.outcome, style=style), Text(step.why, style="dim"))
    return table


def _known(played: Played) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("fact", overflow="fold")
    for column in ("since", "until"):
        table.add_column(column)
    for column in ("confidence", "trust", "sources"):
        table.add_column(column, justify="right")
    for fact in played.known:
        table.add_row(
            Text(fact.text, style="dim" if fact.superseded_by else ""),
            day_of(fact.valid_from) or "",
            day_of(fact.valid_to) or "",
            f"{fact.confidence:.2f}",
            f"{fact.trust:.2f}",
            str(fact.source_count),
        )
    return table


def _why(played: Played) -> list[Text]:
    lines: list[Text] = []
    for answer in played.answers:
        fact, path = answer.path.fact, answer.path
        lines.append(Text(f"{answer.query}  {fact.text}"))
        for evidence in reversed(fact.evidence):
            lines.append(Text(f"  evidence  {evidence.reference}", style="dim"))
        for state in path.candidates:
            lines.append(Text(f"  decision  {state.decision.explain()}", style="dim"))
        if path.scores is not None:
            parts = ", ".join(f"{name} {value:+.2f}" for name, value in sorted(path.scores.parts.items()))
            rank = f"  rank {path.rank}    relevance {path.scores.relevance:.2f}"
            lines.append(Text(f"{rank}: {parts}" if parts else rank, style="dim"))
    return [*lines, Text("")]


def _refused(played: Played) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("claim", overflow="fold", ratio=3)
    table.add_column("outcome")
    table.add_column("why", overflow="fold", ratio=4)
    for state in played.refused:
        claim = Text(state.candidate.text) if state.candidate.text else Text("forgotten", style="dim")
        why = reasons_of(state.decision)
        table.add_row(claim, Text(state.decision.status, style="yellow"), Text(why, style="dim"))
    return table


def _commands(played: Played) -> list[list[str]]:
    found: list[list[str]] = []
    if played.answers:
        first, last = played.answers[0], played.answers[-1]
        found.append(["facts", "search", first.query, "--owner", played.owner])
        found.append(["facts", "why", last.path.fact.id, "--query", last.query])
        found.append(["facts", "history", last.path.fact.id])
    found.append(["facts", "candidates", played.owner])
    return found
