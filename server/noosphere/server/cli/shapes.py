"""The documents that ``--json`` prints, as types: mypy holds the commands to them, and the reference shows them.

Revisions, versions, dots, heads, floors and fences are decimal texts: from epoch 8,192 on they exceed what
many JSON readers keep exactly. Counts and sizes are numbers. Times are RFC 3339 in UTC. What is absent is null.
"""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

Revision = str


class DotShape(TypedDict):
    """A value or tombstone without its content."""

    dot: Annotated[Revision, "The revision at which it was written."]
    actor: Annotated[str, "Who wrote it, as agent#incarnation."]
    write_time: Annotated[str | None, "When."]
    deleted: Annotated[bool, "Whether it is a delete or an expiry."]


class ValueShape(TypedDict):
    """One live value of a record."""

    dot: Annotated[Revision, "The revision at which it was written."]
    actor: Annotated[str, "Who wrote it, as agent#incarnation."]
    write_time: Annotated[str | None, "When."]
    expire_time: Annotated[str | None, "When it ends."]
    encoding: Annotated[str, "`json` or `bytes`."]
    value: Annotated[Any, "The JSON value; of bytes their base64 text."]


class ClaimShape(TypedDict):
    """Who works on a task."""

    holder: Annotated[str | None, "Who holds it, as agent#incarnation."]
    expire_time: Annotated[str | None, "When the lease ends unless renewed."]
    fence: Annotated[Revision, "The claim's revision."]
    done: Annotated[bool, "Whether the task was completed."]
    completed_by: Annotated[str | None, "Who completed it."]
    result: Annotated[Any, "What its completion stored: a JSON value, or the base64 text of bytes."]
    attempts: Annotated[int, "How often it was handed out."]


class RecordShape(TypedDict):
    """A record."""

    namespace: Annotated[str, "The namespace."]
    key: Annotated[str, "The key."]
    version: Annotated[Revision, "The optimistic lock; 0 without a live value."]
    values: Annotated[list[ValueShape], "Live values: none, one, or several siblings."]
    attributes: Annotated[dict[str, Any], "Scalars for filters."]
    merge_type: Annotated[str | None, "`counter`, `set`, `max`, `min`, `map` or `log`; null for a plain value."]
    claim: Annotated[ClaimShape | None, "The claim, if there ever was one."]
    create_time: Annotated[str | None, "When the present life of the key began."]
    change_count: Annotated[int, "How many commits changed it; for display only."]


class WriteShape(TypedDict):
    """What a put or delete did."""

    namespace: Annotated[str, "The namespace."]
    key: Annotated[str, "The key."]
    revision: Annotated[Revision, "The revision of the commit; 0 if nothing had to change."]
    version: Annotated[Revision | None, "The new version; null while other values remain that were not read."]
    overwritten: Annotated[list[DotShape], "Values that were replaced unseen."]
    concurrent_delete: Annotated[bool, "Whether an unseen delete was undone."]
    replayed: Annotated[bool, "Whether an earlier execution of the same request is reported."]


class PendingShape(TypedDict):
    """A record that waits for somebody to resolve its siblings."""

    namespace: Annotated[str, "The namespace."]
    key: Annotated[str, "The key."]
    since: Annotated[Revision, "The revision at which it began to have several values."]
    since_time: Annotated[str | None, "When that was."]
    record: Annotated[RecordShape, "The record with its siblings."]


class ResolvedShape(TypedDict):
    """What a resolution did."""

    namespace: Annotated[str, "The namespace."]
    key: Annotated[str, "The key."]
    revision: Annotated[Revision, "The revision of the commit."]
    version: Annotated[Revision | None, "The new version; 0 if the key was deleted."]
    resolved: Annotated[list[ValueShape], "The values that were there before, in whose place it came."]
    replayed: Annotated[bool, "Whether an earlier execution of the same request is reported."]


