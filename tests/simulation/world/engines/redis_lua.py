"""Scripts of the simulated Redis, run by Lua 5.1 itself, as Redis runs them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import lupa.lua51
from tests.simulation.world.engines.redis_commands import Reply, Status
from tests.simulation.world.engines.redis_values import Refused

Call = Callable[[bytes, Sequence[bytes]], Reply]
"""Executes a command of a script, given its name in capitals and its arguments."""


class Flags(NamedTuple):
    """What a script says of itself in its first line.

    Attributes:
        no_writes: it changes nothing, and Redis sees to that.
        allow_oom: it may be executed by a Redis that is out of memory.
    """

    no_writes: bool
    allow_oom: bool


class Script(NamedTuple):
    """A script that was loaded."""

    flags: Flags
    run: Any


class Interpreter:
    """One Lua for all simulated Redis processes: to compile a script takes longer than to run it, and they are pure."""

    def __init__(self) -> None:
        self._lua: Any = lupa.lua51.LuaRuntime(encoding=None, unpack_returned_tuples=False, register_eval=False)
        self._known: dict[bytes, Script] = {}
        self._call: Call | None = None
        self._globals = self._lua.globals()
        self._globals[b"redis"] = self._lua.table_from(
            {b"call": self._called, b"error_reply": self._lua.eval("function(text) return {err = text} end")}
        )
        # A script that forgets a `local` would pass something on to the next one.
        self._lua.execute(
            "setmetatable(_G, {__newindex = function(_, name) error('a script sets the global ' .. name) end})"
        )
        self._give = self._lua.eval("function(keys, argv) rawset(_G, 'KEYS', keys) rawset(_G, 'ARGV', argv) end")

    def load(self, text: bytes) -> bytes:
        """Compiles a script; returns its digest."""
        digest = hashlib.sha1(text, usedforsecurity=False).hexdigest().encode()
        if digest not in self._known:
            first, _, rest = text.partition(b"\n")
            if not first.startswith(b"#!lua"):
                raise Refused("ERR the simulated Redis knows scripts only that begin with a line of flags")
            flags = first.partition(b"flags=")[2].split(b",")
            # In place of the first line, so that errors tell the lines of the file.
            compiled = self._lua.compile(b"\n" + rest)
            self._known[digest] = Script(Flags(b"no-writes" in flags, b"allow-oom" in flags), compiled)
        return digest

    def __getitem__(self, digest: bytes) -> Script:
        return self._known[digest]

    def run(self, script: Script, keys: Sequence[bytes], arguments: Sequence[bytes], call: Call) -> Reply:
        """Runs a script to its end; returns its reply.

        Raises:
            Refused: what it has answered, or a command of it.
        """
        self._give(self._lua.table_from(keys), self._lua.table_from(arguments))
        self._call = call
        try:
            reply = script.run()
        except lupa.lua51.LuaError as error:
            raise Refused(f"ERR {error}") from None
        finally:
            self._call = None
        return self._from_lua(reply)

    def _called(self, name: bytes, *arguments: bytes | int | float) -> Any:
        assert self._call is not None, "commands are called by a script that runs"
        return self._to_lua(self._call(name.upper(), [_text(argument) for argument in arguments]))

    def _to_lua(self, reply: Reply) -> Any:
        match reply:
            case None:
                return False
            case list():
                return self._lua.table_from([self._to_lua(part) for part in reply])
            case Status(text):
                return self._lua.table_from({b"ok": text})
            case _:
                return reply

    def _from_lua(self, reply: Any) -> Reply:
        match reply:
            case None | False:
                return None
            case True:
                return 1
            case bytes():
                return reply
            case int() | float():
                return int(reply)
            case _:
                if (problem := reply[b"err"]) is not None:
                    raise Refused(problem.decode("utf-8", "surrogateescape"))
                parts: list[Reply] = []
                # As far as there is something, which is where Redis ends, too.
                while (part := reply[len(parts) + 1]) is not None:
                    parts.append(self._from_lua(part))
                return parts


def _text(argument: bytes | int | float) -> bytes:
    if isinstance(argument, bytes):
        return argument
    return b"%d" % argument if argument == int(argument) else b"%.17g" % argument


INTERPRETER = Interpreter()
