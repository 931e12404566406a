"""Tickets: what was issued reads back, and nothing else does."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from noosphere.consistency import Reason, Refusal
from noosphere.server.sessions.keys import TOOLS, check_session_id, slot
from noosphere.server.sessions.tickets import TICKET_BYTES_MAX, Ticket


def valid(session_id: str) -> bool:
    """Tells whether a session may have this id."""
    try:
        check_session_id(session_id)
    except Refusal:
        return False
    return True


session_ids = st.text(min_size=1, max_size=32).filter(valid)
tickets = st.builds(
    Ticket,
    session_ids,
    st.builds(slot, st.integers(1, 2**63 - 1), st.integers(0, 511)),
    st.integers(1, 2**32 - 1),
)


def is_none(text: str) -> bool:
    """Tells whether a text is refused as a ticket."""
    with contextlib.suppress(Refusal):
        Ticket.parse(text)
        return False
    return True


@given(tickets)
@example(Ticket("a:b:1", slot(1, 0), 1))
@example(Ticket("~" + "x" * 127, slot(2**63 - 1, 511), 2**32 - 1))
def test_a_ticket_reads_back(ticket: Ticket) -> None:
    text = str(ticket)
    assert Ticket.parse(text) == ticket
    assert ticket.key == TOOLS + ticket.slot
    assert len(text.encode()) <= TICKET_BYTES_MAX


@given(tickets, st.data())
def test_no_slip_of_a_key_makes_another_ticket(ticket: Ticket, data: st.DataObject) -> None:
    text = str(ticket)
    at = data.draw(st.integers(0, len(text)))
    cut = data.draw(st.integers(0, 2))
    slipped = text[:at] + data.draw(st.text(max_size=2)) + text[at + cut :]
    if slipped != text:
        assert is_none(slipped)


@given(st.text(max_size=64))
@example(":::")
@example("s:0000000000000001-0000:1:")
@example("s:0000000000000001-0000:१:00000000")
@example("\ud800:0000000000000001-0000:1:00000000")
def test_what_was_never_issued_is_no_ticket(text: str) -> None:
    assert is_none(text)


def test_a_ticket_beyond_any_size_is_refused_without_being_read() -> None:
    assert is_none("x" * 10_000_000)


@pytest.mark.parametrize("field", ["ticket", "tickets[3]"])
def test_the_field_is_named(field: str) -> None:
    with pytest.raises(Refusal) as refused:
        Ticket.parse("x", field)
    assert refused.value.reason is Reason.INVALID_FIELD
    assert refused.value.message.startswith(f"{field}: is damaged")
