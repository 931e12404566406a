"""`noosphere ns …`: namespaces and their rules."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from .common import AgentOption, JsonOption, NamespaceArgument, ServerOption, TimeoutOption, common
from .exits import usage
from .output import print_fields, print_json, print_line, print_table
from .session import call, connected
from .tree import build_tree, tree_lines
from .values import check_revision

if TYPE_CHECKING:
    from collections.abc import Callable

    from noosphere.client import Client, ConflictPolicy, NamespacePolicy

    from .shapes import CreatedShape, DeletedShape, NamespaceShape, PolicyShape, TreeShape

app = typer.Typer(help="Namespaces and their rules.")

PolicyName = Literal["reject", "siblings", "last-writer-wins"]


@app.command("list")
def list_(
    ctx: typer.Context,
    prefix: Annotated[str, typer.Argument(help="Only names that begin so.", show_default=False)] = "",
    deleted: Annotated[bool, typer.Option("--deleted", help="Show deleted ones, too.")] = False,
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """List namespaces by name. JSON: a Namespace per line."""
    options = common(ctx, server, as_json, agent, timeout)

    async def read() -> list[NamespaceShape]:
        from .admin_api import AdminApi

        async with connected(options) as client:
            return [info async for info in AdminApi(client).namespaces(prefix, show_deleted=deleted)]

    found = call(read())
    if options.as_json:
        for info in found:
            print_json(info)
        return
    rows = [
        (
            info["namespace"] + (" (deleted)" if info["deleted"] else ""),
            info["policy"]["conflict_policy"],
            info["record_count"],
            info["record_bytes"],
            info["head"],
        )
        for info in found
    ]
    print_table(("NAMESPACE", "POLICY", "RECORDS", "BYTES", "HEAD"), rows, empty="no namespaces")


@app.command()
def create(
    ctx: typer.Context,
    namespace: NamespaceArgument,
    policy: Annotated[
        PolicyName | None, typer.Option(help="What happens to a write that did not see everything. [default: reject]")
    ] = None,
    prefix_policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PREFIX=POLICY", help="Another policy for a collection, e.g. notes/=siblings; repeatable."
        ),
    ] = None,
    item_bytes_max: Annotated[
        int | None, typer.Option(min=1, max=65_536, metavar="BYTES", help="Largest value. [default: 1024]")
    ] = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """Make a namespace live, or open a deleted one again. JSON: Created.

    A namespace also comes to life with its first write. On a live one this changes the rules that are given, and
    leaves the others as they are.
    """
    changes = _changes(policy, prefix_policy or [], item_bytes_max)
    options = common(ctx, server, as_json, agent, timeout)

    async def write() -> CreatedShape:
        from .admin_api import AdminApi

        async with connected(options) as client:
            rules = changes(await _rules_of(client, namespace)) if changes is not None else None
            state = await client.ensure_namespace(namespace, rules)
            policy = (await AdminApi(client).namespace(namespace))["policy"]
        return {
            "namespace": namespace,
            "generation": state.generation,
            "head": str(state.head),
            "created": state.created,
            "policy": policy,
        }

    ensured = call(write())
    if options.as_json:
        print_json(ensured)
        return
    verb = "created" if ensured["created"] else "was live already"
    print_line(f"{ensured['namespace']} {verb}, generation {ensured['generation']}")
    print_fields(_rule_fields(ensured["policy"]))


@app.command()
def show(
    ctx: typer.Context,
    namespace: NamespaceArgument,
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """Show a namespace with its rules and sizes. JSON: Namespace."""
    options = common(ctx, server, as_json, agent, timeout)

    async def read() -> NamespaceShape:
        from .admin_api import AdminApi

        async with connected(options) as client:
            return await AdminApi(client).namespace(namespace)

    info = call(read())
    if options.as_json:
        print_json(info)
        return
    fields: dict[str, object] = {
        "namespace": info["namespace"] + (" (deleted)" if info["deleted"] else ""),
        "generation": info["generation"],
        "head": info["head"],
        "records": f"{info['record_count']}, {info['record_bytes']} bytes",
        "log": f"{info['log_count']} revisions after {info['floor']}, {info['log_bytes']} bytes",
        "remembered requests": info["request_count"],
    }
    cuts = {
        f"epoch {cut['epoch']}": "began before the first write"
        if cut["cut"] == "0"
        else f"revisions up to {cut['cut']} survived"
        for cut in info["cuts"]
    }
    print_fields({**fields, **_rule_fields(info["policy"]), **cuts})


@app.command()
def tree(
    ctx: typer.Context,
    namespace: NamespaceArgument,
    collection: Annotated[str, typer.Argument(help="Only this collection, e.g. plan/.", show_default=False)] = "",
    depth: Annotated[int, typer.Option(min=1, max=9, metavar="N", help="How many levels to show.")] = 3,
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """Show keys and collections as a tree. JSON: Tree.

    What lies deeper than --depth is counted, not shown.
    """
    options = common(ctx, server, as_json, agent, timeout)

    async def read() -> TreeShape:
        async with connected(options) as client:
            records = client.namespace(namespace).list(collection, keys_only=True, page_size=1_000)
            keys = [record.key async for record in records]
        return build_tree(collection, keys, depth)

    found = call(read())
    if options.as_json:
        print_json(found)
        return
    print_line(f"{namespace}  {found['record_count']} records")
    for line in tree_lines(found):
        print_line(line)


@app.command()
def delete(
    ctx: typer.Context,
    namespace: NamespaceArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    expected_head: Annotated[
        int | None, typer.Option(min=0, metavar="REVISION", help="Only if this is its newest revision.")
    ] = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """Delete a namespace with all its records and its log. JSON: Deleted.

    What was asked about on the terminal is what gets deleted: a write that came in between refuses it.
    """
    check_revision("--expected-head", expected_head)
    options = common(ctx, server, as_json, agent, timeout)
    if not yes and not sys.stdin.isatty():
        raise usage("ns delete asks before it deletes; where there is no terminal to ask on, give --yes")

    async def write() -> DeletedShape:
        from .admin_api import AdminApi

        async with connected(options) as client:
            api = AdminApi(client)
            head = expected_head
            if not yes:
                info = await api.namespace(namespace)
                # Asked on stderr: stdout is for the command's answer.
                typer.confirm(f"Delete {namespace} with {info['record_count']} records?", abort=True, err=True)
                head = int(info["head"]) if head is None else head
            return await api.delete(namespace, head)

    gone = call(write())
    if options.as_json:
        print_json(gone)
    else:
        print_line(f"{gone['namespace']} deleted with {gone['record_count']} records; its head {gone['head']} is kept")


async def _rules_of(client: Client, namespace: str) -> NamespacePolicy:
    """Returns the rules of a live namespace, else the default ones."""
    from noosphere.client import NamespacePolicy, NotFound

    from .admin_api import AdminApi

    try:
        live = not (await AdminApi(client).namespace(namespace))["deleted"]
    except NotFound:
        live = False
    # Of a live namespace this changes nothing, and tells its rules.
    return (await client.ensure_namespace(namespace)).policy if live else NamespacePolicy()


def _changes(
    policy: str | None, overrides: list[str], item_bytes_max: int | None
) -> Callable[[NamespacePolicy], NamespacePolicy] | None:
    """Returns what to make of the present rules, None to leave them as they are."""
    if policy is None and not overrides and item_bytes_max is None:
        return None
    conflict_policy = None if policy is None else _policy(policy, "--policy")
    prefixes = [_override(text) for text in overrides]
    given = {prefix for prefix, _ in prefixes}

    def change(present: NamespacePolicy) -> NamespacePolicy:
        kept = [(prefix, override) for prefix, override in present.prefix_policies if prefix not in given]
        return replace(
            present,
            conflict_policy=present.conflict_policy if conflict_policy is None else conflict_policy,
            prefix_policies=(*kept, *prefixes),
            item_bytes_max=present.item_bytes_max if item_bytes_max is None else item_bytes_max,
        )

    return change


def _override(text: str) -> tuple[str, ConflictPolicy]:
    # Prefixes may contain the sign, policies do not.
    prefix, equals, policy = text.rpartition("=")
    if not equals or not prefix:
        raise usage(f"--prefix-policy: {text!r} is not PREFIX=POLICY")
    return prefix, _policy(policy, "--prefix-policy")


def _policy(name: str, option: str) -> ConflictPolicy:
    from noosphere.client import ConflictPolicy

    from .admin_api import policy_name

    names = {policy_name(policy): policy for policy in ConflictPolicy}
    if name not in names:
        raise usage(f"{option}: {name!r} is not one of {', '.join(names)}")
    return names[name]


def _rule_fields(policy: PolicyShape) -> dict[str, object]:
    overrides = {f"policy of {prefix}": name for prefix, name in policy["prefix_policies"].items()}
    return {
        "policy": policy["conflict_policy"],
        **overrides,
        "item limit": f"{policy['item_bytes_max']} bytes",
        "record limit": policy["records_max"],
        "tombstones kept": f"{policy['tombstone_retention_seconds']:g} s",
        "log kept": f"{policy['log_age_seconds_max']:g} s, {policy['log_revisions_max']} revisions, "
        f"{policy['log_bytes_max']} bytes",
    }
