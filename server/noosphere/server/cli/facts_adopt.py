"""`noosphere facts adopt`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import typer

from .common import ConfigOption, JsonOption, common
from .exits import CliError, ExitCode, usage
from .output import print_fields, print_json
from .serving import load_settings
from .settings_options import SettingsCommand

if TYPE_CHECKING:
    from .facts_shapes import AdoptedShape

app = typer.Typer()


@app.command(cls=SettingsCommand)
def adopt(ctx: typer.Context, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Go on with the facts that Weaviate has now, and give up the words that it lost. JSON: Adopted.

    Servers note which collection of Weaviate is theirs, and refuse facts when it is gone or another is in its place.
    This forgets the note: they take what they find next, and make an empty collection where there is none. Facts whose
    words are lost are then not found, and become facts anew when they are said again. Where there is a dump, restore
    that instead. Changes nothing in Weaviate.

    Takes the options of `serve`. Servers that share etcd may run meanwhile, and follow within seconds; a server with a
    data folder has to be stopped.
    """
    from noosphere.server.adopting import adopt
    from noosphere.server.drivers import StartupError

    settings = load_settings(ctx, config).settings
    if not settings.weaviate_url:
        raise usage("the facts of this configuration are not on Weaviate (weaviate_url)")
    as_json = common(ctx, as_json=as_json).as_json
    try:
        noted = asyncio.run(adopt(settings))
    except StartupError as error:
        raise CliError(ExitCode.CANNOT_SERVE, str(error), "CANNOT_ADOPT") from None
    found: AdoptedShape = {
        "collection_before": None if noted is None else noted.name,
        "id_before": None if noted is None else noted.id,
        "held_facts": noted is not None and noted.holds,
    }
    if as_json:
        print_json(found)
    else:
        print_fields(
            {
                "before": "none was noted" if noted is None else f"{noted.name} ({noted.id or 'without id'})",
                "facts": "it has held facts" if found["held_facts"] else "it has held none",
                "now": f"servers take what they find as {settings.weaviate_collection} at {settings.weaviate_url}",
            }
        )
