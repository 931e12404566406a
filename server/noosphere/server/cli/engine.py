"""`noosphere stats`, `epochs`, `servers` and `version`: the server as a whole."""

from __future__ import annotations

import platform
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from .common import AgentOption, Common, JsonOption, ServerOption, TimeoutOption, common
from .output import print_fields, print_json, print_line, print_table
from .session import call, connected

if TYPE_CHECKING:
    from .shapes import EpochShape, ServerShape, StatsShape, UsageShape, VersionShape

app = typer.Typer()


class By(StrEnum):
    """What `stats --by` counts calls by."""

    PRINCIPAL = "principal"
    AGENT = "agent"
    NAMESPACE = "namespace"


class Order(StrEnum):
    """Which names `stats --by` prints first."""

    CALLS = "calls"
    REFUSALS = "refusals"
    CONFLICTS = "conflicts"
    BYTES = "bytes"
    RECENT = "recent"


@app.command()
def stats(
    ctx: typer.Context,
    by: Annotated[
        By | None,
        typer.Option("--by", help="Show what each principal, agent or namespace has done since the server started."),
    ] = None,
    order: Annotated[Order, typer.Option("--order", help="With --by: which names come first.")] = Order.CALLS,
    top: Annotated[
        int, typer.Option("--top", metavar="COUNT", min=1, max=1_000, help="With --by: most names to show.")
    ] = 20,
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """Show how much is stored and how the server is doing, or who uses it most.

    JSON: Stats; with --by a Usage per line.
    """
    options = common(ctx, server, as_json, agent, timeout)
    if by is not None:
        _usage(options, by, order, top)
        return

    async def read() -> StatsShape:
        from .admin_api import AdminApi

        async with connected(options) as client:
            return await AdminApi(client).stats()

    found = call(read())
    if options.as_json:
        print_json(found)
        return
    fields: dict[str, object] = {name.replace("_", " "): value for name, value in found.items() if name != "refusals"}
    fields |= {f"refused {reason}": count for reason, count in found["refusals"].items()}
    print_fields(fields)


def _usage(options: Common, by: By, order: Order, top: int) -> None:
    async def read() -> list[UsageShape]:
        from .admin_api import AdminApi

        async with connected(options) as client:
            return await AdminApi(client).usage(by.value, order.value, top)

    found = call(read())
    if options.as_json:
        for one in found:
            print_json(one)
        return
    rows = [
        (
            one["name"] or "-",
            one["call_count"],
            sum(one["refusals"].values()),
            one["conflict_count"],
            one["bytes_in"],
            one["bytes_out"],
            one["last_time"],
            max(one["refusals"], key=one["refusals"].__getitem__, default=""),
        )
        for one in found
    ]
    headings = (by.value.upper(), "CALLS", "REFUSED", "CONFLICTS", "BYTES IN", "BYTES OUT", "LAST CALL", "MOSTLY")
    print_table(headings, rows, empty="no calls")


@app.command()
def epochs(
    ctx: typer.Context,
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """List epochs: when and why each began, and what was recovered. JSON: an Epoch per line."""
    options = common(ctx, server, as_json, agent, timeout)

    async def read() -> list[EpochShape]:
        from .admin_api import AdminApi

        async with connected(options) as client:
            return await AdminApi(client).epochs()

    found = call(read())
    if options.as_json:
        for epoch in found:
            print_json(epoch)
        return
    rows = [(epoch["epoch"], epoch["start_time"], epoch["cause"], epoch["recovered"]) for epoch in found]
    print_table(("EPOCH", "BEGAN", "WHY", "RECOVERED"), rows, empty="no epochs")


@app.command()
def servers(
    ctx: typer.Context,
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """List the servers that share one working store. JSON: a Server per line."""
    options = common(ctx, server, as_json, agent, timeout)

    async def read() -> list[ServerShape]:
        from .admin_api import AdminApi

        async with connected(options) as client:
            return await AdminApi(client).servers()

    found = call(read())
    if options.as_json:
        for one in found:
            print_json(one)
        return
    rows = [
        (
            one["address"],
            one["version"],
            one["start_time"],
            " ".join(("leader",) * one["leader"] + ("answered",) * one["answered"]),
            one["server_id"],
        )
        for one in found
    ]
    print_table(("ADDRESS", "VERSION", "SINCE", "WHAT", "ID"), rows, empty="no servers")


@app.command()
def version(ctx: typer.Context, as_json: JsonOption = False) -> None:
    """Show the version of this program. JSON: Version."""
    from noosphere.server import __version__

    found: VersionShape = {"version": __version__, "python": platform.python_version()}
    if common(ctx, as_json=as_json).as_json:
        print_json(found)
    else:
        print_line(f"noosphere {found['version']} on Python {found['python']}")
