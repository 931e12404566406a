"""Opening an embedded store: what was recovered, which epoch begins, and what the log says about it."""

from __future__ import annotations

import logging
from typing import NamedTuple

from noosphere.consistency import NEVER_MS

from ...ports.coordinator import Coordinator
from ...ports.store import NamespaceRef
from .codec import CommitItem, DropItem, EraseItem, Item, decode_batch
from .coordinator import FILE as COORDINATION
from .coordinator import unfit
from .journal import Recovered
from .namespace import Namespace
from .registry import Registry

log = logging.getLogger("noosphere.storage")


class Recovery(NamedTuple):
    """What a journal says.

    Attributes:
        registry: every namespace, none loaded, headers as of the last commit.
        behind: namespaces whose tables lack commits.
        superseded: generations that a newer one has replaced.
        commit_count: commits that were not folded yet.
        erasing: whether an erasure was cut off.
        newest: name and head of the namespace with the newest revision.
    """

    registry: Registry
    behind: tuple[Namespace, ...]
    superseded: tuple[bytes, ...]
    time_ms: int
    commit_count: int
    newest: tuple[str, int]
    erasing: bool

    def describe(self) -> str:
        """Returns what was recovered, in words."""
        text = f"{len(self.registry)} namespaces, {self.commit_count} commits from the journal"
        name, head = self.newest
        return f"{text}; newest revision {head} in {name!r}" if name else text


def replay(recovered: Recovered) -> Recovery:
    """Makes namespaces of rows and batches. Blocking, for a worker thread.

    Raises:
        DamagedBlob: a batch cannot be understood.
    """
    namespaces: dict[bytes, Namespace] = {}
    for row in recovered.namespaces:
        namespaces[row.storage_id] = Namespace.from_row(row)
    behind: dict[Namespace, None] = {}
    time_ms, commit_count, erasing = recovered.time_ms, 0, recovered.erasing
    for number, blob in recovered.batches:
        batch = decode_batch(blob)
        time_ms = max(time_ms, batch.time_ms)
        for item in batch.items:
            namespace = namespaces.get(item.storage_id)
            erasing = erasing or isinstance(item, EraseItem)
            if isinstance(item, CommitItem):
                commit_count += 1
                if namespace is None and item.birth is not None:
                    birth = item.birth
                    namespace = Namespace(NamespaceRef(birth.name, birth.generation, birth.origin))
                    namespaces[item.storage_id] = namespace
            if namespace is None:
                # Its generation was folded away, as superseded, before this batch was trimmed.
                continue
            if number > namespace.folded:
                _replay_item(namespace, number, item)
                behind[namespace] = None
    registry, superseded = Registry(), []
    for namespace in sorted(namespaces.values(), key=lambda n: n.ref.generation):
        registry.add(namespace)
        if (older := registry.publish(namespace)) is not None:
            superseded.append(older)
    gone = set(superseded)
    newest = max(registry, key=lambda n: n.head, default=None)
    return Recovery(
        registry,
        tuple(n for n in behind if n not in gone),
        tuple(n.ref.storage_id for n in superseded),
        time_ms,
        commit_count,
        (newest.ref.name, newest.head) if newest is not None else ("", 0),
        erasing,
    )


def _replay_item(namespace: Namespace, number: int, item: Item) -> None:
    if isinstance(item, CommitItem):
        namespace.absorb(item)
        namespace.replay.append((number, item))
        for cell in item.cells:
            if cell.due_ms < namespace.next_due_ms and cell.due_ms != NEVER_MS:
                namespace.next_due_ms = cell.due_ms
    elif isinstance(item, DropItem):
        namespace.drop()
    else:
        namespace.floor = max(namespace.floor, item.floor)
        if isinstance(item, EraseItem):
            namespace.replay.append((number, item))


async def settle_epoch(coordinator: Coordinator, recovered: Recovered, recovery: Recovery) -> int:
    """Returns the epoch of this opening; begins a new one if acknowledged commits may be missing.

    Raises:
        DataFolderError: the coordinator does not belong to this working store.
    """
    known = max((record.epoch for record in await coordinator.epochs()), default=0)
    if recovered.fresh:
        if known:
            log.warning("the working store is new, though epochs up to %d are known: what it held is gone", known)
        return await coordinator.begin_epoch("created", "nothing: the working store is new", known + 1)
    if known < recovered.epoch:
        raise unfit(f"{COORDINATION} knows epochs up to {known}, the working store has reached {recovered.epoch}")
    if not recovered.clean:
        words = recovery.describe()
        log.warning("the working store was not closed in order; recovered %s", words)
        return await coordinator.begin_epoch("unclean restart", words, recovered.epoch + 1)
    log.info("the working store was opened with %s", recovery.describe())
    return known
