"""mem0 with its local vector store (Qdrant in a folder) and no model: memories are added and updated as they are.

A memory per key, whose text is the value. Without a model nothing is inferred, and nothing searches by meaning, so that
every text has the same vector. Default: get, think, update. Best: a note is a memory of its own.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

from mem0 import Memory
from mem0.embeddings.mock import MockEmbeddings

from ..adapter import Adapter

_LOCK = threading.Lock()
_SHARED: dict[str, Any] = {}
_NOT_ASKED = {"provider": "openai", "config": {"api_key": "none"}}


class Default(Adapter):
    # From several threads its store fails now and then; from one it does not.
    mode = "loop"

    def open(self) -> None:
        with _LOCK:
            # Its store belongs to one process, and its documentation shares one instance there.
            if "memory" not in _SHARED:
                folder = Path(self.place.folder)
                vectors = {"path": str(folder / "vectors"), "embedding_model_dims": 10, "on_disk": True}
                store = {"vector_store": {"provider": "qdrant", "config": vectors}, "llm": _NOT_ASKED}
                config = {**store, "embedder": _NOT_ASKED, "history_db_path": str(folder / "history.db")}
                _SHARED["memory"] = Memory.from_config(config)
                _SHARED["memory"].embedding_model = MockEmbeddings()
        self.memory = _SHARED["memory"]

    def _all(self, key: str) -> Any:
        return self.memory.get_all(filters={"user_id": self.space, "run_id": key}, top_k=100_000)["results"]

    def load(self, key: str) -> Any:
        found = self._all(key)
        return (json.loads(found[0]["memory"]), None) if found else (None, None)

    def save(self, key: str, value: Any, version: Any) -> bool:
        if found := self._all(key):
            self.memory.update(found[0]["id"], json.dumps(value))
        else:
            self.memory.add(json.dumps(value), user_id=self.space, run_id=key, infer=False)
        return True


class Best(Default):
    async def note(self, key: str, item: str) -> None:
        self.memory.add(json.dumps([item]), user_id=self.space, run_id=key, infer=False)

    async def items(self, key: str) -> list[str]:
        return [item for found in self._all(key) for item in json.loads(found["memory"])]
