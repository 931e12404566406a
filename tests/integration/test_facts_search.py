"""Searching facts: history, links, budgets, meaning, and searches that have to look further or do without."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.engine import LocalServer, local_server
from tests.support.facts import FactAgent
from tests.support.statuses import refusal
from tests.support.telling import Teller

from noosphere.consistency import NOTHING_SEEN, Reason, decode_causal, encode_causal
from noosphere.server.facts.asked import EMBED_MS_DEFAULT, SearchAsked
from noosphere.server.facts.retrieval import POOL, Retrieval
from noosphere.server.memory.types import Call
from noosphere.server.models.tokenizers import TokenizerRegistry
from noosphere.v1 import fact_service_pb2 as pb
from noosphere.v1 import types_pb2

SINGLE: dict[str, Any] = {"cardinality": pb.CARDINALITY_SINGLE}


@pytest.fixture
async def user(local: LocalServer) -> Teller:
    return await Teller.begin(await local.api.agent("a"))


async def test_what_was_superseded_comes_back_only_if_history_is_asked_for(local: LocalServer, user: Teller) -> None:
    for at in range(5):
        await local.elapse(1)
        await user.tells(f"Lives in city {at}", subject="user", predicate="home city", object=f"city {at}", **SINGLE)
    asked = "In which city does the user live?"
    assert await user.finds(asked) == ["Lives in city 4"]
    assert sorted(await user.finds(asked, include_superseded=True)) == [f"Lives in city {at}" for at in range(5)]


async def test_a_current_fact_is_found_behind_hundreds_of_versions_that_are_not(user: Teller) -> None:
    """Of what the store finds first, nothing counts any more."""
    operator = FactAgent(await user.facts.agent.api.agent("cli/anna"))
    for start in range(0, 4 * POOL, 64):
        claims = [
            pb.Candidate(
                text=f"release {at}",
                owner=user.user,
                subject=f"thing {at % 8}",
                predicate="version",
                object=types_pb2.Value(data=f"{at}".encode(), encoding=types_pb2.ENCODING_JSON),
                channel=pb.CHANNEL_INTERNAL,
                **SINGLE,
            )
            for at in range(start, start + 64)
        ]
        await operator.submit(*claims)
    last = await user.tells("the release of the garden newsletter and of much else that is not about things")
    hits = (await user.search("release", limit=20)).hits
    assert last in {hit.fact.id for hit in hits}
    assert all(not hit.fact.superseded_by for hit in hits)


async def test_of_contradictions_the_newest_stands_first_and_both_are_flagged(local: LocalServer, user: Teller) -> None:
    keep_both = {"subject": "user", "predicate": "home city"}
    await user.facts.set_policy(user.user, conflict_rule=pb.CONFLICT_RULE_KEEP_BOTH)
    await user.tells("The user lives in Paris", object="Paris", **keep_both, **SINGLE)
    await local.elapse(1_000)
    await user.tells("The user lives in Oslo", object="Oslo", **keep_both, **SINGLE)
    new, old = (await user.search("Where does the user live?")).hits
    assert (new.fact.text, old.fact.text) == ("The user lives in Oslo", "The user lives in Paris")
    assert list(new.fact.contested_by) == [old.fact.id]
    assert list(old.fact.contested_by) == [new.fact.id]


async def test_one_hop_finds_what_else_is_known_of_subjects_and_objects(user: Teller) -> None:
    await user.tells("Anna works for Acme", subject="Anna", predicate="works for", object="Acme")
    await user.tells("Its head office is in Oslo", subject="Acme", predicate="head office", object="Oslo")
    await user.tells("She plays chess", subject="Anna", predicate="plays", object="chess")
    await user.tells("Ben was hired in May", subject="Ben", predicate="employer", object="ACME")
    await user.tells("Carl sails", subject="Carl", predicate="likes", object="sailing")
    asked = "At which company is Anna's desk?"
    plain = set(await user.finds(asked))
    assert "Its head office is in Oslo" not in plain
    assert set(await user.finds(asked, expand=True)) - plain == {"Its head office is in Oslo", "Ben was hired in May"}
    linked = next(hit for hit in (await user.search(asked, expand=True)).hits if "Oslo" in hit.fact.text)
    assert linked.scores.parts["linked"] > 0


async def test_one_hop_stays_with_the_owners_that_were_asked_for(user: Teller) -> None:
    other = user.another()
    await user.tells("Anna works for Acme", subject="Anna", predicate="works for", object="Acme")
    await other.tells("Its head office is in Oslo", subject="Acme", predicate="head office", object="Oslo")
    assert await user.finds("Where does Anna work?", expand=True) == ["Anna works for Acme"]


@pytest.mark.parametrize("tokens_max", [1, 8, 20, 60, 1_000])
async def test_hits_fit_their_budget(user: Teller, tokens_max: int) -> None:
    for at in range(8):
        await user.tells(f"Tea number {at} is {'very ' * (at * at)}good")
    hits = (await user.search("Which tea is good?", tokens_max=tokens_max, limit=8)).hits
    assert sum(hit.tokens for hit in hits) <= tokens_max
    assert len(hits) == 8 or tokens_max < 1_000
    assert bool(hits) == (tokens_max >= 8)


async def test_nothing_leaks_from_owner_to_owner_while_all_write_and_search(user: Teller) -> None:
    users = [user.another() for _ in range(8)]

    async def live(one: Teller) -> None:
        for at in range(12):
            await one.tells(f"Keeps the key of door {at} in box {at * at}")
            asked: list[dict[str, Any]] = [{}, {"scopes": [one.user]}, {"expand": True}, {"include_superseded": True}]
            for fields in asked:
                hits = (await one.search("Where is the key of the door?", limit=100, **fields)).hits
                assert {(hit.fact.owner, hit.fact.scope) for hit in hits} == {(one.user, one.user)}
                assert len(hits) == at + 1

    await asyncio.gather(*map(live, users))


async def test_a_search_without_a_question_lists_what_filters_leave(user: Teller) -> None:
    await user.tells("Likes tea", subject="user", predicate="likes", object="tea")
    await user.tells("Lives in Oslo", subject="user", predicate="home city", object="Oslo", **SINGLE)
    assert await user.finds(predicate="home city") == ["Lives in Oslo"]
    assert sorted(await user.finds()) == ["Likes tea", "Lives in Oslo"]


async def test_other_scripts_are_found_by_parts_of_their_words(user: Teller) -> None:
    await user.tells("用户喜欢在早上喝绿茶")
    await user.tells("服务器运行的是乌班图系统")
    await user.tells("المستخدم يحب القهوة")
    assert (await user.finds("早上喝什么"))[0] == "用户喜欢在早上喝绿茶"
    assert (await user.finds("乌班图"))[0] == "服务器运行的是乌班图系统"
    assert await user.finds("茶") == ["用户喜欢在早上喝绿茶"]
    assert await user.finds("القهوة") == ["المستخدم يحب القهوة"]


async def test_a_search_with_tokens_of_what_never_was_is_refused(user: Teller) -> None:
    await user.tells("Likes green tea")
    call = user.facts.agent.call()
    call.return_causal_token = True
    reply = await user.search("tea", call=call)
    token = decode_causal(reply.call.causal_token)
    (head,) = token.named(f"facts/{user.user}")
    for seen, refused in ((head, False), (head + 1, True)):
        call = user.facts.agent.call()
        call.causal_tokens.append(encode_causal(NOTHING_SEEN.seen(f"facts/{user.user}", seen)))
        with refusal(Reason.FUTURE_REVISION) if refused else contextlib.nullcontext():
            await user.search("tea", call=call)


async def test_what_was_forgotten_is_found_no_more(local: LocalServer, user: Teller) -> None:
    fact_id = await user.tells("The password of the database is in the safe")
    assert await user.finds("database") != []
    kept = local.engine.facts.retrieval.contents
    assert len(kept) == 1
    await user.facts.forget(fact_id=fact_id)
    assert len(kept) == 0
    assert await user.finds("database") == []
    assert await user.finds("database", include_superseded=True) == []
    with refusal(Reason.ENTRY_NOT_FOUND):
        await user.facts.get(fact_id)


class Embedder:
    """An embedder that never answers, or that fails."""

    name, dimension = "test/1", 4

    def __init__(self, error: Exception | None) -> None:
        self._error = error
        self.cancelled = False

    async def embed(self, texts: Sequence[str]) -> tuple[tuple[float, ...], ...]:
        if self._error is not None:
            raise self._error
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        raise AssertionError


@pytest.mark.parametrize("embed_ms_max", [None, 200])
@pytest.mark.parametrize("error", [None, RuntimeError("no such model")], ids=["slow", "broken"])
async def test_a_question_that_cannot_be_embedded_in_time_is_searched_by_its_words(
    local: LocalServer, user: Teller, error: Exception | None, embed_ms_max: int | None
) -> None:
    await user.tells("Likes green tea")
    embedder = Embedder(error)
    engine = local.engine
    retrieval = Retrieval(
        engine.memory.core,
        engine.facts.ledger,
        engine.facts.store,
        embedder,
        clock=local.clock,
        tokenizers=TokenizerRegistry(()),
    )
    asked = SearchAsked("green tea", (user.user,), embed_ms_max=embed_ms_max)
    searching = asyncio.ensure_future(retrieval.search(Call(), asked))
    if error is None:
        await local.elapse((embed_ms_max or EMBED_MS_DEFAULT) - 1)
        assert not searching.done()
        await local.elapse(1)
    reply = await searching
    assert [hit.fact.text for hit in reply.hits] == ["Likes green tea"]
    assert reply.warnings == ("DENSE_SKIPPED",)
    assert embedder.cancelled is (error is None)


async def test_what_means_the_same_is_found_without_a_word_in_common(tmp_path: Path) -> None:
    async with local_server(tmp_path, embedder="bundled") as server:
        user = await Teller.begin(await server.api.agent("a"))
        await user.tells("The car is parked behind the supermarket")
        await user.tells("Dinner is served at eight")
        await user.tells("The invoice was paid by bank transfer")
        best, *others = (await user.search("Where did I leave my vehicle?")).hits
        assert best.fact.text == "The car is parked behind the supermarket"
        assert best.scores.keyword == 0
        assert best.scores.dense > max(hit.scores.dense for hit in others)
        assert best.scores.parts["meaning"] == pytest.approx(0.1 * best.scores.dense)
