"""`noosphere dump` and `restore`: everything in a file, and back."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .common import AgentOption, Common, ConfigOption, JsonOption, ServerOption, TimeoutOption, common
from .exits import CliError, ExitCode
from .output import print_fields, print_json
from .serving import load_settings
from .session import call, connected
from .settings_options import SettingsCommand

if TYPE_CHECKING:
    from noosphere.server.config import Settings
    from noosphere.server.dumping import End, Summary

    from .backup_shapes import DumpedShape, RestoredShape

app = typer.Typer()


@app.command(cls=SettingsCommand)
def dump(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to; compressed if it ends in .gz.")],
    offline: Annotated[
        bool,
        typer.Option("--offline", help="Read the data folder, or Redis and etcd, instead of asking a server."),
    ] = False,
    with_tokens: Annotated[
        bool,
        typer.Option("--with-tokens", help="Take hashes of API tokens too: who restores them makes them good again."),
    ] = False,
    config: ConfigOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """Write everything that is stored to a file that `restore` makes any backend from. JSON: Dumped.

    Asks the server, which goes on serving: each namespace is as it was at one moment. With --offline it takes the
    options of `serve` instead; no server may use the data folder then. The file is there whole or not at all, and only
    its owner may read it.
    """
    options = common(ctx, server, as_json, agent, timeout)
    if offline:
        end, size = asyncio.run(_dump_offline(load_settings(ctx, config).settings, file, with_tokens))
    else:
        end, size = call(_dump_online(options, file, with_tokens))
    found: DumpedShape = {"file": str(file), "lines": end.lines, "bytes": size, "sha256": end.sha256}
    if options.as_json:
        print_json(found)
    else:
        print_fields({"file": file, "lines": f"{end.lines:,}", "bytes": f"{size:,}", "sha256": end.sha256})


async def _dump_online(options: Common, file: Path, tokens: bool) -> tuple[End, int]:
    from noosphere.server.dumping import DumpError, write_dump

    from .admin_api import AdminApi

    async with connected(options) as client:
        try:
            return await write_dump(file, AdminApi(client).dump(tokens=tokens))
        except DumpError as error:
            raise _failed(error) from None


async def _dump_offline(settings: Settings, file: Path, tokens: bool) -> tuple[End, int]:
    from noosphere.consistency import Refusal
    from noosphere.server.drivers import StartupError, is_replica
    from noosphere.server.dumping import DumpError, write_dump
    from noosphere.server.offline import opened_dumper
    from noosphere.server.ports.runtime import SystemClock
    from noosphere.server.storage.embedded import StoreFailed

    if not is_replica(settings) and not settings.data.is_dir():
        # Looked at first: opening it would make a data folder of it.
        raise _failed(f"{settings.data} is no data folder")
    try:
        async with opened_dumper(settings, SystemClock()) as dumper:
            return await write_dump(file, dumper.lines(tokens=tokens))
    except (DumpError, StartupError, Refusal, StoreFailed) as error:
        raise _failed(error) from None


@app.command(cls=SettingsCommand)
def restore(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A dump.")],
    replace: Annotated[bool, typer.Option("--replace", help="Remove first what is there.")] = False,
    without_facts: Annotated[
        bool, typer.Option("--without-facts", help="Leave out words of facts where there is no store for them.")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Only read the dump to its end, and change nothing.")
    ] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make the data folder, or Redis, etcd and Weaviate, what a dump says. JSON: Restored.

    Takes the options of `serve`, which say where to; no server may use it. The dump is read to its end before anything
    is written: one that was cut off or altered is refused whole. A restore that is cut off itself leaves nothing that a
    server takes; it is begun again with --replace. What is restored begins an epoch.
    """
    as_json = common(ctx, as_json=as_json).as_json
    # Read first, and told if wrong, also where nothing is restored.
    settings = load_settings(ctx, config).settings
    summary, epoch = asyncio.run(_restore(settings, file, replace, without_facts, verify))
    found: RestoredShape = {
        "file": str(file),
        "sha256": summary.sha256,
        "namespace_count": summary.namespaces,
        "record_count": summary.records,
        "fact_count": summary.facts,
        "job_count": summary.jobs,
        "dump_epoch": summary.header.epoch,
        "epoch": epoch,
    }
    if as_json:
        print_json(found)
        return
    fields = {name.replace("_", " "): value for name, value in found.items()}
    print_fields(fields | {"epoch": "none: nothing was changed" if epoch is None else epoch})


async def _restore(
    settings: Settings, file: Path, replace: bool, without_facts: bool, verify: bool
) -> tuple[Summary, int | None]:
    from noosphere.server.dumping import DumpError, DumpFile
    from noosphere.server.ports.runtime import SystemClock
    from noosphere.server.restoring import RestoreError, restore

    try:
        if verify:
            return await asyncio.to_thread(DumpFile(file).verify), None
        return await restore(
            settings,
            DumpFile(file),
            clock=SystemClock(),
            replace=replace,
            without_facts=without_facts,
            told=_told,
        )
    except DumpError as error:
        raise CliError(ExitCode.CHECK_FAILED, str(error), "UNUSABLE_DUMP") from None
    except RestoreError as error:
        raise CliError(ExitCode.CANNOT_SERVE, str(error), "CANNOT_RESTORE") from None


def _told(done: int, total: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{done:,} of {total:,} lines", end="\n" if done == total else "", file=sys.stderr, flush=True)


def _failed(error: object) -> CliError:
    return CliError(ExitCode.CANNOT_SERVE, str(error), "CANNOT_DUMP")
