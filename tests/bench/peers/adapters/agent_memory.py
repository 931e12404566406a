"""redis/agent-memory-server through its own client: a session's working memory per key, whose ``data`` is the value.

Default: get, think, put. Best: updates that are merged, and notes as messages that are appended.
"""

from __future__ import annotations

from typing import Any

from agent_memory_client import MemoryAPIClient, MemoryClientConfig
from agent_memory_client.models import MemoryMessage

from ..adapter import Adapter


class Default(Adapter):
    mode = "loop"

    def open(self) -> None:
        self.client = MemoryAPIClient(MemoryClientConfig(base_url=f"http://{self.place.address}", timeout=30.0))

    async def close(self) -> None:
        await self.client.close()

    def session(self, key: str) -> str:
        return f"{self.space}-{key}".replace("/", "-")

    async def load(self, key: str) -> Any:
        _, memory = await self.client.get_or_create_working_memory(self.session(key))
        return (memory.data or {}).get("value"), None

    async def save(self, key: str, value: Any, version: Any) -> bool:
        await self.client.set_working_memory_data(self.session(key), {"value": value})
        return True


class Best(Default):
    async def save(self, key: str, value: Any, version: Any) -> bool:
        await self.client.update_working_memory_data(self.session(key), {"value": value}, merge_strategy="merge")
        return True

    async def note(self, key: str, item: str) -> None:
        await self.client.append_messages_to_working_memory(
            self.session(key), [MemoryMessage(role="user", content=item)]
        )

    async def items(self, key: str) -> list[str]:
        _, memory = await self.client.get_or_create_working_memory(self.session(key))
        return [message.content for message in memory.messages] or list(await self.get(key) or [])
