"""Comparing what the server says with what the model says."""

from __future__ import annotations

from tests.simulation.calls import Reply
from tests.simulation.model_readsets import Stale
from tests.simulation.model_world import NAMED_MAX

Changes = tuple[tuple[str, str, int], ...]


def same(what: str, got: object, wanted: object) -> None:
    """Raises unless both are equal."""
    if got != wanted:
        raise AssertionError(f"{what}: the server says {got}, the model {wanted}")


def told(reply: Reply) -> tuple[object, ...]:
    """Returns what a single write's acknowledgement tells."""
    return (
        reply.revision,
        reply.version,
        reply.seen,
        reply.overwritten,
        reply.concurrent_delete,
        reply.merged,
        reply.trimmed,
    )


def in_order(events: list[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Returns one commit's events; which expiry of a sweep comes first says nothing."""
    return sorted(events) if all(kind == "EXPIRE" for _, kind, _ in events) else events


def same_stale(got: tuple[Stale, ...], wanted: tuple[Stale, ...], *, refused: bool, disturbed: bool) -> None:
    """Compares what is reported as stale.

    Args:
        got: the server's report.
        wanted: the model's.
        refused: an error has little room: of each entry it shows as many of the newest changes as fit.
        disturbed: somebody came in between: what was overruled already may have changed once more since.
    """
    if disturbed and not refused:
        same("stale", {entry[:3] for entry in got}, {entry[:3] for entry in wanted})
        return
    same("stale", [entry[:5] for entry in got], [entry[:5] for entry in wanted])
    for mine, theirs in zip(got, wanted, strict=True):
        _same_changes(f"who changed {theirs.name!r}", mine.changes, theirs.changes, whole=not refused)


def _same_changes(what: str, got: Changes, wanted: Changes, *, whole: bool) -> None:
    assert bool(got) == bool(wanted), f"{what}: the server names {got}, the model {wanted}"
    assert len(got) <= NAMED_MAX
    # Where there was no room for more, the oldest commit may be told in part, and its keys come in any order.
    oldest = 0 if (whole and len(wanted) < NAMED_MAX) or not got else got[-1][2]
    newest_first = [
        sorted((c for c in changes if c[2] > oldest), key=lambda c: (-c[2], c[0])) for changes in (got, wanted)
    ]
    same(what, *newest_first)
    assert [c[2] for c in got] == sorted((c[2] for c in got), reverse=True)
