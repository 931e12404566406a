"""`noosphere ns rules`: the rules that operators have set, by the names to which they apply."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from .common import AgentOption, JsonOption, ServerOption, TimeoutOption, common
from .output import print_json, print_table
from .session import call, connected

if TYPE_CHECKING:
    from .shapes import RulesShape

app = typer.Typer()


@app.command()
def rules(
    ctx: typer.Context,
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """List the names that have rules of their own. JSON: a Rules per line.

    A namespace has the rules of its exact name, else those of the longest beginning of it (shown with a *), else the
    default ones.
    """
    options = common(ctx, server, as_json, agent, timeout)

    async def read() -> list[RulesShape]:
        from .admin_api import AdminApi

        async with connected(options) as client:
            return [entry async for entry in AdminApi(client).rules()]

    found = call(read())
    if options.as_json:
        for entry in found:
            print_json(entry)
        return
    rows = [
        (
            entry["name"] + ("" if entry["exact"] else "*"),
            entry["policy"]["conflict_policy"],
            " ".join(f"{prefix}={policy}" for prefix, policy in entry["policy"]["prefix_policies"].items()) or "-",
            entry["policy"]["item_bytes_max"],
            entry["policy"]["records_max"],
        )
        for entry in found
    ]
    print_table(("NAMES", "POLICY", "BY PREFIX", "ITEM BYTES", "RECORDS"), rows, empty="no rules but the default ones")
