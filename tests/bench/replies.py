"""Replies of the real server, as the floor sends them: recorded once, so that their sizes are equal."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any, NamedTuple

from google.protobuf.message import Message

from noosphere.v1 import memory_service_pb2 as pb


class Replies(NamedTuple):
    """One reply of each method that the load calls."""

    get: pb.GetResponse
    put: pb.PutResponse
    open_agent: pb.OpenAgentResponse

    def as_json(self) -> dict[str, str]:
        """Returns them as text."""
        return {name: base64.b64encode(_bytes(reply)).decode() for name, reply in self._asdict().items()}

    @classmethod
    def of_json(cls, texts: dict[str, str]) -> Replies:
        """Returns what :meth:`as_json` described."""
        raw = {name: base64.b64decode(text) for name, text in texts.items()}
        return cls(
            pb.GetResponse.FromString(raw["get"]),
            pb.PutResponse.FromString(raw["put"]),
            pb.OpenAgentResponse.FromString(raw["open_agent"]),
        )

    @classmethod
    def load(cls, file: Path) -> Replies:
        """Reads a file of them."""
        texts: dict[str, Any] = json.loads(file.read_text())
        return cls.of_json(texts)


def _bytes(message: Message) -> bytes:
    return message.SerializeToString()
