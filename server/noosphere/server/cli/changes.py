"""`noosphere history` and `watch`."""

from __future__ import annotations

import asyncio
import base64
import signal
import sys
from collections import deque
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .common import AgentOption, JsonOption, NamespaceArgument, ServerOption, TimeoutOption, common
from .exits import usage
from .output import print_json, print_line, print_table
from .session import call, connected
from .shapes import ChangeShape, HistoryShape, WatchShape
from .values import check_revision
from .views import dots_data, record_data, time_text, value_cell

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from noosphere.client import ChangeEvent, HistoryEntry, WatchBatch

app = typer.Typer()


@app.command()
def history(
    ctx: typer.Context,
    namespace: NamespaceArgument,
    key: Annotated[str | None, typer.Argument(help="Only this key.", show_default=False)] = None,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="Show the newest N revisions.")] = 100,
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """List the logged changes, oldest first. JSON: a History per line.

    The log is bounded by age, count and size; what came before its first revision is gone.
    """
    options = common(ctx, server, as_json, agent, timeout)

    async def read() -> list[HistoryEntry]:
        async with connected(options) as client:
            newest: deque[HistoryEntry] = deque(maxlen=min(limit, sys.maxsize))
            async for entry in client.namespace(namespace).history(key, page_size=1_000):
                newest.append(entry)
            return list(newest)

    entries = call(read())
    if options.as_json:
        for entry in entries:
            print_json(_history_data(namespace, entry))
        return
    rows = [(entry.revision, time_text(entry.time), *_cells(event)) for entry in entries for event in entry.events]
    print_table(("REVISION", "TIME", "CHANGE", "KEY", "BY", "VALUE"), rows, empty="the log has no changes")
    if entries:
        print_line(f"the log holds every change after revision {entries[-1].floor}")


@app.command()
def watch(
    ctx: typer.Context,
    namespace: NamespaceArgument,
    collection: Annotated[
        str, typer.Argument(help="Only keys in this collection, e.g. plan/.", show_default=False)
    ] = "",
    resume: Annotated[
        str | None, typer.Option(metavar="TOKEN", help="Continue after the line that had this `resume`.")
    ] = None,
    after: Annotated[int | None, typer.Option(min=0, metavar="REVISION", help="Changes after this revision.")] = None,
    snapshot: Annotated[bool, typer.Option("--snapshot", help="First everything that is there.")] = False,
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """Print changes as they happen, until Ctrl-C. JSON: a Watch per line.

    Without --resume, --after or --snapshot it begins with the next change.
    """
    if sum((resume is not None, after is not None, snapshot)) > 1:
        raise usage("--resume, --after and --snapshot exclude each other")
    check_revision("--after", after)
    options = common(ctx, server, as_json, agent, timeout)
    token = None if resume is None else _decode_resume(resume)

    async def follow() -> None:
        async with connected(options) as client:
            space = client.namespace(namespace)
            async with space.watch(collection, resume=token, after=after, snapshot=snapshot) as batches:
                async for batch in batches:
                    _print_batch(namespace, batch, as_json=options.as_json)

    call(_until_interrupted(follow()))


async def _until_interrupted(coroutine: Coroutine[Any, Any, None]) -> None:
    """Runs a coroutine until it ends or SIGINT or SIGTERM asks it to, which is a clean end."""
    task = asyncio.ensure_future(coroutine)
    stopped = False

    def stop() -> None:
        nonlocal stopped
        stopped = True
        task.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    try:
        await task
    except asyncio.CancelledError:
        if not stopped:
            raise


def _print_batch(namespace: str, batch: WatchBatch[Any], *, as_json: bool) -> None:
    if as_json:
        print_json(_watch_data(namespace, batch))
        return
    if batch.kind == "reset":
        print_line(f"reset: what changed in between cannot be told; all that is there at revision {batch.revision}:")
    elif batch.kind == "epoch":
        print_line(f"epoch: revisions above {batch.revision} were lost")
    for event in batch.events:
        print_line("  ".join((str(batch.revision), *_cells(event))))


def _cells(event: ChangeEvent[Any]) -> tuple[str, str, str, str]:
    value = value_cell(event.record.values) if event.record is not None else ""
    return event.kind, event.key, event.actor, value


def _change_data(event: ChangeEvent[Any]) -> ChangeShape:
    return {
        "kind": event.kind,
        "key": event.key,
        "actor": event.actor or None,
        "record": None if event.record is None else record_data(event.record),
        "overwritten": dots_data(event.overwritten),
    }


def _history_data(namespace: str, entry: HistoryEntry) -> HistoryShape:
    return {
        "namespace": namespace,
        "floor": str(entry.floor),
        "revision": str(entry.revision),
        "commit_time": time_text(entry.time),
        "changes": [_change_data(event) for event in entry.events],
    }


def _watch_data(namespace: str, batch: WatchBatch[Any]) -> WatchShape:
    return {
        "kind": batch.kind,
        "namespace": namespace,
        "revision": str(batch.revision),
        "head": str(batch.head),
        "changes": [_change_data(event) for event in batch.events],
        "resume": base64.urlsafe_b64encode(batch.resume).decode() or None,
    }


def _decode_resume(token: str) -> bytes:
    try:
        return base64.b64decode(token, altchars=b"-_", validate=True)
    except ValueError:
        raise usage(f"--resume: {token!r} is not a `resume` that a watch printed") from None
