"""Whether the threads of the embedded drivers have something to do for an event loop."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from noosphere.server.storage.embedded.worker import Done, ThreadWorker

_under_way: WeakKeyDictionary[asyncio.AbstractEventLoop, Counter[str]] = WeakKeyDictionary()
_submit = ThreadWorker.submit


def is_idle() -> bool:
    """Returns whether nothing that this loop has submitted waits for its answer."""
    return not _count()["calls"]


def _count() -> Counter[str]:
    return _under_way.setdefault(asyncio.get_running_loop(), Counter())


def _counted(worker: ThreadWorker, call: Callable[[], Any], done: Done) -> None:
    count = _count()
    count["calls"] += 1

    def answered(result: Any, error: BaseException | None) -> None:
        count["calls"] -= 1
        done(result, error)

    _submit(worker, call, answered)


ThreadWorker.submit = _counted  # type: ignore[assignment, method-assign] # nothing else sees all calls
