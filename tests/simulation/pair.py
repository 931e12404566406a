"""A real server in process and its model, side by side: life, time, agents and rules, the same for both."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter, defaultdict
from collections.abc import Coroutine, Iterable
from pathlib import Path
from typing import Any, TypeVar

from tests.simulation.model_world import Kept, Space
from tests.simulation.wire import actor_of
from tests.support.engine import LocalServer
from tests.support.statuses import Refused, check_contract

from noosphere.consistency import Reason
from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1 import types_pb2 as types

T = TypeVar("T")


class Pair:
    """The server and the model.

    Args:
        names: the namespaces.

    Attributes:
        server: the real one.
        spaces: the model, by namespace.
        actors: every incarnation of each agent, oldest first.
        closed: incarnations that were closed.
        outcomes: how often each answer was seen.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._runner = asyncio.Runner()
        self._folder = tempfile.TemporaryDirectory()
        self.server = LocalServer(Path(self._folder.name))
        self.run(self.server.start())
        self.spaces: dict[str, Space] = {}
        self.spaces |= {name: Space(name, 1, self.spaces) for name in names}
        self._epoch = 1
        self.actors: dict[str, list[str]] = defaultdict(list)
        self.closed: set[str] = set()
        self._image: tuple[Path, dict[str, Kept]] | None = None
        self.outcomes: Counter[str] = Counter()

    def stop(self) -> None:
        """Ends the server."""
        self.run(self.server.stop())
        self._runner.close()
        self._folder.cleanup()

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        """Runs a call to its end."""
        return self._runner.run(call)

    def tick(self, later_ms: int = 0) -> None:
        """Tells the model what time it is, or will be."""
        now_ms = self.server.engine.store.now_ms() + later_ms
        for space in self.spaces.values():
            space.model.now_ms = now_ms

    def elapse(self, by_ms: int) -> None:
        """Lets time pass, and the store put its house in order, which it does at any time."""
        self.server.clock.advance(by_ms)
        self.run(self.server.fold())

    # -- life and loss -------------------------------------------------------------------------

    def keep_image(self) -> None:
        """Remembers everything, to fall back to."""
        self._image = self.server.image(), self._kept()

    def crash(self, *, lose_the_end: bool) -> None:
        """Kills the server; with ``lose_the_end`` what was written since the last image is lost."""
        image, kept = None, self._kept()
        if lose_the_end and self._image is not None:
            (image, kept), self._image = self._image, None
        self.run(self.server.crash(image))
        self._epoch += 1
        assert self.server.engine.store.epoch == self._epoch
        ended = [actor for actors in self.actors.values() for actor in actors if not self.is_current(actor)]
        for name, space in self.spaces.items():
            space.fall_back(kept[name], self._epoch)
            for actor in ended:
                # Which incarnations have ended is known to the coordinator, which lost nothing.
                space.model.forget_client(actor)

    def _kept(self) -> dict[str, Kept]:
        return {name: space.keep() for name, space in self.spaces.items()}

    # -- agents and rules ----------------------------------------------------------------------

    def open(self, agent: str) -> None:
        """Begins the agent's next incarnation."""
        actor = self.run(self.server.api.open_agent(agent, takeover=True))
        numbers = [int(name.partition("#")[2]) for names in self.actors.values() for name in names]
        assert actor.incarnation > max(numbers, default=0)
        for old in self.actors[agent]:
            for space in self.spaces.values():
                space.model.forget_client(old)
        self.actors[agent].append(f"{agent}#{actor.incarnation}")

    def end(self, agent: str) -> None:
        """Closes the agent's incarnation, if it is open."""
        actor = self.actors[agent][-1]
        if actor not in self.closed:
            self.run(self.server.api.close_agent(actor_of(actor)))
            self.closed.add(actor)
            for space in self.spaces.values():
                space.model.forget_client(actor)

    def is_current(self, actor: str) -> bool:
        """Tells whether this is the agent's living incarnation."""
        return self.actors[actor.partition("#")[0]][-1] == actor and actor not in self.closed

    def reader(self, agent: str) -> types.CallContext:
        """Returns who reads; an agent that was closed opens again for it."""
        if self.actors[agent][-1] in self.closed:
            self.open(agent)
        return types.CallContext(actor=actor_of(self.actors[agent][-1]))

    def configure(self, space: str, policies: dict[str, str], item_bytes_max: int) -> None:
        """Sets a namespace's rules."""
        number = {name: types.ConflictPolicy.Value(f"CONFLICT_POLICY_{policy}") for name, policy in policies.items()}
        rules = types.NamespacePolicy(
            conflict_policy=number[""],
            prefix_policies=[types.PrefixPolicy(prefix=p, conflict_policy=n) for p, n in number.items() if p],
            item_bytes_max=item_bytes_max,
        )
        self.run(self.server.api.set_policy(types.NamePattern(exact=space), rules))
        model = self.spaces[space].model
        model.policies, model.item_bytes_max = policies, item_bytes_max

    # -- namespaces ----------------------------------------------------------------------------

    def delete_namespace(self, space: str) -> None:
        """Deletes a namespace."""
        self.tick()
        model = self.spaces[space]
        try:
            response = self.run(self.server.api.delete_namespace(space))
        except Refused as refused:
            check_contract(refused)
            wanted = Reason.NAMESPACE_DELETED if model.deleted else Reason.NAMESPACE_NOT_FOUND
            if refused.reason != wanted or (model.exists and not model.deleted):
                raise
            return
        assert (model.exists, model.deleted) == (True, False)
        assert (response.head, response.record_count) == (model.head, len(model.model.state.entries))
        model.delete()

    def ensure(self, space: str) -> None:
        """Makes a namespace live."""
        self.tick()
        model = self.spaces[space]
        created = model.deleted or not model.exists
        request = pb.EnsureNamespaceRequest(namespace=space, call=self.reader("a"))
        response = self.run(self.server.api.ensure_namespace(request))
        model.ensure()
        assert (response.generation, response.head, response.created) == (model.generation, model.head, created)
