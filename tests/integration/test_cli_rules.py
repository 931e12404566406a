"""`noosphere ns rules`, and that lists of operators are read to their last page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.cli import Cli, holds
from tests.support.process import ServerProcess

import noosphere.testing
from noosphere.client import ConflictPolicy, NamespacePolicy
from noosphere.server.cli import admin_api, shapes


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    """Commands against a server of the test's own: what others set would show."""
    server = ServerProcess(tmp_path / "data")
    try:
        yield Cli(server.start())
    finally:
        server.close()


def test_rules_are_shown_by_the_names_to_which_they_apply(cli: Cli) -> None:
    assert cli.ok("ns", "rules").lines == ["no rules but the default ones"]
    assert cli.ok("ns", "rules", "--json").text == ""
    cli.ok("ns", "create", "shared/b", "--policy", "siblings", "--prefix-policy", "log/=reject")
    cli.ok("ns", "create", "shared/a", "--item-bytes-max", "2048")
    table, documents = cli.run_all(["ns", "rules"], ["ns", "rules", "--json"])
    assert [line.split() for line in table.lines[1:]] == [
        ["shared/a", "reject", "-", "2048", "1000000"],
        ["shared/b", "siblings", "log/=reject", "1024", "1000000"],
    ]
    for document in documents.json_lines:
        holds(shapes.RulesShape, document)
    assert [(document["name"], document["exact"]) for document in documents.json_lines] == [
        ("shared/a", True),
        ("shared/b", True),
    ]


async def test_every_page_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_api, "PAGE_SIZE", 2)
    async with noosphere.testing.server() as srv, srv.client("operator") as client:
        for letter in "abcde":
            await client.ensure_namespace(f"shared/{letter}", NamespacePolicy(conflict_policy=ConflictPolicy.SIBLINGS))
        await client.shared("a").put("k", 1)
        await srv.faults.fail_over()
        await srv.faults.fail_over()
        api = admin_api.AdminApi(client)
        assert [entry["name"] async for entry in api.rules()] == [f"shared/{letter}" for letter in "abcde"]
        found = [info["namespace"] async for info in api.namespaces("shared/", show_deleted=False)]
        assert found == [f"shared/{letter}" for letter in "abcde"]
        assert [epoch["epoch"] for epoch in await api.epochs()] == [1, 2, 3]
