"""Brings a fleet up and down. All of it can be done twice, and goes on where it was left."""

from __future__ import annotations

import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from .engines import (
    SOURCES,
    START_SECONDS_MAX,
    STOP_SECONDS_MAX,
    RedisError,
    ask,
    find_program,
    info,
    is_healthy,
    program,
    start_etcd,
    start_redis,
)
from .processes import (
    POLL_SECONDS,
    FleetError,
    Identity,
    end,
    free_address,
    is_alive,
    spawn,
    split,
    tail,
    undisturbed,
    usable,
)
from .state import FILE, Fleet, Member, changing, locked, read_fleet
from .weaviate import PROGRAM as WEAVIATE
from .weaviate import WeaviateSeat, start_weaviate, weaviate_is_ready

REDIS_COUNT = 2
SERVER_COUNT = 3
SUPERVISOR = "supervisor"
SERVERS_READY_SECONDS_MAX = 60.0
SUPERVISOR_STOP_SECONDS_MAX = 60.0

Tell = Callable[[str], None]


def bring_up(folder: Path, tell: Tell) -> Fleet:
    """Starts what is not running of the engines: a Redis with a replica, etcd, and Weaviate where its program is.

    Args:
        folder: where everything is kept; made if it is not there.
        tell: gets a line about each process.

    Returns:
        The fleet.

    Raises:
        FleetError: a program is missing, or one did not start.
    """
    for name in ("redis-server", "etcd"):
        program(name)
    with _command(folder):
        with changing(folder) as fleet:
            _arrange(fleet, folder)
        _start_redis(fleet, folder, tell)
        _start_etcd(fleet, folder, tell)
        _start_weaviate(fleet, folder, tell)
        return read_fleet(folder / FILE)


def bring_up_servers(folder: Path, tell: Tell, count: int = SERVER_COUNT) -> Fleet:
    """Starts the engines, and servers on them that are started again when they die; returns once all serve.

    Raises:
        FleetError: a program is missing, or one did not start.
    """
    bring_up(folder, tell)
    with _command(folder):
        fleet = read_fleet(folder / FILE)
        if fleet.supervisor is None or not fleet.supervisor.alive:
            for member in fleet.servers:
                # Left behind by a supervisor that was killed.
                end(member.process, STOP_SECONDS_MAX)
            _start_supervisor(folder, count)
        _await_servers(folder, tell)
        return read_fleet(folder / FILE)


def roll_servers(folder: Path, tell: Tell) -> Fleet:
    """Restarts the servers one after the other, each once the one before serves again.

    Raises:
        FleetError: there are none, or one does not come back.
    """
    with _command(folder):
        fleet = read_fleet(folder / FILE)
        if fleet.supervisor is None or not fleet.supervisor.alive:
            raise FleetError(f"{folder}: no servers are kept up here (make cluster starts them)")
        for member in fleet.servers:
            end(member.process, STOP_SECONDS_MAX)
            tell(f"stopped {member.name} (pid {member.pid})")
            _await_servers(folder, tell, {member.name: member.pid})
        return read_fleet(folder / FILE)


def bring_down(folder: Path, tell: Tell) -> None:
    """Stops everything of a fleet that still runs; its files stay.

    Args:
        folder: where it is kept.
        tell: gets a line about each process that was stopped.
    """
    if not (folder / FILE).exists():
        tell(f"there is no fleet in {folder}")
        return
    with _command(folder):
        running = [member for member in read_fleet(folder / FILE).members if member.alive]
        # First what would start others again: it stops its servers itself.
        for member in running:
            end(member.process, SUPERVISOR_STOP_SECONDS_MAX if member.name == SUPERVISOR else STOP_SECONDS_MAX)
            tell(f"stopped {member.name} (pid {member.pid})")
        with changing(folder) as fleet:
            for member in fleet.members:
                member.process = None
    if not running:
        tell(f"nothing of the fleet in {folder} was running")


