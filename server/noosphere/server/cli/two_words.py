"""Commands whose names have two words, beside a command that is the first of them and takes arguments."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup


class TwoWords(TyperGroup):
    """Finds `demo causality` before it takes `causality` for an argument of `demo`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Returns the command's name, the command, and its arguments."""
        name = " ".join(args[:2])
        if len(args) > 1 and name in self.commands:
            return name, self.commands[name], args[2:]
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Offers names of one word: a shell would take a second one for an argument, as it is."""
        return [item for item in super().shell_complete(ctx, incomplete) if " " not in item.value]
