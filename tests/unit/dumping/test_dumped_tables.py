"""Whoever keeps something in a table of the coordinator has it in dumps."""

from __future__ import annotations

from noosphere.server.dumping.taking import TABLES
from noosphere.server.dumping.taking import TOKENS as ON_REQUEST
from noosphere.server.memory.fencing import TABLE as FENCED
from noosphere.server.owners.erasing import TABLE as ERASURES
from noosphere.server.security.limit_rules import TABLE as LIMITS
from noosphere.server.security.tokens import TOKENS


def test_every_table_is_dumped() -> None:
    assert set(TABLES) == {ERASURES, FENCED, LIMITS}
    assert ON_REQUEST == TOKENS
