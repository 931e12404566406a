"""Opens what a server would use, without one: to take a dump."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from noosphere.consistency import Refusal

from . import __version__
from .config import ConfigError, Settings
from .drivers import StartupError, open_drivers, open_lasting
from .dumping import Dumper
from .models import build
from .ports.runtime import Clock
from .storage.embedded import StoreFailed


@contextlib.asynccontextmanager
async def opened_dumper(settings: Settings, clock: Clock) -> AsyncIterator[Dumper]:
    """Opens the drivers.

    Raises:
        StartupError: the data folder, Redis, etcd or Weaviate cannot be used.
        StoreFailed: a disk has failed meanwhile.
    """
    failures: list[BaseException] = []
    try:
        # The embedder is not used; the store only has to know whose vectors it has.
        models = build(settings)
    except ConfigError as error:
        raise StartupError(str(error)) from error
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(models.aclose)
        lasting = await stack.enter_async_context(
            open_lasting(settings, clock=clock, models=models, on_fatal=failures.append)
        )
        if lasting.fact_probe is not None:
            try:
                await lasting.fact_probe()
            except Refusal as error:
                raise StartupError(f"the fact store cannot be used: {error}") from error
        drivers = await stack.enter_async_context(
            open_drivers(settings, lasting, clock=clock, on_fatal=failures.append, on_epoch=lambda epoch: None)
        )
        yield Dumper(drivers.store, drivers.coordinator, drivers.fact_store, drivers.fact_queue, clock, __version__)
    if failures:
        raise StoreFailed(str(failures[0]))
