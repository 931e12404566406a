"""`noosphere audit …`: reads the audit log's files where they are."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .common import ConfigOption, JsonOption, common
from .exits import CliError, ExitCode, usage
from .output import print_json, print_line

if TYPE_CHECKING:
    from noosphere.server.security.audit import Entry

    from .guarding_shapes import AuditShape

app = typer.Typer(help="The audit log: who read or wrote what, on this machine.")

FOLLOW_SECONDS = 0.2
ENTRIES_MAX = 100_000

FileArgument = Annotated[
    str,
    typer.Argument(
        metavar="FILE", help="The log; those that it was before are read too. [default: audit_log]", show_default=False
    ),
]
PrincipalOption = Annotated[str, typer.Option(metavar="NAME", help="Only calls of this identity.")]
ByOption = Annotated[str, typer.Option("--by", metavar="AGENT", help="Only calls in the name of this agent.")]
AboutOption = Annotated[
    str,
    typer.Option("--about", metavar="NAME", help="Only calls about this namespace, locks/… or groups/…; or begins*."),
]
KeyOption = Annotated[str, typer.Option("--key", metavar="KEY", help="Only calls that name this key or id.")]
MethodOption = Annotated[str, typer.Option(metavar="NAME", help="Only calls of this method, e.g. Put.")]
OutcomeOption = Annotated[
    str, typer.Option(metavar="CODE", help="Only calls that ended so, by code or reason, e.g. PERMISSION_DENIED.")
]


@dataclass(frozen=True, slots=True)
class Filter:
    """Which calls are wanted; empty fields do not narrow."""

    principal: str = ""
    agent: str = ""
    about: str = ""
    key: str = ""
    method: str = ""
    outcome: str = ""

    def wants(self, entry: Entry) -> bool:
        """Tells whether a call is wanted; what tells of lost ones always is."""
        if entry.lost:
            return True
        return (
            self.principal in ("", entry.principal)
            and self.agent in ("", entry.agent, entry.agent.rpartition("#")[0])
            and (not self.about or _is_about(self.about, entry.target))
            and (not self.key or self.key in entry.keys)
            and self.method in ("", entry.method, entry.method.rpartition("/")[2])
            and self.outcome in ("", entry.code, entry.reason)
        )


@app.command()
def show(
    ctx: typer.Context,
    file: FileArgument = "",
    principal: PrincipalOption = "",
    by: ByOption = "",
    about: AboutOption = "",
    key: KeyOption = "",
    method: MethodOption = "",
    outcome: OutcomeOption = "",
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the calls that the audit log's files hold, oldest first. JSON: an Audit per line.

    Reads files, not a server: call it where they are.
    """
    as_json = common(ctx, as_json=as_json).as_json
    wanted = Filter(principal, by, about, key, method, outcome)
    for entry in _entries(_log_file(file, config)):
        if wanted.wants(entry):
            _print(entry, as_json)


