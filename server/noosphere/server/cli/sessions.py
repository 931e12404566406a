"""`noosphere session …`: what sessions hold, and how they fare."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from .common import AgentOption, Common, JsonOption, ServerOption, TimeoutOption, common
from .output import print_fields, print_json, print_line, print_table
from .session import call, connected
from .session_views import (
    HEALTH_COLUMNS,
    cell,
    checkpoint_data,
    control_data,
    health_data,
    health_rows,
    message_data,
    message_text,
    session_data,
    span_text,
    tool_call_data,
    transition_data,
)
from .values import parse_attributes
from .views import time_text

if TYPE_CHECKING:
    from noosphere.client import ControlState, Message, Session, SessionInfo, ToolCall, Transition

app = typer.Typer(help="Sessions: what they hold, and how they fare.")

SessionArgument = Annotated[str, typer.Argument(metavar="SESSION", help="The session's id.", show_default=False)]
LastOption = Annotated[int | None, typer.Option("--last", metavar="N", min=1, help="Only the newest N.")]

_TEXT_CHARS_MAX = 100


@app.command("list")
def list_(
    ctx: typer.Context,
    status: Annotated[
        Literal["open", "closed"] | None, typer.Option(help="Only sessions that are so.", show_default=False)
    ] = None,
    owner: Annotated[str, typer.Option(metavar="AGENT", help="Only those that this agent opened.")] = "",
    label: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Only those with this label. May be repeated.")
    ] = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """List sessions by id, ephemeral ones apart. JSON: a Session per line."""
    options = common(ctx, server, as_json, agent, timeout)
    labels = {name: str(value) for name, value in parse_attributes(label or [], "--label").items()}

    async def read() -> list[SessionInfo]:
        async with connected(options) as client:
            return [found async for found in client.sessions(status=status, owner=owner, labels=labels)]

    found = call(read())
    rows = [
        (info.id, info.status, info.owner, info.turn, time_text(info.created_at), info.title or "-") for info in found
    ]
    _print(options, found, session_data, ("SESSION", "STATUS", "OWNER", "TURN", "OPENED", "TITLE"), rows, "no sessions")


@app.command()
def show(
    ctx: typer.Context,
    session: SessionArgument,
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """Show a session: settings, position, control state. JSON: SessionDetail."""
    options = common(ctx, server, as_json, agent, timeout)

    async def read() -> tuple[SessionInfo, ControlState]:
        async with existing(options, session) as found:
            return found.opened, await found.control.get()

    info, control = call(read())
    if options.as_json:
        print_json({"session": session_data(info), "control": control_data(control)})
        return
    settings = info.settings
    turns = ", ".join(f"{turn.number} by {turn.author}" for turn in info.open_turns)
    print_fields(
        {
            "session": info.id,
            "title": info.title or "-",
            "status": info.status + (f" since {time_text(info.closed_at)}" if info.closed_at else ""),
            "owner": info.owner,
            "opened": time_text(info.created_at),
            "labels": " ".join(f"{name}={value}" for name, value in sorted(info.labels.items())) or "-",
            "turn": f"{info.turn}" + (f", open: {turns}" if turns else ""),
            "branch": info.branch,
            "parent": info.parent or "-",
            "window": f"{settings.window_turns} turns, {settings.window_steps} steps, by {settings.tokenizer}",
            "tool results": f"at most {settings.tool_result_tokens_max} tokens",
            "checkpoints": f"{settings.checkpoint_policy}, at most {settings.checkpoints_max} for "
            f"{span_text(settings.checkpoint_age_max)}",
            "closed when idle": f"for {span_text(settings.idle_timeout)}, and purged {span_text(settings.purge_after)} "
            "later",
            "next step": control.next_node or "-",
            "waits for": control.pending_interrupt or "-",
            "pending calls": ", ".join(control.pending_calls) or "-",
        }
    )


@app.command()
def messages(
    ctx: typer.Context,
    session: SessionArgument,
    last: LastOption = None,
    turn: Annotated[int | None, typer.Option(metavar="N", min=1, help="Only messages of this turn.")] = None,
    branch: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Another branch, e.g. one that a restore has left.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Print the texts whole, not in a table.")] = False,
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """List a transcript, the oldest message first. JSON: a Message per line."""
    options = common(ctx, server, as_json, agent, timeout)

    async def read() -> list[Message]:
        async with existing(options, session) as opened:
            listed = opened.messages(reverse=last is not None, turn=turn, branch=branch, page_size=last_page(last))
            return await _taken(listed, last)

    found = call(read())
    if full and not options.as_json:
        for message in found:
            print_line(f"--- turn {message.turn}, {message.role}, {message.author}, {time_text(message.time)}")
            for line in message_text(message).splitlines():
                print_line(line)
        return
    rows = [
        (message.turn, message.role, message.author, message.tokens, cell(message_text(message), _TEXT_CHARS_MAX))
        for message in found
    ]
    _print(options, found, message_data, ("TURN", "ROLE", "AUTHOR", "TOKENS", "TEXT"), rows, "no messages")


@app.command()
def tools(
    ctx: typer.Context,
    session: SessionArgument,
    last: LastOption = None,
    status: Annotated[
        Literal["pending", "done", "failed", "parked", "rejected"] | None,
        typer.Option(help="Only calls that stand there.", show_default=False),
    ] = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """List tool calls in the order in which they were started. JSON: a ToolCall per line."""
    options = common(ctx, server, as_json, agent, timeout)

    async def read() -> list[ToolCall]:
        async with existing(options, session) as opened:
            listed = opened.tool_calls(status=status, reverse=last is not None, page_size=last_page(last))
            return await _taken(listed, last)

    found = call(read())
    rows = [
        (
            one.call_id,
            one.name,
            one.status,
            one.turn,
            one.raw_bytes or "-",
            f"{one.tokens} {one.compaction}" if one.compaction else "-",
            ", ".join(f"{change.key} by {change.actor or 'expiry'}" for change in one.changes) or "-",
        )
        for one in found
    ]
    columns = ("CALL", "TOOL", "STATUS", "TURN", "BYTES", "TOKENS", "CHANGED MEANWHILE")
    _print(options, found, tool_call_data, columns, rows, "no tool calls")


@app.command()
def checkpoints(
    ctx: typer.Context,
    session: SessionArgument,
    last: LastOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """List savepoints, the newest first. JSON: a Checkpoint per line."""
    options = common(ctx, server, as_json, agent, timeout)

    async def read() -> list[Any]:
        async with existing(options, session) as opened:
            return await _taken(opened.checkpoints(page_size=last_page(last)), last, newest_first=True)

    found = call(read())
    rows = [
        (one.id, time_text(one.time), one.cause, one.name or "-", one.branch, one.turn, one.items, one.bytes)
        for one in found
    ]
    columns = ("CHECKPOINT", "TIME", "CAUSE", "NAME", "BRANCH", "TURN", "ITEMS", "BYTES")
    _print(options, found, checkpoint_data, columns, rows, "no checkpoints")


@app.command()
def transitions(
    ctx: typer.Context,
    session: SessionArgument,
    last: LastOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Tell what the controller would do now instead.")] = False,
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """List the controller's decisions that changed something, the newest first. JSON: a Transition per line."""
    options = common(ctx, server, as_json, agent, timeout)

    async def read() -> list[Transition]:
        async with existing(options, session) as opened:
            if dry_run:
                return list(await opened.run_transitions(dry_run=True))[:last]
            return await _taken(opened.transitions(page_size=last_page(last)), last, newest_first=True)

    found = call(read())
    rows = [
        (one.turn, one.action, one.key, one.reason, f"{one.score:.2f}", one.into or "-", cell(one.explanation, 80))
        for one in found
    ]
    columns = ("TURN", "ACTION", "KEY", "REASON", "SCORE", "INTO", "WHY")
    _print(options, found, transition_data, columns, rows, "no decisions")


