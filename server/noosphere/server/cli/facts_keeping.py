"""`noosphere facts policy` and `upkeep`: the rules of a scope, and how its facts are kept."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .common import AgentOption, Common, JsonOption, ServerOption, TimeoutOption, common
from .exits import CliError, usage
from .facts import ScopeArgument
from .facts_views import policy_data, run_data, upkeep_data
from .output import print_fields, print_json, print_line, print_table
from .session import call, connected
from .session_views import cell, span_text
from .values import parse_duration, parse_json, read_argument
from .views import time_text

if TYPE_CHECKING:
    from noosphere.client import FactPolicy, FactUpkeep, UpkeepRun

app = typer.Typer()


@app.command()
def policy(
    ctx: typer.Context,
    scope: ScopeArgument,
    change: Annotated[
        str | None,
        typer.Option(
            "--set",
            metavar="JSON",
            help="Rules to change, in the form that --json prints, spans also as 30d; - reads them from stdin, "
            "@FILE from a file. null brings a default back; what is left out stays.",
        ),
    ] = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """Show the rules in force in a scope, or change some. JSON: FactPolicy."""
    options = common(ctx, server, as_json, agent, timeout)
    changes = None if change is None else _changes(change)

    async def run() -> FactPolicy:
        from noosphere.client import FactPolicy

        async with connected(options) as client:
            present = await client.facts.policy(scope)
            if changes is None:
                return present
            default = FactPolicy()
            wanted = {name: getattr(default, name) if value is None else value for name, value in changes.items()}
            return await client.facts.set_policy(dataclasses.replace(present, **wanted), scope)

    found = call(run())
    if options.as_json:
        print_json(policy_data(found))
        return
    print_fields(
        {
            "scope": scope,
            "memory types": ", ".join(found.memory_types) or "all",
            "writers": ", ".join(found.writers) or "all",
            "gate": f"importance {found.importance_min}, confidence {found.confidence_min}, trust {found.trust_min}",
            "contradictions": found.conflict_rule.replace("_", " "),
            "single valued": ", ".join(found.single_valued) or "the known ones",
            "aliases": ", ".join(f"{word} → {meaning}" for word, meaning in found.aliases.items()) or "-",
            "lives for": _spans(found.ttl) or "ever",
            "half-life": _spans(found.half_life) or "-",
        }
    )


@app.command()
def upkeep(
    ctx: typer.Context,
    scope: Annotated[str, typer.Argument(metavar="SCOPE", help="The scope. [default: all]")] = "",
    run: Annotated[bool, typer.Option("--run", help="Run it now. JSON: UpkeepRun.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Tell what a run would do now. JSON: UpkeepRun.")] = False,
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """Show what the last rounds of upkeep did and what waits to be decided. JSON: FactUpkeep."""
    options = common(ctx, server, as_json, agent, timeout)
    if run and dry_run:
        raise usage("--run and --dry-run exclude each other")

    async def read() -> FactUpkeep:
        async with connected(options) as client:
            return await client.facts.upkeep(scope)

    async def work() -> UpkeepRun:
        async with connected(options) as client:
            return await client.facts.run_upkeep(scope, dry_run=dry_run)

    if run or dry_run:
        _print_run(options, call(work()), dry_run=dry_run)
        return
    found = call(read())
    if options.as_json:
        print_json(upkeep_data(found))
        return
    rows = [
        (
            one.scope,
            time_text(one.time) or "-",
            one.looked_at,
            ", ".join(f"{action} {count}" for action, count in sorted(one.changed.items())) or "-",
            one.failure or "-",
        )
        for one in found.rounds
    ]
    print_table(("SCOPE", "ENDED", "FACTS", "CHANGED", "FAILURE"), rows, empty="no round has run yet")
    print_line(
        f"{found.waiting} candidates and jobs wait, {found.leased} are being decided, {found.dead} were given up"
    )


def _print_run(options: Common, run: UpkeepRun, *, dry_run: bool) -> None:
    if options.as_json:
        print_json(run_data(run, dry_run=dry_run))
        return
    rows = [(one.action, one.fact_id, cell(one.explanation, 80)) for one in run.changes]
    print_table(("ACTION", "FACT", "WHY"), rows, empty="nothing to do")
    print_line(f"{run.looked_at} facts looked at" + (", nothing was changed" if dry_run else ""))


def _changes(argument: str) -> dict[str, Any]:
    """Reads rules to change; but for spans in words, their values are for the client to check."""
    from .facts_shapes import FactPolicyShape

    try:
        document = parse_json(read_argument(argument))
    except CliError as error:
        raise usage(f"--set: {error.message.removeprefix('VALUE: ').partition(';')[0]}") from None
    if not isinstance(document, dict):
        raise usage("--set: is not a JSON object")
    known = FactPolicyShape.__annotations__
    for name in document:
        if name not in known:
            raise usage(f"--set: there is no rule {name!r}; the rules are {', '.join(known)}")
    for rule in ("ttl", "half_life"):
        spans = document.get(rule)
        if isinstance(spans, dict):
            document[rule] = {
                name: parse_duration(span, f"--set: {rule}.{name}") if isinstance(span, str) else span
                for name, span in spans.items()
            }
    return document


def _spans(spans: Any) -> str:
    return ", ".join(f"{name} {span_text(span)}" for name, span in spans.items())
