"""What filters leave: exactly what they say, before anything is ranked, whatever a name looks like."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from tests.support.engine import LocalServer
from tests.support.facts import FactAgent
from tests.support.telling import Teller

from noosphere.v1 import fact_service_pb2 as pb

ODD = [
    "a_c",
    "abc",
    "a%",
    "a*",
    "a-b",
    "a|b",
    "a:b",
    "{a}",
    'a"b',
    "a'b",
    "NOT a",
    "a AND b",
    "null",
    "*",
    "%",
    "_",
    "乌班图",
    "مرحبا",
    "🦊",
]


@pytest.fixture
async def user(local: LocalServer) -> Teller:
    return await Teller.begin(await local.api.agent("a"))


def at(time_ms: int) -> Timestamp:
    found = Timestamp()
    found.FromMilliseconds(time_ms)
    return found


FILTERS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("memory type", {"memory_type": pb.MEMORY_TYPE_EPISODIC}, {"memory_types": [pb.MEMORY_TYPE_EPISODIC]}),
    ("working", {"memory_type": pb.MEMORY_TYPE_WORKING}, {"memory_types": [pb.MEMORY_TYPE_WORKING]}),
    ("subject", {"subject": "The Garage", "predicate": "door"}, {"subject": "garage"}),
    ("predicate", {"subject": "house", "predicate": "frontDoor"}, {"predicate": "front door"}),
    ("valid before", {"valid_from": at(1_000)}, {"valid_before": at(1_001)}),
    ("a scope of one application", {"scope": "app/home/{user}"}, {"scopes": ["app/home/{user}"]}),
]


@pytest.mark.parametrize(("special", "asked"), [case[1:] for case in FILTERS], ids=[case[0] for case in FILTERS])
async def test_a_filter_leaves_what_it_says(user: Teller, special: dict[str, Any], asked: dict[str, Any]) -> None:
    def named(fields: dict[str, Any]) -> dict[str, Any]:
        filled = {
            name: value.format(user=user.user) if isinstance(value, str) else value for name, value in fields.items()
        }
        if "scopes" in filled:
            filled["scopes"] = [scope.format(user=user.user) for scope in filled["scopes"]]
        return filled

    await user.tells("The blue door is locked at night")
    await user.tells("The green door is locked at noon", **named(special))
    assert await user.finds("Which door is locked?", **named(asked)) == ["The green door is locked at noon"]


async def test_trust_below_the_least_stays_out(local: LocalServer, user: Teller) -> None:
    operator = FactAgent(await local.api.agent("cli/anna"))
    internal = {"owner": user.user, "channel": pb.CHANNEL_INTERNAL}
    await user.tells("The door code is in the safe")
    await operator.decided("The door code changes on Mondays", **internal)
    assert len(await user.finds("door code", trust_min=0.5)) == 2
    assert await user.finds("door code", trust_min=0.51) == ["The door code changes on Mondays"]
    # Said again by who is trusted more, it is trusted more: under the same id, and the filter knows.
    await operator.decided("The door code is in the safe", **internal)
    assert len(await user.finds("door code", trust_min=1.0)) == 2


async def test_what_holds_only_for_a_time_is_found_for_that_time(user: Teller) -> None:
    single = {"subject": "user", "predicate": "home city", "cardinality": pb.CARDINALITY_SINGLE}
    await user.tells("Lives in Paris", object="Paris", valid_from=at(10_000), **single)
    await user.tells("Lives in Rome", object="Rome", valid_from=at(20_000), **single)
    both = {"include_superseded": True}
    assert await user.finds("Where does the user live?") == ["Lives in Rome"]
    assert await user.finds("Where does the user live?", valid_after=at(19_999), valid_before=at(20_000), **both) == [
        "Lives in Paris"
    ]
    assert await user.finds("Where does the user live?", valid_after=at(20_000), **both) == ["Lives in Rome"]
    assert await user.finds("Where does the user live?", valid_before=at(10_000), **both) == []
    assert len(await user.finds("Where does the user live?", valid_after=at(0), **both)) == 2


async def test_a_fact_ends_at_the_very_millisecond_even_if_nobody_sweeps(local: LocalServer, user: Teller) -> None:
    now_ms = local.engine.store.now_ms()
    fact_id = await user.tells("The code is 4711", expire_time=at(now_ms + 5_000))
    await local.elapse(4_999)
    assert await user.finds("code") == ["The code is 4711"]
    assert (await user.facts.get(fact_id)).text == "The code is 4711"
    await local.elapse(1)
    assert await user.finds("code") == []
    assert await user.finds("code", include_superseded=True) == []
    assert await user.facts.listed(user.user) == []


async def test_what_was_known_at_a_moment_is_found_as_of_then(local: LocalServer, user: Teller) -> None:
    single = {"subject": "user", "predicate": "home city", "cardinality": pb.CARDINALITY_SINGLE}
    times = [local.engine.store.now_ms()]
    for city in ("Paris", "Rome", "Oslo"):
        await local.elapse(1_000)
        fact_id = await user.tells(f"Lives in {city}", object=city, **single)
        times.append((await user.facts.get(fact_id)).record_time.ToMilliseconds())

    async def known(time_ms: int, **fields: Any) -> list[str]:
        return await user.finds("Where does the user live?", as_of=at(time_ms), **fields)

    assert await known(times[0]) == []
    assert await known(times[1] - 1) == []
    assert await known(times[1]) == ["Lives in Paris"]
    assert await known(times[2] - 1) == ["Lives in Paris"]
    assert await known(times[2]) == ["Lives in Rome"]
    assert await known(times[3]) == ["Lives in Oslo"]
    assert sorted(await known(times[2], include_superseded=True)) == ["Lives in Paris", "Lives in Rome"]
    assert await user.finds("Where does the user live?") == ["Lives in Oslo"]


async def test_names_and_questions_are_data_whatever_they_look_like(user: Teller) -> None:
    """Each is found under itself alone: as an owner, a scope, a subject, a predicate, and by its words."""
    ids = {
        name: await user.another(f"user/{name}").tells(
            f"What was written on the door is {name}", subject=name, predicate=f"{name} opens", object="door"
        )
        for name in ODD
    }
    everybody = [f"user/{name}" for name in ODD]
    for name, fact_id in ids.items():
        owner = user.another(f"user/{name}")
        for fields in ({}, {"subject": name}, {"predicate": f"{name} opens"}, {"scopes": [owner.user]}):
            hits = (await owner.search(f"what was written: {name}", **fields)).hits
            assert [hit.fact.id for hit in hits] == [fact_id], (name, fields)
        beside = [other for other in everybody if other != owner.user][:7]
        told = f"What was written on the door is {name}"
        assert await owner.finds("door", owners=[*beside, owner.user], subject=name) == [told]
        assert await owner.finds("door", owners=beside, subject=name) == [], name
        assert [fact.id for fact in await user.facts.listed(owner.user)] == [fact_id]
        assert await owner.finds(name) in ([told], []), "punctuation alone has no words"
