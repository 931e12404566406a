"""agenthold's ``StateStore``: versioned records in SQLite. Default: set; best: set with the version that was read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agenthold.exceptions import ConflictError, NotFoundError
from agenthold.store import StateStore

from ..adapter import Adapter


class Versioned(Adapter):
    def open(self) -> None:
        self.store = StateStore(Path(self.place.folder) / "state.db")

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
