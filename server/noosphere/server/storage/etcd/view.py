"""What one process knows of the agents, rules and tables of the fleet, as the watch has told it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from types import MappingProxyType

import msgspec

from noosphere.consistency import NamePattern, NamespacePolicy

from ...ports.coordinator import PolicyTable
from ...ports.grants import GrantKey, Verb, read_verbs
from ...ports.tables import Table, check_table_name
from . import wire_pb2 as wire
from .keys import Layout

log = logging.getLogger("noosphere.storage.etcd")


class Agent:
    """The present incarnation of an agent that was not closed.

    Attributes:
        number: of the incarnation.
        ends_ms: until when its lease lives by what this process has seen of its calls, on the monotonic clock.
    """

    __slots__ = ("ends_ms", "number")

    def __init__(self, number: int, ends_ms: int = 0) -> None:
        self.number = number
        self.ends_ms = ends_ms


class View:
    """The keys that are watched, decoded. Changed by the watch alone, so it never goes back."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self.agents: dict[str, Agent] = {}
        # etcd removes an entry when the lease lapses. A lease is always that of the present incarnation.
        self.leases: dict[str, int] = {}
        self._rules: dict[NamePattern, NamespacePolicy] = {}
        self._grants: dict[GrantKey, frozenset[Verb]] = {}
        self._tables: dict[str, Table] = {}
        self._config_version = 0
        self._rules_moved = False
        self._left: dict[bytes, set[asyncio.Future[None]]] = {}
        self.table = PolicyTable(0, MappingProxyType({}), MappingProxyType({}))

    def table_of(self, name: str) -> Table:
        """Returns a table.

        Raises:
            ValueError: not a table's name.
        """
        table = self._tables.get(name)
        if table is None:
            check_table_name(name)
            table = self._tables[name] = Table()
        return table

    def left(self, key: bytes, future: asyncio.Future[None]) -> None:
        """Asks that ``future`` be done when a key has gone, or may have. Whoever gives up cancels it."""
        waiting = self._left.setdefault(key, set())
        waiting.add(future)
        future.add_done_callback(lambda done: self._forget(key, done))

    def _forget(self, key: bytes, future: asyncio.Future[None]) -> None:
        waiting = self._left.get(key, set())
        waiting.discard(future)
        if not waiting:
            self._left.pop(key, None)

    def reset(self, kvs: Iterable[wire.KeyValue]) -> None:
        """Takes a whole reading in place of everything that was known.

        Raises:
            ValueError: something in it is not readable.
        """
        earlier = self.agents
        self.agents, self.leases, self._rules, self._grants, self._config_version = {}, {}, {}, {}, 0
        entries: dict[str, dict[str, bytes]] = {}
        for kv in kvs:
            if kv.key.startswith(self._layout.tables):
                name, entry = self._layout.entry_of(kv.key)
                entries.setdefault(name, {})[entry] = kv.value
            else:
                self._put(kv)
        # Tables were handed out, and what shows is whole revisions only.
        for name in entries.keys() | self._tables.keys():
            self.table_of(name).replace(entries.get(name, {}))
        for agent_id, agent in self.agents.items():
            known = earlier.get(agent_id)
            if known is not None and known.number == agent.number:
                agent.ends_ms = known.ends_ms
        self._rules_moved = True
        self._show_rules()
        for key in list(self._left):
            self._tell(key)

    def apply(self, events: Iterable[wire.Event]) -> None:
        """Takes what has changed, whole revisions at a time.

        Raises:
            ValueError: something in it is not readable.
        """
        for event in events:
            if event.type == wire.Event.PUT:
                self._put(event.kv)
            else:
                self._delete(event.kv.key)
        self._show_rules()

    def _put(self, kv: wire.KeyValue) -> None:
        layout, key = self._layout, kv.key
        if key.startswith(layout.opens):
            self.agents[key.removeprefix(layout.opens).decode()] = Agent(kv.mod_revision)
        elif key.startswith(layout.leases):
            self.leases[key.removeprefix(layout.leases).decode()] = kv.lease
        elif key.startswith(layout.rules):
            self._rules[layout.pattern_of(key)] = msgspec.json.decode(kv.value, type=NamespacePolicy)
            self._rules_moved = True
        elif key.startswith(layout.grants):
            self._put_grant(layout.grant_of(key), read_verbs(kv.value))
        elif key.startswith(layout.tables):
            table, entry = layout.entry_of(key)
            self.table_of(table).show(entry, kv.value)
        elif key == layout.config:
            self._config_version = int(kv.value)
            self._rules_moved = True

    def _put_grant(self, key: GrantKey, verbs: frozenset[Verb] | None) -> None:
        if verbs is None:
            # To grant nothing is safe, so nobody else has to wait; with a rule that cannot be read it would not be.
            log.error("a grant that this version cannot read grants nothing")
            self._grants.pop(key, None)
        else:
            self._grants[key] = verbs
        self._rules_moved = True

    def _delete(self, key: bytes) -> None:
        layout = self._layout
        if key.startswith(layout.opens):
            self.agents.pop(key.removeprefix(layout.opens).decode(), None)
        elif key.startswith(layout.leases):
            self.leases.pop(key.removeprefix(layout.leases).decode(), None)
        elif key.startswith(layout.rules):
            self._rules.pop(layout.pattern_of(key), None)
            self._rules_moved = True
        elif key.startswith(layout.grants):
            self._grants.pop(layout.grant_of(key), None)
            self._rules_moved = True
        elif key.startswith(layout.tables):
            table, entry = layout.entry_of(key)
            self.table_of(table).show(entry, None)
        else:
            self._tell(key)

    def _tell(self, key: bytes) -> None:
        for future in self._left.pop(key, ()):
            if not future.done():
                future.set_result(None)

    def _show_rules(self) -> None:
        # A table that was handed out never changes, and shows whole revisions only.
        if self._rules_moved:
            self._rules_moved = False
            self.table = PolicyTable(
                self._config_version, MappingProxyType(dict(self._rules)), MappingProxyType(dict(self._grants))
            )
