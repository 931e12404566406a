"""`make up` and `make down`, with real engines: done twice, after a death, and after a failover."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.support.etcd import needs_etcd
from tests.support.redis import needs_redis
from tests.support.weaviate import PROGRAM as WEAVIATE
from tests.support.weaviate import needs_weaviate

from noosphere.server.fleet import (
    Fleet,
    FleetError,
    ask,
    bring_down,
    bring_up,
    catch_up,
    copy_of_redis,
    info,
    read_fleet,
    send,
)
from noosphere.server.fleet.processes import kill

pytestmark = [needs_redis, needs_etcd]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "fleet"
    bring_down(tmp_path / "fleet", print)


def fleet(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "noosphere.server.fleet", command, "--folder", str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done


# Where Weaviate's program is, it is started too; elsewhere one line says how it is had.
MORE_STARTED = ["weaviate-server"] if WEAVIATE is None else ["started"]
MORE_RUNS = ["is"] if WEAVIATE is None else ["runs"]


def weaviate_of(fleet: Fleet) -> dict[str, str]:
    if fleet.weaviate is None:
        return {}
    return {
        "NOOSPHERE_WEAVIATE_URL": f"http://{fleet.weaviate.address}",
        "NOOSPHERE_WEAVIATE_GRPC": fleet.weaviate.grpc,
        "NOOSPHERE_WEAVIATE_API_KEY": fleet.weaviate.key,
    }


def test_up_twice_and_down_twice(folder: Path) -> None:
    first = fleet("up", folder)
    exported = dict(word.split("=", 1) for word in shlex.split(first.stdout) if "=" in word)
    found = read_fleet(folder / "fleet.json")
    assert exported == {
        "NOOSPHERE_REDIS_URLS": ",".join(f"redis://{member.address}" for member in found.redis),
        "NOOSPHERE_ETCD_ENDPOINTS": found.etcd_endpoints,
        **weaviate_of(found),
    }
    assert [line.split(" ")[0] for line in first.stderr.splitlines()] == ["started"] * 3 + MORE_STARTED
    second = fleet("up", folder)
    assert second.stdout == first.stdout
    assert [line.split(" ")[1] for line in second.stderr.splitlines()] == ["runs"] * 3 + MORE_RUNS
    assert read_fleet(folder / "fleet.json") == found, "nothing was started again"
    primary, replica = (member.address for member in found.redis)
    assert ask(primary, "CONFIG", "GET", "maxmemory-policy")[1] == b"noeviction"
    assert ask(primary, "CONFIG", "GET", "appendonly")[1] == b"yes"
    ask(primary, "SET", "here", "still")
    catch_up(primary, replica)
    assert ask(replica, "GET", "here") == b"still"
    stopped = fleet("down", folder).stderr.splitlines()
    assert stopped == [f"stopped {member.name} (pid {member.pid})" for member in found.members]
    assert "nothing" in fleet("down", folder).stderr
    fleet("up", folder)
    after = read_fleet(folder / "fleet.json")
    assert ask(after.redis[0].address, "GET", "here") == b"still", "what was written outlives the processes"


def test_what_was_interrupted_leaves_nothing_that_nobody_knows(folder: Path) -> None:
    # Its log is there as soon as it is, long before it answers.
    words = [sys.executable, "-m", "noosphere.server.fleet", "up", "--folder", str(folder)]
    log = folder / "redis-1" / "redis-1.log"
    running = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        while not log.exists():
            assert running.poll() is None
        running.send_signal(signal.SIGINT)
        _, problem = running.communicate(timeout=120)
    finally:
        running.kill()
        running.wait()
    assert running.returncode == 130, problem
    assert problem.splitlines()[-1].startswith("fleet: interrupted")
    known = read_fleet(folder / "fleet.json").redis[0]
    assert known.alive, "it is down's to stop"
    after = bring_up(folder, print)
    assert after.redis[0] == known, "no second one was started on its files"


def test_what_died_alone_comes_back_alone(folder: Path) -> None:
    before = bring_up(folder, print)
    assert before.etcd is not None
    kill(before.redis[1].process)
    kill(before.etcd.process)
    told: list[str] = []
    after = bring_up(folder, told.append)
    assert [line.split(" ")[0] for line in told] == ["redis-1", "started", "started", "weaviate"][: len(told)]
    assert after.weaviate == before.weaviate
    assert after.redis[0] == before.redis[0]
    assert (after.redis_urls, after.etcd_endpoints) == (before.redis_urls, before.etcd_endpoints)


def test_after_a_failover_the_old_primary_comes_back_as_a_replica(folder: Path) -> None:
    before = bring_up(folder, print)
    old, new = before.redis
    ask(old.address, "SET", "kept", "yes")
    catch_up(old.address, new.address)
    ask(new.address, "REPLICAOF", "127.0.0.1", "1")
    ask(old.address, "SET", "lost", "yes")
    kill(old.process)
    with copy_of_redis(Path(old.folder)) as copy:
        assert [ask(copy, "GET", name) for name in ("kept", "lost")] == [b"yes", b"yes"], (
            "it can be asked after its death"
        )
    ask(new.address, "REPLICAOF", "NO", "ONE")
    after = bring_up(folder, print)
    assert after.primary == new.name
    catch_up(new.address, after.redis[0].address)
    assert info(after.redis[0].address, "replication")["role"] == "slave"
    assert [ask(after.redis[0].address, "GET", name) for name in ("kept", "lost")] == [b"yes", None]


def test_a_replica_that_was_cut_off_follows_again(folder: Path) -> None:
    primary, replica = bring_up(folder, print).redis
    ask(replica.address, "REPLICAOF", "127.0.0.1", "1")
    ask(primary.address, "SET", "here", "yes")
    bring_up(folder, print)
    catch_up(primary.address, replica.address)
    assert ask(replica.address, "GET", "here") == b"yes"


def test_of_two_primaries_none_is_chosen(folder: Path) -> None:
    _, replica = bring_up(folder, print).redis
    ask(replica.address, "REPLICAOF", "NO", "ONE")
    with pytest.raises(FleetError, match="redis-1 and redis-2 both take themselves for the primary"):
        bring_up(folder, print)


def test_an_engine_that_hangs_is_named(folder: Path) -> None:
    found = bring_up(folder, print)
    assert found.etcd is not None
    send(found.etcd.process, signal.SIGSTOP)
    try:
        with pytest.raises(FleetError, match=rf"etcd \(pid {found.etcd.pid}\) does not answer"):
            bring_up(folder, print)
    finally:
        send(found.etcd.process, signal.SIGCONT)


@needs_weaviate
def test_weaviate_comes_back_with_what_it_has_and_asks_for_its_key(folder: Path) -> None:
    before = bring_up(folder, print).weaviate
    assert before is not None
    url = f"http://{before.address}/v1/schema"
    for headers, status in (({}, 401), ({"Authorization": f"Bearer {before.key}"}, 200)):
        assert httpx.post(url, json={"class": "Kept"}, headers=headers, trust_env=False).status_code == status
    bring_down(folder, print)
    after = bring_up(folder, print).weaviate
    assert after is not None
    assert (after.address, after.grpc, after.key) == (before.address, before.grpc, before.key)
    found = httpx.get(url, headers={"Authorization": f"Bearer {after.key}"}, trust_env=False).json()
    assert [one["class"] for one in found["classes"]] == ["Kept"]
