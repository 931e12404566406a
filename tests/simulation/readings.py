"""What is read of the server, held against the model; whatever differs is an AssertionError."""

from __future__ import annotations

from collections.abc import Iterable

from tests.simulation.calls import View
from tests.simulation.comparing import in_order, same
from tests.simulation.following import begin_watch, resume_watch
from tests.simulation.model_world import may_use
from tests.simulation.pair import Pair
from tests.simulation.wire import of_ms, of_record
from tests.support.api import Agent
from tests.support.statuses import Refused, check_contract

from noosphere.consistency import Reason
from noosphere.v1 import memory_service_pb2 as pb


class Readings(Pair):
    """A server and a model that are read."""

    def __init__(self, names: Iterable[str]) -> None:
        super().__init__(names)
        self._watches: dict[str, tuple[bytes, int, int]] = {}

    def look(self, space: str, key: str, agent: str) -> View | None:
        """Reads a key; None if that is refused."""
        self.tick()
        model = self.spaces[space]
        permitted = may_use(agent, space)
        try:
            response = self.run(self.server.api.get(pb.GetRequest(namespace=space, key=key, call=self.reader(agent))))
        except Refused as refused:
            if permitted:
                self._check_deleted(space, refused)
            elif refused.reason != Reason.PERMISSION_DENIED:
                raise
            return None
        assert permitted
        assert not model.deleted
        view = of_record(response.record)
        same("record", view, model.model.read(key))
        assert response.head == model.head
        return view

    def listing(self, space: str, collection: str, *, reverse: bool) -> None:
        """Lists a collection."""
        self.tick()
        model = self.spaces[space]
        request = pb.ListRequest(namespace=space, collection=collection, reverse=reverse, call=self.reader("a"))
        try:
            response = self.run(self.server.api.list_records(request))
        except Refused as refused:
            self._check_deleted(space, refused)
            return
        assert not model.deleted
        model.expire(collection)
        self.same_stamps(space, collection, response.stamp)
        found = {key: model.model.read(key) for key in model.model.state.entries if key.startswith(collection)}
        living = sorted((key for key, view in found.items() if view.version), reverse=reverse)
        same("keys", [record.key for record in response.records], living)
        assert all(of_record(record) == found[record.key] for record in response.records)
        assert response.head == model.head

    def same_stamps(self, space: str, collection: str, stamp: pb.CollectionStamp) -> None:
        """Compares when a collection last changed."""
        model, got = self.spaces[space], (stamp.changed, stamp.members)
        if model.is_empty(collection):
            model.fade(collection, got)
        else:
            same("stamps", got, model.stamps.get(collection, (0, 0)))

    def conflicts(self, space: str, collection: str, page_size: int) -> None:
        """Reads the conflict queue."""
        self.tick()
        model = self.spaces[space]
        got: list[tuple[str, int, int]] = []
        page_token = ""
        while True:
            request = pb.ListConflictsRequest(
                namespace=space,
                collection=collection,
                page_size=page_size,
                page_token=page_token,
                call=self.reader("a"),
            )
            try:
                response = self.run(self.server.api.list_conflicts(request))
            except Refused as refused:
                self._check_deleted(space, refused)
                return
            assert response.head == model.head
            got += [(c.record.key, c.since, of_ms(c.since_time)) for c in response.conflicts]
            for conflict in response.conflicts:
                same("record", of_record(conflict.record), model.model.read(conflict.record.key))
            page_token = response.next_page_token
            if not page_token:
                break
        wanted = [(key, wait.since, wait.since_ms) for key, wait in model.model.conflicts(collection)]
        self._compare_queue(space)
        self.outcomes[f"{min(len(wanted), 3)} conflicts"] += 1
        same("conflicts", got, wanted)

    def _compare_queue(self, space: str) -> None:
        """What the queue holds is never shown, but what is left behind in it is there for ever."""

        async def count() -> int:
            core = self.server.engine.memory.core
            return (await core.store.stats(await core.locate(space))).own_count

        waiting = sum(entry.waits is not None for entry in self.spaces[space].model.state.entries.values())
        same("entries of the queue", self.run(count()), waiting)

    def _check_deleted(self, space: str, refused: Refused) -> None:
        check_contract(refused)
        same("deleted", (refused.reason, refused.head), (Reason.NAMESPACE_DELETED, self.spaces[space].head))
        assert self.spaces[space].deleted

    def compare_history(self, space: str) -> None:
        """Reads the whole log."""
        self.tick()
        model = self.spaces[space]
        request = pb.ListHistoryRequest(namespace=space, page_size=1000, call=self.reader("a"))
        try:
            response = self.run(self.server.api.list_history(request))
        except Refused as refused:
            self._check_deleted(space, refused)
            return
        assert not model.deleted
        got = [
            (
                batch.revision,
                batch.commit_time.ToMilliseconds(),
                [(c.key, pb.ChangeKind.Name(c.kind).removeprefix("CHANGE_KIND_"), c.actor) for c in batch.changes],
            )
            for batch in response.batches
        ]
        # A sweep takes what is due in the order of time; which expiry of one commit comes first says nothing.
        wanted = [(batch.revision, batch.time_ms, in_order(list(batch.events))) for batch in model.log]
        same("history", [(r, t, in_order(events)) for r, t, events in got], wanted)
        same("head and floor", (response.head, response.floor), (model.head, model.floor))

    def follow(self, space: str) -> None:
        """Begins a watch, or resumes it from where it was left, or is told why that cannot be."""
        self.tick()
        model, who = self.spaces[space], Agent(self.server.api, self.reader("a").actor)
        if space not in self._watches:
            if not model.deleted:
                self._watches[space] = self.run(begin_watch(who, space)), model.generation, model.head
            return
        token, generation, position = self._watches.pop(space)
        outcome = self.run(resume_watch(self.server, who, space, token))
        self.outcomes[f"watch {outcome if isinstance(outcome, str) else 'resumed'}"] += 1
        wanted: str | list[int] = [batch.revision for batch in model.log if batch.revision > position]
        if model.deleted:
            wanted = Reason.NAMESPACE_DELETED
        elif generation != model.generation:
            wanted = Reason.COMPACTED
        elif any(cut < position <= end for cut, end in model.model.lost):
            wanted = "EPOCH"
        elif position < model.floor:
            wanted = Reason.COMPACTED
        same("watch", outcome, wanted)
