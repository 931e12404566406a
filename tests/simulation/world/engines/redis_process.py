"""A simulated Redis process: what it holds, whom it follows, and what becomes of that when something goes wrong.

Real are the scripts, run by Lua, and the bytes that go over connections (:mod:`.redis_wire`). A process notes every
command that changes something; its state is what those commands make of nothing, in their order. So a replica is a
process that lags behind with the same list, and whoever is restarted goes on from as much of it as was on disk.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tests.simulation.world.engines.redis_streams  # noqa: F401 # adds the commands of streams
from tests.simulation.world.engines.redis_commands import COMMANDS, OK, Command, Reply, Scope, Status
from tests.simulation.world.engines.redis_lua import INTERPRETER
from tests.simulation.world.engines.redis_values import Keys, Refused, pairs, whole_number

LAG_SECONDS = 0.005
"""How long a command takes to a replica, where nothing is in its way."""

SYNC_SECONDS = 1.0
"""How often files are synced where each write need not be."""

_NOBODY = "0" * 40


class Effect(NamedTuple):
    """A command that has changed something, as replicas and files get it."""

    name: bytes
    arguments: tuple[bytes, ...]
    now_ms: int


class SimulatedRedis:
    """See the module. Everything happens in the event loop's time.

    Args:
        loop: in whose time it lives.
        chance: makes its ids.
        wall_ms: the clock of its machine.
        appendfsync: ``always`` syncs each write before it is answered, ``everysec`` once a second.

    Attributes:
        up: whether it runs.
        paused: whether it stands still; what comes meanwhile is executed when it goes on.
        run_id: of this life.
        following: whom it follows; None for a primary.
        cut: whether the link to whom it follows is cut.
        memory_full: whether it refuses what may need memory.
        disk_failed: whether it cannot write its files, so that it refuses writes.
        replicas_min: how many replicas must follow it for it to accept writes.
        lives: how often it was started; connections belong to one life.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        chance: random.Random,
        wall_ms: Callable[[], int],
        appendfsync: str = "everysec",
    ) -> None:
        self._loop = loop
        self._chance = chance
        self._wall_ms = wall_ms
        self._settings = {"appendfsync": appendfsync, "save": "", "maxmemory-policy": "noeviction"}
        self._effects: list[Effect] = []
        self._durable = 0
        self._syncing = False
        self._keys = Keys()
        self._scripts: set[bytes] = set()
        self._replicas: list[SimulatedRedis] = []
        self._shipping = False
        self._channels: dict[bytes, list[Callable[[Reply], None]]] = {}
        self._replid, self._replid2, self._second_offset = self._id(), _NOBODY, -1
        self.on_life: list[Callable[[], None]] = []
        self.run_id = self._id()
        self.lives = 1
        self.up = True
        self.paused = False
        self.following: SimulatedRedis | None = None
        self.cut = False
        self.memory_full = False
        self.disk_failed = False
        self.replicas_min = 0

    def _id(self) -> str:
        return f"{self._chance.getrandbits(160):040x}"

    # What goes wrong

    def kill(self, *, power: bool = False) -> None:
        """Ends it without warning; with ``power`` what its files had not synced goes, too."""
        if not self.up:
            return
        self.up = False
        self.paused = False
        if power or self.disk_failed:
            del self._effects[self._durable :]
        self._told()

    def start(self) -> None:
        """Starts it anew on what its files have. A replica stays one, and takes everything from whom it follows."""
        assert not self.up
        self.run_id = self._id()
        self.lives += 1
        self._scripts.clear()
        self._channels.clear()
        self._replid, self._replid2, self._second_offset = self._id(), _NOBODY, -1
        self._durable = len(self._effects)
        self.disk_failed = False
        self._replay()
        self.up = True
        if self.following is not None:
            self.follow(self.following)

    def restart(self, *, power: bool = False) -> None:
        self.kill(power=power)
        self.start()

    def pause(self) -> None:
        """Stops it where it stands."""
        self.paused = self.up

    def resume(self) -> None:
        """Lets it go on."""
        if self.paused:
            self.paused = False
            self._told()

    def follow(self, primary: SimulatedRedis | None) -> None:
        """Makes it a replica of another one, with everything that one has, or (None) a primary with what it has."""
        if self.following is not None and self in self.following._replicas:
            self.following._replicas.remove(self)
        was, self.following = self.following, primary
        if primary is None:
            if was is not None:
                # It goes on with the history it has followed, under an id of its own.
                self._replid2, self._second_offset = self._replid, len(self._effects) + 1
                self._replid = self._id()
            return
        primary._replicas.append(self)
        if primary.up and not self.cut:
            self._synchronise(primary)

    def _synchronise(self, primary: SimulatedRedis) -> None:
        mine, theirs = self._effects, primary._effects
        # Lists lose their ends and grow, and nothing is in two places: who shares the last one shares all before it.
        if not mine or (len(mine) <= len(theirs) and mine[-1] is theirs[len(mine) - 1]):
            self._receive(theirs[len(mine) :])
        else:
            self._effects = list(theirs)
            self._replay()
        self._replid, self._replid2, self._second_offset = primary._replid, _NOBODY, -1
        self._durable = len(self._effects)

    def mend(self) -> None:
        """Ends a cut; the replica takes what it has missed."""
        self.cut = False
        if self.up and self.following is not None and self.following.up:
            self._synchronise(self.following)

    def heads(self, name: str) -> list[int]:
        """Returns every head that a namespace has had, oldest first, by what is left of the history."""
        told, found = name.encode(), []
        for effect in self._effects:
            if effect.name == b"HSET" and effect.arguments[0].endswith(b":h"):
                header = dict(pairs(effect.arguments[1:]))
                if header.get(b"n") == told:
                    found.append(int(header[b"h"], 16))
        return found

    @property
    def behind(self) -> int:
        """How many commands of whom it follows it has not got."""
        return 0 if self.following is None else len(self.following._effects) - len(self._effects)

    def _told(self) -> None:
        for listener in list(self.on_life):
            listener()

    # What it does

    def now_ms(self) -> int:
        return self._wall_ms()

    def execute(self, name: bytes, arguments: Sequence[bytes]) -> Reply:
        """Executes a command; its name is in capitals.

        Raises:
            Refused: what it answers instead.
        """
        own = getattr(self, f"_do_{name.decode('ascii', 'replace').lower()}", None)
        if own is not None:
            return own(*arguments)
        command = COMMANDS.get(name)
        if command is None:
            raise Refused(f"ERR unknown command '{name.decode('ascii', 'replace')}'")
        if command.writes:
            self._check_writes()
        if command.grows and self.memory_full:
            raise Refused("OOM command not allowed when used memory > 'maxmemory'.")
        return self._apply(name, command, arguments)

    def _check_writes(self) -> None:
        if self.following is not None:
            raise Refused("READONLY You can't write against a read only replica.")
        if self.disk_failed:
            raise Refused("MISCONF Errors writing to the AOF file: No space left on device")
        if sum(not replica.cut and replica.up for replica in self._replicas) < self.replicas_min:
            raise Refused("NOREPLICAS Not enough good replicas to write.")

    def _apply(self, name: bytes, command: Command, arguments: Sequence[bytes]) -> Reply:
        if len(arguments) < command.least:
            raise Refused(f"ERR wrong number of arguments for '{name.decode().lower()}' command")
        now_ms = self.now_ms()
        self._keys.lapse(now_ms)
        reply = command.run(Scope(self._keys, now_ms), arguments)
        if command.writes:
            self._note(Effect(name, tuple(arguments), now_ms))
        return reply

    def _note(self, effect: Effect) -> None:
        self._effects.append(effect)
        if self._settings["appendfsync"] == "always":
            self._durable = len(self._effects)
        elif not self._syncing:
            self._syncing = True
            self._loop.call_later(SYNC_SECONDS, self._sync, self.lives)
        if self._replicas and not self._shipping:
            self._shipping = True
            self._loop.call_later(LAG_SECONDS, self._ship)

    def _sync(self, life: int) -> None:
        self._syncing = False
        if life == self.lives and self.up and not self.disk_failed:
            self._durable = len(self._effects)

    def _ship(self) -> None:
        self._shipping = False
        if not self.up:
            return
        if self.paused:
            # What was written before is in nobody's hands yet.
            self._shipping = True
            self._loop.call_later(LAG_SECONDS, self._ship)
            return
        for replica in self._replicas:
            if replica.up and not replica.cut and not replica.paused:
                replica._synchronise(self)

    def _receive(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            self._effects.append(effect)
            COMMANDS[effect.name].run(Scope(self._keys, effect.now_ms), effect.arguments)

    def _replay(self) -> None:
        effects, self._effects = self._effects, []
        self._keys = Keys()
        self._receive(effects)

    # Commands of a process

    def _do_evalsha(self, digest: bytes, count: bytes, *rest: bytes) -> Reply:
        if digest not in self._scripts:
            raise Refused("NOSCRIPT No matching script. Please use EVAL.")
        script, keys = INTERPRETER[digest], whole_number(count)
        if not script.flags.no_writes:
            self._check_writes()
            if self.memory_full and not script.flags.allow_oom:
                raise Refused("OOM command not allowed when used memory > 'maxmemory'.")

        def call(name: bytes, arguments: Sequence[bytes]) -> Reply:
            command = COMMANDS.get(name)
            if command is None:
                # Those of the process itself: TIME, INFO and SPUBLISH, as the scripts use them.
                return self.execute(name, arguments)
            if command.writes and script.flags.no_writes:
                raise Refused("ERR Write commands are not allowed from read-only scripts.")
            return self._apply(name, command, arguments)

        return INTERPRETER.run(script, rest[:keys], rest[keys:], call)

    def _do_script(self, what: bytes, *rest: bytes) -> Reply:
        match what.upper(), rest:
            case b"LOAD", [text]:
                digest = INTERPRETER.load(text)
                self._scripts.add(digest)
                return digest
            case b"FLUSH", _:
                self._scripts.clear()
                return OK
            case _:
                raise Refused("ERR unknown subcommand")

    def _do_ping(self, *text: bytes) -> Reply:
        return text[0] if text else Status(b"PONG")

    def _do_time(self) -> Reply:
        now_ms = self.now_ms()
        return [b"%d" % (now_ms // 1000), b"%d" % (now_ms % 1000 * 1000)]

    def _do_select(self, database: bytes) -> Reply:
        if database != b"0":
            raise Refused("ERR DB index is out of range")
        return OK

    def _do_role(self) -> Reply:
        if self.following is None:
            return [b"master", len(self._effects), []]
        return [b"slave", b"", 0, b"connect" if self.cut else b"connected", len(self._effects)]

    def _do_wait(self, replicas: bytes, timeout_ms: bytes) -> Reply:
        # Answered at once: nobody of ours waits for it.
        return sum(replica.up and not replica.cut and not replica.behind for replica in self._replicas)

    def _do_slowlog(self, *_: bytes) -> Reply:
        return OK

    def _do_bgrewriteaof(self) -> Reply:
        self._durable = len(self._effects)
        return Status(b"Background append only file rewriting started")

    def _do_bgsave(self, *_: bytes) -> Reply:
        return Status(b"Background saving started")

    def _do_config(self, what: bytes, *rest: bytes) -> Reply:
        match what.upper(), rest:
            case b"GET", [name]:
                known = self._settings.get(name.decode())
                return [] if known is None else [name, known.encode()]
            case b"SET", [name, value]:
                self._settings[name.decode()] = value.decode()
                return OK
            case _:
                raise Refused("ERR unknown subcommand")

    def _do_replicaof(self, *where: bytes) -> Reply:
        if [part.upper() for part in where] != [b"NO", b"ONE"]:
            raise Refused("ERR whom a simulated Redis follows is said by `follow`")
        self.follow(None)
        return OK

    def _do_info(self, *sections: bytes) -> Reply:
        told: dict[str, Any] = {
            "redis_version": "7.0.15",
            "run_id": self.run_id,
            "role": "master" if self.following is None else "slave",
            "master_replid": self._replid,
            "master_replid2": self._replid2,
            "second_repl_offset": self._second_offset,
            "master_repl_offset": len(self._effects),
            "loading": 0,
            "maxmemory_policy": self._settings["maxmemory-policy"],
            "cluster_enabled": 0,
            "aof_enabled": 1,
            "aof_rewrite_in_progress": 0,
            "aof_rewrite_scheduled": 0,
            "aof_last_bgrewrite_status": "ok",
            "rdb_bgsave_in_progress": 0,
            "rdb_last_bgsave_status": "ok",
        }
        return "".join(f"{name}:{value}\r\n" for name, value in told.items()).encode()

    def _do_spublish(self, channel: bytes, text: bytes) -> Reply:
        listeners = self._channels.get(channel, [])
        for tell in listeners:
            tell([b"smessage", channel, text])
        return len(listeners)

    def subscribe(self, channel: bytes, tell: Callable[[Reply], None]) -> None:
        """Has what is published on a channel told, until :meth:`unsubscribe` or the end of this life."""
        self._channels.setdefault(channel, []).append(tell)

    def unsubscribe(self, channel: bytes, tell: Callable[[Reply], None]) -> None:
        listeners = self._channels.get(channel, [])
        if tell in listeners:
            listeners.remove(tell)