@app.command()
def health(
    ctx: typer.Context,
    session: SessionArgument,
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """Show how a session fares, in figures and in words. JSON: SessionHealth."""
    options = common(ctx, server, as_json, agent, timeout)

    async def read() -> Any:
        async with existing(options, session) as opened:
            return await opened.health()

    found = call(read())
    if options.as_json:
        print_json(health_data(session, found))
        return
    print_table(HEALTH_COLUMNS, health_rows(found), empty="")
    print_line(
        f"{found.items} items, {found.messages} messages, {found.pending_calls} pending calls, "
        f"{found.outbox} fact candidates in the outbox"
    )


@asynccontextmanager
async def existing(options: Common, session_id: str) -> AsyncIterator[Session]:
    """Opens a client and a session that has to be there."""
    async with connected(options) as client, client.session(session_id, existing="required") as opened:
        yield opened


def last_page(last: int | None) -> int:
    """Returns how many entries to ask for at a time."""
    return min(last or 1_000, 1_000)


async def _taken(listed: AsyncIterator[Any], last: int | None, *, newest_first: bool = False) -> list[Any]:
    """Returns what is listed; with ``last`` only the newest of it, in the list's own order."""
    found: list[Any] = []
    async for entry in listed:
        found.append(entry)
        if len(found) == last:
            break
    return found[::-1] if last is not None and not newest_first else found


def _print(
    options: Common,
    found: list[Any],
    to: Callable[[Any], object],
    columns: tuple[str, ...],
    rows: Sequence[Sequence[object]],
    empty: str,
) -> None:
    if options.as_json:
        for entry in found:
            print_json(to(entry))
    else:
        print_table(columns, rows, empty=empty)
