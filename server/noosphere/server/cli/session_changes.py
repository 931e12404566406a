"""`noosphere session restore`, `fork`, `close`, `purge` and `export`."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from .common import AgentOption, Common, JsonOption, ServerOption, TimeoutOption, common
from .exits import usage
from .output import print_fields, print_json, print_line
from .session import call
from .session_views import control_data, message_data, session_data, tool_call_data
from .sessions import SessionArgument, existing
from .views import record_data

if TYPE_CHECKING:
    from noosphere.client import ClosedSession, Restored, Session, SessionInfo

    from .session_shapes import ClosedShape, ExportShape, PurgedShape, RestoredShape

app = typer.Typer()

_STORED = {
    "summary": "_session/summaries/",
    "checkpoint": "_session/checkpoints/",
    "transition": "_session/events/",
    "candidate": "_session/outbox/",
}
_OWN = "_session/"


@app.command()
def restore(
    ctx: typer.Context,
    session: SessionArgument,
    checkpoint: Annotated[
        str, typer.Argument(metavar="CHECKPOINT", help="Its id, as `session checkpoints` shows it.", show_default=False)
    ],
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """Go back to a savepoint. What came after it stays readable as a branch. JSON: Restored."""
    options = common(ctx, server, as_json, agent, timeout)

    async def write() -> Restored:
        async with existing(options, session) as opened:
            return await opened.restore(checkpoint)

    done = call(write())
    if options.as_json:
        document: RestoredShape = {
            "session": session_data(done.session),
            "abandoned_branch": done.abandoned_branch,
            "restored": done.restored,
            "removed": done.removed,
        }
        print_json(document)
        return
    print_line(
        f"{session} is back at {checkpoint}, on branch {done.session.branch}: {done.restored} items put back, "
        f"{done.removed} removed; what came after it is branch {done.abandoned_branch}"
    )


@app.command()
def fork(
    ctx: typer.Context,
    session: SessionArgument,
    into: Annotated[
        str, typer.Argument(metavar="NEW", help="The new session's id. [default: the server's choice]")
    ] = "",
    at: Annotated[
        str, typer.Option(metavar="CHECKPOINT", help="Begin as this savepoint. [default: as it is now]")
    ] = "",
    title: Annotated[str, typer.Option(metavar="TEXT", help="The new session's title.")] = "",
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """Open a new session that begins with another one's items, summary and window. JSON: a Session."""
    options = common(ctx, server, as_json, agent, timeout)

    async def write() -> SessionInfo:
        async with existing(options, session) as opened:
            return (await opened.fork(into, checkpoint=at, title=title)).opened

    made = call(write())
    if options.as_json:
        print_json(session_data(made))
    else:
        print_line(f"{made.id} is a fork of {session}, at turn {made.turn}")


@app.command()
def close(
    ctx: typer.Context,
    session: SessionArgument,
    items: Annotated[
        Literal["archive", "drop", "keep"],
        typer.Option(help="What becomes of its items: fact candidates, nothing, or they stay."),
    ] = "archive",
    pending: Annotated[
        Literal["fail", "refuse"], typer.Option(help="If tool calls are pending: they fail, or the session stays open.")
    ] = "fail",
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """Close a session: it can be read, forked and purged, nothing else. JSON: Closed."""
    options = common(ctx, server, as_json, agent, timeout)

    async def write() -> ClosedSession:
        async with existing(options, session) as opened:
            return await opened.close(items=items, pending_calls=pending)

    done = call(write())
    if options.as_json:
        document: ClosedShape = {"session": session, **done._asdict()}  # type: ignore[typeddict-item]
        print_json(document)
        return
    print_fields(
        {
            "session": f"{session}, closed",
            "items archived": done.archived,
            "items dropped": done.dropped,
            "calls failed": done.failed_calls,
        }
    )


@app.command()
def purge(
    ctx: typer.Context,
    session: SessionArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """Remove a closed session and everything in it, for good. JSON: Purged."""
    options = common(ctx, server, as_json, agent, timeout)
    if not yes:
        if not sys.stdin.isatty():
            raise usage("session purge asks before it removes; where there is no terminal to ask on, give --yes")
        typer.confirm(f"Remove {session} and everything in it?", abort=True, err=True)

    async def write() -> int:
        async with existing(options, session) as opened:
            return await opened.purge()

    records = call(write())
    document: PurgedShape = {"session": session, "records": records}
    if options.as_json:
        print_json(document)
    else:
        print_line(f"{session} is gone, with {records} records")


@app.command()
def export(
    ctx: typer.Context,
    session: SessionArgument,
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """Print everything that a session holds, as JSON lines: an Export per line, with or without --json.

    All branches, and results of tools as they entered working memory. What is written while it runs may be missing.
    """
    options = common(ctx, server, as_json, agent, timeout)
    call(_export(options, session))


async def _export(options: Common, session_id: str) -> None:
    async with existing(options, session_id) as opened:
        async for document in _documents(opened):
            print_json(document)


async def _documents(session: Session) -> AsyncIterator[ExportShape]:
    yield _document("session", session_data(session.opened))
    yield _document("control", control_data(await session.control.get()))
    seen: set[str] = set()
    for branch in range(session.opened.branch + 1):
        async for message in session.messages(branch=branch, page_size=1_000):
            if message.key not in seen:
                seen.add(message.key)
                yield _document("message", message_data(message), branch)
    async for one in session.tool_calls(page_size=1_000):
        yield _document("tool_call", tool_call_data(one))
    async for record in session.items.list(page_size=1_000):
        if not record.key.startswith(_OWN):
            yield _document("item", record_data(record))
    for kind, collection in _STORED.items():
        async for record in session.items.list(collection, page_size=1_000):
            yield _document(kind, {"key": record.key, **record.value})


def _document(kind: str, data: Any, branch: int | None = None) -> ExportShape:
    return {"kind": kind, "branch": branch, "data": data}
