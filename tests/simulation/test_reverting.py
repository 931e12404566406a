"""Taking back what one agent wrote, against a model of lists: each key goes back as far as that agent's last run of
writes, nothing of anybody else is lost, and what a dry run tells is what a run does."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.api import Agent
from tests.support.effort import examples
from tests.support.engine import local_server
from tests.support.transport import ADMIN

from noosphere.v1 import admin_agents_pb2 as pb

SPACE = "shared/reverted"
BAD = "bad"
KEYS = ("a", "b", "notes/c")


class Step(NamedTuple):
    """A write: by whom, of which key, what; None deletes."""

    writer: str
    key: str
    value: int | None


STEPS = st.lists(
    st.builds(
        Step,
        writer=st.sampled_from((BAD, BAD, "good", "bad/2")),
        key=st.sampled_from(KEYS),
        value=st.none() | st.integers(0, 3),
    ),
    max_size=16,
)


class Written(NamedTuple):
    """A write that changed something, and the key's value after it."""

    revision: int
    writer: str
    value: str | None


def expected(history: list[Written], since: int, *, force: bool) -> tuple[str, str | None]:
    """Returns what becomes of a key, and its value afterwards, as slowly and plainly as can be."""
    present = history[-1].value if history else None
    meant = [write for write in history if write.writer == BAD and write.revision > since]
    if not meant:
        return "", present
    if force:
        kept = [write for write in history if write.revision < meant[0].revision]
    elif history[-1].writer == BAD:
        kept = list(history)
        while kept and kept[-1].writer == BAD and kept[-1].revision > since:
            kept.pop()
    else:
        return "CONFLICT", present
    before = kept[-1].value if kept else None
    if before == present:
        return "UNCHANGED", present
    return ("DELETED" if before is None else "RESTORED"), before


@settings(max_examples=examples(40))
@given(steps=STEPS, cut=st.integers(0, 16), force=st.booleans())
def test_each_key_goes_back_as_the_model_says(steps: list[Step], cut: int, force: bool) -> None:
    asyncio.run(_check(steps, cut, force))


async def _check(steps: list[Step], cut: int, force: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with local_server(Path(folder)) as local:
            agents = {name: await local.api.agent(name) for name in (BAD, "good", "bad/2", "cli/op")}
            histories: dict[str, list[Written]] = {key: [] for key in KEYS}
            since = 0
            for number, (writer, key, value) in enumerate(steps):
                agent = agents[writer]
                if value is None:
                    revision = (await agent.delete(SPACE, key, blind=True)).revision
                else:
                    revision = (await agent.put(SPACE, key, str(value).encode(), blind=True)).revision
                if revision:
                    histories[key].append(Written(revision, writer, None if value is None else str(value)))
                    since = revision if number < cut else since
            wanted = {key: expected(history, since, force=force) for key, history in histories.items()}
            outcomes = {key: outcome for key, (outcome, _) in wanted.items() if outcome}
            op = agents["cli/op"]
            before = await _values(op)
            assert await _revert(op, since, force=force, dry_run=True) == outcomes
            assert await _values(op) == before
            assert await _revert(op, since, force=force) == outcomes
            assert await _values(op) == {key: value for key, (_, value) in wanted.items()}
            again = await _revert(op, since, force=force)
            assert set(again.values()) <= {"CONFLICT", "UNCHANGED"}, "there is nothing left to do"
            assert await _values(op) == {key: value for key, (_, value) in wanted.items()}


async def _values(agent: Agent) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for key in KEYS:
        record = await agent.get(SPACE, key)
        found[key] = record.values[0].value.data.decode() if record.values else None
    return found


async def _revert(agent: Agent, since: int, *, force: bool, dry_run: bool = False) -> dict[str, str]:
    request = pb.RevertAgentRequest(
        agent_id=BAD, namespace=SPACE, since_revision=since, force=force, dry_run=dry_run, call=agent.call()
    )
    reply = await agent.api.transport.unary(ADMIN, "RevertAgent", request, pb.RevertAgentResponse)
    return {one.key: pb.RevertOutcome.Name(one.outcome).removeprefix("REVERT_OUTCOME_") for one in reply.records}
