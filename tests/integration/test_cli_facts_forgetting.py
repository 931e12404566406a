"""`noosphere facts forget`: what it asks, does and tells."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from tests.support.cli import Cli, holds
from tests.support.known import make_known
from tests.support.process import ServerProcess

from noosphere.client import Candidate
from noosphere.server.cli import facts_shapes as shapes
from noosphere.server.cli.guarding_shapes import OwnerErasedShape

CLAIMS = ("Anna prefers metric units", "Anna owns a cat")


@pytest.fixture
def cli(emptier: ServerProcess) -> Cli:
    return Cli(emptier.address)


@pytest.fixture
def user(emptier: ServerProcess) -> str:
    owner = f"user/{uuid.uuid4().hex[:12]}"
    known = [Candidate(text, owner, said_by="internal", producer=f"form/{text}") for text in CLAIMS]
    assert make_known(emptier.address, known) == ["written", "written"]
    return owner


def listed(cli: Cli, user: str) -> dict[str, Any]:
    return {one["text"]: one["id"] for one in cli.ok("facts", "list", user, "--json").json_lines}


def test_a_fact_is_forgotten_once_it_is_said_so(cli: Cli, user: str) -> None:
    fact = listed(cli, user)[CLAIMS[0]]
    asked, planned = cli.run_all(["facts", "forget", fact], ["facts", "forget", fact, "--dry-run", "--json"])
    assert (asked.code, "give --yes" in asked.error) == (2, True)
    holds(shapes.ForgottenShape, planned.json)
    assert (planned.json["facts"], planned.json["dry_run"]) == ([fact], True)
    assert fact in listed(cli, user).values()
    done = cli.ok("facts", "forget", fact, "--yes")
    assert done.lines[:2] == ["1 fact forgotten", f"  {fact}"]
    assert ["facts", "1"] in [line.split() for line in done.lines]
    assert done.lines[-1].startswith("may still hold it: backups")
    assert cli.run("facts", "show", fact).error.startswith("ENTRY_NOT_FOUND: ")
    assert list(listed(cli, user)) == [CLAIMS[1]]


def test_all_of_an_owner_or_of_a_producer_is_forgotten(cli: Cli, user: str) -> None:
    planned = cli.ok("facts", "forget", "--query", "Anna", "--owner", user, "--dry-run")
    assert planned.lines[0] == "2 facts would be forgotten"
    by_producer = cli.ok("facts", "forget", "--producer", f"form/{CLAIMS[0]}", "--scope", user, "--yes", "--json").json
    holds(shapes.ForgottenShape, by_producer)
    assert (len(by_producer["facts"]), by_producer["dry_run"]) == (1, False)
    assert list(listed(cli, user)) == [CLAIMS[1]]
    rest = cli.ok("facts", "forget", "--all", "--owner", user, "--yes", "--json").json
    assert len(rest["facts"]) == 1
    assert cli.ok("facts", "list", user).text == "no facts\n"


def test_an_owner_is_erased_once_it_is_said_so(cli: Cli, user: str) -> None:
    asked, planned = cli.run_all(["owner", "erase", user], ["owner", "erase", user, "--dry-run", "--json"])
    assert (asked.code, "give --yes" in asked.error) == (2, True)
    holds(OwnerErasedShape, planned.json)
    assert (len(planned.json["facts"]), planned.json["dry_run"]) == (2, True)
    assert len(listed(cli, user)) == 2
    done = cli.ok("owner", "erase", user, "--yes")
    assert done.lines[0] == "0 sessions erased"
    assert "2 facts erased" in done.lines
    assert any(line.startswith("may still be there: backups") for line in done.lines)
    assert listed(cli, user) == {}
    assert cli.run("--agent", "planner", "owner", "erase", user, "--yes").error.startswith("PERMISSION_DENIED: ")
