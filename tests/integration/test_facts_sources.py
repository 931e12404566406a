"""What a fact rests on, when it is much: all of it is found when it is forgotten, and noise crowds none of it out."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.engine import LocalServer
from tests.support.facts import Conversation, FactAgent
from tests.support.sessions import SessionAgent
from tests.support.statuses import refusal
from tests.support.telling import Teller
from tests.support.worlds import LocalWorld

from noosphere.consistency import Reason, Refusal
from noosphere.server.facts.removing import Removal
from noosphere.server.ports.sources import REDACTED
from noosphere.v1 import fact_service_pb2 as pb

Status = pb.CandidateStatus
CLAIM = "The vault word is Cassiopeia"


@pytest.fixture
async def user(local: LocalServer) -> Teller:
    return await Teller.begin(await LocalWorld(local).agent())


async def another(user: Teller) -> Conversation:
    """Opens another session in which the user speaks."""
    sessions = SessionAgent(user.facts.agent)
    return Conversation(sessions, (await sessions.open()).id)


async def said_in(talk: Conversation) -> list[str]:
    """Texts of a session's messages."""
    return [message.parts[0].text for message in await talk.sessions.messages(talk.id)]


async def junk(user: Teller, **fields: object) -> None:
    """Has somebody repeat the claim with evidence that nobody holds, as often as a fact lists sources."""
    for part in range(2):
        evidence = [pb.FactEvidence(reference=f"url:https://page.example/{part}/{at}") for at in range(32)]
        await user.decided(CLAIM, channel=pb.CHANNEL_EXTERNAL, evidence=evidence, **fields)


async def test_more_sources_than_a_fact_lists_are_all_forgotten_and_none_teaches_it_again(user: Teller) -> None:
    talks = [await another(user) for _ in range(34)]
    heard = [await talk.hears(f"{CLAIM}, I say for the {at}. time.") for at, talk in enumerate(talks)]
    facts = {(await user.decided(CLAIM, evidence=[one])).fact_id for one in heard}
    (fact_id,) = facts
    fact = await user.facts.get(fact_id)
    assert (fact.source_count, len(fact.evidence)) == (34, 32)
    await user.facts.forget(fact_id=fact_id)
    assert {text for talk in talks for text in await said_in(talk)} == {REDACTED}
    again = await user.decided(CLAIM, evidence=[heard[0]])
    assert again.status == Status.CANDIDATE_STATUS_SUPPRESSED, again


async def test_the_same_words_in_another_session_are_forgotten_too_and_make_it_no_surer(user: Teller) -> None:
    talks = [await another(user) for _ in range(2)]
    heard = [await talk.hears(f"{CLAIM}.") for talk in talks]
    first, second = [await user.decided(CLAIM, evidence=[one]) for one in heard]
    assert second.fact_id == first.fact_id
    fact = await user.facts.get(first.fact_id)
    assert (fact.source_count, fact.confidence) == (1, 0.9)
    assert [one.reference for one in fact.evidence] == [one.reference for one in reversed(heard)]
    await user.facts.forget(fact_id=first.fact_id)
    assert [await said_in(talk) for talk in talks] == [[REDACTED], [REDACTED]]
    again = await user.decided(CLAIM, evidence=[heard[1]])
    assert again.status == Status.CANDIDATE_STATUS_SUPPRESSED, again


async def test_evidence_that_is_worth_nothing_crowds_out_none_that_is(user: Teller) -> None:
    talk = await another(user)
    heard = await talk.hears(f"{CLAIM}.")
    decision = await user.decided(CLAIM, evidence=[heard])
    await junk(user)
    fact = await user.facts.get(decision.fact_id)
    assert heard.reference in {one.reference for one in fact.evidence}
    assert (len(fact.evidence), fact.confidence, fact.trust) == (32, 0.9, 0.5)
    await user.facts.forget(fact_id=decision.fact_id)
    assert await said_in(talk) == [REDACTED]


async def test_what_a_poisoned_producer_said_is_gone_though_others_whom_nobody_trusts_said_it_too(
    user: Teller,
) -> None:
    decision = await user.decided(CLAIM, producer="poisoned/1")
    await junk(user, producer="crawler/1")
    report = await user.facts.forget(producer="poisoned/1", owner=user.user)
    assert list(report.fact_ids) == [decision.fact_id]
    assert await user.facts.listed(user.user, include_superseded=True) == []