@contextmanager
def _command(folder: Path) -> Iterator[None]:
    """Keeps two commands from bringing the same fleet up and down at the same time."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # It holds the data of agents.
        folder.chmod(0o700)
    except OSError as error:
        raise FleetError(f"{folder}: {error.strerror}") from None
    with locked(folder / "command.lock", wait=False):
        yield


def _arrange(fleet: Fleet, folder: Path) -> None:
    """Gives every engine its place; one whose port was taken meanwhile moves, unless somebody relies on it."""
    if not fleet.redis:
        names = [f"redis-{number}" for number in range(1, REDIS_COUNT + 1)]
        fleet.redis = [Member(name, free_address(), str((folder / name).absolute())) for name in names]
        fleet.primary = names[0]
    if fleet.etcd is None:
        home = str((folder / "etcd").absolute())
        fleet.etcd = Member("etcd", free_address(), home, peer=free_address())
    if fleet.weaviate is None and find_program(WEAVIATE) is not None:
        home = str((folder / "weaviate").absolute())
        fleet.weaviate = Member("weaviate", free_address(), home, grpc=free_address(), key=secrets.token_hex(16))
    served = any(member.alive for member in fleet.servers)
    for member in (*fleet.redis, fleet.etcd, *filter(None, (fleet.weaviate,))):
        if member.alive:
            continue
        member.process = None
        for name in ("address", "peer", "grpc"):
            if getattr(member, name) and not usable(getattr(member, name)):
                if served:
                    taken = getattr(member, name)
                    raise FleetError(f"{member.name}: {taken} is taken by another program (make down, then up again)")
                setattr(member, name, free_address())


def _start_redis(fleet: Fleet, folder: Path, tell: Tell) -> None:
    primary = _primary(fleet)
    for member in (primary, *(member for member in fleet.redis if member is not primary)):
        role = "primary" if member is primary else f"replica of {primary.name}"
        if member.alive:
            if member is not primary:
                _follow(member, primary)
            tell(f"{member.name} runs at {member.address} (pid {member.pid}, {role})")
            continue
        home = Path(member.folder)
        start_redis(
            member.address,
            home,
            _log(member),
            partial(_record, folder, member, primary=primary.name),
            primary="" if member is primary else primary.address,
        )
        tell(f"started {member.name} at {member.address} (pid {member.pid}, {role})")


def _primary(fleet: Fleet) -> Member:
    """Returns which Redis is the primary: one that runs as such, else the one that was it last."""
    found = [member for member in fleet.redis if member.alive and _told(member)["role"] == "master"]
    if len(found) > 1:
        names = " and ".join(member.name for member in found)
        raise FleetError(f"{names} both take themselves for the primary: make one of them the other's replica")
    return found[0] if found else next(member for member in fleet.redis if member.name == fleet.primary)


def _follow(member: Member, primary: Member) -> None:
    """Has a replica that somebody has cut off follow the primary again."""
    host, port = split(primary.address)
    found = _told(member)
    if (found.get("master_host"), found.get("master_port")) != (host, str(port)):
        ask(member.address, "REPLICAOF", host, port)


def _told(member: Member) -> dict[str, str]:
    try:
        return info(member.address, "replication")
    except (OSError, RedisError):
        problem = f"{member.name} (pid {member.pid}) does not answer at {member.address}"
        raise FleetError(f"{problem} (make down, then up again)") from None


def _start_etcd(fleet: Fleet, folder: Path, tell: Tell) -> None:
    member = fleet.etcd
    assert member is not None
    if member.alive and is_healthy(member.address):
        tell(f"etcd runs at {member.address} (pid {member.pid})")
        return
    if member.alive:
        raise FleetError(f"etcd (pid {member.pid}) does not answer at {member.address} (make down, then up again)")
    start_etcd(member.address, member.peer, Path(member.folder), _log(member), partial(_record, folder, member))
    tell(f"started etcd at {member.address} (pid {member.pid})")


def _start_weaviate(fleet: Fleet, folder: Path, tell: Tell) -> None:
    member = fleet.weaviate
    if member is None:
        tell(f"{WEAVIATE} is not installed, so servers have no fact store here: candidates wait ({SOURCES[WEAVIATE]})")
        return
    seat = WeaviateSeat(member.address, member.grpc, Path(member.folder))
    if member.alive and weaviate_is_ready(seat):
        tell(f"weaviate runs at {member.address} (pid {member.pid})")
        return
    if member.alive:
        raise FleetError(f"weaviate (pid {member.pid}) does not answer at {member.address} (make down, then up again)")
    settings = {
        "AUTHENTICATION_ANONYMOUS_ACCESS_ENABLED": "false",
        "AUTHENTICATION_APIKEY_ENABLED": "true",
        "AUTHENTICATION_APIKEY_ALLOWED_KEYS": member.key,
        "AUTHENTICATION_APIKEY_USERS": "noosphere",
    }
    start_weaviate(seat, _log(member), partial(_record, folder, member), settings)
    tell(f"started weaviate at {member.address} (pid {member.pid})")


def _log(member: Member) -> Path:
    member.log.parent.mkdir(parents=True, exist_ok=True)
    return member.log


def _record(folder: Path, started: Member, process: Identity, primary: str = "") -> None:
    started.process = process
    with changing(folder) as fleet:
        for member in fleet.members:
            if member.name == started.name:
                for name in ("process", "address", "peer", "grpc"):
                    setattr(member, name, getattr(started, name))
        fleet.primary = primary or fleet.primary


def _start_supervisor(folder: Path, count: int) -> None:
    with undisturbed(), changing(folder) as fleet:
        kept = {member.name: member.address for member in fleet.servers if usable(member.address)}
        fleet.servers = [
            Member(name, kept.get(name) or free_address(), str((folder / name).absolute()))
            for name in (f"server-{number}" for number in range(1, count + 1))
        ]
        supervisor = Member(SUPERVISOR, "", str((folder / SUPERVISOR).absolute()))
        shutil.rmtree(supervisor.folder, ignore_errors=True)
        command = [sys.executable, "-m", "noosphere.server.fleet.supervisor", str(folder.absolute())]
        supervisor.process = spawn(command, _log(supervisor))
        fleet.supervisor = supervisor


def _await_servers(folder: Path, tell: Tell, former: Mapping[str, int] | None = None) -> None:
    """Returns once servers serve: all of them, or those named, each by another process than its former one."""
    deadline = time.monotonic() + SERVERS_READY_SECONDS_MAX
    pids = former or dict.fromkeys((member.name for member in read_fleet(folder / FILE).servers), 0)
    for name, pid in pids.items():
        while True:
            fleet = read_fleet(folder / FILE)
            member = next(member for member in fleet.servers if member.name == name)
            if member.alive and member.pid != pid and serves(member.address):
                tell(f"{name} serves at {member.address} (pid {member.pid})")
                break
            if not is_alive(fleet.supervisor.process if fleet.supervisor is not None else None):
                raise FleetError("what keeps the servers up has ended (make down, then make cluster again)")
            if time.monotonic() > deadline:
                waited = SERVERS_READY_SECONDS_MAX
                raise FleetError(f"{name} does not serve at {member.address} after {waited:g} s: {tail(member.log)}")
            time.sleep(POLL_SECONDS)


def serves(address: str, seconds: float = START_SECONDS_MAX) -> bool:
    """Tells whether a server answers that it serves."""
    with grpc.insecure_channel(address, options=(("grpc.enable_http_proxy", 0),)) as channel:
        try:
            reply = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=seconds)
        except grpc.RpcError:
            return False
        return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)
