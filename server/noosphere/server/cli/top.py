"""`noosphere top`: how a server is doing, live."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from .common import AgentOption, Common, JsonOption, ServerOption, TimeoutOption, common
from .output import print_json
from .session import call, cli_error, connected

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from noosphere.client import NoosphereError
    from noosphere.v1 import admin_overview_pb2 as pb

    from .admin_api import AdminApi
    from .shapes import ServerShape
    from .top_shapes import TopShape

app = typer.Typer()

NAMES_ASKED = 200
"""Agents and namespaces that are asked for: the busiest of those that have called last are shown."""

NAMES_SHOWN = 50
ONCE_SECONDS_MAX = 1.0
"""How long `--once` counts, for rates of the moment."""

DEFAULT_SERVER = "127.0.0.1:7443"


class Seen(NamedTuple):
    """What is shown.

    Attributes:
        figures: the newest that there are.
        servers: of the fleet.
        trouble: why there are no newer ones; "" if they are new.
    """

    figures: TopShape
    servers: list[ServerShape]
    trouble: str


@app.command()
def top(
    ctx: typer.Context,
    interval: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", min=0.5, max=3_600, help="Time between two looks.")
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Show one frame; without a terminal it always does.")] = False,
    patience: Annotated[
        float,
        typer.Option(
            "--patience", metavar="SECONDS", min=0, max=86_400, help="How long a server may be away before this ends."
        ),
    ] = 60.0,
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """Show live how a server is doing: agents, namespaces, conflicts, watch lag, queues, sessions. Ctrl-C ends it.

    JSON: a Top per look.
    """
    options = common(ctx, server, as_json, agent, timeout)
    if once or not (as_json or sys.stdout.isatty()):
        call(_once(options, min(interval, ONCE_SECONDS_MAX)))
    else:
        call(_live(options, interval, patience))


async def _once(options: Common, seconds: float) -> None:
    async with _looking(options) as look:
        before = await look(None)
        await asyncio.sleep(seconds)
        seen = _seen(await look(before), before)
    if options.as_json:
        print_json(seen.figures)
        return
    from rich.console import Console

    _print(Console(), options, seen)


async def _live(options: Common, interval: float, patience: float) -> None:
    from noosphere.client import DeadlineExceeded, Unavailable

    shown: Seen | None = None
    failed: NoosphereError | None = None
    with _stopped() as stop, _screen(options) as draw:
        async with _looking(options) as look:
            latest = await look(None)
            shown = _seen(latest, None)
            draw(shown)
            answered = time.monotonic()
            while not await _within(interval, stop):
                try:
                    newer = await _unless(stop, look(latest))
                except (Unavailable, DeadlineExceeded) as error:
                    away = time.monotonic() - answered
                    shown = shown._replace(trouble=f"no answer for {away:.0f} s: {error.message}")
                    draw(shown)
                    if away >= patience:
                        failed = error
                        break
                    continue
                if newer is None:
                    break
                answered = time.monotonic()
                shown = _seen(newer, latest)
                latest = newer
                draw(shown)
    if failed is not None:
        if not options.as_json:
            from rich.console import Console

            # The screen of the live view has gone with it.
            _print(Console(), options, shown)
        raise cli_error(failed)


class _Look(NamedTuple):
    """One answer of a server."""

    overview: pb.GetOverviewResponse
    servers: list[ServerShape]


@contextlib.asynccontextmanager
async def _looking(options: Common) -> AsyncIterator[Callable[[_Look | None], Awaitable[_Look]]]:
    """Connects; gives what looks at the server, and at its fleet if that does not have to be waited for."""
    from noosphere.client import DeadlineExceeded, Unavailable

    from .admin_api import AdminApi

    async with connected(options) as client:
        api: AdminApi = AdminApi(client)

        async def look(before: _Look | None) -> _Look:
            overview = await api.overview(NAMES_ASKED)
            try:
                servers = await api.servers()
            except (Unavailable, DeadlineExceeded):
                # etcd is away, and the server that is looked at is not.
                servers = before.servers if before is not None else []
            return _Look(overview, servers)

        yield look


def _seen(now: _Look, before: _Look | None) -> Seen:
    from .top_figures import figures

    return Seen(figures(now.overview, before.overview if before else None, NAMES_SHOWN), now.servers, "")


@contextlib.contextmanager
def _stopped() -> Iterator[asyncio.Event]:
    """Gives what is set by Ctrl-C, which is how a live view ends in good order."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, stop.set)
    try:
        yield stop
    finally:
        loop.remove_signal_handler(signal.SIGINT)


async def _within(seconds: float, stop: asyncio.Event) -> bool:
    """Waits; returns whether it is to end, as soon as that is known."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)
    return stop.is_set()


async def _unless(stop: asyncio.Event, looking: Awaitable[_Look]) -> _Look | None:
    """Returns what is seen, None if it is to end before."""
    task, stopping = asyncio.ensure_future(looking), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((task, stopping), return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        for one in (task, stopping):
            one.cancel()
        await asyncio.gather(task, stopping, return_exceptions=True)


@contextlib.contextmanager
def _screen(options: Common) -> Iterator[Callable[[Seen], None]]:
    """Gives what shows something: on a screen of its own, or as a line of JSON."""
    if options.as_json:
        yield lambda seen: None if seen.trouble else print_json(seen.figures)
        return
    from rich.console import Console
    from rich.live import Live

    console = Console()
    with Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as live:
        yield lambda seen: live.update(_frame(console, options, seen), refresh=True)


def _frame(console: Console, options: Common, seen: Seen) -> RenderableType:
    from .top_frame import frame

    address = options.server or next((one["address"] for one in seen.servers if one["answered"]), "") or DEFAULT_SERVER
    return frame(seen.figures, seen.servers, address, seen.trouble, console.width, console.height)


def _print(console: Console, options: Common, seen: Seen) -> None:
    console.print(_frame(console, options, seen))
