"""Real processes of the command line."""

from __future__ import annotations

import json
import os
import subprocess
import types
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints, is_typeddict

from tests.support.process import NOOSPHERE
from tests.support.warm import WarmProcess, is_cold

SECONDS_MAX = 60.0
"""A bound against hanging, far above what any command takes."""

_AT_ONCE = 3


@dataclass(frozen=True, slots=True)
class Done:
    """A command that has ended."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        """What it printed, as text."""
        return self.out.decode()

    @property
    def lines(self) -> list[str]:
        """What it printed, by lines."""
        return self.text.splitlines()

    @property
    def json(self) -> Any:
        """The one JSON document that it printed."""
        (line,) = self.lines
        return json.loads(line)

    @property
    def json_lines(self) -> list[Any]:
        """The JSON documents that it printed."""
        return [json.loads(line) for line in self.lines]

    @property
    def error(self) -> str:
        """The one line with which it failed, without its beginning."""
        assert self.code != 0, self
        assert self.out == b"", self
        assert self.err.endswith("\n"), self
        (line,) = self.err.splitlines()
        assert line.startswith("noosphere: error: "), self
        return line.removeprefix("noosphere: error: ")

    @property
    def json_error(self) -> dict[str, Any]:
        """The JSON document with which it failed."""
        assert self.out == b"", self
        (line,) = self.err.splitlines()
        found: dict[str, Any] = json.loads(line)["error"]
        assert found["exit_code"] == self.code
        return found


class Cli:
    """Runs commands against one server.

    Args:
        server: its address; None: no command gets one.
    """

    def __init__(self, server: str | None = None) -> None:
        self.server = server

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """Returns the environment of a command: ours without what the test run's own shell may have set."""
        base = {name: value for name, value in os.environ.items() if "NOOSPHERE" not in name}
        if self.server is not None:
            base["NOOSPHERE_SERVER"] = self.server
        return {**base, **(more or {})}

    def run(self, *arguments: str, stdin: bytes = b"", environment: Mapping[str, str] | None = None) -> Done:
        """Runs one command to its end."""
        environment = self.environment(environment)
        if not is_cold(arguments, environment):
            process = WarmProcess(arguments, environment, stdin=stdin)
            out, err = process.finish(SECONDS_MAX)
            return Done(process.wait(), out, err.decode())
        done = subprocess.run(
            [str(NOOSPHERE), *arguments],
            input=stdin,
            capture_output=True,
            timeout=SECONDS_MAX,
            env=environment,
        )
        return Done(done.returncode, done.stdout, done.stderr.decode())

    def ok(self, *arguments: str, stdin: bytes = b"") -> Done:
        """Runs one command that succeeds without a complaint."""
        done = self.run(*arguments, stdin=stdin)
        assert (done.code, done.err) == (0, ""), done
        return done

    def run_all(self, *commands: Sequence[str]) -> list[Done]:
        """Runs commands side by side and returns their ends in the same order."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(lambda arguments: self.run(*arguments), commands))


def holds(kind: Any, document: Any, where: str = "document") -> None:
    """Asserts that a JSON document is what its type says: every field, of its type, and no other."""
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if kind is Any:
        return
    if is_typeddict(kind):
        fields = get_type_hints(kind, include_extras=True)
        assert isinstance(document, dict), where
        assert document.keys() == fields.keys(), where
        for name, field in fields.items():
            holds(field, document[name], f"{where}.{name}")
    elif get_origin(kind) is list:
        assert isinstance(document, list), where
        for index, item in enumerate(document):
            holds(get_args(kind)[0], item, f"{where}[{index}]")
    elif get_origin(kind) is dict:
        assert isinstance(document, dict), where
        for name, item in document.items():
            holds(get_args(kind)[1], item, f"{where}[{name!r}]")
    elif get_origin(kind) in (Union, types.UnionType):
        (other,) = (option for option in get_args(kind) if option is not type(None))
        assert type(None) in get_args(kind), "unions other than with null have no JSON type here"
        if document is not None:
            holds(other, document, where)
    elif kind is float:
        assert type(document) in (float, int), where
    else:
        assert type(document) is kind, where
