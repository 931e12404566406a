"""`noosphere get`, `put` and `delete`."""

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
from .output import compact, print_bytes, print_fields, print_json, print_line
from .session import call, connected
from .values import decode_text, parse_attributes, parse_duration, parse_json, read_argument
from .views import record_data, time_text, write_data

if TYPE_CHECKING:
    from noosphere.client import Record

app = typer.Typer()

ExpectedVersionOption = Annotated[
    int | None,
    typer.Option(min=0, metavar="N", help="Only if the record's version is N; 0: only if it has no value."),
]
BlindOption = Annotated[bool, typer.Option("--blind", help="Whatever is there; what it replaces is listed.")]


@app.command()
def get(
    ctx: typer.Context,
    namespace: NamespaceArgument,
    key: KeyArgument,
    raw: Annotated[bool, typer.Option("--raw", help="Print the value's bytes and nothing else.")] = False,
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """Show a record. JSON: Record.

    Fails with exit code 1 if the key has no value.
    """
    options = common(ctx, server, as_json, agent, timeout)

    async def read() -> Record[Any]:
        async with connected(options) as client:
            return await client.namespace(namespace).key(key).read()

    record = call(read())
    if not record.exists:
        raise CliError(ExitCode.REFUSED, f"{key!r} in {namespace} has no value", "VALUE_ABSENT")
    if raw:
        print_bytes(_sole_bytes(record))
    elif options.as_json:
        print_json(record_data(record))
    else:
        print_fields(_fields(record))


@app.command()
def put(
    ctx: typer.Context,
    namespace: NamespaceArgument,
    key: KeyArgument,
    value: Annotated[
        str,
        typer.Argument(
            help="The value as JSON; - reads it from stdin, @FILE from a file. Before one that begins with a minus "
            "sign write --.",
            show_default=False,
        ),
    ],
    text: Annotated[bool, typer.Option("--text", help="The value is a text, stored as a JSON string.")] = False,
    bytes_: Annotated[bool, typer.Option("--bytes", help="The value is opaque bytes, stored as they are.")] = False,
    expected_version: ExpectedVersionOption = None,
    blind: BlindOption = False,
    ttl: Annotated[
        str | None, typer.Option(metavar="DURATION", help="How long it lives, e.g. 90s or 1h30m. [default: for ever]")
    ] = None,
    attr: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="An attribute for filters; repeatable. A JSON scalar, else a text."),
    ] = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """Write a record. JSON: Write.

    Without --expected-version or --blind it creates the record and refuses to replace one that has a value.
    """
    if text and bytes_:
        raise usage("--text and --bytes exclude each other")
    data = read_argument(value)
    content: Any = data if bytes_ else decode_text(data) if text else parse_json(data)
    lifetime = None if ttl is None else parse_duration(ttl, "--ttl")
    attributes = parse_attributes(attr or [], "--attr")
    options = common(ctx, server, as_json, agent, timeout)

    async def write() -> Record[Any]:
        async with connected(options) as client:
            target = client.namespace(namespace).key(key)
            return await target.put(
                content, expected_version=expected_version, blind=blind, ttl=lifetime, attributes=attributes
            )

    _print_written(call(write()), options, "written")


@app.command()
def delete(
    ctx: typer.Context,
    namespace: NamespaceArgument,
    key: KeyArgument,
    expected_version: ExpectedVersionOption = None,
    blind: BlindOption = False,
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """Delete a record. JSON: Write.

    A key without a value is left as it is. One with a value needs --expected-version or --blind.
    """
    options = common(ctx, server, as_json, agent, timeout)

    async def write() -> Record[Any]:
        async with connected(options) as client:
            target = client.namespace(namespace).key(key)
            return await target.delete(expected_version=expected_version, blind=blind)

    _print_written(call(write()), options, "deleted")


def _print_written(record: Record[Any], options: Common, verb: str) -> None:
    if options.as_json:
        print_json(write_data(record))
        return
    applied = record.applied
    assert applied is not None
    if not applied.revision:
        print_line(f"{record.key!r} in {record.namespace} had no value, nothing to do")
        return
    version = f", version {applied.version}" if applied.version else ""
    print_line(f"{verb} at revision {applied.revision}{version}")
    for dot in applied.overwritten:
        what = "a delete" if dot.deleted else "a value"
        print_line(f"replaced unseen: {what} of revision {dot.revision} by {dot.actor}")
    if applied.concurrent_delete:
        print_line("an unseen delete was undone")


def _sole_bytes(record: Record[Any]) -> bytes:
    from noosphere.client import NoosphereError

    try:
        return record.raw
    except NoosphereError as error:
        raise CliError(ExitCode.REFUSED, str(error), error.reason) from None


def _fields(record: Record[Any]) -> dict[str, object]:
    fields: dict[str, object] = {"version": record.version}
    if record.merge_type:
        fields["type"] = record.merge_type.name.lower()
    if record.attributes:
        fields["attributes"] = " ".join(f"{name}={compact(value)}" for name, value in record.attributes.items())
    if (claim := record.claim) is not None:
        holder = f"held by {claim.holder} until {time_text(claim.expires_at)}" if claim.holder else "free"
        fields["claim"] = f"done by {claim.completed_by}" if claim.done else holder
        if claim.result is not None:
            fields["result"] = _show(claim.result)
    several = len(record.values) > 1
    for number, (value, written) in enumerate(zip(record.values, record.writers, strict=True), 1):
        mark = f" {number}" if several else ""
        ends = f", expires {time_text(written.expires_at)}" if written.expires_at else ""
        # `resolve --keep` asks for the revision of one of several.
        where = f", revision {written.revision}" if several else ""
        fields[f"written{mark}"] = f"by {written.actor} at {time_text(written.time)}{where}{ends}"
        fields[f"value{mark}"] = _show(value)
    return fields


def _show(value: Any) -> str:
    return f"{len(value)} bytes" if isinstance(value, bytes) else compact(value)
