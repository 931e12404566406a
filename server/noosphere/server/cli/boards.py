"""`noosphere claims`: who works on what."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from .common import AgentOption, JsonOption, NamespaceArgument, ServerOption, TimeoutOption, common
from .output import print_json, print_table
from .session import call, connected
from .shapes import TaskShape
from .views import time_text

app = typer.Typer()


@app.command()
def claims(
    ctx: typer.Context,
    namespace: NamespaceArgument,
    collection: Annotated[
        str, typer.Argument(help="Only tasks in this collection, e.g. todo/.", show_default=False)
    ] = "",
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """List the tasks under a living claim. JSON: a Task per line."""
    options = common(ctx, server, as_json, agent, timeout)

    async def read() -> list[TaskShape]:
        async with connected(options) as client:
            space = client.namespace(namespace)
            return [_task_data(record) async for record in space.list(collection, claimed_only=True, keys_only=True)]

    tasks = call(read())
    if options.as_json:
        for task in tasks:
            print_json(task)
        return
    rows = [(task["key"], task["holder"], task["expire_time"], task["attempts"], task["fence"]) for task in tasks]
    print_table(("KEY", "HOLDER", "LEASE ENDS", "ATTEMPTS", "FENCE"), rows, empty="no task is claimed")


def _task_data(record: Any) -> TaskShape:
    claim = record.claim
    return {
        "namespace": record.namespace,
        "key": record.key,
        "holder": claim.holder or None,
        "expire_time": time_text(claim.expires_at),
        "fence": str(claim.fence),
        "attempts": claim.attempts,
    }
