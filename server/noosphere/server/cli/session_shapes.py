"""The documents that commands about sessions and contexts print with ``--json``; see ``shapes``."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from .shapes import Revision


class SessionSettingsShape(TypedDict):
    """How a session behaves. Spans are in seconds."""

    window_turns: Annotated[int, "Most turns in the active window."]
    window_steps: Annotated[int, "Most steps in the active window."]
    tokenizer: Annotated[str, "The vocabulary that counts."]
    tool_result_tokens_max: Annotated[int, "Size above which a tool's result is made smaller on arrival."]
    checkpoint_policy: Annotated[str, "`turn_end`, `side_effects` or `manual`."]
    checkpoints_max: Annotated[int, "Most checkpoints that are kept."]
    checkpoint_age_max: Annotated[float, "How long they are kept."]
    checkpoint_bytes_max: Annotated[int, "Most bytes of overwritten items kept for them."]
    idle_timeout: Annotated[float, "How long it may be idle before it is closed."]
    purge_after: Annotated[float, "How long after closing it is purged."]
    transitions_manual: Annotated[bool, "Whether the controller leaves it alone unless asked."]
    grace_turns: Annotated[int, "Turns during which a new item is left alone."]


class OpenTurnShape(TypedDict):
    """A turn that has begun and not ended."""

    turn: Annotated[int, "Its number."]
    author: Annotated[str, "The agent that began it."]
    begin_time: Annotated[str | None, "When."]


class SessionShape(TypedDict):
    """A session."""

    id: Annotated[str, "Its id; its namespace is `sessions/<id>`."]
    status: Annotated[str, "`open` or `closed`."]
    owner: Annotated[str, "The agent that opened it."]
    title: Annotated[str, "For people."]
    labels: Annotated[dict[str, str], "For filters."]
    settings: Annotated[SessionSettingsShape, "How it behaves."]
    ephemeral: Annotated[bool, "Whether it leaves nothing behind once closed."]
    create_time: Annotated[str | None, "When it was opened."]
    close_time: Annotated[str | None, "When it was closed."]
    turn: Annotated[int, "The newest turn's number."]
    open_turns: Annotated[list[OpenTurnShape], "Turns that have begun and not ended."]
    branch: Annotated[int, "The branch that appends go to."]
    parent: Annotated[str | None, "The session that it was forked from."]
    last_message: Annotated[str | None, "The newest message's key."]


class ControlShape(TypedDict):
    """Where an agent's program stands in a session."""

    next_node: Annotated[str, "The next step."]
    pending_interrupt: Annotated[str, "What it waits for; empty for nothing."]
    retries: Annotated[int, "How often the present step was tried again."]
    data: Annotated[Any, "What else the program keeps."]
    version: Annotated[Revision, "Its version; 0 if it was never set."]
    author: Annotated[str, "Who set it."]
    pending_calls: Annotated[list[str], "Ids of the tool calls that are pending."]


class SessionDetailShape(TypedDict):
    """A session and its control state."""

    session: Annotated[SessionShape, "The session."]
    control: Annotated[ControlShape, "The control state."]


class PartShape(TypedDict):
    """A part of a message: text or data."""

    text: Annotated[str | None, "The text."]
    media_type: Annotated[str | None, "The type of the data."]
    data: Annotated[str | None, "The data, as base64 text."]


class ToolUseShape(TypedDict):
    """A tool call that an assistant's message asks for."""

    call_id: Annotated[str, "The call's id."]
    name: Annotated[str, "The tool's name."]
    arguments: Annotated[str, "The arguments, as JSON text."]


class MessageShape(TypedDict):
    """A message of a transcript."""

    id: Annotated[str, "Its id."]
    role: Annotated[str, "`system`, `user`, `assistant` or `tool`."]
    parts: Annotated[list[PartShape], "The content."]
    tool_calls: Annotated[list[ToolUseShape], "What an assistant's message asks for."]
    tool_call_id: Annotated[str | None, "Which call a tool's message answers."]
    name: Annotated[str | None, "The tool's name in a tool's message; else free."]
    author: Annotated[str, "The agent that appended it."]
    turn: Annotated[int, "The turn that it belongs to; 0 outside any."]
    create_time: Annotated[str | None, "When it was appended."]
    tokens: Annotated[int, "Its size."]
    key: Annotated[str, "Its key; a later message has a greater one."]
    retracted: Annotated[bool, "Whether its content was taken back."]