class ChangeShape(TypedDict):
    """One change."""

    kind: Annotated[str, "`put`, `delete`, `expire`, `merge`, `claim`, `renew`, `release` or `complete`."]
    key: Annotated[str, "The key."]
    actor: Annotated[str | None, "Who did it, as agent#incarnation; null for an expiry."]
    record: Annotated[RecordShape | None, "The record after the change."]
    overwritten: Annotated[list[DotShape], "Values that were replaced unseen."]


class HistoryShape(TypedDict):
    """The changes of one revision."""

    namespace: Annotated[str, "The namespace."]
    floor: Annotated[Revision, "The log holds every change after this revision, and none before it."]
    revision: Annotated[Revision, "The revision."]
    commit_time: Annotated[str | None, "When."]
    changes: Annotated[list[ChangeShape], "What changed, in the order of the commit."]


class WatchShape(TypedDict):
    """What a watch yields at once; the changes of one revision come together."""

    kind: Annotated[
        str,
        "`snapshot`; `changes`; `bookmark`: nothing more up to `revision`; `epoch`: revisions above `revision` were "
        "lost, a `reset` follows; `reset`: forget everything, this is all that is there.",
    ]
    namespace: Annotated[str, "The namespace."]
    revision: Annotated[Revision, "Everything up to this revision has been told."]
    head: Annotated[Revision, "The namespace's newest revision."]
    changes: Annotated[list[ChangeShape], "What changed; in a snapshot or reset, a `put` of each record."]
    resume: Annotated[str | None, "`--resume` with this continues after this line; null for `epoch`."]


class PolicyShape(TypedDict):
    """The rules of a namespace."""

    conflict_policy: Annotated[str, "`reject`, `siblings` or `last-writer-wins`."]
    prefix_policies: Annotated[dict[str, str], "Policies of collections, by prefix."]
    item_bytes_max: Annotated[int, "Largest value of an item in bytes."]
    records_max: Annotated[int, "Most records, tombstones included."]
    tombstone_retention_seconds: Annotated[float, "How long a tombstone is kept."]
    log_age_seconds_max: Annotated[float, "How long the log keeps a revision."]
    log_revisions_max: Annotated[int, "Most revisions in the log."]
    log_bytes_max: Annotated[int, "Most bytes in the log."]


class RulesShape(TypedDict):
    """Rules, and the names to which they apply."""

    name: Annotated[str, "A namespace's name, or what names begin with."]
    exact: Annotated[bool, "Whether it is a whole name."]
    policy: Annotated[PolicyShape, "The rules."]


class CutShape(TypedDict):
    """What survived the beginning of an epoch."""

    epoch: Annotated[int, "The epoch that began."]
    cut: Annotated[Revision, "The last revision that survived."]


class NamespaceShape(TypedDict):
    """A namespace."""

    namespace: Annotated[str, "The name."]
    generation: Annotated[int, "The generation, from 1."]
    deleted: Annotated[bool, "Whether it was deleted."]
    head: Annotated[Revision, "Its newest revision."]
    floor: Annotated[Revision, "The log holds every change after this revision."]
    record_count: Annotated[int, "Records, tombstones included."]
    record_bytes: Annotated[int, "Bytes of records."]
    log_count: Annotated[int, "Revisions in the log."]
    log_bytes: Annotated[int, "Bytes of the log."]
    request_count: Annotated[int, "Remembered requests."]
    policy: Annotated[PolicyShape, "The rules in force."]
    cuts: Annotated[list[CutShape], "What survived each epoch, oldest first."]


class CreatedShape(TypedDict):
    """A namespace that is live now."""

    namespace: Annotated[str, "The name."]
    generation: Annotated[int, "The generation, from 1."]
    head: Annotated[Revision, "Its newest revision."]
    created: Annotated[bool, "Whether this call made it live."]
    policy: Annotated[PolicyShape, "The rules in force."]


class DeletedShape(TypedDict):
    """A namespace that was deleted."""

    namespace: Annotated[str, "The name."]
    head: Annotated[Revision, "The head that its tombstone keeps."]
    record_count: Annotated[int, "How many records went."]


