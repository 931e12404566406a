"""Watches of a server whose clock stands still unless somebody moves it."""

from __future__ import annotations

import asyncio

from tests.support.api import Agent
from tests.support.engine import LocalServer
from tests.support.statuses import Refused, check_contract
from tests.support.watching import watching

from noosphere.server.memory.watches import BOOKMARK_MS


async def begin_watch(who: Agent, space: str) -> bytes:
    """Returns the token with which to resume a watch that begins now."""
    async with watching(who, space) as watch:
        await watch.bookmark()
        return watch.resume


async def resume_watch(server: LocalServer, who: Agent, space: str, token: bytes) -> str | list[int]:
    """Returns the revisions that are told up to the first bookmark, or why none are."""
    seen: list[int] = []
    async with watching(who, space, resume=token) as watch:
        while True:
            reading = asyncio.create_task(watch.message())
            while not reading.done():
                # Loading takes real time; once everything is told, the bookmark takes the server's.
                await asyncio.wait([reading], timeout=0.01)
                server.clock.advance(BOOKMARK_MS)
            try:
                message = reading.result()
            except Refused as refused:
                check_contract(refused)
                return refused.reason
            match message.WhichOneof("event"):
                case "epoch":
                    return "EPOCH"
                case "bookmark":
                    return seen
                case _:
                    seen.append(message.changes.revision)
