"""Every rpc of ours has a rule, and no rule is about an rpc that there is not."""

from __future__ import annotations

import pytest
from google.protobuf import descriptor_pool

from noosphere.consistency import Reason, Refusal
from noosphere.server.rpc.faces import SERVICES
from noosphere.server.rpc.rules import RULES, InService, rule_of


def methods() -> set[str]:
    pool = descriptor_pool.Default()
    services = [pool.FindServiceByName(name) for name in SERVICES]
    return {f"/{service.full_name}/{method.name}" for service in services for method in service.methods}


def test_every_rpc_has_a_rule_that_says_who_may_call_it() -> None:
    missing = methods() - set(RULES)
    assert not missing, f"add them to rpc/rules.py: {sorted(missing)}"
    assert not set(RULES) - methods(), "rules of what there is not"


def test_what_a_service_decides_has_a_reason() -> None:
    assert all(len(rule.why) > 20 for rule in RULES.values() if isinstance(rule, InService))


def test_a_call_without_a_rule_is_refused() -> None:
    with pytest.raises(Refusal) as refused:
        rule_of("/noosphere.v1.MemoryService/Steal")
    assert refused.value.reason is Reason.PERMISSION_DENIED