class BasisShape(TypedDict):
    """A key that a tool call is based on."""

    key: Annotated[str, "The key."]
    version: Annotated[Revision, "Its version when the call began."]


class BasisChangeShape(TypedDict):
    """A change to what a tool call was based on."""

    key: Annotated[str, "The key."]
    seen: Annotated[Revision, "The version that the call was based on."]
    now: Annotated[Revision, "The version when the result came; 0 if it had no value."]
    actor: Annotated[str | None, "Who changed it, as agent#incarnation; null for an expiry."]


class ToolCallShape(TypedDict):
    """A call of a tool."""

    call_id: Annotated[str, "Its id."]
    ticket: Annotated[str, "With this any process may finish it."]
    name: Annotated[str, "The tool's name."]
    arguments: Annotated[str, "The arguments, as JSON text."]
    status: Annotated[str, "`pending`, `done`, `failed`, `parked` or `rejected`."]
    author: Annotated[str, "The agent that started it."]
    turn: Annotated[int, "The turn in which it was started; 0 outside any."]
    start_time: Annotated[str | None, "When it was started."]
    finish_time: Annotated[str | None, "When it ended."]
    deadline: Annotated[str | None, "From when on a result is late."]
    based_on: Annotated[list[BasisShape], "What it is based on."]
    late_policy: Annotated[str, "`apply`, `apply_flagged`, `park` or `reject`."]
    attempt: Annotated[int, "Which attempt may finish it."]
    side_effects: Annotated[bool, "Whether the tool changes the world."]
    changes: Annotated[list[BasisChangeShape], "What of its basis had changed when the result came."]
    overdue: Annotated[bool, "Whether the result came after the deadline."]
    content: Annotated[str, "The result as it entered working memory, or why the call failed."]
    compaction: Annotated[str | None, "`none`, `fields`, `lossless`, `relevant` or `cut`."]
    tokens: Annotated[int, "The size of `content`."]
    raw_bytes: Annotated[int, "The size of the result as it arrived."]
    key: Annotated[str, "Its key; a call started later has a greater one."]


class CheckpointShape(TypedDict):
    """A savepoint of a session."""

    id: Annotated[str, "Its id."]
    name: Annotated[str, "For people."]
    create_time: Annotated[str | None, "When it was made."]
    author: Annotated[str, "Who made it."]
    cause: Annotated[str, "`request`, `turn_end`, `before_call`, `after_call`, `close` or `restore`."]
    branch: Annotated[int, "The branch that it is on."]
    turn: Annotated[int, "The turn in which it was made."]
    last_message: Annotated[str | None, "The newest message's key at that moment."]
    items: Annotated[int, "How many items it holds."]
    bytes: Annotated[int, "The bytes that it added to the session."]


class RestoredShape(TypedDict):
    """What a restore did."""

    session: Annotated[SessionShape, "The session on its new branch."]
    abandoned_branch: Annotated[int, "The branch that was left; `session messages --branch` reads it."]
    restored: Annotated[int, "Items that were put back."]
    removed: Annotated[int, "Items that were removed because they came later."]


class ClosedShape(TypedDict):
    """What closing a session did."""

    session: Annotated[str, "The session's id."]
    archived: Annotated[int, "Items that became fact candidates."]
    dropped: Annotated[int, "Items that were removed."]
    failed_calls: Annotated[int, "Pending tool calls that failed."]


class PurgedShape(TypedDict):
    """What purging a session did."""

    session: Annotated[str, "The session's id."]
    records: Annotated[int, "Records that were removed; 0 if it was purged before."]


