"""What this process has last written, by which the next write of the same keys can be decided without reading.

Where a read costs a round trip, a write that replaces what this process wrote last is decided on that, and its commit
checks, as ever, that it is still there: revision and life of the record, epoch, configuration, fences, the request.
Whoever guesses wrongly reads, and begins anew.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from ..ports.store import Mutation, NamespaceRef, NamespaceView, ReadResult, StoredEntry, WorkingStore

ENTRIES_MAX = 4_096
ENTRY_BYTES_MAX = 2_048
"""Of a record; larger ones are rarer, and a round trip is less beside what they cost."""

SPACES_MAX = 1_024


class Guesses:
    """See the module. Keeps nothing where a read costs little.

    Args:
        store: whose records they are.
    """

    def __init__(self, store: WorkingStore) -> None:
        self._store = store
        self._entries: OrderedDict[tuple[bytes, str], StoredEntry] = OrderedDict()
        self._views: OrderedDict[bytes, NamespaceView] = OrderedDict()

    def of(self, ref: NamespaceRef, replaced: tuple[str, int] | None) -> ReadResult | None:
        """Returns what a read of one key would have told when this process wrote it.

        Args:
            ref: the namespace.
            replaced: the key, and the version that its writer has seen; None for a write that needs to read.

        Returns:
            None if that version is not the one that this process wrote last, or cannot be the newest any more.
        """
        if replaced is None or not self._entries:
            return None
        key, version = replaced
        entry, view = self._entries.get((ref.storage_id, key)), self._views.get(ref.storage_id)
        if entry is None or view is None or entry.revision != version or view.epoch != self._store.epoch:
            return None
        now_ms = self._store.now_ms()
        if entry.live_until_ms <= now_ms:
            return None
        return ReadResult(view._replace(now_ms=now_ms), (entry,), None)

    def keep(self, ref: NamespaceRef, view: NamespaceView, mutations: Iterable[Mutation], revision: int) -> None:
        """Keeps what a commit has written.

        Args:
            ref: the namespace.
            view: as it was read for the commit.
            mutations: what was written.
            revision: of the commit.
        """
        if not self._store.remote:
            return
        space = ref.storage_id
        for key, data, live_until_ms, *_, rev_slot in mutations:
            if data is None or rev_slot or live_until_ms == 0 or len(data) > ENTRY_BYTES_MAX:
                self._entries.pop((space, key), None)
                continue
            self._entries[space, key] = StoredEntry(key, revision, data, live_until_ms)
            self._entries.move_to_end((space, key))
            if len(self._entries) > ENTRIES_MAX:
                self._entries.popitem(last=False)
        # Commits of one process may be answered in another order than they were made.
        known = self._views.get(space)
        if known is None or known.head < revision:
            self._views[space] = view._replace(exists=True, head=revision)
        self._views.move_to_end(space)
        if len(self._views) > SPACES_MAX:
            self._views.popitem(last=False)
