"""What ``noosphere check`` prints."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from noosphere.server.consoles import StdoutConsole
from noosphere.server.readers import to_reader

from .check import check_history
from .verdict import Figures, Status, Verdict

PLAIN_COLUMNS = 110

_STYLE = {Status.VALID: "bold green", Status.INVALID: "bold red", Status.UNDECIDED: "bold yellow"}


def run_check(path: Path | str, json: bool = False, console: Console | None = None) -> bool:
    """Judges a history and prints the verdict on stdout.

    Args:
        path: the history.
        json: print one JSON object instead of text.
        console: where the text goes; stdout if None.

    Returns:
        Whether the history is valid; one that could not be decided is not.

    Raises:
        HistoryError: it cannot be read; the message is one line.
        ReaderGone: nobody reads stdout.
    """
    verdict = check_history(path)
    if json:
        with to_reader():
            print(jsonlib.dumps(verdict.as_dict(), ensure_ascii=False), flush=True)
    else:
        print_verdict(verdict, console or StdoutConsole(PLAIN_COLUMNS))
    return verdict.ok


def print_verdict(verdict: Verdict, console: Console) -> None:
    """Prints a verdict for people."""
    console.print(figures_table(verdict.figures))
    headline, _, details = verdict.explain().partition("\n")
    console.print()
    console.print(Text(headline, style=_STYLE[verdict.status]))
    if details:
        # Evidence is text to search in, so its lines stay as they are.
        console.print(Text(details), soft_wrap=True)


def figures_table(figures: Figures) -> Table:
    """Returns the figures as a table of two columns."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    operations = ", ".join(f"{count} {op}" for op, count in figures.by_op.items())
    attempts = ", ".join(f"{writes} at attempt {count}" for count, writes in figures.attempts.items())
    conflicts = ", ".join(f"{count} {reason}" for reason, count in figures.conflicts.items())
    rows: tuple[tuple[str, object], ...] = (
        ("processes", figures.processes),
        ("calls", f"{figures.calls} ({operations})"),
        ("calls without an answer", figures.unknown),
        ("commits", figures.commits),
        ("conflicts met", f"{figures.conflict_count} ({conflicts})" if conflicts else 0),
        ("  resolved, abandoned", f"{figures.resolved}, {figures.abandoned}"),
        ("  writes that succeeded", attempts or "none"),
        ("tasks completed, taken over", f"{figures.completions}, {figures.takeovers}"),
        ("lost updates", figures.lost_updates),
        ("duplicate completions", figures.duplicate_completions),
        ("values lost to blind writes", figures.blind_losses),
        ("registers searched", figures.registers),
    )
    for name, value in rows:
        table.add_row(name, str(value))
    return table