class TransitionShape(TypedDict):
    """A decision of the controller."""

    key: Annotated[str, "The item's key; of what was learned, the candidate's name."]
    action: Annotated[str, "`retain`, `archive`, `compress`, `drop`, `promote` or `learn`."]
    reason: Annotated[str, "Why, as a word."]
    explanation: Annotated[str, "Why, in a sentence."]
    score: Annotated[float, "The item's score, 0 to 1; the lowest go first."]
    into: Annotated[str | None, "The item that took its place."]
    turn: Annotated[int, "The turn in which it was decided."]
    decide_time: Annotated[str | None, "When; null for what would be done."]
    policy: Annotated[str, "What decided."]


class HealthFigureShape(TypedDict):
    """One figure of a session's health."""

    metric: Annotated[str, "`context_utilization`, `state_hit_rate`, `state_lifespan` or `token_growth`."]
    value: Annotated[float | None, "The value; null if too little is known."]
    verdict: Annotated[str, "`unknown`, `good`, `too_low` or `too_high`."]
    low: Annotated[float, "Below this it is too low."]
    high: Annotated[float, "Above this it is too high."]
    source: Annotated[str, "`measured`, `reported`, `estimated` or `unknown`."]
    advice: Annotated[str, "What it means and what to do."]


class SessionHealthShape(TypedDict):
    """How a session fares."""

    session: Annotated[str, "The session's id."]
    figures: Annotated[list[HealthFigureShape], "The four figures."]
    items: Annotated[int, "Items that are active."]
    messages: Annotated[int, "Messages of the present branch."]
    pending_calls: Annotated[int, "Tool calls that are pending."]
    outbox: Annotated[int, "Fact candidates that wait to be taken over."]


class ExportShape(TypedDict):
    """One thing of a session that is exported."""

    kind: Annotated[
        str,
        "`session`, `control`, `message`, `tool_call`, `item`, `summary`, `checkpoint`, `transition`, `candidate`: "
        "what `data` is.",
    ]
    branch: Annotated[int | None, "Of a message: the first branch that it is on."]
    data: Annotated[Any, "The thing, as the other commands print it; of the last four kinds what is stored."]


class SectionShape(TypedDict):
    """One section of a context."""

    kind: Annotated[str, "Which."]
    tokens_used: Annotated[int, "Tokens that it took."]
    tokens_max: Annotated[int, "Tokens that it was allowed."]
    tokens_left_out: Annotated[int, "Tokens of what was left out of it, or cut."]


class ManifestEntryShape(TypedDict):
    """One candidate for a context."""

    id: Annotated[str, "What it is: `message:<id>`, `item:<key>`, `fact:<id>`, `call:<id>` …"]
    section: Annotated[str, "For which section."]
    fate: Annotated[str, "`included`, `shortened` or `dropped`."]
    reason: Annotated[str, "Why, as a word."]
    source: Annotated[str, "Where it comes from."]
    version: Annotated[Revision, "Its version; 0 where it has none."]
    tokens: Annotated[int, "Tokens that it took."]
    tokens_full: Annotated[int, "Tokens that it would have taken in full."]
    trust: Annotated[float, "How far it is trusted."]
    relevance: Annotated[float, "Its estimated relevance."]
    carried_from: Annotated[str, "Of carried evidence, the context for which it was first given."]
    late: Annotated[bool, "Of a tool's result, whether it came late."]
    changed: Annotated[list[str], "Of a late result, the keys that had changed by then."]


class ManifestShape(TypedDict):
    """What went into a context, what did not, and why."""

    context_id: Annotated[str, "The context's id."]
    session: Annotated[str, "The session's id."]
    create_time: Annotated[str | None, "When it was assembled."]
    author: Annotated[str, "For whom."]
    turn: Annotated[int, "In which turn."]
    recipe: Annotated[str, "The recipe's name."]
    tokenizer: Annotated[str, "The vocabulary that counted."]
    exact: Annotated[bool, "Whether it counts as the model does."]
    tokens_used: Annotated[int, "Tokens used."]
    tokens_max: Annotated[int, "Tokens allowed."]
    revision: Annotated[Revision, "The revision at which everything was read."]
    sections: Annotated[list[SectionShape], "The sections in order."]
    entries: Annotated[list[ManifestEntryShape], "The candidates."]
    warnings: Annotated[list[str], "Words of warning."]
    used: Annotated[list[str], "Ids of entries that were reported as used."]
