"""Until when servers went on in an epoch after a later one had begun: not for longer than the epoch lease lets them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from tests.simulation.world.engines.etcd_state import EtcdState

from noosphere.server.checking import Op
from noosphere.server.storage.etcd.coordinator import ROOT
from noosphere.server.storage.redis.lease import TTL_SECONDS

_EPOCHS = f"{ROOT}epoch/".encode()
_ALWAYS_NEW = (Op.PUT, Op.MERGE)
"""Calls that take a revision whenever they succeed."""


class Tenures:
    """See the module.

    Args:
        state: of etcd, which knows when each epoch began.
    """

    def __init__(self, state: EtcdState) -> None:
        self._state = state
        self._journal: Any = None

    def hears(self, recorder: Any) -> None:
        """Learns where recorded clients write their calls down."""
        if recorder is not None:
            self._journal = recorder._writer

    def epochs(self) -> dict[int, float]:
        """Returns when each epoch began, in the event loop's time."""
        found = self._state.events(_EPOCHS, _EPOCHS[:-1] + b"0", 0)
        return {int(event.kv.key[len(_EPOCHS) :], 16): self._state.at(event.kv.mod_revision) for event in found}

    def problems(self) -> Sequence[str]:
        """Returns what was acknowledged in an epoch although its call began when nobody held that any more.

        A call that began earlier may have been executed earlier, however late its answer was.
        """
        if self._journal is None:
            return ()
        began = sorted(self.epochs().items())
        following = {epoch: seconds for (epoch, _), (_, seconds) in pairwise(began)}
        wrong = []
        for call in self._journal.calls():
            if call.applied is None or call.op not in _ALWAYS_NEW:
                continue
            epoch = call.applied.revision >> 40
            late = call.start_ns / 1e9 - following.get(epoch, call.start_ns / 1e9)
            if late > 2 * TTL_SECONDS:
                wrong.append(f"executed in epoch {epoch} {late:.1f} s after the next one had begun: {call.describe()}")
        return wrong[:5]
