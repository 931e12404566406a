"""`noosphere conflicts` and `resolve`: the queue of records with several values, and working through it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from .common import (
    AgentOption,
    Common,
    JsonOption,
    KeyArgument,
    NamespaceArgument,
    ServerOption,
    TimeoutOption,
    common,
)
from .exits import CliError, ExitCode, usage
from .output import print_json, print_line, print_table
from .session import call, connected
from .values import decode_text, parse_json, read_argument
from .views import record_data, time_text, value_cell

if TYPE_CHECKING:
    from noosphere.client import PendingConflict, Record

    from .shapes import PendingShape, ResolvedShape

app = typer.Typer()


@app.command()
def conflicts(
    ctx: typer.Context,
    namespace: NamespaceArgument,
    collection: Annotated[
        str, typer.Argument(help="Only keys in this collection, e.g. notes/.", show_default=False)
    ] = "",
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """List the records with several values, the longest waiting first. JSON: a Pending per line.

    They come about under the policy `siblings`. `get` shows the values, `resolve` puts one in their place.
    """
    options = common(ctx, server, as_json, agent, timeout)

    async def read() -> list[PendingConflict[Any]]:
        async with connected(options) as client:
            return [found async for found in client.namespace(namespace).conflicts(collection, page_size=1_000)]

    pending = call(read())
    if options.as_json:
        for found in pending:
            print_json(_pending_data(found))
        return
    rows = [
        (found.record.key, time_text(found.since_time), len(found.record.values), _writers(found.record))
        for found in pending
    ]
    print_table(("KEY", "SINCE", "VALUES", "WRITERS"), rows, empty="no record has several values")


@app.command()
def resolve(
    ctx: typer.Context,
    namespace: NamespaceArgument,
    key: KeyArgument,
    value: Annotated[
        str | None,
        typer.Option(metavar="VALUE", help="The new value as JSON; - reads it from stdin, @FILE from a file."),
    ] = None,
    text: Annotated[bool, typer.Option("--text", help="The new value is a text, stored as a JSON string.")] = False,
    bytes_: Annotated[bool, typer.Option("--bytes", help="The new value is opaque bytes, stored as they are.")] = False,
    keep: Annotated[
        int | None, typer.Option(min=1, metavar="REVISION", help="Keep the value that was written at this revision.")
    ] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Keep none: delete the key.")] = False,
    expected_version: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Only if the record's version is N, as `get` showed it.")
    ] = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """Put one value, or none, in the place of a record's several values. JSON: Resolved.

    Give one of --value, --keep and --delete. Shows the values that it resolves; a value that comes in between
    refuses it. With --expected-version so does one that came since you looked.
    """
    if (value is not None) + (keep is not None) + delete != 1:
        raise usage("give one of --value, --keep and --delete")
    if (text or bytes_) and value is None:
        raise usage("--text and --bytes say how to store --value")
    if text and bytes_:
        raise usage("--text and --bytes exclude each other")
    given: dict[str, Any] = {"keep": keep, "delete": delete}
    if value is not None:
        data = read_argument(value)
        given["value"] = data if bytes_ else decode_text(data) if text else parse_json(data)
    options = common(ctx, server, as_json, agent, timeout)

    async def write() -> tuple[Record[Any], Record[Any]]:
        async with connected(options) as client:
            found = await client.namespace(namespace).key(key).read()
            _check(found, keep, expected_version)
            return found, await found.resolve(**given)

    _print_resolved(*call(write(), advice="look at what is there now, and resolve that"), options)


def _check(found: Record[Any], keep: int | None, expected_version: int | None) -> None:
    """Checks what was read before anything is written.

    Raises:
        CliError: it is not what the caller has looked at.
    """
    if expected_version is not None and found.version != expected_version:
        message = f"VERSION_MISMATCH: the version of {found.key!r} is {found.version}, not {expected_version}"
        raise CliError(ExitCode.REFUSED, message, "VERSION_MISMATCH", {"message": message, "outcome": "not_applied"})
    revisions = [written.revision for written in found.writers]
    if keep is not None and len(revisions) > 1 and keep not in revisions:
        raise usage(f"--keep: no value was written at revision {keep}; there are {', '.join(map(str, revisions))}")


def _print_resolved(found: Record[Any], resolved: Record[Any], options: Common) -> None:
    applied = resolved.applied
    assert applied is not None
    if options.as_json:
        document: ResolvedShape = {
            "namespace": found.namespace,
            "key": found.key,
            "revision": str(applied.revision),
            "version": None if applied.version is None else str(applied.version),
            "resolved": record_data(found)["values"],
            "replayed": applied.replayed,
        }
        print_json(document)
        return
    rows = [
        (written.revision, written.actor, time_text(written.time), value_cell((value,)))
        for value, written in zip(found.values, found.writers, strict=True)
    ]
    print_table(("REVISION", "BY", "TIME", "VALUE"), rows, empty="")
    outcome = f"version {applied.version}" if applied.version else "no value is left"
    print_line(f"{len(rows)} values resolved at revision {applied.revision}, {outcome}")


def _writers(record: Record[Any]) -> str:
    return ", ".join(dict.fromkeys(written.actor for written in record.writers))


def _pending_data(found: PendingConflict[Any]) -> PendingShape:
    return {
        "namespace": found.record.namespace,
        "key": found.record.key,
        "since": str(found.since),
        "since_time": time_text(found.since_time),
        "record": record_data(found.record),
    }