class TreeShape(TypedDict):
    """A collection with what is below it."""

    collection: Annotated[str, "The prefix; empty for the whole namespace."]
    record_count: Annotated[int, "Records at any depth below it."]
    keys: Annotated[list[str], "Keys directly in it."]
    collections: Annotated[list[Any], "Collections directly in it, as the same document."]


class TaskShape(TypedDict):
    """A claimed record."""

    namespace: Annotated[str, "The namespace."]
    key: Annotated[str, "The key."]
    holder: Annotated[str | None, "Who holds it, as agent#incarnation."]
    expire_time: Annotated[str | None, "When the lease ends unless renewed."]
    fence: Annotated[Revision, "The claim's revision."]
    attempts: Annotated[int, "How often it was handed out."]


class StatsShape(TypedDict):
    """How much is stored and how the server is doing."""

    namespace_count: Annotated[int, "Live namespaces."]
    loaded_count: Annotated[int, "Namespaces in memory."]
    record_count: Annotated[int, "Records in memory."]
    record_bytes: Annotated[int, "Bytes of records in memory."]
    commit_count: Annotated[int, "Commits since the start."]
    sync_count: Annotated[int, "Syncs of the journal since the start."]
    journal_bytes: Annotated[int, "Bytes of journal that wait to be folded."]
    refusals: Annotated[dict[str, int], "Refused writes since the start, by reason."]
    watch_count: Annotated[int, "Open watch streams."]
    agent_count: Annotated[int, "Agents with a living lease."]
    uptime_seconds: Annotated[float, "Seconds since the start."]
    resident_bytes: Annotated[int, "Resident memory of the process."]
    epoch: Annotated[int, "The present epoch."]


class UsageShape(TypedDict):
    """What a principal, an agent or a namespace has done at one server."""

    name: Annotated[str, "Its name; empty for calls without a credential."]
    call_count: Annotated[int, "Calls."]
    call_count_over: Annotated[int, "How many of these may be another's, whose place it took."]
    conflict_count: Annotated[int, "Calls that came to nothing because somebody else was faster."]
    refusals: Annotated[dict[str, int], "Refused calls, by reason."]
    bytes_in: Annotated[int, "Bytes of requests."]
    bytes_out: Annotated[int, "Bytes of answers."]
    start_time: Annotated[str | None, "Since when it is counted."]
    last_time: Annotated[str | None, "When its last call ended."]


class EpochShape(TypedDict):
    """An epoch."""

    epoch: Annotated[int, "Its number."]
    start_time: Annotated[str | None, "When it began."]
    cause: Annotated[str, "Why."]
    recovered: Annotated[str, "How many namespaces and commits the recovery found."]


class ServerShape(TypedDict):
    """A server of a fleet."""

    server_id: Annotated[str, "Its id, another one after each start."]
    address: Annotated[str, "Where it serves."]
    version: Annotated[str, "Its version."]
    start_time: Annotated[str | None, "When it began to serve."]
    leader: Annotated[bool, "Whether it does what one server does for all."]
    answered: Annotated[bool, "Whether it is the one that has answered."]


class ReadyShape(TypedDict):
    """Printed by a server as soon as it answers calls."""

    address: Annotated[str, "Where, with the port that the system chose if 0 was asked for."]


class KeyShape(TypedDict):
    """A key of the configuration; the document has one of these for each."""

    value: Annotated[Any, "The effective value; secrets are masked."]
    origin: Annotated[str, "`default`, the file, the environment variable or the flag."]


class ViolationShape(TypedDict):
    """A contradiction in a history."""

    kind: Annotated[str, "What went wrong, e.g. `lost update`."]
    checker: Annotated[str, "Which of the checkers found it."]
    namespace: Annotated[str, "Where."]
    keys: Annotated[list[str], "The keys concerned."]
    text: Annotated[str, "What contradicts what."]
    calls: Annotated[list[Any], "The calls that show it, as `process` and `call`."]


