"""`noosphere demo`, `demo causality`, `demo session`, `demo facts` and `check`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from .common import JsonOption, common
from .exits import CliError, ExitCode, usage
from .session import cli_error

app = typer.Typer()

DemoServerOption = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="HOST:PORT",
        help="Use this server, or several with commas between. [default: one of the demo's own]",
    ),
]
DemoDataOption = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="FOLDER",
        help="Where the demo's own server keeps its data, which stay. [default: noosphere-demo]",
    ),
]


@app.command()
def demo(
    ctx: typer.Context,
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Texts, or folders of them. [default: noosphere's own documentation]"),
    ] = None,
    history: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep a record of every call, for `noosphere check`.")
    ] = None,
    agents: Annotated[int, typer.Option(metavar="N", help="How many agent processes, 2 to 32.")] = 8,
    seed: Annotated[int, typer.Option(metavar="N", help="Decides who thinks how long, and who is killed.")] = 1,
    think_ms: Annotated[float, typer.Option(metavar="MS", help="Median of a simulated thought, up to 2000.")] = 60.0,
    sections: Annotated[
        int | None, typer.Option(metavar="N", help="Work on the first N sections only. [default: all]")
    ] = None,
    min_conflicts: Annotated[
        int, typer.Option(metavar="N", help="Fewer conflicts than this, and the demo has shown nothing.")
    ] = 100,
    server: DemoServerOption = None,
    chaos: Annotated[
        bool,
        typer.Option("--chaos", help="Kill a server of `make cluster`, and have Redis lose acknowledged writes."),
    ] = False,
    lose: Annotated[
        int | None,
        typer.Option(metavar="N", help="With --chaos: at least so many, up to 500. [default: 100]"),
    ] = None,
    fleet: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --chaos: where the processes are. [default: .run/fleet.json]"),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Let several agent processes do one job under contention, and count lost updates. JSON: Demo.

    They claim sections of a text and build one outline, term index and tally; one of them is killed half way. The
    outcome is compared with what one process alone would have made. A control group writes blindly beside them.

    With --chaos one server is killed, and Redis fails over to a replica that was cut off before: at least --lose
    acknowledged writes are gone. Each is accounted for: held by the Redis that survived, or told to its writer, which
    makes it good; both are compared with what either Redis holds. The fleet is mended afterwards.

    There are three more, with options of their own: `demo causality`, `demo session` and `demo facts`.

    Exit code 0: nothing was lost unsignalled; 5: something was, or contention or faults were not real.
    """
    from noosphere.server.demo import FLEET_DEFAULT, LOSE_DEFAULT, DemoSettings, run_demo

    options = common(ctx, server, as_json)
    if not chaos and (lose is not None or fleet is not None):
        raise usage(f"--{'lose' if lose is not None else 'fleet'}: is for --chaos, which was not given")
    try:
        settings = DemoSettings(
            files=tuple(files or ()),
            server=options.server,
            history=history,
            agents=agents,
            seed=seed,
            think_ms=think_ms,
            sections_max=sections,
            conflicts_min=min_conflicts,
            lose=(LOSE_DEFAULT if lose is None else lose) if chaos else None,
            fleet=fleet or FLEET_DEFAULT,
        )
    except ValueError as error:
        raise usage(f"--{error}") from None
    with _demo_errors():
        holds = run_demo(settings, options.as_json)
    raise typer.Exit(ExitCode.OK if holds else ExitCode.CHECK_FAILED)


