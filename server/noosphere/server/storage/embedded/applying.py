"""Applying: what is synced becomes visible, entry by entry, in the order in which it was accepted."""

from __future__ import annotations

from ..heads import HeadFeeds
from .codec import CommitItem, DropItem, EraseItem, FloorItem
from .keeper import Keeper
from .namespace import Namespace, Pending
from .registry import Registry


class Applier:
    """Applies the entries of one store.

    Attributes:
        commit_count: commits applied so far.
    """

    def __init__(self, registry: Registry, keeper: Keeper, feeds: HeadFeeds) -> None:
        self._registry = registry
        self._keeper = keeper
        self._feeds = feeds
        self.commit_count = 0

    def apply(self, pending: Pending, batch: int) -> None:
        """Makes a synced entry visible and tells who waits for it."""
        namespace = pending.namespace
        if namespace is not None:
            self._apply(namespace, pending, batch)
            namespace.uncover(pending)
            self._keeper.changed(namespace)
            if not isinstance(pending.item, (FloorItem, EraseItem)):
                self._feeds.publish(namespace.ref.storage_id, namespace.head)
        pending.settle()

    def _apply(self, namespace: Namespace, pending: Pending, batch: int) -> None:
        item = pending.item
        if isinstance(item, CommitItem):
            self._apply_commit(namespace, item, batch)
        elif isinstance(item, DropItem):
            pending.result = namespace.measure()[:1]
            self._keeper.bury_later(namespace.drop())
            if namespace.ref.volatile:
                self._registry.end(namespace)
        elif isinstance(item, FloorItem):
            self._keeper.bury_later(namespace.cut_log(item.floor))
        elif isinstance(item, EraseItem):
            gone = namespace.cut_log(item.floor)
            pending.result = (namespace.floor, len(gone), namespace.erase_requests(item))
            self._keeper.bury_later(gone)
            if pending.durable:
                self._keeper.owe_erasure()

    def _apply_commit(self, namespace: Namespace, item: CommitItem, batch: int) -> None:
        self.commit_count += 1
        if item.birth is not None:
            older = self._registry.publish(namespace)
            if older is not None:
                self._keeper.supersede(older)
        namespace.absorb(item)
        if namespace.body is not None:
            namespace.body.apply(item, batch)
