"""A scripted stand-in for a third party's model: an HTTP endpoint on loopback with OpenAI's interface."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Asked:
    """A request as it arrived."""

    line: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def data(self) -> Any:
        """What the user message holds."""
        return json.loads(self.body["messages"][1]["content"])


Script = Callable[[asyncio.StreamWriter, Asked], Awaitable[None]]


@dataclass
class Endpoint:
    """The endpoint: what it was asked, and how it answers next."""

    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    script: Script | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers one connection's requests until either side closes it."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                first, *lines = head.decode().strip().split("\r\n")
                headers = {name.lower(): value.strip() for name, value in (line.split(":", 1) for line in lines)}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                self.asked.append(Asked(first, headers, json.loads(body)))
                assert self.script is not None
                await self.script(writer, self.asked[-1])
                await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def open_endpoint(script: Script | None = None) -> AsyncIterator[Endpoint]:
    """Serves on a free port of loopback; connections still open at the end are cut."""
    endpoint = Endpoint(script=script)
    connections: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        try:
            await endpoint.serve(reader, writer)
        except asyncio.CancelledError:
            writer.transport.abort()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    endpoint.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield endpoint
    finally:
        server.close()
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)


def send(writer: asyncio.StreamWriter, body: bytes, *, status: str = "200 OK", headers: str = "") -> None:
    """Writes one HTTP response."""
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n{headers}\r\n"
    writer.write(head.encode() + body)


def completion(content: str | None, *, finish_reason: str = "stop", tokens: int = 100, **message: Any) -> bytes:
    """Returns the body of a chat completion."""
    return json.dumps(
        {
            "id": "c1",
            "object": "chat.completion",
            "created": 1,
            "model": "tiny",
            "choices": [
                {
                    "index": 0,
                    "finish_reason": finish_reason,
                    "message": {"role": "assistant", "content": content, **message},
                }
            ],
            "usage": {"prompt_tokens": tokens - 1, "completion_tokens": 1, "total_tokens": tokens},
        }
    ).encode()


def answering(*bodies: bytes, status: str = "200 OK", headers: str = "") -> Script:
    """Returns a script that sends bodies in turn, the last one again and again."""
    left = list(bodies)

    async def script(writer: asyncio.StreamWriter, asked: Asked) -> None:
        body = left.pop(0) if len(left) > 1 else left[0]
        send(writer, body, status=status, headers=headers)

    return script
