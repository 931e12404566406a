"""agenthold's ``StateStore``: versioned records in SQLite, one for all agents of a process, as it locks itself.

Default: set; best: set with the version that was read.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from agenthold.exceptions import ConflictError, NotFoundError
from agenthold.store import StateStore

from ..adapter import Adapter

_LOCK = threading.Lock()
_SHARED: dict[Path, StateStore] = {}


class Versioned(Adapter):
    def open(self) -> None:
        file = Path(self.place.folder) / "state.db"
        with _LOCK:
            if file not in _SHARED:
                _SHARED[file] = StateStore(file)
        self.store = _SHARED[file]

    def load(self, key: str) -> Any:
        try:
            record = self.store.get(self.space, key)
        except NotFoundError:
            return None, 0
        return record.value, record.version

    def save(self, key: str, value: Any, version: Any) -> bool:
        try:
            self.store.set(self.space, key, value, updated_by=self.agent, expected_version=version)
        except ConflictError:
            return False
        return True


class Overwriting(Versioned):
    def load(self, key: str) -> Any:
        return super().load(key)[0], None
