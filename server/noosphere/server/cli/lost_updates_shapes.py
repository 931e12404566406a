"""The shapes of `noosphere bench lost-updates`, which is also what the report of the benchmarks reads."""

from __future__ import annotations

from typing import Annotated, TypedDict


class LostUpdatesVariantShape(TypedDict):
    """One way to use one product."""

    name: Annotated[str, "Its name, which runs and gates refer to."]
    product: Annotated[str, "The product."]
    version: Annotated[str, "The product's version; empty if it could not be had."]
    use: Annotated[str, "`default`, as its first example does, or `best`, with all it has against lost updates."]
    how: Annotated[str, "How it is used, in one sentence."]
    durability: Annotated[str, "What an acknowledgement is worth."]
    ours: Annotated[bool, "Whether it is Noosphere."]
    unavailable: Annotated[str, "Why nothing was run with it; empty if something was."]


class LostUpdatesRunShape(TypedDict):
    """What a scenario did to one variant, by the harness's own log. Ids are those of the harness."""

    variant: Annotated[str, "The variant's name."]
    scenario: Annotated[str, "`plan`, `notes`, `tasks`, `decide`, `late` or `failover`."]
    agents: Annotated[int, "How many took part."]
    not_run: Annotated[str, "Why there are no figures, or why they end early; empty otherwise."]
    seconds: Annotated[float, "From the first step to the last acknowledgement."]
    commits: Annotated[int, "Acknowledged changes; in `tasks` completions that were accepted."]
    failed: Annotated[int, "Changes that ended with an error, which the agent knows."]
    error: Annotated[str, "The first such error; empty if there was none."]
    lost: Annotated[int, "Acknowledged ids that are not there at the end."]
    doubled: Annotated[int, "Ids that are there more than once."]
    stale: Annotated[int, "Decisions that were acknowledged although what they rest on had been changed before."]
    overtaken: Annotated[int, "Model calls during which what was read was changed, so that they were in vain."]
    tasks: Annotated[int, "Tasks on the board; 0 in other scenarios."]
    starts: Annotated[int, "How often one was begun."]
    expired: Annotated[int, "Executions that took longer than their lease: their agent's process was stopped."]
    duplicates: Annotated[int, "Executions beyond one per task and expired lease."]
    starts_per_task: Annotated[float, "`starts` by `tasks`."]
    completions_per_task: Annotated[float, "`commits` by `tasks`."]
    model_calls: Annotated[int, "All of them."]
    model_calls_per_commit: Annotated[float, "0 without commits."]
    signalled: Annotated[int, "Acknowledged ids of which the product told their writer that they were lost."]
    silent: Annotated[int, "Lost ids of which it did not."]
    p50_ms: Annotated[float, "From the first look to the acknowledgement, thoughts and all attempts included."]
    p99_ms: Annotated[float, "The same."]
    commits_per_s: Annotated[float, "`commits` by `seconds`."]


class LostUpdatesGateShape(TypedDict):
    """What Noosphere has to reach."""

    variant: Annotated[str, "The variant's name."]
    scenario: Annotated[str, "The scenario."]
    what: Annotated[str, "What is limited."]
    value: Annotated[float, "What was found."]
    limit: Annotated[float, "The largest value that passes; of `completions per task` the only one."]
    ok: Annotated[bool, "Whether it passes."]


class LostUpdatesShape(TypedDict):
    """What agents lose with Noosphere and with other products."""

    ok: Annotated[bool, "Whether every gate is reached, and at least one was tried."]
    plan: Annotated[str, "`full` or `quick`."]
    seed: Annotated[int, "Decides the lengths of all thoughts."]
    agents: Annotated[int, "How many."]
    think_ms: Annotated[float, "The median length of a thought."]
    seconds: Annotated[float, "How long all of it took, installing excluded."]
    date: Annotated[str, "When, UTC."]
    variants: Annotated[list[LostUpdatesVariantShape], "What was compared."]
    runs: Annotated[list[LostUpdatesRunShape], "What was found."]
    gates: Annotated[list[LostUpdatesGateShape], "What was to be reached."]