@app.command()
def tail(
    ctx: typer.Context,
    file: FileArgument = "",
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=0, max=ENTRIES_MAX, metavar="N", help="So many of the newest.")
    ] = 20,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with calls as they come.")] = False,
    principal: PrincipalOption = "",
    by: ByOption = "",
    about: AboutOption = "",
    key: KeyOption = "",
    method: MethodOption = "",
    outcome: OutcomeOption = "",
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the newest calls of the audit log. JSON: an Audit per line."""
    as_json = common(ctx, as_json=as_json).as_json
    wanted = Filter(principal, by, about, key, method, outcome)
    path = _log_file(file, config)
    at = _Position(path) if follow else None
    newest: deque[Entry] = deque(maxlen=lines)
    for entry in _entries(path, None if at is None else at.bytes):
        if wanted.wants(entry):
            newest.append(entry)
    for entry in newest:
        _print(entry, as_json)
    if at is None:
        return
    try:
        for entry in at.follow(lambda: time.sleep(FOLLOW_SECONDS)):
            if wanted.wants(entry):
                _print(entry, as_json)
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.OK) from None


def _log_file(named: str, config: Path | None) -> Path:
    """Returns the log that is meant.

    Raises:
        CliError: none is named, or there is none.
    """
    from noosphere.server.security.audit import STANDARD_OUTPUT, files_of

    if not named:
        from noosphere.server.config import ConfigError, load

        try:
            named = load(config).settings.audit_log
        except ConfigError as error:
            raise usage(str(error)) from None
    if named in ("", STANDARD_OUTPUT):
        raise usage(
            "FILE is not given, and audit_log of this configuration names no file: give the file that the server "
            "writes, or the --config that it was started with"
        )
    path = Path(named)
    if not files_of(path):
        raise CliError(ExitCode.REFUSED, f"there is no audit log {named}", "NOT_FOUND")
    return path


def _entries(path: Path, bytes_max: int | None = None) -> Iterator[Entry]:
    """Yields what the files of a log hold, of the present one at most so many bytes.

    Raises:
        CliError: one of them cannot be read.
    """
    from noosphere.server.security.audit import files_of, read_line

    for file in files_of(path):
        left = bytes_max if file == path else None
        try:
            with file.open("rb") as stream:
                for line in stream:
                    if left is not None:
                        left -= len(line)
                        if left < 0:
                            break
                    if (entry := read_line(line)) is not None:
                        yield entry
        except OSError as error:
            raise CliError(ExitCode.REFUSED, f"{file} cannot be read: {error.strerror}", "UNREADABLE") from None


class _Position:
    """How far the present file of a log has been read; it may be renamed meanwhile, and another begun."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stream = path.open("rb")
        self.bytes = os.fstat(self._stream.fileno()).st_size
        self._stream.seek(self.bytes)

    def follow(self, rest: Callable[[], None]) -> Iterator[Entry]:
        """Yields entries as they come, for ever."""
        from noosphere.server.security.audit import read_line

        begun = b""
        while True:
            line = begun + self._stream.readline()
            if line.endswith(b"\n"):
                begun = b""
                if (entry := read_line(line)) is not None:
                    yield entry
                continue
            begun = line
            if not begun and self._is_renamed():
                self._stream.close()
                self._stream = self._path.open("rb")
                continue
            rest()

    def _is_renamed(self) -> bool:
        try:
            present = self._path.stat()
        except FileNotFoundError:
            return False
        own = os.fstat(self._stream.fileno())
        return (present.st_dev, present.st_ino) != (own.st_dev, own.st_ino)


def _is_about(name: str, target: str) -> bool:
    return target.startswith(name[:-1]) if name.endswith("*") else target == name


def _print(entry: Entry, as_json: bool) -> None:
    if as_json:
        print_json(_data(entry))
    else:
        print_line(_line(entry))


def _data(entry: Entry) -> AuditShape:
    from noosphere.server.security.audit import time_text

    return {
        "time": time_text(entry.time_ms),
        "principal": entry.principal,
        "credential": entry.credential,
        "agent": entry.agent,
        "peer": entry.peer,
        "request": entry.request,
        "method": entry.method,
        "kind": entry.kind,
        "target": entry.target,
        "keys": list(entry.keys),
        "more_keys": entry.more,
        "owners": list(entry.owners),
        "versions": [str(version) for version in entry.versions],
        "head": str(entry.head),
        "count": entry.count,
        "code": entry.code,
        "reason": entry.reason,
        "inside_pipeline": entry.inside,
        "sampled": entry.sampled,
        "lost": entry.lost,
    }


def _line(entry: Entry) -> str:
    from noosphere.server.security.audit import time_text

    if entry.lost:
        return f"{time_text(entry.time_ms)}  {entry.lost} calls before this were not noted: there was no room"
    who = entry.agent or "-"
    if entry.principal:
        who = f"{entry.principal} ({entry.credential}) as {who}" if entry.credential else f"{entry.principal} as {who}"
    parts = [time_text(entry.time_ms), entry.reason or entry.code, entry.method, who]
    if entry.target:
        parts.append(entry.target)
    if entry.keys:
        parts.append(" ".join(entry.keys) + (f" and {entry.more} more" if entry.more else ""))
    if entry.owners:
        parts.append("of " + " ".join(entry.owners))
    if entry.versions:
        parts.append("at " + " ".join(map(str, entry.versions)))
    return "  ".join(parts)
