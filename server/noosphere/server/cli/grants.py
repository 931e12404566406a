"""`noosphere grant …`: who may do what where, beside what is their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from .common import JsonOption, ServerOption, TimeoutOption, common
from .exits import ExitCode, usage
from .output import print_json, print_line, print_table
from .session import call, connected

if TYPE_CHECKING:
    from noosphere.v1 import admin_grants_pb2 as pb
    from noosphere.v1 import types_pb2

    from .common import Common
    from .grant_shapes import CheckedShape, GrantShape

app = typer.Typer(help="Who may do what where, beside what is their own.")

PAGE_SIZE = 1_000
VERBS = ("read", "write", "delete", "watch", "resolve", "admin", "act")

PrincipalArgument = Annotated[
    str,
    typer.Argument(
        help="To whom: a principal's name, or all whose names begin so if it ends in *.", show_default=False
    ),
]
ResourceArgument = Annotated[
    str,
    typer.Argument(
        help="Where: a namespace, facts/<scope>, locks/<name> or groups/<name>, or all whose names begin so if it ends "
        "in *.",
        show_default=False,
    ),
]
ExactOption = Annotated[bool, typer.Option("--exact", help="Take a * at the end as a part of the name.")]


@app.command("set")
def set_(
    ctx: typer.Context,
    principal: PrincipalArgument,
    resource: ResourceArgument,
    verbs: Annotated[list[str], typer.Argument(help=f"What: {', '.join(VERBS)}.", show_default=False)],
    exact: ExactOption = False,
    server: ServerOption = None,
    as_json: JsonOption = False,
    timeout: TimeoutOption = None,
) -> None:
    """Grant these verbs and no others; in force on every server within a second. JSON: a Grant."""
    options = common(ctx, server, as_json, None, timeout)
    for verb in verbs:
        if verb not in VERBS:
            raise usage(f"VERBS: {verb!r} is none of {', '.join(VERBS)}")
    grant = _grant(principal, resource, tuple(dict.fromkeys(verbs)), exact=exact)
    call(_set(options, grant))
    if options.as_json:
        print_json(grant_data(grant))
    else:
        print_line(f"granted {' '.join(grant.verbs)} on {_text(grant.resource)} to {_text(grant.principal)}")


@app.command()
def remove(
    ctx: typer.Context,
    principal: PrincipalArgument,
    resource: ResourceArgument,
    exact: ExactOption = False,
    server: ServerOption = None,
    as_json: JsonOption = False,
    timeout: TimeoutOption = None,
) -> None:
    """Take a grant back; in force on every server within a second. JSON: the Grant, without verbs."""
    options = common(ctx, server, as_json, None, timeout)
    grant = _grant(principal, resource, (), exact=exact)
    verbs = call(_taken_back(options, grant))
    about = f"on {_text(grant.resource)} to {_text(grant.principal)}"
    if options.as_json:
        print_json(grant_data(grant))
    elif verbs:
        print_line(f"taken back: {' '.join(verbs)} {about}")
    else:
        print_line(f"nothing was granted {about} by these patterns; `noosphere grant list` shows what is")


@app.command("list")
def list_(
    ctx: typer.Context,
    server: ServerOption = None,
    as_json: JsonOption = False,
    timeout: TimeoutOption = None,
) -> None:
    """List grants by the text of their patterns. JSON: a Grant per line."""
    options = common(ctx, server, as_json, None, timeout)
    found = call(_listed(options))
    if options.as_json:
        for grant in found:
            print_json(grant_data(grant))
        return
    rows = [(_text(grant.principal), _text(grant.resource), " ".join(grant.verbs)) for grant in found]
    print_table(("PRINCIPAL", "RESOURCE", "VERBS"), rows, empty="nothing is granted")


@app.command()
def check(
    ctx: typer.Context,
    principal: Annotated[str, typer.Argument(help="The principal's name.", show_default=False)],
    resource: Annotated[str, typer.Argument(help="The resource's name, as in a grant.", show_default=False)],
    verb: Annotated[str, typer.Argument(help=f"What: {', '.join(VERBS)}.", show_default=False)],
    in_name_of: Annotated[
        str | None,
        typer.Option("--as", metavar="AGENT", help="In this agent's name. [default: the principal's]"),
    ] = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
    timeout: TimeoutOption = None,
) -> None:
    """Tell whether a principal may do something, and why. JSON: a Checked.

    What a credential adds or takes away is not counted. Exits with 1 if it is not permitted.
    """
    options = common(ctx, server, as_json, None, timeout)
    if verb not in VERBS:
        raise usage(f"VERB: {verb!r} is none of {', '.join(VERBS)}")
    found = call(_checked(options, principal, principal if in_name_of is None else in_name_of, resource, verb))
    if options.as_json:
        shown: CheckedShape = {
            "permitted": found.permitted,
            "reason": found.reason,
            "grants": [grant_data(grant) for grant in found.grants],
        }
        print_json(shown)
    else:
        print_line(f"{'permitted' if found.permitted else 'denied'}: {found.reason}")
        for grant in found.grants:
            print_line(f"  {_text(grant.principal)} on {_text(grant.resource)}: {' '.join(grant.verbs)}")
    if not found.permitted:
        raise typer.Exit(ExitCode.REFUSED)


def grant_data(grant: pb.Grant) -> GrantShape:
    """Returns a grant as programs read it."""
    return {
        "principal": _name(grant.principal),
        "principal_exact": grant.principal.WhichOneof("kind") == "exact",
        "resource": _name(grant.resource),
        "resource_exact": grant.resource.WhichOneof("kind") == "exact",
        "verbs": list(grant.verbs),
    }


def _grant(principal: str, resource: str, verbs: tuple[str, ...], *, exact: bool) -> pb.Grant:
    from noosphere.v1 import admin_grants_pb2 as pb

    return pb.Grant(principal=_pattern(principal, exact), resource=_pattern(resource, exact), verbs=verbs)


def _pattern(text: str, exact: bool) -> types_pb2.NamePattern:
    from noosphere.v1 import types_pb2

    if exact or not text.endswith("*"):
        return types_pb2.NamePattern(exact=text)
    return types_pb2.NamePattern(prefix=text[:-1])


def _name(pattern: types_pb2.NamePattern) -> str:
    return pattern.exact if pattern.WhichOneof("kind") == "exact" else pattern.prefix


def _text(pattern: types_pb2.NamePattern) -> str:
    return pattern.exact if pattern.WhichOneof("kind") == "exact" else f"{pattern.prefix}*"


async def _set(options: Common, grant: pb.Grant) -> None:
    from noosphere.v1 import admin_grants_pb2 as pb
    from noosphere.v1.admin_service_pb2_grpc import AdminServiceStub

    async with connected(options) as client:
        await client.call(AdminServiceStub(client.channel).SetGrant, pb.SetGrantRequest(grant=grant), changes=True)


async def _taken_back(options: Common, grant: pb.Grant) -> list[str]:
    """Takes a grant back, and returns what it allowed: nothing if there was none of exactly these patterns."""
    before = await _listed(options)
    await _set(options, grant)
    same = (one for one in before if one.principal == grant.principal and one.resource == grant.resource)
    return [verb for one in same for verb in one.verbs]


async def _listed(options: Common) -> list[pb.Grant]:
    from noosphere.v1 import admin_grants_pb2 as pb
    from noosphere.v1.admin_service_pb2_grpc import AdminServiceStub

    found: list[pb.Grant] = []
    async with connected(options) as client:
        stub = AdminServiceStub(client.channel)
        request = pb.ListGrantsRequest(page_size=PAGE_SIZE)
        while True:
            reply = await client.call(stub.ListGrants, request)
            found += reply.grants
            if not reply.next_page_token:
                return found
            request.page_token = reply.next_page_token


async def _checked(options: Common, principal: str, agent: str, resource: str, verb: str) -> pb.CheckGrantResponse:
    from noosphere.v1 import admin_grants_pb2 as pb
    from noosphere.v1.admin_service_pb2_grpc import AdminServiceStub

    request = pb.CheckGrantRequest(principal=principal, agent_id=agent, resource=resource, verb=verb)
    async with connected(options) as client:
        return await client.call(AdminServiceStub(client.channel).CheckGrant, request)
