"""One claim does not overturn for good what is known, whatever it says of its time."""

from __future__ import annotations

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from tests.support.engine import LocalServer
from tests.support.telling import Teller
from tests.support.worlds import LocalWorld

from noosphere.v1 import fact_service_pb2 as pb

Status = pb.CandidateStatus
FAR_S = 253_402_300_799
"""The end of the year 9999."""


@pytest.fixture
async def user(local: LocalServer) -> Teller:
    return await Teller.begin(await LocalWorld(local).agent())


async def test_a_claim_from_the_far_future_is_overturned_by_what_is_said_later(
    local: LocalServer, user: Teller
) -> None:
    await user.tells("I live in Paris")
    local.clock.advance(1_000)
    mordor = await user.tells("I live in Mordor", valid_from=Timestamp(seconds=FAR_S))
    local.clock.advance(1_000)
    later = await user.decided("I live in Rome")
    assert (later.status, list(later.superseded)) == (Status.CANDIDATE_STATUS_SUPERSEDED, [mordor])
    assert [fact.text for fact in await user.facts.listed(user.user)] == ["I live in Rome"]
