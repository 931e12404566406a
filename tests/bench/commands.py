"""The worker's side of the command protocol: one JSON object a line in, one out, in order."""

from __future__ import annotations

import asyncio
import json
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import uvloop

Handler = Callable[..., Awaitable[dict[str, Any]]]


class WrongAnswer(Exception):
    """Something that was measured did not do what it should; the run is worth nothing."""


async def obey(handlers: Mapping[str, Handler]) -> None:
    """Answers commands from standard input until it ends."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        command = json.loads(line)
        try:
            answer = await handlers[command.pop("do")](**command)
        except Exception as error:
            traceback.print_exc()
            answer = {"error": _first(error)}
        print(json.dumps(answer), flush=True)


def _first(error: Exception) -> str:
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


def main(run: Callable[[], Awaitable[None]]) -> None:
    """Runs a worker on uvloop, as the servers do."""

    async def whole() -> None:
        await run()

    uvloop.run(whole())