async def test_after_a_rollback_a_fact_is_as_sure_as_those_make_it_who_are_trusted(user: Teller) -> None:
    decision = await user.decided(CLAIM)
    await user.decided(
        CLAIM,
        evidence=[await (await another(user)).hears(f"Once more: {CLAIM}")],
        producer="poisoned/1",
    )
    await junk(user, producer="crawler/1")
    assert (await user.facts.get(decision.fact_id)).confidence == pytest.approx(0.99)
    await user.facts.forget(producer="poisoned/1", owner=user.user)
    fact = await user.facts.get(decision.fact_id)
    assert fact.confidence == pytest.approx(0.9)
    assert fact.trust == 0.5


async def kept_apart(user: Teller) -> set[str]:
    """The words of all candidates that are no facts of their own."""
    return {known.candidate.text for known in await user.facts.candidates(user.user)}


async def test_what_was_refused_and_says_the_same_is_forgotten_with_the_fact(user: Teller) -> None:
    for text in (CLAIM, f"{CLAIM}, and the passcode is 4711-0815", "The vault word begins with a C"):
        await user.decided(text, channel=pb.CHANNEL_EXTERNAL)
    decision = await user.decided(CLAIM)
    report = await user.facts.forget(fact_id=decision.fact_id)
    assert {place.place: place.count for place in report.places}["candidates"] == 2
    assert await kept_apart(user) == {"", "The vault word begins with a C"}


async def test_other_words_for_a_fact_are_forgotten_with_it(user: Teller) -> None:
    decision = await user.decided(CLAIM)
    again = await user.decided("Vault word is really now Cassiopeia")
    assert (again.status, again.fact_id) == (Status.CANDIDATE_STATUS_MERGED, decision.fact_id), again
    assert "Vault word is really now Cassiopeia" in await kept_apart(user), "they are kept for a review"
    await user.facts.forget(fact_id=decision.fact_id)
    assert await kept_apart(user) == {""}


async def test_forgetting_a_fact_leaves_what_was_refused_of_another_owner(user: Teller) -> None:
    other = user.another()
    await other.decided(CLAIM, channel=pb.CHANNEL_EXTERNAL)
    decision = await user.decided(CLAIM)
    await user.facts.forget(fact_id=decision.fact_id)
    assert await kept_apart(other) == {CLAIM}


async def test_a_rollback_of_one_producer_leaves_what_was_refused_of_another(user: Teller) -> None:
    await user.decided(CLAIM, channel=pb.CHANNEL_EXTERNAL, producer="crawler/1", evidence=[])
    await user.decided(CLAIM, producer="poisoned/1")
    await user.facts.forget(producer="poisoned/1", owner=user.user)
    assert CLAIM in await kept_apart(user)


async def test_what_says_the_same_is_forgotten_after_a_crash_half_way(
    local: LocalServer, user: Teller, monkeypatch: pytest.MonkeyPatch
) -> None:
    await user.decided(CLAIM, channel=pb.CHANNEL_EXTERNAL)
    decision = await user.decided(CLAIM)

    async def cut_off(*_: object) -> None:
        raise Refusal(Reason.ENGINE_UNAVAILABLE, "the disk is gone")

    with monkeypatch.context() as patched:
        patched.setattr(Removal, "words", cut_off)
        with refusal(Reason.ENGINE_UNAVAILABLE):
            await user.facts.forget(fact_id=decision.fact_id)
    operator = FactAgent(await LocalWorld(local).agent("cli/op"))
    await operator.run_upkeep(user.user)
    assert await kept_apart(user) == {""}


@pytest.mark.parametrize(
    "named", [{"all": True}, {"query": "vault"}, {"producer": "crawler/1"}], ids=lambda it: str(*it)
)
async def test_a_document_from_which_nothing_came_is_in_no_file_any_more(
    local: LocalServer, user: Teller, named: dict[str, Any]
) -> None:
    text = f"Nobody knows what the weather will be like tomorrow, said the keeper. {CLAIM}?"
    await user.facts.extract(document=pb.SourceDocument(id="d", text=text), owner=user.user)
    files = [path for path in local.data.rglob("*") if path.is_file()]
    assert any(text.encode() in path.read_bytes() for path in files), "or this test shows nothing"
    await user.facts.forget(owner=user.user, **named)
    assert [path.name for path in files if text.encode() in path.read_bytes()] == []


async def test_a_fact_of_somebody_else_is_not_forgotten_for_an_owner(user: Teller) -> None:
    fact_id = await user.tells(CLAIM)
    for dry_run in (True, False):
        with refusal(Reason.INVALID_FIELD):
            await user.facts.forget(fact_id=fact_id, owner="user/somebody-else", dry_run=dry_run)
    assert [fact.text for fact in await user.facts.listed(user.user)] == [CLAIM]
    await user.facts.forget(fact_id=fact_id, owner=user.user)
    assert await user.facts.listed(user.user) == []
