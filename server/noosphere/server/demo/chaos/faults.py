"""Does the damage to a fleet on this machine, and mends it. Everything here blocks."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from noosphere.server.fleet import (
    Fleet,
    FleetError,
    Member,
    RedisError,
    ask,
    bring_up_servers,
    catch_up,
    changing,
    copy_of_redis,
    info,
    is_alive,
    read_fleet,
)
from noosphere.server.fleet.processes import kill

from .held import Held, read_held

NOWHERE = ("127.0.0.1", "1")
"""Where no Redis is: a replica of that stays as it is."""
RESTART_SECONDS_MAX = 60.0
POLL_SECONDS = 0.05


@dataclass(slots=True)
class Damage:
    """What was done.

    Attributes:
        server: the server that was killed.
        server_pid: its process.
        old: the Redis that was the primary, and was killed.
        new: the one that was promoted.
        restarted: whether another process has taken the killed server's place.
    """

    server: str = ""
    server_pid: int = 0
    old: str = ""
    new: str = ""
    restarted: bool = False


class FleetFaults:
    """Works on one fleet, of which nobody else may change anything meanwhile.

    Args:
        file: its ``fleet.json``.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self.damage = Damage()

    def check(self) -> Fleet:
        """Returns the fleet if all of it is there.

        Raises:
            FleetError: it is not, and this says what is missing.
        """
        fleet = read_fleet(self._file)
        missing = [member.name for member in fleet.members if not member.alive]
        if missing or len(fleet.redis) < 2 or len(fleet.servers) < 2:
            what = f"{', '.join(missing)} not running" if missing else "it has no two servers and two Redis"
            raise FleetError(f"{self._file}: {what} (make cluster starts all of it)")
        try:
            self._replica_of(fleet)
        except (OSError, RedisError) as error:
            raise FleetError(f"{self._file}: Redis does not answer as it should: {error}") from None
        return fleet

    def kill_server(self, index: int) -> str:
        """Kills a server without warning; returns its name."""
        member = read_fleet(self._file).servers[index]
        self.damage.server, self.damage.server_pid = member.name, member.pid
        if not kill(member.process):
            raise FleetError(f"{member.name} was not there to be killed")
        return member.name

    def cut_replica(self) -> None:
        """Cuts the replica of Redis off: what is written from here on is on the primary alone."""
        primary, replica = self._pair()
        # An agent that was killed before cannot be told of a loss: what it has written is not to be lost.
        catch_up(primary.address, replica.address)
        ask(replica.address, "REPLICAOF", *NOWHERE)
        self.damage.old, self.damage.new = primary.name, replica.name

    def fail_over(self) -> None:
        """Kills the primary, and makes the replica that was cut off the primary."""
        fleet = read_fleet(self._file)
        old, new = self._named(fleet, self.damage.old), self._named(fleet, self.damage.new)
        if not kill(old.process):
            raise FleetError(f"{old.name} was not there to be killed")
        ask(new.address, "REPLICAOF", "NO", "ONE")
        with changing(self._file.parent) as changed:
            changed.primary = new.name

    def read_old(self, namespace: str) -> Held:
        """Returns what the old primary held when it died, from a copy of its files."""
        old = self._named(read_fleet(self._file), self.damage.old)
        with copy_of_redis(Path(old.folder)) as address:
            return read_held(address, namespace)

    def read_new(self, namespace: str) -> Held:
        """Returns what the new primary holds."""
        new = self._named(read_fleet(self._file), self.damage.new)
        return read_held(new.address, namespace)

    def mend(self) -> None:
        """Makes the fleet whole again: the one Redis is a replica of the other, and every server serves.

        Raises:
            FleetError: something did not come back.
        """
        fleet = bring_up_servers(self._file.parent, lambda _: None)
        for member in fleet.redis:
            if member.name != fleet.primary:
                catch_up(self._named(fleet, fleet.primary).address, member.address)
        deadline = time.monotonic() + RESTART_SECONDS_MAX
        while self.damage.server and not self.damage.restarted:
            process = self._server().process
            self.damage.restarted = is_alive(process) and process is not None and process.pid != self.damage.server_pid
            if time.monotonic() > deadline:
                raise FleetError(f"{self.damage.server} was not started again within {RESTART_SECONDS_MAX:g} s")
            time.sleep(POLL_SECONDS)

    def _server(self) -> Member:
        return next(member for member in read_fleet(self._file).servers if member.name == self.damage.server)

    def _pair(self) -> tuple[Member, Member]:
        fleet = read_fleet(self._file)
        return self._named(fleet, fleet.primary), self._replica_of(fleet)

    def _replica_of(self, fleet: Fleet) -> Member:
        primary = self._named(fleet, fleet.primary)
        if info(primary.address, "replication")["role"] != "master":
            raise FleetError(f"{self._file}: {primary.name} is not the primary")
        for member in fleet.redis:
            found = info(member.address, "replication")
            if member is not primary and found["role"] == "slave" and found["master_link_status"] == "up":
                return member
        raise FleetError(f"{self._file}: no replica of {primary.name} is up to date")

    def _named(self, fleet: Fleet, name: str) -> Member:
        return next(member for member in fleet.redis if member.name == name)
