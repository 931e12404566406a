"""Learns procedures: what an owner's agents do with tools again and again becomes a fact candidate, once.

What was seen lies in one record for each owner, the candidate in the session in which it came to recur; no commit
spans the two. So the owner's record decides: the commit that finds a pattern also notes that its candidate is *owed* to
this session. Then the candidate is written there, under an id by which later attempts tell that it was, and the
note goes. Whoever finds a note that was left by a crash does the same; the order in which they come does not matter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import NamedTuple

import structlog

from noosphere.consistency import NEVER_MS, Reason, Refusal

from ..memory.codec import decode_record
from ..memory.directory import SYSTEM_PREFIX
from ..ports.store import Commit, Committed, KeyCheck, Mutation, StoredEntry
from ..sessions.codec import decode_turns
from ..sessions.draft import Draft, Look
from ..sessions.keys import PROCEDURE_IDS, TOOLS, TURNS, KeyRange, id_key
from ..sessions.outbox import decode_candidate, propose
from ..sessions.scribe import ATTEMPTS_MAX, BACKGROUND, Intent, Need, Scan, Scribe
from ..sessions.toolcall import ToolCall, decode_tool_call
from ..sessions.types import Transition
from .events import EVENT_SCAN, record_run, surplus_keys
from .habits import NAME, Habits, Owed, decode_habits, encode_habits
from .patterns import GAP, CallStep, Run, run_of
from .tool_steps import ToolStep, tool_step

log = structlog.get_logger(__name__)

HABITS = f"{SYSTEM_PREFIX}habits/"
"""``system/habits/<owner>``: a namespace that no caller can name."""

_KEY = "habits"
_SCAN_STEP = 32
CALLS_SCANNED_MAX = 128
"""So many of a session's newest calls are looked through for those of one turn."""

_UNREACHABLE = frozenset({Reason.SESSION_NOT_FOUND, Reason.LIMIT_EXCEEDED})


class _Seen(NamedTuple):
    """One turn: whose session it was in, its steps, and what their numbers stand for."""

    owner: str
    run: Run
    steps: Mapping[int, ToolStep]


