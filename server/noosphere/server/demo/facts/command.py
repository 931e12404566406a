"""What ``noosphere demo facts`` does: plays sessions, prints what came of them, and leaves it to be read back."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..processes import DemoInterrupted, own_server, require_server
from ..run import cancel_on_sigterm
from ..scripts import ScriptError
from ..text import InputError
from .checks import check_files
from .play import play
from .script import Script, default_script, read_script
from .told import Played, ToldSession, day_of, reasons_of

PLAIN_COLUMNS = 120
DATA_DEFAULT = Path("noosphere-demo")

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
    try:
        wanted = default_script() if script is None else read_script(script)
    except ScriptError as error:
        raise InputError(str(error)) from None
    folder = data or DATA_DEFAULT
    if server is None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"--data: {folder}: {error.strerror}") from None
    try:
        played = asyncio.run(_run(server, folder, wanted))
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise DemoInterrupted("interrupted; every process of the demo was stopped") from None
    serve = None if server is not None else f"noosphere serve --data {shlex.quote(str(folder / 'data'))}"
    if as_json:
        print(json.dumps({**played.as_dict(), "serve": serve}, ensure_ascii=False), flush=True)
    else:
        # Off a terminal nobody's window decides where lines break.
        width = None if sys.stdout.isatty() else PLAIN_COLUMNS
        print_played(played, serve, server, console or Console(highlight=False, width=width))
    return not played.failures


async def _run(server: str | None, folder: Path, script: Script) -> Played:
    cancel_on_sigterm()
    if server is not None:
        await require_server(server)
        return await play(server, script)
    async with own_server(folder) as address:
        played = await play(address, script)
    check_files(played, folder)
    return played


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
    for statement, holds in played.checks:
        console.print((Text("ok  ", style="green") if holds else Text("NO  ", style="bold red")) + Text(statement))
    console.print()
    if played.failures:
        console.print(Text(f"{len(played.failures)} of these do not hold.", style="bold red"))
    else:
        console.print(Text(f"All of it holds ({played.seconds:.1f} s).", style="bold green"))
    console.print("The facts stay. Read them back from another shell:")
    if serve is not None:
        console.print(Text(f"  {serve}"))
    for words in _commands(played, server):
        console.print(Text(f"  {shlex.join(words)}"), soft_wrap=True)


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


def _commands(played: Played, server: str | None) -> list[list[str]]:
    at = [] if server is None else ["--server", server]
    found: list[list[str]] = []
    if played.answers:
        first, last = played.answers[0], played.answers[-1]
        found.append(["noosphere", "facts", "search", first.query, "--owner", played.owner, *at])
        found.append(["noosphere", "facts", "why", last.path.fact.id, "--query", last.query, *at])
        found.append(["noosphere", "facts", "history", last.path.fact.id, *at])
    found.append(["noosphere", "facts", "candidates", played.owner, *at])
    return found
