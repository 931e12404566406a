"""`noosphere lock …` and `noosphere group …`: who has something, and who is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from .common import AgentOption, JsonOption, ServerOption, TimeoutOption, common
from .exits import CliError, ExitCode, usage
from .output import compact, print_fields, print_json, print_line, print_table, shorten
from .session import call, connected
from .shapes import LockShape, MemberShape, ReleasedShape
from .views import value_data

if TYPE_CHECKING:
    from noosphere.client import LockInfo, Member

app = typer.Typer(help="Locks and elections: who holds them.")
group_app = typer.Typer(help="Groups: which agents are there.")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The lock's name.", show_default=False)]

_TOKEN_MAX = (1 << 63) - 1
_DATA_CHARS_MAX = 60


@app.command("list")
def list_(
    ctx: typer.Context,
    prefix: Annotated[str, typer.Argument(help="Only locks whose names begin with this.", show_default=False)] = "",
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """List the locks that are held, elections included, by name. JSON: a Lock per line."""
    options = common(ctx, server, as_json, agent, timeout)

    async def read() -> list[LockInfo]:
        async with connected(options) as client:
            return [found async for found in client.locks(prefix, page_size=1_000)]

    locks = call(read())
    if options.as_json:
        for lock in locks:
            print_json(_lock_data(lock))
        return
    rows = [(lock.name, lock.holder, lock.token, f"{lock.lease:g} s", _data_cell(lock)) for lock in locks]
    print_table(("LOCK", "HOLDER", "TOKEN", "LEASE", "DATA"), rows, empty="no lock is held")


@app.command()
def show(
    ctx: typer.Context,
    name: NameArgument,
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """Show who holds a lock, or leads; exits with 1 if nobody does. JSON: a Lock."""
    options = common(ctx, server, as_json, agent, timeout)

    async def read() -> LockInfo | None:
        async with connected(options) as client:
            return await client.election(name).leader()

    lock = call(read())
    if lock is None:
        raise CliError(ExitCode.REFUSED, f"nobody holds the lock {name!r}", "NOT_HELD")
    if options.as_json:
        print_json(_lock_data(lock))
        return
    fields: dict[str, object] = {
        "lock": lock.name,
        "holder": lock.holder,
        "token": lock.token,
        "lease": f"{lock.lease:g} s",
        "data": _data_cell(lock),
    }
    print_fields(fields)


@app.command()
def release(
    ctx: typer.Context,
    name: NameArgument,
    token: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=_TOKEN_MAX,
            metavar="TOKEN",
            help="The token under which it is held; must be given, `lock show` tells it.",
        ),
    ] = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """Free a lock whose holder never will. JSON: a Released.

    The holder learns of it at its next renewal. Under its fence it may write until the next holder has written.
    """
    from noosphere.v1 import coordination_service_pb2 as pb
    from noosphere.v1.coordination_service_pb2_grpc import CoordinationServiceStub

    options = common(ctx, server, as_json, agent, timeout)
    if token is None:
        raise usage("--token is required: it says which grant is meant, so that no later holder's lock is freed")

    async def free() -> bool:
        async with connected(options) as client:
            request = pb.ReleaseLockRequest(name=name, token=token)
            agent_id, _, incarnation = client.actor.rpartition("#")
            request.call.actor.agent_id, request.call.actor.incarnation = agent_id, int(incarnation)
            stub = CoordinationServiceStub(client.channel)
            reply: pb.ReleaseLockResponse = await client.call(stub.ReleaseLock, request, changes=True)
            return reply.released

    if not call(free()):
        raise CliError(ExitCode.REFUSED, f"lock {name!r} is not held under token {token}", "STALE_FENCE")
    if options.as_json:
        document: ReleasedShape = {"lock": name, "token": str(token), "released": True}
        print_json(document)
        return
    print_line(f"lock {name!r} is free")


@group_app.command()
def members(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The group's name.", show_default=False)],
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """List who is in a group, by name. JSON: a Member per line."""
    options = common(ctx, server, as_json, agent, timeout)

    async def read() -> tuple[Member, ...]:
        async with connected(options) as client:
            return await client.group(name).members()

    found = call(read())
    if options.as_json:
        for member in found:
            print_json(_member_data(name, member))
        return
    rows = [(member.agent, f"{member.lease:g} s", _data_cell(member)) for member in found]
    print_table(("AGENT", "LEASE", "DATA"), rows, empty="nobody is there")


def _lock_data(lock: LockInfo) -> LockShape:
    return {
        "lock": lock.name,
        "holder": lock.holder,
        "token": str(lock.token),
        "lease_seconds": lock.lease,
        "data": _data(lock),
    }


def _member_data(group: str, member: Member) -> MemberShape:
    return {
        "group": group,
        "agent": member.agent,
        "number": str(member.number),
        "lease_seconds": member.lease,
        "data": _data(member),
    }


def _data(of: LockInfo | Member) -> Any:
    """Returns what somebody wants to be known as JSON: a value, the base64 text of other bytes, or null."""
    from noosphere.client import ValueMismatch

    try:
        return of.data
    except ValueMismatch:
        return value_data(of.raw)


def _data_cell(of: LockInfo | Member) -> str:
    return shorten(compact(_data(of)), _DATA_CHARS_MAX) if of.raw else ""
