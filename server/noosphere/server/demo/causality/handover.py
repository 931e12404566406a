"""One agent tells another what it has done, and the other then reads at least that."""

from __future__ import annotations

from noosphere.client import Conflict

from .cast import Cast, with_step
from .telling import Step

FINDINGS = "findings"
ROUNDS = 50


async def hand_over(cast: Cast, step: Step) -> None:
    """Ada writes and tells Ben, over and over; Ben reads from his own copy of the namespace."""
    ada, ben = cast.ada.namespace(cast.namespace), cast.ben.namespace(cast.namespace)
    key = ada.key(FINDINGS)
    record = await key.read()
    behind = 0
    async with ben.cached() as fast:
        for number in range(1, ROUNDS + 1):
            record = await record.replace({"n": number})
            # The token goes from agent to agent, in a message or a prompt; the server keeps nothing for it.
            await cast.ben.observe(cast.ada.causal_token())
            read = await fast.read(FINDINGS)
            behind += not read.exists or read.value["n"] < number
    step.line(
        f"Ada writes and tells Ben, {ROUNDS} times; each time Ben reads it, from his near cache as soon as that has it",
        behind == 0,
    )
    old = cast.first_seen
    assert old is not None
    await cast.cleo.observe(cast.ada.causal_token())
    head = (await cast.plan(cast.ada).read()).head
    try:
        await old.replace(with_step(old.value, "overwrite"))
        overwritten = True
    except Conflict:
        overwritten = False
    step.line(
        "A token orders reads and authorises nothing: Cleo observes it too, and her old copy of the plan still "
        "replaces nothing",
        not overwritten and (await cast.plan(cast.ada).read()).head == head,
    )