class Learner:
    """Watches the ends of turns.

    Args:
        scribe: reads and writes the records of sessions.
    """

    def __init__(self, scribe: Scribe) -> None:
        self._scribe = scribe

    async def learn(self, session_id: str, turn: int = 0) -> tuple[Transition, ...]:
        """Takes a turn into account; doing so again changes nothing.

        Args:
            session_id: where. Of an ephemeral session nothing is remembered.
            turn: the turn's number; 0 for the newest.

        Returns:
            What was learned by it, by ascending key.

        Raises:
            Refusal: CONTENTION, or ENGINE_UNAVAILABLE.
        """
        seen = await self._look(session_id, turn)
        if seen is None:
            return ()
        habits = await self._update(seen.owner, lambda habits, now_ms: habits.after(seen.run, seen.steps, now_ms))
        delivered: set[str] = set()
        released: set[str] = set()
        for owed in habits.owed:
            (delivered if await self._deliver(owed) else released).add(owed.id)
        if habits.owed:
            gone, here = frozenset(released), frozenset(delivered)
            await self._update(seen.owner, lambda habits, _: habits.released(gone).delivered(here))
        own = (owed for owed in habits.owed if owed.id in delivered and _is_of(owed, seen.run))
        return tuple(sorted(owed.transition for owed in own))

    async def preview(self, session_id: str) -> tuple[Transition, ...]:
        """Returns what :meth:`learn` would learn by the newest turn as it is now; changes nothing."""
        seen = await self._look(session_id, 0)
        if seen is None:
            return ()
        core = self._scribe.core
        read = await core.store.read(await core.locate(HABITS + seen.owner), (_KEY,))
        habits = decode_habits(read.entries[0]).after(seen.run, seen.steps, 0)
        return tuple(sorted(owed.transition for owed in habits.owed if _is_of(owed, seen.run)))

    async def _look(self, session_id: str, turn: int) -> _Seen | None:
        """Reads a turn's calls; None if there is nothing to learn from, or nothing may be."""
        look = await self._scribe.peek(session_id, (TURNS,))
        if look.info is None or look.info.ephemeral:
            return None
        number = turn or decode_turns(look.record(TURNS)).turn
        if not number:
            return None
        steps: dict[int, ToolStep] = {}
        calls: list[CallStep] = []
        for call in await self._calls(session_id, number):
            step = tool_step(call)
            if step is not None:
                steps[step.number] = step
            calls.append(CallStep(call.call_id, GAP if step is None else step.number))
        run = run_of(session_id, number, calls)
        return _Seen(look.info.owner, run, steps) if run.has_patterns else None

    async def _calls(self, session_id: str, turn: int) -> list[ToolCall]:
        """Returns the calls of a turn in the order in which they were started, as far as they are among the newest."""
        ref = await self._scribe.living(session_id)
        found: list[ToolCall] = []
        before: str | None = None
        for _ in range(CALLS_SCANNED_MAX // _SCAN_STEP):
            scan = Scan(TOOLS, _SCAN_STEP, reverse=True, keys=KeyRange(None, before))
            page = await self._scribe.scan(ref, scan, accepted=True)
            calls = [_call(entry) for entry in page.entries if entry.live_until_ms > page.view.now_ms]
            own = [call for call in calls if call.turn == turn]
            found += own
            # Turns of several agents may overlap, but hardly by that many calls.
            if not own or not page.more:
                break
            before = page.entries[-1].key
            await asyncio.sleep(0)
        return found[::-1]

    async def _update(self, owner: str, change: Callable[[Habits, int], Habits]) -> Habits:
        """Changes what is remembered of an owner, in one commit; returns it once it is synced.

        Raises:
            Refusal: CONTENTION, or ENGINE_UNAVAILABLE.
        """
        core = self._scribe.core
        ref = await core.locate(HABITS + owner)
        for _ in range(ATTEMPTS_MAX):
            read = await core.store.read(ref, (_KEY,), accepted=True)
            if read.view.deleted:
                ref = await core.relocate(ref) or await core.directory.reopen(ref, read.view.head)
                continue
            (entry,) = read.entries
            before = decode_habits(entry)
            after = change(before, read.view.now_ms)
            if after == before:
                await core.store.settle(ref)
                return after
            commit = Commit(
                epoch=read.view.epoch,
                config_version=0,
                checks=(KeyCheck(_KEY, 0 if entry is None else entry.revision, entry is not None),),
                mutations=(Mutation(_KEY, encode_habits(after), NEVER_MS, NEVER_MS, entry is None, b""),),
            )
            if isinstance(await core.store.commit(ref, commit), Committed):
                return after
        raise Refusal(Reason.CONTENTION, f"the habits of {owner!r} changed under each of {ATTEMPTS_MAX} attempts")

    async def _deliver(self, owed: Owed) -> bool:
        """Sees to it that a candidate is in its session's outbox, or was; tells whether it can be."""
        name = id_key(PROCEDURE_IDS, owed.id)
        try:
            newest = await self._scribe.scan(await self._scribe.living(owed.session), EVENT_SCAN, accepted=True)
            surplus = surplus_keys(newest.entries, newest.view.now_ms)

            def decide(look: Look, draft: Draft) -> None:
                if look.internal(name) is not None:
                    return
                propose(draft, decode_candidate(owed.candidate), entry_id=(PROCEDURE_IDS, owed.id))
                record_run(draft, owed.turn, owed.decided_ms, NAME, (owed.transition,))
                for key in surplus:
                    draft.remove(key)

            intent = Intent("learn", keys=(name, *surplus), need=Need.ANY, background=True)
            await self._scribe.write(BACKGROUND, owed.session, intent, decide)
        except Refusal as refusal:
            if refusal.reason not in _UNREACHABLE:
                raise
            log.info("a procedure cannot reach its session; it may be learned in another", reason=refusal.reason)
            return False
        return True


def _is_of(owed: Owed, run: Run) -> bool:
    return (owed.session, owed.turn) == (run.session, run.turn)


def _call(entry: StoredEntry) -> ToolCall:
    return decode_tool_call(entry.key, decode_record(entry.data, entry.revision))