class VerdictShape(TypedDict):
    """A checker's verdict on a history."""

    status: Annotated[str, "`valid`, `invalid` or `undecided`."]
    violations: Annotated[list[ViolationShape], "Contradictions."]
    undecided: Annotated[list[str], "Where a search met its bound."]
    notes: Annotated[list[str], "What else is worth knowing."]
    figures: Annotated[dict[str, Any], "What the history contains."]


class CompactionMethodShape(TypedDict):
    """What one method of making tool outputs small kept of the values that were used later."""

    method: Annotated[str, "Its name; the last one is `compress`, the others are baselines."]
    used: Annotated[int, "Values of outputs over the budget that were used later."]
    kept: Annotated[int, "How many of them it kept."]
    percent: Annotated[float, "The share of these."]
    used_new: Annotated[int, "The used values that had not occurred before the output."]
    kept_new: Annotated[int, "How many of them it kept."]
    percent_new: Annotated[float, "The share of these."]
    lossless: Annotated[int, "Outputs over the budget that it kept whole."]
    tokens: Annotated[int, "The size of what it made of the outputs over the budget."]


class CompactionShape(TypedDict):
    """What compress on arrival kept of recorded tool outputs."""

    ok: Annotated[bool, "Whether `compress` reached the gate and kept its promises."]
    gate_percent: Annotated[float, "What it has to keep."]
    goal_percent: Annotated[float, "What it should keep."]
    tokens_max: Annotated[int, "The budget of each output."]
    tokenizer: Annotated[str, "The vocabulary that counts."]
    runs: Annotated[int, "Recorded runs."]
    outputs: Annotated[int, "Tool outputs in them."]
    outputs_over: Annotated[int, "Those over the budget."]
    tokens_over: Annotated[int, "The size of these."]
    methods: Annotated[list[CompactionMethodShape], "What each method did with the outputs over the budget."]
    problems: Annotated[list[str], "Where `compress` broke a promise: budget, losslessness, blindness for the future."]


RecallFiguresShape = TypedDict(
    "RecallFiguresShape",
    {
        "n": Annotated[int, "Questions with evidence."],
        "recall@5": Annotated[float, "Mean share of a question's evidence among the first 5, in percent."],
        "recall@10": Annotated[float, "The same among the first 10."],
        "mrr": Annotated[float, "Mean of one over the place of the first that is evidence, in percent."],
    },
)
RecallFiguresShape.__doc__ = "How well what was asked for was found."


class RecallKeptShape(TypedDict):
    """How much of the evidence was kept within a budget, in percent."""

    form: Annotated[str, "`turns` as they are, turns `merged` to long messages, or with tool results `attached`."]
    tokens: Annotated[int, "The budget."]
    stopping: Annotated[float, "The first ten, up to the first that does not fit."]
    skipping: Annotated[float, "Best first, without what does not fit."]
    packed: Annotated[float, "As contexts are packed."]


class RecallShape(TypedDict):
    """How well the turns of conversations that answer questions are found again."""

    ok: Annotated[bool, "Whether all gates are reached."]
    gates: Annotated[dict[str, float], "What has to be reached, in percent; `kept` is of the worst form, packed."]
    goals: Annotated[dict[str, float], "What should be."]
    reached: Annotated[dict[str, float], "What is."]
    conversations: Annotated[int, "How many."]
    memories: Annotated[int, "Their turns; each is one memory."]
    embedder: Annotated[str, "The model's name; empty for keywords alone."]
    overall: Annotated[RecallFiguresShape, "Over all questions."]
    categories: Annotated[dict[str, RecallFiguresShape], "By category."]
    kept: Annotated[list[RecallKeptShape], "Within 500, 1,000 and 2,000 tokens."]
    ablation: Annotated[dict[str, RecallFiguresShape], "With other weights, by what is different; empty unless asked."]
    weights_sha256: Annotated[str, "The digest of the ranking's weights."]


