"""What a refused transaction shows of its keys is how they were at one moment, on a store that takes its time too."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.api import put, put_op
from tests.support.engine import LocalServer

from noosphere.v1 import memory_service_pb2 as pb


async def test_what_others_have_written_together_is_shown_together(
    local: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, other, space = await local.api.agent("a"), await local.api.agent("b"), "shared/s"
    await other.transact(space, put("left", 0), put("right", 0))
    store = local.engine.store
    plain, written = store.read, 0

    async def read(*args: Any, **more: Any) -> Any:
        """Somebody writes both after each read, as happens while a read is on its way from another machine."""
        nonlocal written
        found = await plain(*args, **more)
        written += 1
        monkeypatch.setattr(store, "read", plain)
        await other.transact(space, put("left", written, blind=True), put("right", written, blind=True))
        monkeypatch.setattr(store, "read", read)
        return found

    monkeypatch.setattr(store, "read", read)
    refused = await local.api.transact(
        pb.TransactRequest(
            namespace=space,
            operations=[pb.Operation(put=put_op(key, 9, expected=0)) for key in ("left", "right")],
            return_current=True,
            call=agent.call(),
        )
    )
    monkeypatch.undo()
    assert written > 0
    left, right = (failure.detail for failure in refused.not_applied.failures)
    assert left.current.values[0].value.data == right.current.values[0].value.data
    assert left.as_of == right.as_of == left.current.version
