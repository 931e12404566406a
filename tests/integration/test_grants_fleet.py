"""Grants on a fleet: what one replica is told is soon in force on the others."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.cli import Cli
from tests.support.etcd import needs_etcd
from tests.support.fleet import OPTIONS, Fleet
from tests.support.redis import needs_redis

pytestmark = [pytest.mark.campaign, needs_redis, needs_etcd]

ROUNDS = 10
SECONDS_MAX = 30


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with Fleet(tmp_path, servers=2, options=(*OPTIONS, "--tokens")) as found:
        yield found


def token(fleet: Fleet, tmp_path: Path, *arguments: str) -> Path:
    """Makes a token offline, in etcd; returns the file that it is in."""
    environment = {"NOOSPHERE_ETCD_ENDPOINTS": fleet.etcd.endpoint, "NOOSPHERE_REDIS_URLS": fleet.redis_urls}
    made = Cli().run("token", "create", "--offline", "--json", *arguments, environment=environment)
    assert made.code == 0, made
    file = tmp_path / f"token-{arguments[-1].strip('-')}"
    file.write_text(made.json["token"])
    return file


def test_a_grant_is_in_force_on_every_replica(fleet: Fleet, tmp_path: Path) -> None:
    root = token(fleet, tmp_path, "--admin")
    alice = token(fleet, tmp_path, "alice")
    here, there = (Cli(address) for address in fleet.addresses)
    late: list[float] = []
    for number in range(ROUNDS):
        allowed = number % 2 == 0
        verb = ("set", "alice", "shared/team", "read", "write") if allowed else ("remove", "alice", "shared/team")
        here.ok("--token-file", str(root), "grant", *verb)
        changed = time.monotonic()
        while True:
            # A command takes a part of the second to start.
            begun = time.monotonic()
            found = there.run("--token-file", str(alice), "put", "shared/team", "k", "1", "--blind", "--agent", "alice")
            if (found.code == 0) is allowed:
                late.append(max(0.0, begun - changed))
                break
            assert time.monotonic() - changed < SECONDS_MAX, found
    print("in force on the other replica, at the latest after seconds:", [round(seconds, 3) for seconds in late])
