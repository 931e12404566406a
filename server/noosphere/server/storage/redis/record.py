"""What the coordinator's record of an epoch says of Redis: which processes held the data when the epoch began."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ...ports.coordinator import EpochRecord, fleet_of

FORMAT = 1
"""Of the records. Whoever takes other things for a process's identity, or writes them otherwise, raises it: a version
that cannot read what another one has written would take every process for a strange one, and each would begin epochs
against the other without end."""

_FORMAT = re.compile(r"\bredis/(\d+)\b")
_TOLD = re.compile(r"\bredis/(\d+)(?: cluster at=(\d+))? nodes=([0-9a-f,]+)")


class Members(NamedTuple):
    """The processes of an epoch, by their digests; ``cluster_epoch`` is 0 of a Redis that is no cluster."""

    digests: frozenset[str]
    cluster_epoch: int = 0

    def told(self, names: int) -> str:
        """Returns what the record is to say; ``names`` is how many namespaces are known."""
        cluster = f" cluster at={self.cluster_epoch}" if self.cluster_epoch else ""
        return f"redis/{FORMAT}{cluster} nodes={','.join(sorted(self.digests))}: {names} namespaces"


class History:
    """What all records together say.

    Attributes:
        epoch: the newest, 0 if there is none.
        newest: its members, None if its record tells of something else.
        later: the format of the newest, if this version does not know it; 0 otherwise.
        fleet: see :func:`~noosphere.server.ports.coordinator.fleet_of`.
    """

    def __init__(self, records: Sequence[EpochRecord]) -> None:
        self.epoch = records[-1].epoch if records else 0
        self.fleet = fleet_of(records)
        found = _FORMAT.search(records[-1].recovered) if records else None
        self.later = int(found[1]) if found is not None and int(found[1]) > FORMAT else 0
        members = [_members_in(record.recovered) for record in records]
        self.newest = members[-1] if members else None
        self._ever = frozenset[str]().union(*(known.digests for known in members if known is not None))

    @property
    def cluster_epoch(self) -> int:
        """What the newest says of the cluster's own epoch, 0 if it says nothing."""
        return self.newest.cluster_epoch if self.newest is not None else 0

    def has(self, digest: str) -> bool:
        """Returns whether a process belongs to the newest epoch."""
        return self.newest is not None and digest in self.newest.digests

    def replaced(self, digest: str) -> bool:
        """Returns whether a process belonged to an earlier epoch, and others have its place."""
        return self.newest is not None and digest in self._ever and not self.has(digest)

    def knows(self, digest: str) -> bool:
        """Returns whether a process ever belonged to an epoch."""
        return digest in self._ever


def _members_in(text: str) -> Members | None:
    found = _TOLD.search(text)
    if found is None or int(found[1]) != FORMAT:
        return None
    return Members(frozenset(found[3].split(",")), int(found[2] or 0))
