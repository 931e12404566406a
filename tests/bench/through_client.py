"""The same load through ``noosphere.client``: many tasks that share one client, each with keys of its own."""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import dataclass, field
from typing import Any

from noosphere.client import Client, Key, Record, connect

from .commands import WrongAnswer
from .replies import Replies
from .workloads import CALL_TIMEOUT, KEYS_PER_CALLER, NAMESPACE, key_of, value_of

Value = dict[str, str]


@dataclass
class ClientCaller:
    """One task.

    Attributes:
        keys: its own keys.
        number: which of the tasks it is.
        canned: the value that the floor repeats; None against our server.
    """

    keys: list[Key[Any]]
    number: int
    canned: Value | None
    records: list[Record[Any]] = field(default_factory=list)
    sent: list[Value] = field(default_factory=list)
    written: int = 0
    head: int = 0

    async def create(self) -> None:
        """Writes every key once; none of them exists."""
        for key in self.keys:
            value = self._next()
            self.records.append(await key.put(value, expected_version=0))
            self.sent.append(value)

    async def get(self, calls: int, latencies_ns: list[int]) -> None:
        """Reads its keys in turn."""
        for call in range(calls):
            slot = call % KEYS_PER_CALLER
            start = time.perf_counter_ns()
            record = await self.keys[slot].get()
            latencies_ns.append(time.perf_counter_ns() - start)
            want = self.canned if self.canned is not None else self.sent[slot]
            if record is None or record.value != want:
                raise WrongAnswer(f"{self.keys[slot].name!r} was read with another value than was written")
            if record.head < self.head:
                raise WrongAnswer(f"the head went back from {self.head} to {record.head}")
            self.head = record.head

    async def put(self, calls: int, latencies_ns: list[int]) -> None:
        """Replaces its keys in turn, each in place of what the last write there returned."""
        for call in range(calls):
            slot = call % KEYS_PER_CALLER
            value = self._next()
            before = self.records[slot]
            start = time.perf_counter_ns()
            record = await before.replace(value)
            latencies_ns.append(time.perf_counter_ns() - start)
            version = record.version or 0
            if version < (before.version or 0) or (self.canned is None and version <= self.head):
                raise WrongAnswer(f"version {version} does not follow {before.version} and head {self.head}")
            self.head = record.head
            self.records[slot] = record
            self.sent[slot] = value

    async def verify(self) -> None:
        """Reads back what was written last."""
        for key, sent in zip(self.keys, self.sent, strict=True):
            record = await key.get()
            if record is None or record.value != sent:
                raise WrongAnswer(f"{key.name!r} holds another value than was acknowledged last")

    def _next(self) -> Value:
        self.written += 1
        found: Value = json.loads(value_of(500_000_000_000 + self.number * 10_000_000 + self.written))
        return found


class ClientTarget:
    """A client that is open until :meth:`close`."""

    def __init__(self, stack: contextlib.AsyncExitStack, callers: list[ClientCaller]) -> None:
        self._stack = stack
        self.callers = callers

    @classmethod
    async def open(
        cls, address: str, callers: int, canned: Replies | None, *, name: str = "client", coalesce: bool = False
    ) -> ClientTarget:
        """Connects and writes every caller's keys once, below ``name``.

        The floor knows no stream of batches, so calls that are compared with it are not coalesced.
        """
        stack = contextlib.AsyncExitStack()
        client: Client = await stack.enter_async_context(
            connect(address, agent=f"bench/{name}", takeover=True, timeout=CALL_TIMEOUT, coalesce=coalesce)
        )
        space = client.namespace(NAMESPACE)
        value = None if canned is None else json.loads(canned.get.record.values[0].value.data)
        made = [
            ClientCaller([space.key(f"{name}/{key_of(n, slot)}") for slot in range(KEYS_PER_CALLER)], n, value)
            for n in range(callers)
        ]
        for caller in made:
            await caller.create()
        return cls(stack, made)

    async def verify(self) -> None:
        """Reads back what every caller wrote last."""
        for caller in self.callers:
            await caller.verify()

    async def close(self) -> None:
        """Closes the client."""
        await self._stack.aclose()
