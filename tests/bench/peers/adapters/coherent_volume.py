"""agent-coherence's ``CoherentVolume``: files that a coordinator on this machine watches over, a volume per agent.

``reacquire`` and ``write``, and again after a refusal.

The coordinator serves eight requests at a time and turns others away (HTTP 503), without a wait: agents of one process
take turns, so that four processes never ask for more.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

from ccs.adapters.coherent_volume import CoherentVolume
from ccs.core.exceptions import CommitPreempted, StaleView

from ..adapter import Adapter

TURN = threading.RLock()


class Volume(Adapter):
    def open(self) -> None:
        with TURN:
            self.volume = CoherentVolume(Path(self.place.folder), managed=("shared/**",))

    def path(self, key: str) -> str:
        return f"shared/{self.space}/{key}.json"

    def load(self, key: str) -> Any:
        try:
            with TURN:
                return json.loads(self.volume.reacquire(self.path(key))), None
        except FileNotFoundError:
            return None, None

    def save(self, key: str, value: Any, version: Any) -> bool:
        Path(self.place.folder, self.path(key)).parent.mkdir(parents=True, exist_ok=True)
        try:
            with TURN:
                self.volume.write(self.path(key), json.dumps(value).encode())
        except (StaleView, CommitPreempted):
            return False
        return True
