"""`noosphere serve` and `noosphere config show`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from .common import ConfigOption, JsonOption, common
from .exits import CliError, ExitCode, usage
from .output import compact, print_json, print_line, print_table
from .settings_options import FLAGS, SettingsCommand

if TYPE_CHECKING:
    from pathlib import Path

    from noosphere.server.config import Effective

    from .shapes import KeyShape, ReadyShape

app = typer.Typer()
config_app = typer.Typer(help="The server's configuration.")


@app.command(cls=SettingsCommand)
def serve(ctx: typer.Context, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Serve until SIGTERM or Ctrl-C. JSON: Ready, once calls are answered.

    Without any option everything runs in this process and is kept in ./noosphere-data.
    Later wins: defaults, the file, the environment (NOOSPHERE_DATA and so on), options.
    """
    from noosphere.server.app import StartupError, run

    settings = load_settings(ctx, config).settings
    as_json = common(ctx, as_json=as_json).as_json

    def ready(address: str) -> None:
        found: ReadyShape = {"address": address}
        if as_json:
            print_json(found)
        else:
            print_line(f"noosphere serves on {address}")

    try:
        code = run(settings, ready=ready)
    except StartupError as error:
        raise CliError(ExitCode.CANNOT_SERVE, str(error), "CANNOT_SERVE") from None
    raise typer.Exit(code)


@config_app.command(cls=SettingsCommand)
def show(ctx: typer.Context, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show the effective value of every key and where it comes from. JSON: an object of Key.

    Takes the options of `serve`, to try what they would do. Secrets are masked.
    """
    effective = load_settings(ctx, config)
    values = effective.settings.model_dump(mode="json")
    if common(ctx, as_json=as_json).as_json:
        found: dict[str, KeyShape] = {
            key: {"value": value, "origin": effective.origins[key]} for key, value in values.items()
        }
        print_json(found)
    else:
        rows = [
            (key, value if isinstance(value, str) else compact(value), effective.origins[key])
            for key, value in values.items()
        ]
        print_table(("KEY", "VALUE", "FROM"), rows, empty="")


def load_settings(ctx: typer.Context, config: Path | None) -> Effective:
    """Returns the configuration that a ``SettingsCommand`` was given.

    Raises:
        CliError: wrong usage, if it cannot be used.
    """
    from noosphere.server.config import ConfigError, load

    try:
        return load(config, ctx.meta[FLAGS])
    except ConfigError as error:
        raise usage(str(error)) from None
