"""The state transition controller: once a turn it looks at working memory and lets go what is no longer needed.

It reads everything at one revision, lets the rules (and a policy, if there is one) judge, prepares what takes time,
and carries it out in one commit that checks that nothing it decided on has changed. Nothing is lost: what leaves is
a fact candidate in the outbox, in the same commit, unless it was worth nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from noosphere.consistency import ReadSet, StaleEntry, check_key, invalid, too_large

from ..memory.admission import require_writer
from ..memory.types import Call
from ..ports.facts import FactRecall
from ..ports.metrics import SessionMetrics
from ..ports.models import Summariser, Tokenizers, TransitionPolicy
from ..sessions.codec import decode_meta, decode_turns
from ..sessions.draft import Draft, Look
from ..sessions.keys import ACCESS, META, OWN, TURNS, is_item
from ..sessions.outbox import archive
from ..sessions.saving import Moved, prepared
from ..sessions.scribe import Intent, Scribe, Written
from ..sessions.types import Transition, TransitionAction, TurnOutcome
from .chronicle import Chronicle, decode_chronicle, encode_chronicle
from .events import EVENT_SCAN, record_run, surplus_keys, transitions_of_turn
from .facts import Situation, Verdict
from .learning import Learner
from .noting import Heard, Notes
from .policies import Adviser
from .preparing import Promotion, SummaryItem, promotions, summary_items
from .reporting import figures_of
from .rules import NAME, judge
from .states import LiveItem, Relate, item_states, live_items

KEYS_MAX = 256
CLASS_LABEL = "class"
"""The label by which operators tell kinds of sessions apart in metrics."""

CHANGES_MAX = 64
CHANGED_BYTES_MAX = 160 * 1024
"""Of what one run lets go; the rest waits for the next turn. An item is written three times at most."""

_INSTRUCTIONS = frozenset(
    {TransitionAction.RETAIN, TransitionAction.ARCHIVE, TransitionAction.COMPRESS, TransitionAction.DROP}
)
_GOING = frozenset({TransitionAction.ARCHIVE, TransitionAction.COMPRESS, TransitionAction.DROP})


class PendingBasis(Protocol):
    """Knows what pending tool calls are based on."""

    async def awaited_keys(self, session_id: str) -> frozenset[str]:
        """Returns the keys that calls without a result are based on, as accepted."""
        ...


class RunReply(NamedTuple):
    """What the controller decided, by ascending key."""

    transitions: tuple[Transition, ...]
    head: int
    read_set: ReadSet | None = None
    stale: tuple[StaleEntry, ...] = ()


class _Plan(NamedTuple):
    """What one run is going to do, and on what grounds.

    Attributes:
        turn: the newest turn.
        chronicle: of the session's use, with what was collected in memory.
        stored: revision of the chronicle that this is made on; 0 if there was none.
        heard: what was heard since the last turn, which the chronicle counts.
        policy: who has decided.
        verdicts: about every item.
        items: the items by key.
        summaries: what takes the place of compressed items, by group.
        promotions: facts that enter working memory.
        surplus: keys of events that make room.
        head: the revision at which everything was read.
    """

    turn: int
    chronicle: Chronicle
    stored: int
    heard: Heard
    policy: str
    verdicts: tuple[Verdict, ...]
    items: Mapping[str, LiveItem]
    summaries: Mapping[str, SummaryItem]
    promotions: tuple[Promotion, ...]
    surplus: tuple[str, ...]
    head: int
    read_set: ReadSet | None
    stale: tuple[StaleEntry, ...]


class Controller:
    """Runs over sessions.

    Args:
        scribe: reads and writes their records.
        notes: what happened since the last turn.
        summariser: makes one item of several.
        tokenizers: knows the vocabularies.
        relate: judges how close items are to goals.
        basis: what pending tool calls are based on; None if there are no tool calls.
        policy: whom to ask beside the rules.
        recall: where facts come from; None promotes none.
        metrics: hears how sessions fare.
        learner: finds what recurs in the use of tools; None learns nothing.
    """

    def __init__(
        self,
        scribe: Scribe,
        notes: Notes,
        *,
        summariser: Summariser,
        tokenizers: Tokenizers,
        relate: Relate,
        basis: PendingBasis | None = None,
        policy: TransitionPolicy | None = None,
        recall: FactRecall | None = None,
        metrics: SessionMetrics | None = None,
        learner: Learner | None = None,
    ) -> None:
        self._scribe = scribe
        self._notes = notes
        self._summariser = summariser
        self._tokenizers = tokenizers
        self._relate = relate
        self._basis = basis
        self._policy = policy
        self._recall = recall
        self._metrics = metrics
        self._learner = learner

    async def after_turn(self, call: Call, session_id: str, turn: int) -> TurnOutcome:
        """Settles the turn's accesses and runs, unless the session's settings leave that to its agents.

        Raises:
            Refusal: SESSION_NOT_FOUND, SESSION_CLOSED, CONTENTION.
        """
        look = await self._scribe.peek(session_id, (ACCESS,))
        if look.info is None:
            return TurnOutcome()
        idle = look.info.settings.transitions_manual
        learner = None if idle else self._learner
        if decode_chronicle(look.internal(ACCESS)).judged_turn >= turn:
            if learner is not None:
                await learner.learn(session_id, turn)
            return TurnOutcome(transitions=await transitions_of_turn(self._scribe, session_id, turn))
        quiet = Call(call.incarnation, fences=call.fences)
        adviser = Adviser(self._policy)
        reply = await prepared(
            session_id, lambda: self._run(quiet, session_id, {}, adviser, dry_run=False, only_settle=idle)
        )
        learned = () if learner is None else await learner.learn(session_id, turn)
        changes = tuple(sorted((*_changes(reply.transitions), *learned)))
        if self._metrics is not None:
            await self._tell(self._metrics, session_id, changes)
        return TurnOutcome(transitions=changes)

    async def _tell(self, metrics: SessionMetrics, session_id: str, changes: Sequence[Transition]) -> None:
        look = await self._scribe.peek(session_id, (ACCESS, META))
        session_class = decode_meta(look.record(META)).labels.get(CLASS_LABEL, "")
        for figure in figures_of(decode_chronicle(look.internal(ACCESS))):
            if figure.value is not None:
                metrics.observe(session_class, figure.metric.value, figure.value)
        for change in changes:
            metrics.decided(session_class, change.action.value)

    async def run(
        self, call: Call, session_id: str, *, dry_run: bool, keys: Sequence[str], instruction: TransitionAction | None
    ) -> RunReply:
        """Runs now, or tells what a run would do; nothing else differs between the two.

        Args:
            call: who asks.
            session_id: where.
            dry_run: change nothing.
            keys: with an instruction, what it is about.
            instruction: what to do with ``keys``, whatever the rules say.

        Raises:
            Refusal: SESSION_NOT_FOUND, SESSION_CLOSED, INVALID_FIELD, VALUE_TOO_LARGE, CONTENTION, or a reason that
                concerns the caller.
        """
        if not dry_run:
            # The controller writes as nobody in the background, so the write would not ask.
            require_writer(call)
        instructions = _instructions(keys, instruction)
        adviser = Adviser(None if instructions else self._policy)
        reply = await prepared(session_id, lambda: self._run(call, session_id, instructions, adviser, dry_run=dry_run))
        if self._learner is None or instructions:
            return reply
        if dry_run:
            learned = await self._learner.preview(session_id)
        elif learned := await self._learner.learn(session_id):
            reply = reply._replace(head=(await self._scribe.peek(session_id)).view.head)
        # An earlier execution of the same request has told of them already.
        return reply._replace(transitions=tuple(sorted({*reply.transitions, *learned})))

    async def _run(
        self,
        call: Call,
        session_id: str,
        instructions: Mapping[str, TransitionAction],
        adviser: Adviser,
        *,
        dry_run: bool,
        only_settle: bool = False,
    ) -> RunReply:
        plan = await self._plan(call, session_id, instructions, adviser, only_settle)
        if dry_run:
            return RunReply(_transitions(plan, 0, {}), plan.head, plan.read_set, plan.stale)
        written = await self._carry_out(call, session_id, plan, instructions)
        self._notes.settled(session_id, plan.heard)
        if written.value is None:
            # An earlier execution of the same request: what it did is among the events of its turn.
            turn = int.from_bytes(written.reply, "big")
            done = await transitions_of_turn(self._scribe, session_id, turn)
            return RunReply(done, written.head, written.read_set, written.stale)
        return RunReply(written.value, written.head, written.read_set, written.stale)

    async def _plan(
        self,
        call: Call,
        session_id: str,
        instructions: Mapping[str, TransitionAction],
        adviser: Adviser,
        only_settle: bool,
    ) -> _Plan:
        look = await self._look(call, session_id)
        awaited = frozenset[str]() if self._basis is None else await self._basis.awaited_keys(session_id)
        turn = decode_turns(look.record(TURNS)).turn
        items = live_items(look)
        heard = await self._notes.of(session_id)
        stored = look.internal(ACCESS)
        alive = {item.key: item.record.created_ms for item in items}
        chronicle = decode_chronicle(stored).with_contexts(heard.notes).with_uses(alive, heard.keys, turn)
        states = await item_states(items, chronicle, awaited, turn, self._relate)
        at = Situation(
            turn,
            look.session.settings.grace_turns,
            chronicle.contexts[-1].working_tokens if chronicle.contexts else 0,
            tuple(note.used_tokens / max(1, note.allowed_tokens) for note in chronicle.contexts[-5:]),
            chronicle.tokens_spent,
            len(heard.keys),
        )
        by_key = {item.key: item for item in items}
        policy, verdicts = "", tuple[Verdict, ...]()
        summaries: Mapping[str, SummaryItem] = {}
        promoted: tuple[Promotion, ...] = ()
        if not only_settle:
            policy, verdicts = NAME, judge(states, at, instructions)
            if not look.session.ephemeral:
                # What an ephemeral session holds is told to no model.
                policy, verdicts = await adviser.advised(items, states, verdicts, at)
            verdicts = _affordable(verdicts, by_key)
            groups: dict[str, list[LiveItem]] = {}
            for verdict in verdicts:
                if verdict.group:
                    groups.setdefault(verdict.group, []).append(by_key[verdict.key])
            bytes_max = self._scribe.core.rules(f"sessions/{session_id}").policy.item_bytes_max
            tokenizer = self._tokenizers.named(look.session.settings.tokenizer)
            summaries = await summary_items(self._summariser, tokenizer, groups, turn, bytes_max)
            if not instructions:
                promoted = await promotions(self._recall, look, items, bytes_max)
        surplus = surplus_keys(look.scans[0].entries, look.now_ms)
        return _Plan(
            turn,
            chronicle,
            0 if stored is None else stored.revision,
            heard,
            policy,
            verdicts,
            by_key,
            summaries,
            promoted,
            surplus,
            look.view.head,
            None if call.tokens is None else call.tokens.read_set,
            (),
        )

    async def _look(self, call: Call, session_id: str) -> Look:
        """Reads a session with all items at one revision, by a write that writes nothing."""
        intent = Intent(
            "look",
            keys=(TURNS,),
            glances=(ACCESS,),
            scans=(EVENT_SCAN,),
            items=True,
            background=call.incarnation is None,
        )
        written = await self._scribe.write(call._replace(request=None), session_id, intent, lambda look, draft: look)
        assert written.value is not None, "without a request id nothing is replayed"
        return written.value

    async def _carry_out(
        self, call: Call, session_id: str, plan: _Plan, instructions: Mapping[str, TransitionAction]
    ) -> Written[tuple[Transition, ...]]:
        made = (*(s.key for s in plan.summaries.values()), *(p.key for p in plan.promotions))
        going = tuple(verdict.key for verdict in plan.verdicts if verdict.action in _GOING)

        def decide(look: Look, draft: Draft) -> tuple[Transition, ...]:
            entry = look.internal(ACCESS)
            if plan.stored != (0 if entry is None else entry.revision):
                raise Moved
            for key in going:
                record = look.record(key)
                if record is None or record.stored != plan.items[key].record.stored:
                    raise Moved
            if any(look.record(key) is not None for key in made):
                raise Moved
            transitions = _transitions(plan, look.now_ms, self._leave(look, draft, plan))
            changes = _changes(transitions)
            if changes:
                record_run(draft, plan.turn, look.now_ms, plan.policy, changes)
                for key in plan.surplus:
                    draft.remove(key)
            chronicle = plan.chronicle.without({key: 0 for key in going}, plan.turn)
            if not instructions:
                chronicle = _judged(chronicle, plan.turn)
            draft.keep(ACCESS, encode_chronicle(chronicle))
            plan.heard.take(look, draft)
            draft.reply = plan.turn.to_bytes(8, "big")
            return transitions

        meaning = tuple(sorted((key, action.value) for key, action in instructions.items()))
        intent = Intent(
            "run_transitions",
            meaning,
            keys=(ACCESS, *plan.heard.stored, *going, *made, *plan.surplus),
            background=call.incarnation is None,
        )
        return await self._scribe.write(call, session_id, intent, decide)

    def _leave(self, look: Look, draft: Draft, plan: _Plan) -> dict[str, str]:
        """Fills the draft with what goes and comes; returns into what item each compressed one went."""
        into: dict[str, str] = {}
        for summary in plan.summaries.values():
            draft.put(summary.key, summary.data, summary.attributes)
        for promotion in plan.promotions:
            draft.put(promotion.key, promotion.data, promotion.attributes)
        for verdict in plan.verdicts:
            if verdict.action is TransitionAction.DROP:
                draft.remove(verdict.key)
            elif verdict.action in _GOING:
                if verdict.group:
                    into[verdict.key] = plan.summaries[verdict.group].key
                record = plan.items[verdict.key].record
                archive(draft, verdict.key, record, look.now_ms, reason=verdict.reason, turn=plan.turn)
        return into


def _judged(chronicle: Chronicle, turn: int) -> Chronicle:
    return Chronicle(
        max(turn, chronicle.judged_turn),
        chronicle.uses,
        chronicle.contexts,
        chronicle.turn_tokens,
        chronicle.lifespans,
        chronicle.tokens_spent,
    )


def _affordable(verdicts: Sequence[Verdict], items: Mapping[str, LiveItem]) -> tuple[Verdict, ...]:
    """Returns the verdicts that one commit has room for; what would leave beyond that waits, the best-scored first."""
    left = CHANGED_BYTES_MAX
    allowed: set[str] = set()
    for verdict in sorted((v for v in verdicts if v.action in _GOING), key=lambda v: (v.score, v.key)):
        left -= items[verdict.key].size_bytes
        if left < 0 or len(allowed) == CHANGES_MAX:
            break
        allowed.add(verdict.key)
    return tuple(
        verdict
        if verdict.action not in _GOING or verdict.key in allowed
        else verdict._replace(
            action=TransitionAction.RETAIN,
            reason="next_turn",
            explanation=f"{verdict.explanation} But one run lets {CHANGES_MAX} items go at most.",
            group="",
        )
        for verdict in verdicts
    )


def _transitions(plan: _Plan, decided_ms: int, into: Mapping[str, str]) -> tuple[Transition, ...]:
    found = [
        Transition(
            verdict.key,
            verdict.action,
            verdict.reason,
            verdict.explanation,
            verdict.score,
            plan.summaries[verdict.group].key if verdict.group else into.get(verdict.key, ""),
            plan.turn,
            decided_ms,
            plan.policy,
        )
        for verdict in plan.verdicts
    ]
    found += [
        Transition(
            promotion.key,
            TransitionAction.PROMOTE,
            "near_goal",
            promotion.explanation,
            promotion.score,
            "",
            plan.turn,
            decided_ms,
            plan.policy,
        )
        for promotion in plan.promotions
    ]
    return tuple(sorted(found))


def _changes(transitions: Sequence[Transition]) -> tuple[Transition, ...]:
    return tuple(t for t in transitions if t.action is not TransitionAction.RETAIN)


def _instructions(keys: Sequence[str], instruction: TransitionAction | None) -> dict[str, TransitionAction]:
    if len(keys) > KEYS_MAX:
        raise too_large("keys", len(keys), KEYS_MAX, "entries")
    for index, key in enumerate(keys):
        check_key(key, f"keys[{index}]")
        if not is_item(key):
            raise invalid(f"keys[{index}]", f"{key!r} is no item: '{OWN}…' is kept by the SessionService")
    if bool(keys) is not (instruction is not None):
        raise invalid("instruction", "and keys need each other: what to do, and with what")
    if instruction is None:
        return {}
    if instruction not in _INSTRUCTIONS:
        raise invalid("instruction", f"{instruction.value!r} is not retain, archive, compress or drop")
    return dict.fromkeys(keys, instruction)
