"""`noosphere token …`: API tokens, by which servers know who calls."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .common import ConfigOption, JsonOption, ServerOption, TimeoutOption, common, path_option
from .exits import CliError, ExitCode, usage
from .output import print_json, print_line, print_table, shorten
from .private_files import private_file
from .session import call, connected
from .values import parse_duration

if TYPE_CHECKING:
    from noosphere.consistency import NamePattern
    from noosphere.server.ports.grants import Verb
    from noosphere.server.security.minting import Wanted
    from noosphere.v1 import admin_tokens_pb2 as pb

    from .common import Common
    from .token_shapes import NewTokenShape, RevokedShape, TokenShape

app = typer.Typer(help="API tokens, by which servers know who calls.")

ADMIN_DEFAULT = "admin"
PAGE_SIZE = 1_000
VERBS = ("read", "write", "delete", "watch", "resolve", "admin", "act")
_NOTE_CHARS_MAX = 40


@app.command()
def create(
    ctx: typer.Context,
    principal: Annotated[
        str, typer.Argument(help="Whom it stands for; with --admin it is admin unless given.", show_default=False)
    ] = "",
    admin: Annotated[bool, typer.Option("--admin", help="It may do everything.")] = False,
    agent: Annotated[
        list[str] | None,
        typer.Option(
            "--act-as",
            metavar="AGENT",
            help="It may act as this agent, or as all whose names begin so if it ends in *, beside the agent of the "
            "principal's name and those below it. Repeatable.",
        ),
    ] = None,
    owner: Annotated[
        list[str] | None,
        typer.Option("--owner", metavar="OWNER", help="It may act for this owner of facts, e.g. user/42. Repeatable."),
    ] = None,
    session: Annotated[str, typer.Option("--session", metavar="ID", help="The only session that it may touch.")] = "",
    verb: Annotated[
        list[str] | None,
        typer.Option("--verb", metavar="VERB", help=f"At most this: {', '.join(VERBS)}. Repeatable."),
    ] = None,
    ttl: Annotated[
        str | None,
        typer.Option("--ttl", metavar="DURATION", help="How long it is valid, e.g. 30d. [default: for ever]"),
    ] = None,
    note: Annotated[str, typer.Option("--note", metavar="TEXT", help="What it is for.")] = "",
    to: Annotated[
        Path | None,
        path_option("--to", help="Write it to this file, which only you can read, instead of printing it."),
    ] = None,
    offline: Annotated[
        bool,
        typer.Option("--offline", help="Write to the data folder, whose server is stopped, or to etcd."),
    ] = False,
    data: Annotated[
        Path | None,
        path_option("--data", help="The data folder, for a token that is made offline. [default: as for serve]"),
    ] = None,
    config: ConfigOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
    timeout: TimeoutOption = None,
) -> None:
    """Make an API token, and print it this once, or write it to a file: only a hash of it is kept. JSON: a NewToken.

    The first administrator's has to be made offline, because nobody could ask a server for it: so is what has --admin
    while neither a server nor a token is named. The server must be stopped then, unless it keeps tokens in etcd.
    """
    from noosphere.server.security.minting import Wanted

    options = common(ctx, server, as_json, None, timeout)
    wanted = Wanted(
        principal or (ADMIN_DEFAULT if admin else ""),
        admin,
        tuple(_pattern(name) for name in agent or ()),
        tuple(owner or ()),
        session,
        _verbs(verb),
        int(parse_duration(ttl, "--ttl").total_seconds() * 1000) if ttl is not None else 0,
        note,
    )
    if not wanted.principal:
        raise usage("PRINCIPAL is required: whom the token stands for, as grants name it")
    alone = offline or data is not None or (admin and not _names_a_server(options))
    # A token that finds no place would be lost, and valid: so the file comes first.
    with private_file(to) if to is not None else contextlib.nullcontext() as write:
        token, info = _offline(wanted, data, config) if alone else call(_asked_for(options, wanted))
        if write is not None:
            write(f"{token}\n")
    if options.as_json:
        document: NewTokenShape = {**token_data(info), "token": None if to is not None else token}
        print_json(document)
        return
    if to is None:
        print_line(token)
    # Beside the token itself, which programs read.
    where = f"it is in {to}, which only you can read" if to is not None else "it is not shown again"
    print(f"token noo_{info.token_id} of {info.principal!r}; {where}", file=sys.stderr)


@app.command("list")
def list_(
    ctx: typer.Context,
    server: ServerOption = None,
    as_json: JsonOption = False,
    timeout: TimeoutOption = None,
) -> None:
    """List the API tokens that are valid, without their secrets. JSON: a Token per line."""
    options = common(ctx, server, as_json, None, timeout)
    found = call(_listed(options))
    if options.as_json:
        for info in found:
            print_json(token_data(info))
        return
    rows = []
    for info in found:
        shown = token_data(info)
        rows.append(
            (
                shown["token_id"],
                shown["principal"],
                "yes" if shown["admin"] else "",
                " ".join(shown["agents"]),
                shown["expire_time"] or "never",
                shown["parent"] or "",
                shorten(shown["note"], _NOTE_CHARS_MAX),
            )
        )
    print_table(("TOKEN", "PRINCIPAL", "ADMIN", "ACTS AS", "EXPIRES", "NARROWED FROM", "NOTE"), rows, empty="no token")


@app.command()
def revoke(
    ctx: typer.Context,
    token_id: Annotated[str, typer.Argument(help="Its public part, as `token list` shows it.", show_default=False)],
    server: ServerOption = None,
    as_json: JsonOption = False,
    timeout: TimeoutOption = None,
) -> None:
    """End an API token, and those that were narrowed from it, on every server within a second. JSON: a Revoked."""
    options = common(ctx, server, as_json, None, timeout)
    # Whoever pastes all of a token has shown it; what is sent and printed is its public part.
    public = token_id.removeprefix("noo_").partition("_")[0]
    count = call(_revoked(options, public))
    if options.as_json:
        document: RevokedShape = {"token_id": public, "revoked_count": count}
        print_json(document)
        return
    more = f", with {count - 1} narrowed from it" if count > 1 else ""
    print_line(f"token noo_{public} has ended{more}")


def token_data(info: pb.TokenInfo) -> TokenShape:
    """Returns a token as a document."""
    from .admin_api import stamp_text

    return {
        "token_id": info.token_id,
        "principal": info.principal,
        "admin": info.admin,
        "agents": [(one.exact or f"{one.prefix}*").removeprefix("agents/") for one in info.agents],
        "owners": list(info.owners),
        "session": info.session or None,
        "verbs": list(info.verbs) or None,
        "create_time": stamp_text(info.create_time),
        "expire_time": stamp_text(info.expire_time) if info.HasField("expire_time") else None,
        "only_agents": info.only_agents,
        "only_owners": info.only_owners,
        "parent": info.parent_token_id or None,
        "creator": info.creator,
        "note": info.note,
    }


def _names_a_server(options: Common) -> bool:
    named = (options.server, options.token_file)
    variables = ("NOOSPHERE_SERVER", "NOOSPHERE_TOKEN", "NOOSPHERE_TOKEN_FILE")
    return any(one is not None for one in named) or any(os.environ.get(name) for name in variables)


def _offline(wanted: Wanted, data: Path | None, config: Path | None) -> tuple[str, pb.TokenInfo]:
    from noosphere.consistency import Refusal
    from noosphere.server.config import ConfigError, load
    from noosphere.server.drivers import StartupError, open_coordinator
    from noosphere.server.ports.runtime import SystemClock
    from noosphere.server.rpc.admin_tokens import info
    from noosphere.server.security.minting import ApiTokens

    async def make() -> tuple[str, pb.TokenInfo]:
        clock = SystemClock()
        async with open_coordinator(settings, clock=clock, on_fatal=lambda _: None) as coordinator:
            made = await ApiTokens(coordinator, clock, os.urandom).create(wanted, "")
            return made.text, info(made.token_id, made.stored)

    try:
        settings = load(config, {"data": data}).settings
    except ConfigError as error:
        raise usage(str(error)) from None
    try:
        return asyncio.run(make())
    except StartupError as error:
        hint = (
            ": stop the server, or ask it with an administrator's token (--server and NOOSPHERE_TOKEN)"
            if "in use" in str(error)
            else ""
        )
        raise CliError(ExitCode.CANNOT_SERVE, f"{error}{hint}", "CANNOT_CREATE") from None
    except Refusal as refusal:
        raise CliError(ExitCode.REFUSED, f"{refusal.reason}: {refusal.message}", refusal.reason) from None


async def _asked_for(options: Common, wanted: Wanted) -> tuple[str, pb.TokenInfo]:
    from google.protobuf.duration_pb2 import Duration

    from noosphere.v1 import admin_tokens_pb2 as pb
    from noosphere.v1 import types_pb2
    from noosphere.v1.admin_service_pb2_grpc import AdminServiceStub

    request = pb.CreateTokenRequest(
        principal=wanted.principal,
        admin=wanted.admin,
        agents=[
            types_pb2.NamePattern(exact=one.text) if one.exact else types_pb2.NamePattern(prefix=one.text)
            for one in wanted.agents
        ],
        owners=wanted.owners,
        session=wanted.session,
        verbs=sorted(wanted.verbs or ()),
        note=wanted.note,
    )
    if wanted.ttl_ms:
        request.ttl.CopyFrom(Duration(seconds=wanted.ttl_ms // 1000, nanos=wanted.ttl_ms % 1000 * 1_000_000))
    async with connected(options) as client:
        reply: pb.CreateTokenResponse = await client.call(
            AdminServiceStub(client.channel).CreateToken, request, changes=True
        )
        return reply.token, reply.info


async def _listed(options: Common) -> list[pb.TokenInfo]:
    from noosphere.v1 import admin_tokens_pb2 as pb
    from noosphere.v1.admin_service_pb2_grpc import AdminServiceStub

    found: list[pb.TokenInfo] = []
    request = pb.ListTokensRequest(page_size=PAGE_SIZE)
    async with connected(options) as client:
        stub = AdminServiceStub(client.channel)
        while True:
            reply: pb.ListTokensResponse = await client.call(stub.ListTokens, request)
            found += reply.tokens
            if not reply.next_page_token:
                return found
            request.page_token = reply.next_page_token


async def _revoked(options: Common, token_id: str) -> int:
    from noosphere.v1 import admin_tokens_pb2 as pb
    from noosphere.v1.admin_service_pb2_grpc import AdminServiceStub

    async with connected(options) as client:
        request = pb.RevokeTokenRequest(token_id=token_id)
        reply: pb.RevokeTokenResponse = await client.call(
            AdminServiceStub(client.channel).RevokeToken, request, changes=True
        )
        return reply.revoked_count


def _pattern(name: str) -> NamePattern:
    from noosphere.consistency import NamePattern

    return NamePattern(f"agents/{name.removesuffix('*')}", not name.endswith("*"))


def _verbs(names: list[str] | None) -> frozenset[Verb] | None:
    from noosphere.server.ports.grants import Verb

    for name in names or ():
        if name not in VERBS:
            raise usage(f"--verb: {name!r} is none of {', '.join(VERBS)}")
    return frozenset(map(Verb, names)) if names else None
