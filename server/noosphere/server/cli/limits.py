"""`noosphere limits …`: how much agents, principals and namespaces may have."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from .common import JsonOption, ServerOption, TimeoutOption, common
from .exits import usage
from .output import print_fields, print_json, print_line, print_table
from .session import call, connected

if TYPE_CHECKING:
    from noosphere.v1 import admin_limits_pb2 as pb

    from .common import Common
    from .limit_shapes import LimitRuleShape, LimitsShape

app = typer.Typer(help="How much agents, principals and namespaces may have.")

PAGE_SIZE = 1_000


class Of(StrEnum):
    """Of whom a limit is."""

    AGENT = "agent"
    PRINCIPAL = "principal"
    NAMESPACE = "namespace"


OfArgument = Annotated[Of, typer.Argument(help="Of whom: agent, principal or namespace.", show_default=False)]
NamesArgument = Annotated[
    str, typer.Argument(help="The name, or all names that begin so if it ends in *.", show_default=False)
]
ExactOption = Annotated[bool, typer.Option("--exact", help="Take a * at the end as a part of the name.")]
_COUNT = "0 for no limit."


@app.command("set")
def set_(
    ctx: typer.Context,
    of: OfArgument,
    names: NamesArgument,
    calls_per_second: Annotated[
        int | None, typer.Option(metavar="COUNT", min=0, help=f"Calls a second; {_COUNT}")
    ] = None,
    calls_burst: Annotated[
        int | None,
        typer.Option(metavar="COUNT", min=1, help="Calls that may be made at once after none were."),
    ] = None,
    calls_in_flight_max: Annotated[
        int | None, typer.Option(metavar="COUNT", min=0, help=f"Calls under way at a time; {_COUNT}")
    ] = None,
    streams_max: Annotated[
        int | None, typer.Option(metavar="COUNT", min=0, help=f"Watches and pipelines at a time; {_COUNT}")
    ] = None,
    records_max: Annotated[
        int | None,
        typer.Option(
            metavar="COUNT",
            min=0,
            help="Of a namespace: its records. Of a principal: those in the private namespaces of its agents. "
            "0 for no limit.",
        ),
    ] = None,
    bytes_max: Annotated[
        int | None, typer.Option(metavar="COUNT", min=0, help=f"Bytes of those records; {_COUNT}")
    ] = None,
    namespaces_max: Annotated[
        int | None,
        typer.Option(metavar="COUNT", min=0, help=f"Namespaces and sessions made and not deleted; {_COUNT}"),
    ] = None,
    exact: ExactOption = False,
    server: ServerOption = None,
    as_json: JsonOption = False,
    timeout: TimeoutOption = None,
) -> None:
    """Set limits in the place of those that were set for these names; in force on every server within a second.

    What is not given is as it would be without. Of several that match a name the most specific one counts, for each
    limit by itself. JSON: a LimitRule.
    """
    options = common(ctx, server, as_json, None, timeout)
    given = {
        "calls_per_second": calls_per_second,
        "calls_burst": calls_burst,
        "calls_in_flight_max": calls_in_flight_max,
        "streams_max": streams_max,
        "records_max": records_max,
        "bytes_max": bytes_max,
        "namespaces_max": namespaces_max,
    }
    limits = {name: value for name, value in given.items() if value is not None}
    if not limits:
        raise usage(f"no limit is given; known are {', '.join('--' + name.replace('_', '-') for name in given)}")
    rule = _rule(of, names, limits, exact=exact)
    call(_set(options, rule))
    if options.as_json:
        print_json(rule_data(rule))
    else:
        print_line(f"{of} {names}: {_words(rule_data(rule)['limits'])}")


@app.command()
def remove(
    ctx: typer.Context,
    of: OfArgument,
    names: NamesArgument,
    exact: ExactOption = False,
    server: ServerOption = None,
    as_json: JsonOption = False,
    timeout: TimeoutOption = None,
) -> None:
    """Remove the limits that were set for these names. JSON: the LimitRule, without limits."""
    options = common(ctx, server, as_json, None, timeout)
    rule = _rule(of, names, {}, exact=exact)
    limits = call(_removed(options, rule))
    if options.as_json:
        print_json(rule_data(rule))
    elif limits is not None:
        print_line(f"{of} {names}: removed {_words(limits_data(limits))}")
    else:
        print_line(f"{of} {names}: nothing was set by this pattern; `noosphere limits list` shows what is")


@app.command("list")
def list_(
    ctx: typer.Context,
    server: ServerOption = None,
    as_json: JsonOption = False,
    timeout: TimeoutOption = None,
) -> None:
    """List the limits that were set, beside those of the servers' settings. JSON: a LimitRule per line."""
    options = common(ctx, server, as_json, None, timeout)
    found = [rule_data(rule) for rule in call(_listed(options))]
    if options.as_json:
        for rule in found:
            print_json(rule)
        return
    rows = [(rule["of"], rule["name"] + ("" if rule["exact"] else "*"), _words(rule["limits"])) for rule in found]
    print_table(("OF", "NAMES", "LIMITS"), rows, empty="no limits but those of the settings")


