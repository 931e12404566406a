"""What is kept of a tool result that does not fit: what the task needs, on tools of several trades."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.context.compaction_support import O200K, dumps, kept

from noosphere.server.context.compaction import Stage, Task, compress, expand
from noosphere.server.ports.models import SourceMessage


def chosen(output: str, tokens_max: int, *said: str, tool: str = "", arguments: str = "", goal: str = "") -> str:
    messages = [SourceMessage("user" if place % 2 == 0 else "assistant", "", text) for place, text in enumerate(said)]
    task = Task(tool, arguments, (goal,) if goal else (), messages)
    result = compress(output, O200K, tokens_max=tokens_max, task=task)
    assert result.stage is Stage.RELEVANT
    assert result.tokens <= tokens_max
    return kept(result)


def document(text: str) -> Any:
    return json.loads(expand(text))


TITLES = ("Login fails", "Cart is slow", "Typo in footer", "Crash on export", "Dark mode")
ISSUES = [
    {
        "number": 4100 + place,
        "title": title,
        "state": "open" if place % 3 else "closed",
        "user": {"login": f"dev{place}", "avatar_url": f"https://img.example.org/u/{place}.png", "id": 90_000 + place},
        "url": f"https://api.example.org/repos/acme/shop/issues/{4100 + place}",
        "node_id": f"I_kwDOABCDEF5{place:04d}xyzxyzxyzxyzxyzxyzxyzxyz",
        "updated_at": f"2024-05-{place % 28 + 1:02d}T08:15:30Z",
    }
    for place, title in enumerate(
        ["Login fails", "Cart is slow", "Typo in footer", "Crash on export", "Dark mode"] * 12
    )
]


def test_identifiers_and_names_go_before_links_and_bookkeeping() -> None:
    text = chosen(dumps(ISSUES[:8]), 120, "Which issues are open?")
    found = document(text)
    assert all({"number", "title", "state"} <= set(issue) for issue in found)
    assert "avatar_url" not in text
    assert "node_id" not in text


def test_an_element_that_the_user_names_is_kept_wherever_it_stands() -> None:
    found = document(chosen(dumps(ISSUES), 120, "What about issue 4147?"))
    assert 4147 in [issue["number"] for issue in found]
    assert 4147 not in [issue["number"] for issue in document(chosen(dumps(ISSUES), 120, "What is new?"))]


def test_a_day_that_was_named_in_words_is_found() -> None:
    bookings = [{"ref": f"BK{place:03d}", "day": f"2024-06-{place % 30 + 1:02d}", "room": place} for place in range(90)]
    found = document(chosen(dumps(bookings), 80, "I arrive on June 17th."))
    assert "2024-06-17" in [booking["day"] for booking in found]


def test_a_field_that_the_task_is_about_is_kept() -> None:
    products = [
        {
            "sku": f"P{place}",
            "price": {"retail": 20 + place, "wholesale": 11 + place, "staff": 9 + place},
            "stock": place,
        }
        for place in range(12)
    ]
    asked = document(chosen(dumps(products), 75, "What would they cost as wholesale?"))
    assert all("wholesale" in product["price"] for product in asked)
    assert not any("retail" in product.get("price", {}) for product in asked)
    assert all("sku" in product for product in asked)


def test_an_address_is_kept_only_where_it_is_the_point() -> None:
    customer = {
        "customer_id": "cus_88123",
        "address": {"street": "281 Spruce Street", "unit": "Suite 942", "city": "San Diego", "postcode": "92164"},
        "cards": [{"card_id": f"card_77{place}01", "last_four": f"88{place}1", "brand": "visa"} for place in range(4)],
        "orders": [f"W{place}98765" for place in range(8)],
    }
    assert "Spruce" not in chosen(dumps(customer), 100, "I want to pay with another card.")
    assert "Spruce" in chosen(dumps(customer), 100, "Is my street address right?", goal="change the street address")


def test_constant_fields_stand_in_the_heading_and_weigh_once() -> None:
    rows: list[dict[str, Any]] = [{"id": f"job_{n}", "tries": n % 4, "steps": [{"n": n * 7}]} for n in range(200)]
    owner = {"name": "Ann Lee", "team": "Core", "site": "Oslo"}
    shared = {"queue": "default", "state": "failed", "owner": owner, "region": "eu", "kind": "batch", "unit": "ms"}
    bare = document(chosen(dumps(rows), 100, "Which jobs failed?"))
    found = document(chosen(dumps([{**row, **shared} for row in rows]), 100, "Which jobs failed?"))
    assert all(row["id"] for row in found)
    assert len(found) >= 0.7 * len(bare)


def test_what_is_left_of_the_budget_goes_to_what_still_fits() -> None:
    prose = "Please leave the parcel with the neighbours if nobody should answer the door when you ring on that day, "
    order = {"id": "ord_1", "note": prose * 2, "etag": "9f" * 13}
    assert len(order["note"]) < 240
    found = document(chosen(dumps(order), 48, "What is the id?"))
    # The note is worth more for its tokens, but does not fit.
    assert set(found) == {"id", "etag"}


def test_of_fields_that_look_alike_those_of_bookkeeping_go_first() -> None:
    rows = [
        {"created": f"2024-05-{n:02d}", "due": f"2024-06-{n:02d}", "modified": f"2024-07-{n:02d}"} for n in range(1, 9)
    ]
    found = document(chosen(dumps(rows), 80, "When do I have to pay?"))
    assert all("due" in row for row in found)
    assert not any("created" in row or "modified" in row for row in found)


def test_of_fields_that_are_all_alike_as_many_are_kept_as_fit() -> None:
    codes = {f"slot_{n:02d}": f"QX{n:02d}7" for n in range(40)}
    text = chosen(dumps(codes), 150)
    assert O200K.count(text) > 120


def test_groups_are_kept_whole() -> None:
    legs = [
        [{"flight": f"H{place}{leg}", "seats": place, "from": f"A{leg}"} for leg in range(3)] for place in range(20)
    ]
    found = document(chosen(dumps(legs), 90, "Find me a connection."))
    assert 1 < len(found) < 20
    assert all(len(group) == 3 for group in found)


def test_a_long_text_in_a_field_is_kept_in_part() -> None:
    answer = "Refunds take 14 days after the parcel arrived."
    body = "Nothing to see here at all. " * 60 + answer + " More of the same." * 60
    text = chosen(dumps({"page": "help/refunds", "body": body, "words": 900}), 70, "How long do refunds take?")
    found = document(text)
    assert found["page"] == "help/refunds"
    assert answer in found["body"]
    assert "…" in found["body"]


def test_json_inside_a_string_is_looked_into() -> None:
    inner = dumps({"orders": [{"id": f"ord_{place}", "total": place * 3, "etag": "ab" * 20} for place in range(60)]})
    output = dumps({"content": [{"type": "text", "text": inner}], "isError": False})
    text = chosen(output, 90, "And ord_44?")
    assert "ord_44" in text
    assert "etag" not in text
    assert compress(output, O200K, tokens_max=90).left_out.values_total == 2 + 3 * 60


def test_of_a_log_the_trouble_and_what_was_asked_for_remain() -> None:
    lines = [
        f"2024-05-20 12:{place // 60:02d}:{place % 60:02d} INFO job {place} done in 3 ms" for place in range(1_500)
    ]
    lines[700] = "2024-05-20 12:11:40 ERROR job 700: connection to db-3 refused"
    lines[900] = "2024-05-20 12:15:00 INFO cache of tenant blueberry was cold"
    text = chosen("\n".join(lines), 120, "Anything about tenant blueberry?", goal="find out why jobs are late")
    assert lines[700] in text
    assert lines[900] in text
    assert text.startswith(lines[0])
    assert text.index(lines[700]) < text.index(lines[900])


def test_trouble_in_a_text_is_kept_though_nobody_asked_for_it() -> None:
    words = [
        "alder",
        "birch",
        "cedar",
        "elm",
        "fir",
        "hazel",
        "larch",
        "maple",
        "oak",
        "pine",
        "rowan",
        "spruce",
        "willow",
        "yew",
    ]
    lines = [f"{words[n % 12]} {words[n // 12 % 12]} {words[n * 5 % 12]} took its turn" for n in range(140)]
    lines[97] = "the lock of the shed was broken: operation failed"
    assert lines[97] in chosen("\n".join(lines), 100)


def test_a_line_unlike_the_others_comes_before_their_repetitions() -> None:
    lines = [f"job {n} of the nightly queue done" for n in range(600)]
    lines[321] = "gate of the yard left open"
    assert lines[321] in chosen("\n".join(lines), 60, "Did the nightly queue run?")


def test_what_is_missing_of_a_text_is_counted() -> None:
    text = "\n".join(f"line {n}: nothing failed" for n in range(500))
    result = compress(text, O200K, tokens_max=60)
    assert result.stage is Stage.RELEVANT
    left_out = result.left_out.characters
    assert result.text.endswith(f"\n[left out: {left_out} of {len(text)} characters]")
    assert left_out == len(text) - sum(len(line) for line in kept(result).splitlines(keepends=True) if "…" not in line)


def test_words_of_scripts_without_spaces_are_met() -> None:
    text = "天气很好我们去公园散步。" * 80 + "订单已经退款三百元。" + "今天没有什么新的事情。" * 80
    assert "订单已经退款三百元。" in chosen(text, 60, "我的退款在哪里")


def test_the_newest_messages_matter_most() -> None:
    rows = [{"code": f"ZX{place:04d}", "grams": place * 7} for place in range(900)]
    named = [f"ZX{place:04d}" for place in range(300, 200, -3)]
    found = document(chosen(dumps(rows), 80, *(f"And {code}?" for code in named)))
    assert named[-1] in [row["code"] for row in found]
    assert named[0] not in [row["code"] for row in found]


@pytest.mark.parametrize("role", ["system", "tool"])
def test_what_nobody_asked_for_names_no_element(role: str) -> None:
    rows = [{"code": f"ZX{place:04d}", "grams": place} for place in range(200)]
    loud = Task(messages=[SourceMessage(role, "", "ZX0150 " * 3)])
    output = dumps(rows)
    assert "ZX0150" not in compress(output, O200K, tokens_max=60, task=loud).text
    asked = Task(messages=[SourceMessage("user", "", "ZX0150")])
    assert "ZX0150" in compress(output, O200K, tokens_max=60, task=asked).text


def test_of_an_object_with_very_many_fields_some_remain_and_the_one_that_was_named() -> None:
    settings = {f"feature_{place:04d}": place * 3 for place in range(3_000)}
    found = document(chosen(dumps(settings), 120, "Is feature_2718 on?"))
    assert found["feature_2718"] == 2718 * 3
    assert len(found) > 12
