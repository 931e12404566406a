"""`noosphere agent …`: one agent, what it does and holds, and what can be done about one that went bad."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from .common import AgentOption, Common, JsonOption, ServerOption, TimeoutOption, common
from .exits import usage
from .output import print_fields, print_json, print_line, print_table
from .session import call, connected
from .views import time_text

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp

    from noosphere.client import Client
    from noosphere.v1 import admin_agents_pb2 as pb
    from noosphere.v1 import types_pb2

    from .guarding_shapes import AgentFencedShape, AgentShape, RevertedShape

app = typer.Typer(help="One agent: what it does and holds; ending it, and taking back what it wrote.")

PATIENCE_SECONDS = 120.0
_LISTED_MAX = 50
_REVISION_MAX = (1 << 63) - 1

NameArgument = Annotated[str, typer.Argument(metavar="AGENT", help="The agent's name.", show_default=False)]


@app.command()
def show(
    ctx: typer.Context,
    name: NameArgument,
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """Show an agent: incarnation, calls, conflicts, claims, locks, sessions. JSON: Agent.

    Looks through all records for claims. Calls are those at the server that answers, since it started.
    """
    from noosphere.v1 import admin_agents_pb2 as pb
    from noosphere.v1.admin_service_pb2_grpc import AdminServiceStub

    options = common(ctx, server, as_json, agent, timeout)

    async def read() -> pb.GetAgentResponse:
        async with connected(options) as client:
            stub = AdminServiceStub(client.channel)
            request = pb.GetAgentRequest(agent_id=name)
            reply: pb.GetAgentResponse = await client.call(stub.GetAgent, request, timeout=_patience(options))
            return reply

    found = _agent_data(call(read()))
    if options.as_json:
        print_json(found)
        return
    fence = found["fence"]
    fields: dict[str, object] = {
        "agent": found["agent"],
        "incarnation": found["incarnation"] + (" (active)" if found["active"] else ""),
        "fenced": "-" if fence is None else f"by {fence['by']} at {fence['time']}: {fence['why'] or '-'}",
        "calls": "-" if found["calls"] is None else found["calls"],
        "refused": " ".join(f"{reason}={count}" for reason, count in found["refused"].items()) or "-",
        "conflicts": "-" if found["conflicts"] is None else found["conflicts"],
        "last call": found["last_call"] or "-",
        "sessions": found["session_count"],
        "contexts": found["context_count"],
        "locks": " ".join(found["locks"]) or "-",
        "claims": len(found["claims"]),
    }
    print_fields(fields)
    if found["claims"]:
        rows = [(one["namespace"], one["key"], one["fence"], one["expire_time"]) for one in found["claims"]]
        print_line("")
        print_table(("NAMESPACE", "KEY", "FENCE", "UNTIL"), rows, empty="")
    if not found["complete"]:
        print_line("there are more records or sessions than were looked at")


@app.command()
def fence(
    ctx: typer.Context,
    name: NameArgument,
    why: Annotated[str, typer.Option(metavar="TEXT", help="Why, for whoever looks at it later.")] = "",
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """End an agent's incarnation, free what it holds, and refuse it until `agent unfence`. JSON: AgentFenced.

    Claims, locks and memberships are freed; reservations, which bind nobody, end with their leases.
    """
    from noosphere.v1 import admin_agents_pb2 as pb
    from noosphere.v1.admin_service_pb2_grpc import AdminServiceStub

    options = common(ctx, server, as_json, agent, timeout)

    async def change() -> pb.FenceAgentResponse:
        async with connected(options) as client:
            stub = AdminServiceStub(client.channel)
            request = pb.FenceAgentRequest(agent_id=name, why=why, call=_caller(client))
            reply: pb.FenceAgentResponse = await client.call(
                stub.FenceAgent, request, changes=True, timeout=_patience(options)
            )
            return reply

    done = call(change())
    if options.as_json:
        document: AgentFencedShape = {
            "agent": name,
            "fenced": True,
            "ended": done.actor or None,
            "released_claims": done.released_claims,
        }
        print_json(document)
        return
    print_line(f"agent {name!r} is fenced; {done.actor or 'no incarnation'} was ended")
    print_line(f"{done.released_claims} claims were freed; `agent unfence` allows it again")


@app.command()
def unfence(
    ctx: typer.Context,
    name: NameArgument,
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """Allow an agent again that was fenced. JSON: AgentFenced."""
    from noosphere.v1 import admin_agents_pb2 as pb
    from noosphere.v1.admin_service_pb2_grpc import AdminServiceStub

    options = common(ctx, server, as_json, agent, timeout)

    async def change() -> bool:
        async with connected(options) as client:
            stub = AdminServiceStub(client.channel)
            request = pb.UnfenceAgentRequest(agent_id=name, call=_caller(client))
            reply: pb.UnfenceAgentResponse = await client.call(stub.UnfenceAgent, request, changes=True)
            return reply.was_fenced

    was = call(change())
    if options.as_json:
        document: AgentFencedShape = {"agent": name, "fenced": False, "ended": None, "released_claims": 0}
        print_json(document)
        return
    print_line(f"agent {name!r} is allowed again" if was else f"agent {name!r} was not fenced, nothing to do")


@app.command()
def revert(
    ctx: typer.Context,
    name: NameArgument,
    since: Annotated[
        str,
        typer.Option(metavar="R", help="After this revision (with --namespace), or this time, as 2026-11-30T12:00Z."),
    ],
    namespace: Annotated[str, typer.Option(metavar="NAMESPACE", help="Only there. [default: everywhere]")] = "",
    force: Annotated[bool, typer.Option("--force", help="Back to before its first write, over others' too.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would be done.")] = False,
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """Put back what records were before an agent wrote them. JSON: a Reverted per line.

    Each goes back by an ordinary commit in your name. What somebody else has written since is left alone, and told.
    Fence the agent first, so that it does not go on.
    """
    from noosphere.v1 import admin_agents_pb2 as pb
    from noosphere.v1.admin_service_pb2_grpc import AdminServiceStub

    options = common(ctx, server, as_json, agent, timeout)
    request = pb.RevertAgentRequest(agent_id=name, namespace=namespace, force=force, dry_run=dry_run)
    _set_since(request, since)

    async def change() -> pb.RevertAgentResponse:
        async with connected(options) as client:
            request.call.CopyFrom(_caller(client))
            stub = AdminServiceStub(client.channel)
            reply: pb.RevertAgentResponse = await client.call(
                stub.RevertAgent, request, changes=not dry_run, timeout=_patience(options)
            )
            return reply

    report = call(change())
    found = [_reverted_data(one) for one in report.records]
    if options.as_json:
        for one in found:
            print_json(one)
        return
    rows = [(one["outcome"], one["namespace"], one["key"], one["last_writer"]) for one in found[:_LISTED_MAX]]
    print_table(("OUTCOME", "NAMESPACE", "KEY", "LAST WRITER"), rows, empty="the agent has written nothing there since")
    if len(found) > _LISTED_MAX:
        print_line(f"and {len(found) - _LISTED_MAX} more (--json lists up to 1,000)")
    counts = ", ".join(f"{count.count} {_outcome(count.outcome)}" for count in report.counts)
    if counts:
        print_line(f"{counts}{'; nothing was changed' if dry_run else ''}")


def _set_since(request: pb.RevertAgentRequest, since: str) -> None:
    if since.isascii() and since.isdigit():
        if not request.namespace:
            raise usage("--since with a revision needs --namespace: elsewhere the number means nothing")
        if int(since) > _REVISION_MAX:
            raise usage(f"--since: {since} is not a revision")
        request.since_revision = int(since)
        return
    try:
        moment = datetime.fromisoformat(since)
    except ValueError:
        raise usage(f"--since: {since!r} is neither a revision nor a time such as 2026-11-30T12:00Z") from None
    # Without a zone it is UTC, as everything that the server prints.
    request.since_time.FromDatetime(moment if moment.tzinfo else moment.replace(tzinfo=UTC))


def _caller(client: Client) -> types_pb2.CallContext:
    from noosphere.v1 import types_pb2

    agent_id, _, incarnation = client.actor.rpartition("#")
    return types_pb2.CallContext(actor=types_pb2.Actor(agent_id=agent_id, incarnation=int(incarnation)))


def _patience(options: Common) -> float:
    return PATIENCE_SECONDS if options.timeout is None else options.timeout


def _time(stamp: Timestamp) -> str:
    return time_text(stamp.ToDatetime(UTC)) or ""


def _agent_data(reply: pb.GetAgentResponse) -> AgentShape:
    counted = reply.HasField("usage")
    fence = reply.fence
    return {
        "agent": reply.agent_id,
        "incarnation": str(reply.incarnation),
        "active": reply.active,
        "fence": {"by": fence.by, "time": _time(fence.time), "why": fence.why} if reply.HasField("fence") else None,
        "calls": reply.usage.call_count if counted else None,
        "refused": dict(sorted(reply.usage.refusals.items())),
        "conflicts": reply.usage.conflict_count if counted else None,
        "last_call": _time(reply.usage.last_time) if counted else None,
        "claims": [
            {
                "namespace": claim.namespace,
                "key": claim.key,
                "holder": claim.holder,
                "fence": str(claim.fence),
                "expire_time": _time(claim.expire_time),
            }
            for claim in reply.claims
        ],
        "locks": list(reply.locks),
        "sessions": list(reply.session_ids),
        "session_count": reply.session_count,
        "context_count": reply.context_count,
        "complete": reply.complete,
    }


def _reverted_data(one: pb.RevertedRecord) -> RevertedShape:
    return {
        "namespace": one.namespace,
        "key": one.key,
        "outcome": _outcome(one.outcome),
        "revision": str(one.revision),
        "last_writer": one.last_writer,
    }


def _outcome(outcome: pb.RevertOutcome.ValueType) -> str:
    from noosphere.v1 import admin_agents_pb2 as pb

    return pb.RevertOutcome.Name(outcome).removeprefix("REVERT_OUTCOME_").lower()
