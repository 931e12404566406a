"""Makes out of a session's records what the rules look at."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Sequence
from typing import NamedTuple

from noosphere.consistency import Record
from noosphere.consistency.merge import render

from ..memory.codec import decode_record
from ..sessions.basis import CLOSED_STATUSES, STATUS_ATTRIBUTE, is_open_goal
from ..sessions.draft import Look
from ..sessions.keys import PROFILE, TASK
from .chronicle import Chronicle
from .facts import IMPORTANCE_DEFAULT, ItemState

Relate = Callable[[str, Sequence[str]], Sequence[float]]
"""Tells how likely each text helps with the first one, 0 to 1."""

TEXT_CHARS_MAX = 4_096
_BYTES_A_TOKEN = 4
"""For sizes that are only compared with one another; contexts count exactly."""

_STEP = 16


class LiveItem(NamedTuple):
    """An item with its record and its beginning as text; ``open_goal`` if it is a goal that is not done."""

    key: str
    record: Record
    size_bytes: int
    text: str
    open_goal: bool


def live_items(look: Look) -> tuple[LiveItem, ...]:
    """Returns the items of a session that was read with all of them, by key."""
    found = []
    for entry in sorted(look.items):
        record = decode_record(entry.data, entry.revision)
        if record.version(look.now_ms):
            goal = is_open_goal(entry.key, record, look.now_ms)
            found.append(LiveItem(entry.key, record, len(entry.data), _text(record, look.now_ms), goal))
    return tuple(found)


async def item_states(
    items: Sequence[LiveItem], chronicle: Chronicle, awaited: frozenset[str], turn: int, relate: Relate
) -> tuple[ItemState, ...]:
    """Returns the items as the rules see them, in the order given; lets others run in between.

    Args:
        items: all items.
        chronicle: of their use, up to ``turn``.
        awaited: keys that pending tool calls are based on.
        turn: the newest turn.
        relate: judges how close texts are to the goals.
    """
    goals = "\n".join(item.text for item in items if item.open_goal)
    relevances: list[float] = []
    for start in range(0, len(items), _STEP):
        texts = [item.text for item in items[start : start + _STEP]]
        relevances += relate(goals, texts) if goals else [0.0] * len(texts)
        await asyncio.sleep(0)
    return tuple(
        _state(item, chronicle, awaited, turn, relevance) for item, relevance in zip(items, relevances, strict=True)
    )


def _state(item: LiveItem, chronicle: Chronicle, awaited: frozenset[str], turn: int, relevance: float) -> ItemState:
    attributes = dict(item.record.attributes)
    use = chronicle.uses.get(item.key)
    kind = attributes.get("kind")
    importance = attributes.get("importance")
    return ItemState(
        key=item.key,
        kind=kind if isinstance(kind, str) and kind else item.key.partition("/")[0],
        tokens=item.size_bytes // _BYTES_A_TOKEN + 1,
        importance=_share(importance),
        created_turn=turn if use is None else use.created_turn,
        access_turn=turn if use is None else use.access_turn,
        accesses=0 if use is None else use.accesses(turn),
        relevance=relevance,
        pinned=attributes.get("pinned") is True,
        open_goal=item.open_goal,
        awaited=item.key in awaited,
        control=item.key.startswith(PROFILE) or (item.key.startswith(TASK) and not _has_ended(item)),
    )


def _has_ended(item: LiveItem) -> bool:
    return dict(item.record.attributes).get(STATUS_ATTRIBUTE) in CLOSED_STATUSES


def _share(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        return IMPORTANCE_DEFAULT
    return float(value)


def _text(record: Record, now_ms: int) -> str:
    newest = record.live(now_ms)[-1]
    assert newest.data is not None, "live values have data"
    data = render(record.merge_type, newest.data)
    text = data[: TEXT_CHARS_MAX * 4].decode("utf-8", "replace")
    if text.startswith('"'):
        with contextlib.suppress(ValueError):
            text = json.loads(data)
    return text[:TEXT_CHARS_MAX]
