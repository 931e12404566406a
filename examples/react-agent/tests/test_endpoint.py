"""The whole program, as it is started from a shell, with an endpoint on this machine."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from noosphere.client import Client
from noosphere.testing import Server

pytest.importorskip("openai", reason="models behind an endpoint need the extra `openai`")
SOURCES = Path(__file__).resolve().parents[1] / "src"
SECONDS_MAX = 60
"""A bound against hanging."""


class Endpoint(ThreadingHTTPServer):
    """Answers with messages of a model, one after the other, and remembers what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Completions)
        self.replies: list[dict[str, Any]] = []
        self.asked: list[Any] = []
        self.url = f"http://127.0.0.1:{self.server_port}/v1"


class Completions(BaseHTTPRequestHandler):
    """One request for a completion."""

    server: Endpoint

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.asked.append((self.path, self.headers["authorization"], request))
        choice = {"index": 0, "finish_reason": "stop", "message": self.server.replies.pop(0)}
        answer = {"id": "1", "object": "chat.completion", "created": 1, "model": "tiny", "choices": [choice]}
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as opened:
        serving = threading.Thread(target=opened.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        yield opened
        opened.shutdown()
        serving.join()


def reads(path: str) -> dict[str, Any]:
    # As some endpoints have it: all calls of an answer have the same id.
    return {
        "id": "0",
        "type": "function",
        "function": {"name": "read_file", "arguments": json.dumps({"path": path})},
    }


async def test_it_answers_from_the_shell(
    endpoint: Endpoint, noosphere_server: Server, noosphere_client: Client, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("alpha")
    (tmp_path / "b.txt").write_text("beta")
    endpoint.replies += [
        {"role": "assistant", "content": None, "tool_calls": [reads("a.txt"), reads("b.txt")]},
        {"role": "assistant", "content": "Two letters."},
    ]
    environment = os.environ | {
        "PYTHONPATH": str(SOURCES),
        "NOOSPHERE_SERVER": noosphere_server.address,
        "OPENAI_BASE_URL": endpoint.url,
        "OPENAI_API_KEY": "key",
        "OPENAI_MODEL": "tiny",
    }
    command = ["-m", "react_agent", "What is in the files?", "--folder", str(tmp_path), "--session", "files"]
    running = await asyncio.create_subprocess_exec(
        sys.executable,
        *command,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(SECONDS_MAX):
        printed, errors = await running.communicate()
    assert running.returncode == 0, errors.decode()
    session, answer, used = printed.decode().splitlines()
    assert session == "session files", "said before anything can go wrong"
    assert answer == "Two letters."
    assert "read_file (done" in used

    (path, key, first), (_, _, second) = endpoint.asked
    assert (path, key, first["model"]) == ("/v1/chat/completions", "Bearer key", "tiny")
    assert [tool["function"]["name"] for tool in first["tools"]] == ["list_files", "read_file"]
    asking, *results = second["messages"][-3:]
    assert [word in result["content"] for word, result in zip(("alpha", "beta"), results, strict=True)] == [True, True]
    assert [result["tool_call_id"] for result in results] == [call["id"] for call in asking["tool_calls"]]
    async with noosphere_client.session("files", existing="required") as opened:
        roles = [message.role async for message in opened.messages()]
    assert roles == ["user", "assistant", "tool", "tool", "assistant"]
