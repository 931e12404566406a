"""Limits that operators have set by name patterns, in the coordinator's table, over those of the settings.

Of the rules whose pattern matches a name, the most specific one that says something about a limit counts: the exact
name, then the longest beginning. Every replica has them within a second.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import structlog

from noosphere.consistency import NamePattern, Refusal, exhausted, invalid, too_large
from noosphere.consistency.limits import NAMESPACE_BYTES_MAX

from ..config.limits import LimitSettings
from ..ports.coordinator import Coordinator
from .allowances import Allowance, Subject

log = structlog.get_logger(__name__)

TABLE = "limits"
RULES_MAX = 10_000
VALUE_MAX = 1 << 50
NAMESPACES_MAX = 100_000
"""Fewer than are remembered of all makers; see ``memory.makers``."""
_RESOLVED_MAX = 65_536
_PACE = ("calls_per_second", "calls_burst", "calls_in_flight_max", "streams_max")
_MADE = ("namespaces_max",)
_ROOM = ("records_max", "bytes_max")
LIMITS_OF: Mapping[Subject, tuple[str, ...]] = {
    Subject.AGENT: (*_PACE, *_MADE),
    Subject.PRINCIPAL: (*_PACE, *_MADE, *_ROOM),
    Subject.NAMESPACE: _ROOM,
}
"""What can be limited, by of whom."""

Limits = Mapping[str, int]


class LimitRule(NamedTuple):
    """What was set for names.

    Attributes:
        subject: of whom the names are.
        pattern: which names.
        limits: by name of the limit; what is missing is as without this rule. 0 means no limit.
    """

    subject: Subject
    pattern: NamePattern
    limits: Limits


class LimitRules:
    """See the module.

    Args:
        coordinator: keeps the rules.
        settings: what holds where no rule says otherwise.
    """

    def __init__(self, coordinator: Coordinator, settings: LimitSettings) -> None:
        self._coordinator = coordinator
        self._table = coordinator.table(TABLE)
        self._defaults = {
            subject: {name: getattr(settings, f"limits_{subject}_{name}") for name in names}
            for subject, names in LIMITS_OF.items()
        }
        self._seen = -1
        self._unreadable = 0
        self._rules: dict[Subject, dict[NamePattern, Limits]] = {}
        self._resolved: dict[tuple[Subject, str], Limits] = {}

    @property
    def version(self) -> int:
        """Changes with the rules."""
        return self._table.version

    def of(self, subject: Subject, name: str) -> Limits:
        """Returns every limit of a name; 0 means no limit."""
        self._refresh()
        found = self._resolved.get((subject, name))
        if found is None:
            resolved = dict(self._defaults[subject])
            rules = self._rules.get(subject)
            if rules:
                # The beginnings of a name are few, rules may be many. The most specific one has the last word.
                for length in range(len(name) + 1):
                    resolved |= rules.get(NamePattern(name[:length], False), {})
                resolved |= rules.get(NamePattern(name, True), {})
            if len(self._resolved) >= _RESOLVED_MAX:
                self._resolved.clear()
            found = self._resolved[subject, name] = resolved
        return found

    def allowance(self, subject: Subject, name: str) -> Allowance:
        """Returns what a caller may do at a time."""
        limits = self.of(subject, name)
        return Allowance(
            limits["calls_per_second"],
            max(1, limits["calls_burst"]),
            limits["calls_in_flight_max"],
            limits["streams_max"],
        )

    def list(self, *, after: str, count_max: int) -> tuple[Sequence[LimitRule], str | None]:
        """Returns one page of the rules, by subject and pattern, and where the next one begins."""
        keys = sorted(key for key in self._table if key > after)
        rules = [_rule(key, self._table[key]) for key in keys[:count_max]]
        page = [rule for rule in rules if rule is not None]
        return page, keys[count_max - 1] if len(keys) > count_max else None

    async def set(self, rule: LimitRule) -> None:
        """Sets a rule, in the place of one of the same pattern; without limits it is removed.

        Raises:
            Refusal: INVALID_FIELD, VALUE_TOO_LARGE; LIMIT_EXCEEDED above 10,000 rules.
        """
        _check(rule)
        key = _key(rule)
        if rule.limits and key not in self._table and len(self._table) >= RULES_MAX:
            raise exhausted("limits", len(self._table) + 1, RULES_MAX, "too many rules")
        value = json.dumps(dict(rule.limits), sort_keys=True).encode() if rule.limits else None
        await self._coordinator.put_entry(TABLE, key, value)

    def _refresh(self) -> None:
        if self._seen == self._table.version:
            return
        self._seen = self._table.version
        self._resolved.clear()
        self._rules = {subject: {} for subject in Subject}
        unreadable = 0
        for key, value in self._table.items():
            rule = _rule(key, value)
            if rule is None:
                unreadable += 1
            else:
                self._rules[rule.subject][rule.pattern] = rule.limits
        if unreadable != self._unreadable:
            self._unreadable = unreadable
            if unreadable:
                log.error("limits that this version cannot read are not in force", count=unreadable)


def _check(rule: LimitRule) -> None:
    if (size := len(rule.pattern.text.encode())) > NAMESPACE_BYTES_MAX:
        raise too_large("rule.pattern", size, NAMESPACE_BYTES_MAX)
    if "\0" in rule.pattern.text or (rule.pattern.exact and not rule.pattern.text):
        raise invalid("rule.pattern", f"{rule.pattern.text!r} is not a name")
    known = LIMITS_OF[rule.subject]
    for name, value in rule.limits.items():
        if name not in known:
            raise invalid(f"rule.limits.{name}", f"is no limit of {rule.subject}s; those are {', '.join(known)}")
        most = NAMESPACES_MAX if name in _MADE else VALUE_MAX
        if not 0 <= value <= most:
            raise invalid(f"rule.limits.{name}", f"{value} is not between 0 and {most}")


def _key(rule: LimitRule) -> str:
    return f"{rule.subject}{'=' if rule.pattern.exact else '*'}{rule.pattern.text}"


def _rule(key: str, value: bytes) -> LimitRule | None:
    """Returns a rule, None if another version of the program wrote it in a way that this one does not know."""
    for subject in Subject:
        if key.startswith((f"{subject}=", f"{subject}*")):
            break
    else:
        return None
    mark, text = key[len(subject)], key[len(subject) + 1 :]
    try:
        rule = LimitRule(subject, NamePattern(text, mark == "="), msgspec.json.decode(value, type=dict[str, int]))
        _check(rule)
    except (msgspec.MsgspecError, Refusal):
        return None
    return rule
