"""What of a tool call may be remembered beyond its session: the tool's name and the names of its arguments. Pure.

No value ever is: it may be private, and what recurs must not depend on it. Models write both names, so that one which
looks like no name may be a value, or words aimed at whoever reads it.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

import msgspec

from ..sessions.toolcall import ToolCall, ToolCallStatus

ARGUMENTS_MAX = 16
"""So many names of arguments are told apart, the first by their order; the others count as one that is not named."""

UNNAMED = "*"
"""Stands for arguments whose names are not told, and for all of them if they are no JSON object."""

_TOOL = re.compile(r"[\w.:/-]{1,64}")
_ARGUMENT = re.compile(r"[^\W\d][\w.-]{0,63}")
_arguments = msgspec.json.Decoder(dict[str, msgspec.Raw])


class ToolStep(NamedTuple):
    """One tool and the names of its arguments, in order."""

    tool: str
    arguments: tuple[str, ...]

    @property
    def number(self) -> int:
        """A number above 0 that stands for it, the same in every process."""
        text = "\0".join((self.tool, *self.arguments))
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") or 1

    def __str__(self) -> str:
        return f"{self.tool}({', '.join(self.arguments)})"


def tool_step(call: ToolCall) -> ToolStep | None:
    """Returns what a call does; None if it has not succeeded, or its tool's name looks like none."""
    if call.status is not ToolCallStatus.DONE or not _TOOL.fullmatch(call.name):
        return None
    return ToolStep(call.name, _names(call.arguments))


def _names(arguments: str) -> tuple[str, ...]:
    if not arguments:
        return ()
    try:
        found = sorted(_arguments.decode(arguments))
    except (msgspec.DecodeError, UnicodeEncodeError):
        return (UNNAMED,)
    names = [name for name in found if _ARGUMENT.fullmatch(name)][:ARGUMENTS_MAX]
    return (*names, UNNAMED) if len(names) < len(found) else tuple(names)
