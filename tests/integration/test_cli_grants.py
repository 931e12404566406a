"""`noosphere grant`: set, listed, checked and taken back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.cli import Cli, holds
from tests.support.process import ServerProcess

import noosphere.testing
from noosphere.server.cli import grant_shapes, grants
from noosphere.server.cli.common import Common


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    server = ServerProcess(tmp_path / "data")
    try:
        yield Cli(server.start())
    finally:
        server.close()


def test_grants_are_set_listed_checked_and_taken_back(cli: Cli) -> None:
    assert cli.ok("grant", "list").lines == ["nothing is granted"]
    cli.ok("grant", "set", "alice", "shared/team*", "read", "write")
    cli.ok("grant", "set", "*", "locks/l%*", "read", "--exact")
    table, documents = cli.run_all(["grant", "list"], ["grant", "list", "--json"])
    assert [line.split() for line in table.lines[1:]] == [
        ["*", "locks/l%*", "read"],
        ["alice", "shared/team*", "read", "write"],
    ]
    for document in documents.json_lines:
        holds(grant_shapes.GrantShape, document)
    assert [(one["principal_exact"], one["resource_exact"]) for one in documents.json_lines] == [
        (True, True),
        (True, False),
    ]
    allowed = cli.ok("grant", "check", "alice", "shared/team/x", "write")
    assert allowed.lines[0] == "permitted: a grant allows it"
    assert allowed.lines[1:] == ["  alice on shared/team*: read write"]
    denied, other, own = cli.run_all(
        ["grant", "check", "alice", "shared/team/x", "delete", "--json"],
        ["grant", "check", "alice", "shared/team/x", "read", "--as", "bob"],
        ["grant", "check", "alice", "agents/alice", "delete"],
    )
    (document,) = denied.json_lines
    holds(grant_shapes.CheckedShape, document)
    assert (denied.code, document["permitted"], document["reason"]) == (1, False, "nothing allows it")
    assert (other.code, other.lines[0]) == (1, "denied: the principal may not act as the agent")
    assert own.lines == ["permitted: it is the agent's own"]
    mistyped = cli.ok("grant", "remove", "alice", "shared/team").text
    assert mistyped.startswith("nothing was granted on shared/team to alice by these patterns; ")
    assert cli.ok("grant", "list", "--json").json_lines == documents.json_lines
    assert cli.ok("grant", "remove", "alice", "shared/team*").lines == [
        "taken back: read write on shared/team* to alice"
    ]
    assert cli.ok("grant", "list", "--json").json_lines == documents.json_lines[:1]


def test_what_cannot_be_granted_is_told_by_field(cli: Cli) -> None:
    for command, code, text in (
        (("set", "alice", "shared/x", "fly"), 2, "'fly' is none of read, write"),
        (("set", "alice", "elsewhere/x", "read"), 1, "is not agents/…, sessions/…"),
        (("set", "alice", "shared/x", "act"), 1, "'act' is about agents"),
        (("check", "alice", "shared/x", "fly"), 2, "'fly' is none of read, write"),
        (("check", "alice", "shared/", "read"), 1, "shared/"),
    ):
        found = cli.run("grant", *command)
        assert found.code == code, found
        assert text in found.error
        assert found.error.count("agents/…") <= 1, "the forms are told once"


async def test_every_page_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grants, "PAGE_SIZE", 2)
    async with noosphere.testing.server() as srv:
        monkeypatch.setenv("NOOSPHERE_SERVER", srv.address)
        for letter in "abcde":
            await grants._set(Common(), grants._grant(f"{letter}*", "shared/x*", ("read",), exact=False))
        assert [grant.principal.prefix for grant in await grants._listed(Common())] == list("abcde")
