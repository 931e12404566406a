"""`noosphere owner …`: whatever the server holds of somebody."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from .common import AgentOption, JsonOption, ServerOption, TimeoutOption, common
from .exits import usage
from .output import print_json, print_line, print_table
from .session import call, connected

if TYPE_CHECKING:
    from noosphere.v1 import fact_service_pb2 as pb

    from .guarding_shapes import OwnerErasedShape

app = typer.Typer(help="Owners: what the server holds of a user, an agent or a team.")

PATIENCE_SECONDS = 600.0
_LISTED_MAX = 20


@app.command()
def erase(
    ctx: typer.Context,
    owner: Annotated[
        str, typer.Argument(metavar="OWNER", help="Whose, e.g. user/42 or agent/planner.", show_default=False)
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would be done.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """Erase an owner for good: facts, sessions and private namespaces, from every file. JSON: OwnerErased.

    Sessions are an agent's if it has opened them, and anybody else's if their label facts_owner says so. It may take
    minutes where much is stored; repeat it if it was cut off. Without --timeout it waits for 10 minutes.
    """
    from noosphere.v1 import fact_service_pb2 as pb
    from noosphere.v1.fact_service_pb2_grpc import FactServiceStub

    options = common(ctx, server, as_json, agent, timeout)
    patience = PATIENCE_SECONDS if options.timeout is None else options.timeout

    async def change(*, dry: bool) -> pb.EraseOwnerResponse:
        async with connected(options) as client:
            request = pb.EraseOwnerRequest(owner=owner, dry_run=dry)
            agent_id, _, incarnation = client.actor.rpartition("#")
            request.call.actor.agent_id, request.call.actor.incarnation = agent_id, int(incarnation)
            stub = FactServiceStub(client.channel)
            reply: pb.EraseOwnerResponse = await client.call(
                stub.EraseOwner, request, changes=not dry, timeout=patience
            )
            return reply

    if not dry_run and not yes:
        if not sys.stdin.isatty():
            raise usage("owner erase asks before it removes; where there is no terminal to ask on, give --yes")
        if not options.as_json:
            _print_report(call(change(dry=True)), dry_run=True)
        typer.confirm("Erase this for good?", abort=True, err=True)
    report = call(change(dry=dry_run))
    if options.as_json:
        print_json(_data(owner, report, dry_run=dry_run))
    else:
        _print_report(report, dry_run=dry_run)


def _data(owner: str, report: pb.EraseOwnerResponse, *, dry_run: bool) -> OwnerErasedShape:
    return {
        "owner": owner,
        "dry_run": dry_run,
        "sessions": list(report.session_ids),
        "facts": list(report.fact_ids),
        "namespaces": list(report.namespaces),
        "places": {place.place: place.count for place in report.places},
        "remaining": list(report.remaining),
    }


def _print_report(report: pb.EraseOwnerResponse, *, dry_run: bool) -> None:
    verb = "would be erased" if dry_run else "erased"
    for what, names in (
        ("sessions", report.session_ids),
        ("facts", report.fact_ids),
        ("private namespaces", report.namespaces),
    ):
        print_line(f"{len(names)} {what} {verb}")
        for name in names[:_LISTED_MAX]:
            print_line(f"  {name}")
        if len(names) > _LISTED_MAX:
            print_line(f"  and {len(names) - _LISTED_MAX} more (--json lists them)")
    rows = [(place.place.replace("_", " "), place.count) for place in report.places]
    print_table(("PLACE", "ENTRIES"), rows, empty="no place holds anything of it")
    for text in report.remaining:
        print_line(f"may still be there: {text}")
