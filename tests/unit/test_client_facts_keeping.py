"""What keeps facts in order, through the client: forgetting, extraction, policies, upkeep, reviews."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.unit.client_support import QUICK, Fault, ScriptedServer, scripted_server

from noosphere.client import (
    Client,
    FactPolicy,
    InvalidArgument,
    SourceDocument,
    connect,
)
from noosphere.v1 import fact_service_pb2 as fs

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as script:
        yield script


@pytest.fixture
async def client(server: ScriptedServer) -> AsyncIterator[Client]:
    async with connect(server.address, agent="planner-0", retry=QUICK) as connected:
        yield connected


def forgotten() -> fs.ForgetFactsResponse:
    places = [fs.ForgetPlace(place="facts", count=1), fs.ForgetPlace(place="messages", count=2)]
    return fs.ForgetFactsResponse(fact_ids=["f1"], places=places, remaining=["backups made before"])


async def test_forgetting_says_what_and_where(server: ScriptedServer, client: Client) -> None:
    server.script("ForgetFacts", *[forgotten()] * 5)
    report = await client.facts.forget("f1")
    assert (report.fact_ids, report.places, report.remaining) == (
        ("f1",),
        {"facts": 1, "messages": 2},
        ("backups made before",),
    )
    await client.facts.forget(query="password", owner="user/42", scope="shared/family")
    await client.facts.forget(producer="crawler/1")
    await client.facts.forget(everything=True, owner="user/42")
    await client.facts.forget(query="password")
    sent = server.requests["ForgetFacts"]
    assert [request.WhichOneof("what") for request in sent] == ["fact_id", "query", "producer", "all", "query"]
    assert [request.owner for request in sent] == ["", "user/42", "", "user/42", "agent/planner-0"]
    assert [request.scope for request in sent] == ["", "shared/family", "", "", ""]
    assert all(request.call.HasField("request_id") for request in sent)


async def test_a_dry_run_is_a_read(server: ScriptedServer, client: Client) -> None:
    """It changes nothing, so a failure leaves no doubt."""
    server.script("ForgetFacts", forgotten(), Fault("INTERNAL"))
    report = await client.facts.forget("f1", dry_run=True)
    assert report.dry_run
    request = server.requests["ForgetFacts"][0]
    assert (request.dry_run, request.call.HasField("request_id")) == (True, False)
    with pytest.raises(Exception, match="scripted") as caught:
        await client.facts.forget("f1", dry_run=True)
    assert getattr(caught.value, "outcome", "") == "not_applied"


@pytest.mark.parametrize(
    "arguments",
    [{}, {"fact": "f1", "query": "x"}, {"query": "x", "everything": True}, {"owner": "user/42"}],
    ids=["nothing", "two", "query_and_all", "owner_alone"],
)
async def test_what_to_forget_is_said_once(server: ScriptedServer, client: Client, arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match="of fact, query, producer and everything are given, not one"):
        await client.facts.forget(**arguments)
    assert not server.requests["ForgetFacts"]


async def test_extraction_takes_a_session_or_a_document(server: ScriptedServer, client: Client) -> None:
    job = fs.ExtractionJob(id="j1", state=fs.EXTRACTION_STATE_DONE, candidate_ids=["c1"], extractor="rules/1")
    server.script("ExtractFacts", *[fs.ExtractFactsResponse(job=job)] * 2)
    server.script("GetExtractionJob", fs.GetExtractionJobResponse(job=job))
    waited = await client.facts.extract("s9", owner="user/42", wait=True)
    await client.facts.extract(SourceDocument("handbook", "Use metric units."))
    assert (waited.state, waited.candidate_ids, waited.extractor) == ("done", ("c1",), "rules/1")
    assert await client.facts.extraction(waited) == waited
    first, second = server.requests["ExtractFacts"]
    assert (first.session_id, first.owner, first.wait) == ("s9", "user/42", True)
    assert (second.document.id, second.document.text, second.owner) == (
        "handbook",
        "Use metric units.",
        "agent/planner-0",
    )
    # Hundreds of calls may pass one that waits for a model.
    assert [request.call.request_id.WhichOneof("id") for request in (first, second)] == ["uuid", "sequence"]
    with pytest.raises(InvalidArgument, match="source: 7 is int, no session and no document"):
        await client.facts.extract(7)  # type: ignore[arg-type]


async def test_who_waits_for_an_extraction_waits_longer_than_one_call(server: ScriptedServer, client: Client) -> None:
    """The server answers after a while in any case; asked again under the same id it goes on waiting."""
    waiting = fs.ExtractFactsResponse(job=fs.ExtractionJob(id="j1", state=fs.EXTRACTION_STATE_QUEUED))
    done = fs.ExtractFactsResponse(job=fs.ExtractionJob(id="j1", state=fs.EXTRACTION_STATE_DONE))
    server.script("ExtractFacts", waiting, waiting, done, waiting)
    assert (await client.facts.extract("s9", wait=True)).state == "done"
    requests = server.requests["ExtractFacts"]
    assert len({request.call.request_id.uuid for request in requests}) == 1
    assert len(requests) == 3
    assert (await client.facts.extract("s9")).state == "queued"


async def test_a_policy_goes_there_and_back(server: ScriptedServer, client: Client) -> None:
    policy = FactPolicy(
        memory_types=("semantic",),
        writers=("planner-*",),
        importance_min=0.0,
        confidence_min=0.25,
        trust_min=1.0,
        conflict_rule="keep_both",
        single_valued=("units",),
        aliases={"乌班图": "Ubuntu"},
        ttl={"working": timedelta(hours=1)},
        half_life={"mood": timedelta(days=2)},
    )
    server.script("SetFactPolicy", lambda request: fs.SetFactPolicyResponse(policy=request.policy))
    server.script("GetFactPolicy", lambda _: fs.GetFactPolicyResponse(policy=fs.FactPolicy()))
    assert await client.facts.set_policy(policy, "user/42") == policy
    assert server.requests["SetFactPolicy"][0].scope == "user/42"
    server.script("SetFactPolicy", lambda request: fs.SetFactPolicyResponse(policy=request.policy))
    all_pass = FactPolicy(importance_min=0.0, confidence_min=0.0, trust_min=0.0)
    assert await client.facts.set_policy(all_pass) == all_pass, "0 is a rule, and no default"
    assert await client.facts.policy() == FactPolicy()
    assert server.requests["GetFactPolicy"][0].scope == "agent/planner-0"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"memory_types": ("long",)}, r"policy.memory_types\[0\]: 'long' is not one of"),
        ({"writers": "planner-*"}, "policy.writers: 'planner-.' is str, not several texts"),
        ({"trust_min": True}, "policy.trust_min: True is bool, not a number"),
        ({"conflict_rule": "oldest"}, "policy.conflict_rule: 'oldest' is not one of newest, trust, keep_both"),
        ({"aliases": [1]}, r"policy.aliases: \[1\] is list, not a mapping"),
        ({"ttl": {"working": 0}}, r"policy.ttl\['working'\]: 0 is not a number of seconds above 0"),
    ],
    ids=["types", "writers", "trust", "rule", "aliases", "ttl"],
)
async def test_a_malformed_rule_is_refused_before_it_is_sent(
    server: ScriptedServer, client: Client, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidArgument, match=message):
        await client.facts.set_policy(dataclasses.replace(FactPolicy(), **change))
    assert not server.requests["SetFactPolicy"]


async def test_upkeep_runs_and_is_told(server: ScriptedServer, client: Client) -> None:
    change = fs.UpkeepChange(fact_id="f1", action="decay", explanation="half-life of mood passed")
    server.script("RunFactUpkeep", *[fs.RunFactUpkeepResponse(changes=[change], looked_at=3)] * 2)
    one = fs.UpkeepRound(scope="user/42", looked_at=3, changed={"decay": 1})
    one.end_time.FromDatetime(NOON)
    server.script("GetFactUpkeep", fs.GetFactUpkeepResponse(rounds=[one], waiting=1, leased=2, dead=3))
    planned = await client.facts.run_upkeep("user/42", dry_run=True)
    assert planned == await client.facts.run_upkeep()
    assert (planned.changes[0].action, planned.looked_at) == ("decay", 3)
    dry, wet = server.requests["RunFactUpkeep"]
    assert [(r.scope, r.dry_run, r.call.HasField("request_id")) for r in (dry, wet)] == [
        ("user/42", True, False),
        ("", False, True),
    ]
    kept = await client.facts.upkeep()
    assert (kept.waiting, kept.leased, kept.dead) == (1, 2, 3)
    assert (kept.rounds[0].time, kept.rounds[0].changed, kept.rounds[0].failure) == (NOON, {"decay": 1}, "")


async def test_a_review_decides(server: ScriptedServer, client: Client) -> None:
    written = fs.CANDIDATE_STATUS_WRITTEN
    server.script(
        "ReviewCandidate", fs.ReviewCandidateResponse(decision=fs.Decision(candidate_id="c1", status=written))
    )
    done = await client.facts.review("c1", accept=True)
    (request,) = server.requests["ReviewCandidate"]
    assert (request.candidate_id, request.accept, done.known) == ("c1", True, True)
