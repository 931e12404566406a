"""One agent falls behind, writes on what it had seen, is refused, and resolves it."""

from __future__ import annotations

from noosphere.client import Conflict, Order, connect
from noosphere.consistency.limits import CLOCK_ENTRIES_MAX

from .cast import CALL_LIMIT_S, Cast, Plan, after_writing, is_order, joined, name_of, sights, with_step
from .telling import Step

HELPERS = 18
"""More than a clock names, so that it has to sum the oldest up."""

CLEOS_STEP = "publish"
EXPLANATION_TOKENS = 500


async def fall_behind(cast: Cast, step: Step) -> None:
    """Cleo reads the plan; then everybody but her changes it."""
    ada, ben, cleo = cast.ada, cast.ben, cast.cleo
    await cast.plan(ada).put(Plan(goal="launch", steps=["draft"]))
    first = cast.first_seen = await cast.plan(cleo).read()
    await cast.plan(ben).update(lambda plan, _: with_step(plan, "review"))
    for number in range(1, HELPERS + 1):
        async with connect(
            ada.server, agent=f"helper-{number}-{ada.agent.partition('-')[2]}", timeout=CALL_LIMIT_S
        ) as helper:
            await cast.plan(helper).update(lambda plan, _, n=number: with_step(plan, f"check {n}"))  # type: ignore[misc] # bound now
    mine, theirs = await cast.plan(ada).read(), await cast.plan(ben).read()
    present = mine.clock
    step.parts.append(
        sights(
            present,
            [
                (name_of(ada), f"{len(mine.value.steps)} steps", mine.clock),
                (name_of(ben), f"{len(theirs.value.steps)} steps", theirs.clock),
                (name_of(cleo), f"{len(first.value.steps)} step", first.clock),
            ],
        )
    )
    step.line(
        "Ada and Ben have seen the same: EQUAL",
        is_order(mine.clock, theirs.clock, Order.EQUAL) and mine.version == theirs.version,
    )
    behind = mine.change_count - first.change_count
    step.line(
        f"Cleo is {behind} writes behind: what she has seen is BEFORE what is there, which is AFTER it",
        is_order(first.clock, present, Order.BEFORE) and behind == HELPERS + 1,
    )
    named, unseen = len(present.entries), len(present.unseen_by(first.clock))
    step.line(
        f"{HELPERS + 2} agents have written; the clock names the newest {named} of them, none of whose writes Cleo "
        "has seen, and sums the others up",
        named == CLOCK_ENTRIES_MAX == unseen and present.base >= first.clock.entries[-1][1],
    )
    hers = after_writing(first.clock, cleo.actor, mine.head + 1)
    step.line("What Cleo would write now would be CONCURRENT with it", is_order(hers, present, Order.CONCURRENT))


async def be_refused(cast: Cast, step: Step) -> None:
    """Cleo writes what she made of what she had seen, and is refused with reasons."""
    first = cast.first_seen
    assert first is not None
    before = await cast.plan(cast.ada).read()
    wanted = with_step(first.value, CLEOS_STEP)
    try:
        await first.replace(wanted)
    except Conflict as refused:
        conflict: Conflict[Plan] = refused
    else:
        step.line("Cleo's write is refused: it has not seen what it would replace", False)
        return
    theirs = conflict.theirs
    assert theirs is not None
    step.line(f"Cleo's write is refused with {conflict.reason}", conflict.reason == "CONFLICT")
    writer = before.writers[0].actor
    step.quote("What her model is told:", conflict.explain(EXPLANATION_TOKENS), CLEOS_STEP, writer, "check 1")
    step.line(
        "It has her own write, what she had read, what is there now, and who wrote that",
        conflict.mine == wanted
        and conflict.base is first
        and theirs.value == before.value
        and [dot.actor for dot in conflict.unseen] == [writer],
    )
    after = await cast.plan(cast.ada).read()
    step.line("Nothing was written", (after.version, after.head) == (before.version, before.head))
    resolved = await theirs.replace(joined(theirs.value, wanted))
    cast.joined = present = await cast.plan(cast.cleo).read()
    step.line(
        f"She writes one plan that keeps both: {len(present.value.steps)} steps, with each of theirs and her own",
        present.version == resolved.version and present.value.steps == [*before.value.steps, CLEOS_STEP],
    )
    step.parts.append(
        sights(
            present.clock,
            [
                (name_of(cast.cleo), f"{len(present.value.steps)} steps", present.clock),
                (name_of(cast.ada), f"{len(before.value.steps)} steps", before.clock),
            ],
        )
    )
    step.line(
        "What is there now is AFTER what the others wrote and AFTER what she had read",
        is_order(present.clock, before.clock, Order.AFTER) and is_order(present.clock, first.clock, Order.AFTER),
    )
