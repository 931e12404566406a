"""Who uses a server: counts of calls, unary and inside a pipeline, as the command line shows them."""

from __future__ import annotations

import asyncio
import uuid

import pytest
from tests.support.cli import Cli, holds
from tests.support.process import ServerProcess

from noosphere.client import Conflict, PermissionDenied, connect
from noosphere.server.cli import shapes


@pytest.fixture(scope="module")
def cli(binary: ServerProcess) -> Cli:
    return Cli(binary.address)


async def test_calls_refusals_and_conflicts_are_counted_by_agent_and_namespace(cli: Cli) -> None:
    mark = uuid.uuid4().hex[:8]
    busy, late, shared = f"busy-{mark}", f"late-{mark}", f"shared/usage-{mark}"
    async with connect(cli.server, agent=busy, coalesce=True) as first, connect(cli.server, agent=late) as second:
        space = first.namespace(shared)
        await space.put("k", {"n": 0})
        # Many at once share a stream.
        await asyncio.gather(*(space.put(f"p{n}", {"text": "x" * 100}) for n in range(20)))
        mine, others = await space.get("k"), await second.namespace(shared).get("k")
        assert mine is not None
        assert others is not None
        await mine.replace({"n": 1})
        with pytest.raises(Conflict):
            await others.replace({"n": 2})
        agents, namespaces, table, principals = await asyncio.to_thread(
            cli.run_all,
            ["stats", "--by", "agent", "--top", "1000", "--json"],
            ["stats", "--by", "namespace", "--order", "conflicts", "--top", "1000", "--json"],
            ["stats", "--by", "agent", "--order", "recent"],
            ["stats", "--by", "principal", "--json"],
        )
    holds(shapes.UsageShape, agents.json_lines[0])
    by_name = {entry["name"]: entry for entry in agents.json_lines}
    assert by_name[busy]["call_count"] >= 22
    assert by_name[busy]["bytes_in"] > 20 * 100
    assert by_name[busy]["conflict_count"] == 0
    assert by_name[late]["conflict_count"] == 1
    (found,) = [entry for entry in namespaces.json_lines if entry["name"] == shared]
    assert found["conflict_count"] == 1
    assert found["call_count"] >= 24
    assert table.lines[0].split()[:3] == ["AGENT", "CALLS", "REFUSED"]
    # Without credentials everybody is nobody in particular.
    assert [entry["name"] for entry in principals.json_lines] == [""]


async def test_names_that_were_refused_are_nobodys(cli: Cli) -> None:
    mark = uuid.uuid4().hex[:8]
    async with connect(cli.server, agent=f"curious-{mark}") as client:
        with pytest.raises(PermissionDenied):
            await client.namespace(f"agents/other-{mark}").get("k")
    (agents, namespaces) = await asyncio.to_thread(
        cli.run_all,
        ["stats", "--by", "agent", "--top", "1000", "--json"],
        ["stats", "--by", "namespace", "--top", "1000", "--json"],
    )
    (curious,) = [entry for entry in agents.json_lines if entry["name"] == f"curious-{mark}"]
    assert curious["refusals"] == {"PERMISSION_DENIED": 1}
    assert not [entry for entry in namespaces.json_lines if entry["name"].endswith(f"other-{mark}")]


async def test_how_many_is_checked(cli: Cli) -> None:
    (wrong,) = await asyncio.to_thread(cli.run_all, ["stats", "--by", "agent", "--top", "1001"])
    assert wrong.code == 2
    assert "1001" in wrong.error
