"""Gives a command one option for every key of the server's configuration that is no secret.

The keys, their types and their descriptions are those of :class:`noosphere.server.config.Settings`, so a new
key has its flag at once. Importing that model takes longer than all other start-up work of the CLI together;
therefore such a command completes itself only when it is called or asked for help.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand
from typer.main import get_command

from .common import path_option

# Where a completed command finds its flags in `Context.meta`.
FLAGS = "noosphere.flags"


class SettingsCommand(TyperCommand):
    """A command whose function takes ``ctx`` and finds the values of the flags in ``ctx.meta[FLAGS]``."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Parses arguments as the completed command does."""
        return self.complete().make_context(info_name, args, parent, **extra)

    def complete(self) -> Any:
        """Returns the command with an option for every key that is no secret."""
        assert self.callback is not None
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command(self.name)(_with_settings(inspect.unwrap(self.callback)))
        return get_command(app)


def _with_settings(function: Callable[..., None]) -> Callable[..., None]:
    from noosphere.server.config import Settings, has_flag

    fields = {key: field for key, field in Settings.model_fields.items() if has_flag(key)}

    @functools.wraps(function)
    def command(**values: Any) -> None:
        values["ctx"].meta[FLAGS] = {key: values.pop(key) for key in fields}
        function(**values)

    own = get_type_hints(function, include_extras=True)
    parameters = [
        parameter.replace(annotation=own[name], kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in inspect.signature(function).parameters.items()
    ]
    for key, field in fields.items():
        help_text = f"{field.description} [default: {_show(field.default)}]"
        is_path = field.annotation in (Path, Path | None)
        option: Any = path_option(help=help_text) if is_path else typer.Option(help=help_text)
        # mypy knows of no annotation that it is a type; every field has one.
        annotation: Any = Annotated[field.annotation | None, option]  # type: ignore[operator]
        parameters.append(inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation))
    # A function may have this attribute, and `inspect` looks for it, but its declared type does not name it.
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _show(default: object) -> str:
    if default is None:
        return "none"
    return str(default).lower() if isinstance(default, bool) else str(default)