class UpdatesPlacedShape(TypedDict):
    """How questions about facts that have changed were answered, in percent."""

    n: Annotated[int, "Questions."]
    current_first: Annotated[float, "The first hit is the fact that holds now."]
    stale_first: Annotated[float, "The first hit is one that it contradicts."]


class UpdatesMissedShape(TypedDict):
    """A question whose answer was not the first hit."""

    question: Annotated[str, "What was asked."]
    wanted: Annotated[str, "The fact that answers it; empty if the set has none."]
    first: Annotated[str, "The first hit; empty if there was none."]


class UpdatesSetShape(TypedDict):
    """What became of one set of facts."""

    name: Annotated[str, "The file's name."]
    facts: Annotated[int, "Facts that arrived."]
    decided: Annotated[dict[str, int], "How many of them became what, by status."]
    supersessions: Annotated[int, "Facts that were superseded."]
    false_supersessions: Annotated[list[str], "Those that should not have been, with what superseded them."]
    questions: Annotated[UpdatesPlacedShape, "Over all questions."]
    alone: Annotated[UpdatesPlacedShape, "The same, searched among what was superseded, too."]
    missed: Annotated[list[UpdatesMissedShape], "The questions whose answer was not first."]


class UpdatesShape(TypedDict):
    """What becomes of facts that later ones contradict."""

    ok: Annotated[bool, "Whether all gates are reached, by every set."]
    gates: Annotated[dict[str, float], "What has to be reached, in percent: the least `current_first`, the most else."]
    goals: Annotated[dict[str, float], "What should be."]
    reached: Annotated[dict[str, float], "What is, by the worst set."]
    sets: Annotated[list[UpdatesSetShape], "By file."]


class LockShape(TypedDict):
    """A lock that somebody holds, or an election that somebody leads."""

    lock: Annotated[str, "The lock's name."]
    holder: Annotated[str, "Who holds it, as agent#incarnation."]
    token: Annotated[Revision, "The fencing token: larger means later."]
    lease_seconds: Annotated[float, "How long it is held without a renewal."]
    data: Annotated[Any, "What the holder wants to be known: a JSON value, the base64 text of other bytes, or null."]


class ReleasedShape(TypedDict):
    """A lock that was freed."""

    lock: Annotated[str, "The lock's name."]
    token: Annotated[Revision, "The token under which it was held."]
    released: Annotated[bool, "True."]


class MemberShape(TypedDict):
    """An agent in a group."""

    group: Annotated[str, "The group's name."]
    agent: Annotated[str, "The agent."]
    number: Annotated[Revision, "Tells two lives of one member apart: larger means later."]
    lease_seconds: Annotated[float, "How long it is there without a renewal."]
    data: Annotated[Any, "What the others should know of it: a JSON value, the base64 text of other bytes, or null."]


class VersionShape(TypedDict):
    """The program's version."""

    version: Annotated[str, "As major.minor.patch."]
    python: Annotated[str, "The Python that runs it."]


class ConflictShape(TypedDict):
    """Why a write was refused, beside the error that it caused."""

    namespace: Annotated[str, "The namespace."]
    key: Annotated[str, "The key."]
    theirs: Annotated[RecordShape | None, "The record as it is now."]
    unseen: Annotated[list[DotShape], "Writes that the caller had not seen, newest first."]
    allowed: Annotated[list[str], "What the caller may do, the most sensible first."]


class ErrorShape(TypedDict):
    """Printed to stderr as `{"error": …}` by a command that failed."""

    reason: Annotated[str, "A constant, e.g. `CONFLICT`, `USAGE`, `UNAVAILABLE`."]
    message: Annotated[str, "For people."]
    exit_code: Annotated[int, "The process's exit code."]
    outcome: Annotated[str | None, "`not_applied`, or `unknown` if a write may have happened; null without a call."]
    request_id: Annotated[str | None, "The id of the write."]
    conflict: Annotated[ConflictShape | None, "The conflict, if it is one."]


class FilesShape(TypedDict):
    """What a command has written."""

    files: Annotated[list[str], "The files."]
