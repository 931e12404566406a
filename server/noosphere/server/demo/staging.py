"""What demos with a script have in common: a server that is given or their own, and what came of it as text or JSON."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from rich.console import Console
from rich.text import Text

from noosphere.server.consoles import StdoutConsole
from noosphere.server.readers import to_reader

from .processes import DemoInterrupted, own_server, require_server
from .run import cancel_on_sigterm
from .scripts import ScriptError
from .text import InputError

DATA_DEFAULT = Path("noosphere-demo")


class Story(Protocol):
    """What came of a script."""

    @property
    def checks(self) -> Sequence[tuple[str, bool]]:
        """Statements, and whether each holds."""
        ...

    @property
    def failures(self) -> Sequence[str]:
        """Those that do not hold."""
        ...

    @property
    def seconds(self) -> float:
        """How long it took."""
        ...

    def as_dict(self) -> Mapping[str, Any]:
        """Returns all of it for programs."""
        ...


class Stage(NamedTuple):
    """Where a script is played, and how that is told.

    Attributes:
        server: ``host:port`` of a running server; None starts one for the time of the demo.
        data: where that one keeps its data, which stay; None means ``./noosphere-demo``.
        as_json: print one JSON object and nothing else.
        console: where it goes; stdout if None.
        columns: how wide text is off a terminal.
    """

    server: str | None
    data: Path | None
    as_json: bool
    console: Console | None
    columns: int


S = TypeVar("S")
P = TypeVar("P", bound=Story)


def perform(
    stage: Stage,
    script: Callable[[], S],
    play: Callable[[str, S], Awaitable[P]],
    tell: Callable[[P, str | None, Console], None],
    *,
    afterwards: Callable[[P, Path], None] | None = None,
) -> bool:
    """Plays a script and tells on stdout what came of it.

    Args:
        stage: where, and how it is told.
        script: reads the script.
        play: plays it on the server at an address.
        tell: prints it for people, with the command that serves the demo's own data again, if they are its own.
        afterwards: looks at the folder once the demo's own server has ended.

    Returns:
        Whether everything is as it must be.

    Raises:
        InputError: the script or the folder cannot be used.
        DemoError: the server could not be started or does not answer, or somebody interrupted.
        NoosphereError: the server refuses something, or went away.
    """
    try:
        wanted = script()
    except ScriptError as error:
        raise InputError(str(error)) from None
    folder = stage.data or DATA_DEFAULT
    if stage.server is None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"--data: {folder}: {error.strerror}") from None

    async def run() -> P:
        cancel_on_sigterm()
        if stage.server is not None:
            await require_server(stage.server)
            return await play(stage.server, wanted)
        async with own_server(folder) as address:
            played = await play(address, wanted)
        if afterwards is not None:
            afterwards(played, folder)
        return played

    try:
        played = asyncio.run(run())
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise DemoInterrupted("interrupted; every process of the demo was stopped") from None
    serve = None if stage.server is not None else f"noosphere serve --data {shlex.quote(str(folder / 'data'))}"
    if stage.as_json:
        with to_reader():
            print(json.dumps({**played.as_dict(), "serve": serve}, ensure_ascii=False), flush=True)
    else:
        tell(played, serve, stage.console or StdoutConsole(stage.columns))
    return not played.failures


def print_checks(story: Story, console: Console) -> None:
    """Prints which statements hold, and whether all do."""
    for statement, holds in story.checks:
        console.print((Text("ok  ", style="green") if holds else Text("NO  ", style="bold red")) + Text(statement))
    console.print()
    if story.failures:
        console.print(Text(f"{len(story.failures)} of these do not hold.", style="bold red"))
    else:
        console.print(Text(f"All of it holds ({story.seconds:.1f} s).", style="bold green"))


def print_commands(serve: str | None, server: str | None, commands: Sequence[Sequence[str]], console: Console) -> None:
    """Prints the commands that read back from another shell what stays."""
    if serve is not None:
        console.print(Text(f"  {serve}"), soft_wrap=True)
    at = () if server is None else ("--server", server)
    for words in commands:
        console.print(Text(f"  {shlex.join(('noosphere', *words, *at))}"), soft_wrap=True)
