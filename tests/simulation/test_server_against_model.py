"""The real server, in process on its real store, answers every call as the model does.

Several agents read, write, merge, claim and transact in three namespaces with whatever they have read at some
time; time passes, values and leases end, the sweeper runs, rules change, agents take over, namespaces are
deleted and opened again, the server is restarted, killed, or loses the end of its log. Replies, reasons,
heads, listings, watches and histories are identical to the model's.

``make test`` runs the same machines every time, ``make campaigns`` more of them. ``NOOSPHERE_MACHINES`` runs so many
random ones instead, and
``NOOSPHERE_MACHINE_STEPS`` sets how long each is.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.simulation.machine import ServerMachine, outcomes
from tests.support.effort import effort

CAMPAIGN = "NOOSPHERE_MACHINES" in os.environ
MACHINES = int(os.environ.get("NOOSPHERE_MACHINES", effort(20, 120)))
STEPS = int(os.environ.get("NOOSPHERE_MACHINE_STEPS", "50"))

APPLIED = {"Put", "Delete", "Add", "Claim", "Transact"}
ANSWERS_MIN = 40
"""Different answers (a kind of call and its outcome) that the machines must meet, or they would prove little."""


@pytest.mark.thorough
@pytest.mark.timeout(max(180, MACHINES * 5))
def test_the_server_answers_as_the_model_does() -> None:
    outcomes.clear()
    limits = settings(
        max_examples=MACHINES,
        stateful_step_count=STEPS,
        deadline=None,
        # The same machines every time, unless somebody asks for a campaign.
        derandomize=not CAMPAIGN,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(ServerMachine, settings=limits)
    if not CAMPAIGN:
        assert {f"{call} applied" for call in APPLIED} | {"watch resumed"} <= set(outcomes)
        assert len(outcomes) >= ANSWERS_MIN, sorted(outcomes)