@app.command("demo causality")
def demo_causality(
    ctx: typer.Context,
    server: DemoServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what agents had seen of each other's writes, and what follows from it. JSON: Causality.

    Three agents, one of them far behind: who had seen what, a conflict in words and its resolution, a decision whose
    grounds changed while it was being thought, a hand-over, and two values that were kept and joined.

    Exit code 0: every line holds; 5: one does not. A file of this name is ./causality to `noosphere demo`.
    """
    from noosphere.server.demo import run_causality

    options = common(ctx, server, as_json)
    with _demo_errors():
        holds = run_causality(options.server, options.as_json)
    raise typer.Exit(ExitCode.OK if holds else ExitCode.CHECK_FAILED)


@app.command("demo session")
def demo_session(
    ctx: typer.Context,
    server: DemoServerOption = None,
    data: DemoDataOption = None,
    script: Annotated[
        Path | None,
        typer.Option("--script", metavar="FILE", help="Play this script instead, a JSON file; see docs/sessions.md."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Play a session of thirty turns and show what it keeps and what it lets go. JSON: SessionDemo.

    Tools with a late and a large result, contexts within a budget, items that are archived, a summary, a restore, and
    how the session fares. The session stays and can be read back.

    Exit code 0: everything is as it must be; 5: something is not; 2: the script cannot be played. A file of this name
    is ./session to `noosphere demo`.
    """
    from noosphere.server.demo import run_session

    options = common(ctx, server, as_json)
    if options.server is not None and data is not None:
        raise usage("--data: is the folder of the demo's own server; with --server there is none")
    with _demo_errors():
        holds = run_session(options.server, data, script, options.as_json)
    raise typer.Exit(ExitCode.OK if holds else ExitCode.CHECK_FAILED)


@app.command("demo facts")
def demo_facts(
    ctx: typer.Context,
    server: DemoServerOption = None,
    data: DemoDataOption = None,
    script: Annotated[
        Path | None,
        typer.Option("--script", metavar="FILE", help="Play this script instead, a JSON file; see docs/facts.md."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Play three sessions on different days and show what is remembered, why, and what was refused. JSON: FactsDemo.

    Preferences are learned, one changes, one is forgotten for good; a web page tries to plant a fact, and an agent
    falls for it. The facts stay and can be read back.

    Exit code 0: everything is as it must be; 5: something is not; 2: the script cannot be played. A file of this name
    is ./facts to `noosphere demo`.
    """
    from noosphere.server.demo import run_facts

    options = common(ctx, server, as_json)
    if options.server is not None and data is not None:
        raise usage("--data: is the folder of the demo's own server; with --server there is none")
    with _demo_errors():
        holds = run_facts(options.server, data, script, options.as_json)
    raise typer.Exit(ExitCode.OK if holds else ExitCode.CHECK_FAILED)


@app.command()
def check(
    ctx: typer.Context,
    history: Annotated[Path, typer.Argument(metavar="FILE", help="A recorded history.", show_default=False)],
    as_json: JsonOption = False,
) -> None:
    """Judge a recorded history independently of the server that made it. JSON: Verdict.

    Exit code 0: valid; 5: a violation, or undecided; 2: the file cannot be read.
    """
    from noosphere.server.checking import HistoryError, run_check

    try:
        valid = run_check(history, common(ctx, as_json=as_json).as_json)
    except HistoryError as error:
        raise CliError(ExitCode.USAGE, str(error), "UNREADABLE_HISTORY") from None
    raise typer.Exit(ExitCode.OK if valid else ExitCode.CHECK_FAILED)


@contextmanager
def _demo_errors() -> Iterator[None]:
    """Turns what can end a demo into the command's errors.

    Raises:
        CliError: one of those.
    """
    from noosphere.client import NoosphereError
    from noosphere.server.demo import DemoError, DemoInterrupted, InputError, ServerUnreachable

    try:
        yield
    except (InputError, OSError) as error:
        raise CliError(ExitCode.USAGE, str(error), "UNUSABLE_INPUT") from None
    except ServerUnreachable as error:
        raise CliError(ExitCode.UNREACHABLE, str(error), "UNAVAILABLE") from None
    except DemoInterrupted as error:
        raise CliError(ExitCode.INTERRUPTED, str(error), "INTERRUPTED") from None
    except DemoError as error:
        raise CliError(ExitCode.CANNOT_SERVE, str(error), "DEMO_FAILED") from None
    except NoosphereError as error:
        raise cli_error(error) from None
