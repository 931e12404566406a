"""`noosphere facts reindex`."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import typer

from .common import ConfigOption, JsonOption, common
from .exits import CliError, ExitCode
from .output import print_fields, print_json
from .serving import load_settings
from .settings_options import SettingsCommand

if TYPE_CHECKING:
    from noosphere.server.config import Settings
    from noosphere.server.storage.facts import Rewritten

    from .facts_shapes import ReindexedShape

app = typer.Typer()


@app.command(cls=SettingsCommand)
def reindex(ctx: typer.Context, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Make the index of facts anew, after another embedder was configured. JSON: Reindexed.

    Takes the options of `serve`, above all --data or --weaviate-url, and those of the embedder. No server may use the
    data folder meanwhile. On Weaviate servers may run on: facts are found, and those that are decided meanwhile are
    copied, too; for a moment at the end nothing new is taken. Configure and restart the servers afterwards. The old
    index stays in place until the new one is complete: an interruption changes nothing. A Weaviate that refuses writes
    after one takes them again when this has been done.
    """
    settings = load_settings(ctx, config).settings
    as_json = common(ctx, as_json=as_json).as_json
    model, done = asyncio.run(_reindex(settings))
    found: ReindexedShape = {
        "version_count": done.versions,
        "vector_count": done.vectors,
        "model": model or None,
        "model_before": done.before.name or None,
    }
    if as_json:
        print_json(found)
    else:
        print_fields(
            {
                "versions": f"{done.versions:,}",
                "vectors": f"{done.vectors:,}",
                "model": model or "none: facts are found by keywords alone",
                "before": done.before.name or "none",
            }
        )


async def _reindex(settings: Settings) -> tuple[str, Rewritten]:
    from noosphere.server.config import ConfigError
    from noosphere.server.fact_stores import weaviate_access
    from noosphere.server.models import build
    from noosphere.server.reindex import ReindexError, reindex, reindex_weaviate

    try:
        models = build(settings)
        try:
            if settings.weaviate_url:
                done = await reindex_weaviate(weaviate_access(settings), models.embedder, told=_told)
            else:
                done = await reindex(settings.data, models.embedder, told=_told)
        finally:
            await models.aclose()
    except (ConfigError, ReindexError) as error:
        raise CliError(ExitCode.CANNOT_SERVE, str(error), "CANNOT_REINDEX") from None
    return "" if models.embedder is None else models.embedder.name, done


def _told(done: int, total: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{done:,} of {total:,} versions", end="\n" if done == total else "", file=sys.stderr, flush=True)