@app.command()
def show(
    ctx: typer.Context,
    of: OfArgument,
    name: Annotated[str, typer.Argument(help="The name.", show_default=False)],
    server: ServerOption = None,
    as_json: JsonOption = False,
    timeout: TimeoutOption = None,
) -> None:
    """Show the limits that are in force for a name, those of the server's settings included. JSON: Limits."""
    options = common(ctx, server, as_json, None, timeout)
    found = limits_data(call(_in_force(options, of, name)))
    if options.as_json:
        print_json(found)
        return
    print_fields({key.replace("_", " "): value or "no limit" for key, value in found.items() if value is not None})


def rule_data(rule: pb.LimitRule) -> LimitRuleShape:
    """Returns a rule as a document."""
    exact = rule.pattern.WhichOneof("kind") == "exact"
    return {
        "of": list(Of)[rule.subject - 1].value,
        "name": rule.pattern.exact if exact else rule.pattern.prefix,
        "exact": exact,
        "limits": limits_data(rule.limits),
    }


def limits_data(limits: pb.Limits) -> LimitsShape:
    """Returns limits as a document."""

    def given(name: str) -> int | None:
        return getattr(limits, name) if limits.HasField(name) else None  # type: ignore[arg-type] # one of its fields

    return {
        "calls_per_second": given("calls_per_second"),
        "calls_burst": given("calls_burst"),
        "calls_in_flight_max": given("calls_in_flight_max"),
        "streams_max": given("streams_max"),
        "records_max": given("records_max"),
        "bytes_max": given("bytes_max"),
        "namespaces_max": given("namespaces_max"),
    }


def _words(limits: LimitsShape) -> str:
    return " ".join(f"{name}={value}" for name, value in limits.items() if value is not None)


def _rule(of: Of, names: str, limits: dict[str, int], *, exact: bool) -> pb.LimitRule:
    from noosphere.v1 import admin_limits_pb2 as pb
    from noosphere.v1 import types_pb2

    whole = exact or not names.endswith("*")
    pattern = types_pb2.NamePattern(exact=names) if whole else types_pb2.NamePattern(prefix=names[:-1])
    return pb.LimitRule(subject=_subject(of), pattern=pattern, limits=pb.Limits(**limits))


def _subject(of: Of) -> pb.LimitSubject.ValueType:
    from noosphere.v1 import admin_limits_pb2 as pb

    return pb.LimitSubject.Value(f"LIMIT_SUBJECT_{of.name}")


async def _set(options: Common, rule: pb.LimitRule) -> None:
    from noosphere.v1 import admin_limits_pb2 as pb
    from noosphere.v1.admin_service_pb2_grpc import AdminServiceStub

    async with connected(options) as client:
        await client.call(AdminServiceStub(client.channel).SetLimits, pb.SetLimitsRequest(rule=rule), changes=True)


async def _removed(options: Common, rule: pb.LimitRule) -> pb.Limits | None:
    """Removes the limits of a pattern, and returns what they were: None if there were none of exactly this one."""
    before = await _listed(options)
    await _set(options, rule)
    same = (one.limits for one in before if one.subject == rule.subject and one.pattern == rule.pattern)
    return next(same, None)


async def _listed(options: Common) -> list[pb.LimitRule]:
    from noosphere.v1 import admin_limits_pb2 as pb
    from noosphere.v1.admin_service_pb2_grpc import AdminServiceStub

    found: list[pb.LimitRule] = []
    request = pb.ListLimitsRequest(page_size=PAGE_SIZE)
    async with connected(options) as client:
        stub = AdminServiceStub(client.channel)
        while True:
            reply = await client.call(stub.ListLimits, request)
            found += reply.rules
            if not reply.next_page_token:
                return found
            request.page_token = reply.next_page_token


async def _in_force(options: Common, of: Of, name: str) -> pb.Limits:
    from noosphere.v1 import admin_limits_pb2 as pb
    from noosphere.v1.admin_service_pb2_grpc import AdminServiceStub

    async with connected(options) as client:
        request = pb.GetLimitsRequest(subject=_subject(of), name=name)
        return (await client.call(AdminServiceStub(client.channel).GetLimits, request)).limits
