"""What is known of claims in memory changes no decision: the same is decided by a server that has just started."""

from __future__ import annotations

from pathlib import Path

from tests.support.engine import LocalServer, local_server
from tests.support.facts import FactAgent

from noosphere.v1 import fact_service_pb2 as pb

USER = "user/ann"
CLAIMS = (
    "Likes green tea",
    "likes green tea!",
    "Does not like green tea",
    "The office opens at 9:00",
    "The office opens at 10 am",
    "My favourite color is blue",
    "My favorite colour is blue",
    "The heater in the hall is on",
    "The heater in the hall is off",
    "喜欢绿茶",
    "喜欢绿茶。",
    "Ubuntu runs on the old laptop",
    "The old laptop has a broken lid",
)


async def decided(local: LocalServer, *, restarting: bool) -> list[tuple[str, str, str]]:
    """Submits all claims, one after the other; returns what became of each, why, and in which words it is known."""
    found = []
    for claim in CLAIMS:
        facts = FactAgent(await local.api.agent("cli/op", takeover=True))
        decision = await facts.decided(claim, owner=USER, channel=pb.CHANNEL_INTERNAL)
        known = await facts.get(decision.fact_id)
        found.append((pb.CandidateStatus.Name(decision.status), decision.reasons[0].reason, known.text))
        local.clock.advance(1)
        if restarting:
            await local.restart()
    return found


async def test_what_is_in_memory_of_claims_changes_no_decision(tmp_path: Path) -> None:
    async with local_server(tmp_path / "warm") as local:
        warm = await decided(local, restarting=False)
    async with local_server(tmp_path / "cold") as local:
        cold = await decided(local, restarting=True)
    assert warm == cold
    statuses = {status.removeprefix("CANDIDATE_STATUS_") for status, _, _ in warm}
    assert {"WRITTEN", "MERGED", "CONTESTED"} <= statuses, "they are compared at all"
