"""agent-coherence's ``CoherentVolume`` at its best: ``write_cas_at`` what was read; again if refused."""

from __future__ import annotations

import json
import time
from typing import Any

from ccs.core.exceptions import CasVersionConflict, StaleView, ViewWedged

from ..adapter import ATTEMPTS_MAX, Refused
from .coherent_volume import TURN, Volume


class VolumeCas(Volume):
    def prepare(self) -> None:
        # There is no version to compare with before a file is there.
        for key in ("plan", "pad", "timed/shared"):
            super().save(key, [], None)

    def load(self, key: str) -> Any:
        for attempt in range(ATTEMPTS_MAX):
            try:
                with TURN:
                    data, version = self.volume.read_with_version(self.path(key))
                return json.loads(data), version
            except FileNotFoundError:
                return None, None
            except StaleView:
                time.sleep(min(0.001 * 2**attempt, 0.05))
                with TURN:
                    self.volume.reacquire(self.path(key))
        raise Refused(key)

    def save(self, key: str, value: Any, version: Any) -> bool:
        if version is None:
            return super().save(key, value, version)
        try:
            with TURN:
                self.volume.write_cas_at(self.path(key), version, json.dumps(value).encode())
        except (CasVersionConflict, StaleView, ViewWedged):
            return False
        return True
