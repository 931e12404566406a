"""The write policy of a scope: a record in its ledger."""

from __future__ import annotations

from noosphere.consistency import invalid, too_large

from .ledger import POLICY, Ledger, Page, put
from .types import SENSITIVITIES, MemoryType, Policy

DEFAULT = Policy()

WRITERS_MAX = 256
PREDICATES_MAX = 256
ALIASES_MAX = 1_024
NAME_CHARS_MAX = 256
_RETAINED = (*MemoryType, *SENSITIVITIES)
"""By what facts live for different times."""

SPAN_MS_MAX = 100 * 365 * 24 * 3600 * 1000


def policy_of(page: Page) -> Policy:
    """Returns the policy in force, of a ledger whose ``POLICY`` was read."""
    return page.get(POLICY, Policy) or DEFAULT


def check_policy(policy: Policy) -> None:
    """Checks a policy.

    Raises:
        Refusal: INVALID_FIELD or VALUE_TOO_LARGE.
    """
    for field in ("importance_min", "confidence_min", "trust_min"):
        if not 0 <= (value := getattr(policy, field)) <= 1:
            raise invalid(f"policy.{field}", f"{value} is not from 0 to 1")
    _check_names("policy.writers", policy.writers, WRITERS_MAX)
    _check_names("policy.single_valued", policy.single_valued, PREDICATES_MAX)
    _check_names("policy.aliases", (*policy.aliases, *policy.aliases.values()), 2 * ALIASES_MAX)
    for name in policy.ttl_ms:
        if name not in _RETAINED:
            raise invalid("policy.ttl", f"{name!r} is none of {', '.join(_RETAINED)}")
    _check_names("policy.half_life", tuple(policy.half_life_ms), PREDICATES_MAX)
    for field, spans in (("policy.ttl", policy.ttl_ms), ("policy.half_life", policy.half_life_ms)):
        for name, span_ms in spans.items():
            if not 0 < span_ms <= SPAN_MS_MAX:
                raise invalid(f"{field}[{name!r}]", f"{span_ms} ms is not from 1 to {SPAN_MS_MAX} ms")


def may_submit(policy: Policy, agent: str) -> bool:
    """Tells whether a scope's policy lets an agent submit candidates."""
    return not policy.writers or any(
        agent.startswith(writer[:-1]) if writer.endswith("*") else agent == writer for writer in policy.writers
    )


class Policies:
    """Reads and sets policies. Who may do so is the caller's to check."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def get(self, scope: str) -> Policy:
        """Returns the policy in force in a scope."""
        return policy_of(await self._ledger.read(scope, (POLICY,)))

    async def set(self, scope: str, policy: Policy) -> Policy:
        """Sets the policy of a scope, and returns it.

        Raises:
            Refusal: INVALID_FIELD or VALUE_TOO_LARGE.
        """
        check_policy(policy)
        await self._ledger.change(scope, (POLICY,), lambda _: (put(POLICY, policy),))
        return policy


def _check_names(field: str, names: tuple[str, ...], count_max: int) -> None:
    if len(names) > count_max:
        raise too_large(field, len(names), count_max, "entries")
    for name in names:
        if not name.strip():
            raise invalid(field, "names must not be empty")
        if len(name) > NAME_CHARS_MAX:
            raise too_large(field, len(name), NAME_CHARS_MAX, "characters")
