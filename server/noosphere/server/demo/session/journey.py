"""The script that comes with the demo: somebody plans a journey, in thirty turns."""

from __future__ import annotations

from typing import Any

TURNS = 30
_CITIES = ("Oslo", "Bergen", "Trondheim", "Tromsø", "Stavanger", "Bodø", "Ålesund", "Molde")
_TOPICS = (
    ("Which museum should I see in {city}?", "In {city} the harbour museum is worth two hours; it closes at 17:00."),
    ("Where can I eat fish in {city}?", "In {city} try the market hall; a plate of fish costs about 210 NOK."),
    ("How do I get from the airport to {city}?", "From {city} airport the train leaves every 20 minutes, gate B."),
    ("What will the weather be in {city}?", "In {city} expect rain on the first day and sun afterwards, 12 °C."),
)


def journey() -> dict[str, Any]:
    """Returns the script as plain data."""
    turns = [_small_talk(number) for number in range(TURNS)]
    turns[0] = {
        "user": "I want to travel to Norway in May, for at most 12,000 NOK.",
        "steps": [
            {"do": "goal", "text": "Plan a journey to Norway in May for at most 12,000 NOK."},
            {"do": "put", "key": "task/state", "value": {"booked": [], "open": ["flight", "hotel"]}},
            {
                "do": "put",
                "key": "notes/passport",
                "value": "The passport ends on 3 September.",
                "attributes": {"pinned": True},
            },
        ],
        "reply": "Understood: Norway in May, at most 12,000 NOK. I will look for flights first.",
    }
    turns[2]["steps"] += [
        {
            "do": "tool",
            "name": "search_flights",
            "args": {"from": "BER", "to": "OSL", "month": "May"},
            "result": {"flights": [_flight(number) for number in range(40)]},
            "keep": ["flights[*].id", "flights[*].price"],
        },
        {"do": "put", "key": "notes/flight", "value": "Flight N104 on 6 May costs 1,240 NOK."},
    ]
    turns[5]["steps"] += [
        {
            "do": "tool",
            "name": "search_hotels",
            "args": {"city": "Oslo", "nights": 5},
            "result": {"hotels": [{"name": "Fjord", "price": 900}, {"name": "Opera", "price": 1150}]},
            "late": "park",
            "goal_meanwhile": "Plan a journey to Norway in May for at most 9,000 NOK.",
            "expect": "parked",
        }
    ]
    turns[6]["steps"] += [
        {
            "do": "tool",
            "name": "exchange_rate",
            "args": {"from": "EUR", "to": "NOK"},
            "result": {"rate": 11.42, "date": "2026-05-01"},
        }
    ]
    turns[18]["steps"] += [
        {"do": "put", "key": "task/state", "value": {"booked": ["flight N104"], "open": ["hotel"]}},
        {"do": "checkpoint", "name": "before the hotel"},
    ]
    turns[20]["steps"] += [
        {"do": "put", "key": "task/state", "value": {"booked": ["flight N104", "hotel Opera"], "open": []}},
        {"do": "put", "key": "notes/mistake", "value": "The hotel was booked for the wrong week."},
    ]
    turns[21] = {
        "user": "That was the wrong week. Go back to before the hotel.",
        "steps": [{"do": "restore", "name": "before the hotel"}],
        "reply": "Done: the flight stands, the hotel is open again.",
    }
    turns[24]["steps"] += [{"do": "summarize"}]
    turns[29] = {
        "user": "Thank you, that is all.",
        "steps": [{"do": "goal", "text": "Plan a journey to Norway in May for at most 9,000 NOK.", "status": "done"}],
        "reply": "You fly on 6 May with N104; the hotel is still to be booked. Have a good journey.",
    }
    return {
        "title": "A journey to Norway",
        "system": "You are a travel agent. Never book anything without the customer's consent.",
        "tokens": 900,
        "turns": turns,
    }


def _small_talk(number: int) -> dict[str, Any]:
    city = _CITIES[number % len(_CITIES)]
    question, answer = _TOPICS[number % len(_TOPICS)]
    note = {"do": "put", "key": f"notes/{number:02d}", "value": answer.format(city=city)}
    return {"user": question.format(city=city), "steps": [note], "reply": answer.format(city=city)}


def _flight(number: int) -> dict[str, Any]:
    return {
        "id": f"N{100 + number}",
        "from": "BER",
        "to": "OSL",
        "day": 1 + number % 28,
        "departs": f"{6 + number % 14:02d}:{number % 6}0",
        "price": 1_100 + (number * 137) % 900,
        "seats": {"economy": 3 + number % 40, "business": number % 5},
        "operator": "Nordair" if number % 3 else "Fjordfly",
    }
