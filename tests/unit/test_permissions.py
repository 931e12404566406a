"""What principals may do: by name, by credential, by grants; against a model that goes through all grants."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noosphere.consistency import NamePattern, Reason, Refusal
from noosphere.server.ports.coordinator import PolicyTable
from noosphere.server.ports.grants import GrantKey, Verb
from noosphere.server.security import OPEN, Permissions, Principal, Why
from noosphere.server.security.permissions import Doing, check_grant, decide, granted_to

NAMES = ("alice", "alice/1", "bob", "al", "ålice", "a%", "a_", "*", "عليس")
PLACES = ("agents/alice", "agents/bob", "agents/bob/2", "sessions/s1", "sessions/s2", "shared/team", "shared/team/x",
          "shared/%", "facts/user/42", "facts/agent/bob", "facts/shared/team", "facts/app/x/user/42", "locks/l",
          "groups/g")  # fmt: skip
VERBS = tuple(Verb)

patterns_of_names = st.builds(NamePattern, st.sampled_from((*NAMES, "")), st.booleans())
patterns_of_places = st.builds(
    NamePattern, st.sampled_from((*PLACES, "shared/", "agents/", "facts/user/", "locks/", "s", "")), st.booleans()
)
grants = st.dictionaries(
    st.builds(GrantKey, patterns_of_names, patterns_of_places), st.frozensets(st.sampled_from(VERBS)), max_size=12
)
principals = st.builds(
    Principal,
    st.sampled_from(NAMES),
    admin=st.booleans(),
    agents=st.lists(st.builds(NamePattern, st.sampled_from(PLACES[:3]), st.booleans()), max_size=2).map(tuple),
    owners=st.lists(st.sampled_from(("user/42", "shared/team", "agent/bob")), max_size=2).map(tuple),
    session=st.sampled_from(("", "", "s1")),
    verbs=st.none() | st.frozensets(st.sampled_from(VERBS)),
    only_agents=st.booleans(),
    only_owners=st.booleans(),
    granted_owner=st.sampled_from(("", "", "user/42", "agent/bob")),
    open=st.just(False),
)


class Table:
    """Grants that change."""

    def __init__(self, held: Mapping[GrantKey, frozenset[Verb]]) -> None:
        self.version = 1
        self.held = dict(held)

    def change(self, key: GrantKey, verbs: frozenset[Verb]) -> None:
        self.version += 1
        self.held[key] = verbs

    def __call__(self) -> PolicyTable:
        return PolicyTable(self.version, {}, self.held)


def allowed(who: Principal, agent_id: str, place: str, verb: Verb, held: Mapping[GrantKey, frozenset[Verb]]) -> bool:
    """The model: written from the page about permissions, without caches and indexes."""
    kind, _, rest = place.partition("/")
    if who.verbs is not None and verb not in who.verbs:
        return False
    if kind == "sessions" and who.session not in ("", rest):
        return False
    whose = rest.split("/", 2)[2] if kind == "facts" and rest.startswith("app/") else rest
    own = (kind == "agents" and rest == agent_id) or (kind == "facts" and whose == f"agent/{agent_id}")
    if agent_id and own:
        return True
    if kind == "facts" and whose in who.owners:
        return True
    if kind == "agents" and who.only_agents:
        return False
    if kind == "facts" and who.only_owners and not whose.startswith("shared/") and whose != who.granted_owner:
        return False
    return who.admin or verb in granted_to(who.name, place, held)


@given(grants, principals, st.sampled_from(("", *NAMES)), st.sampled_from(PLACES), st.sampled_from(VERBS))
def test_decisions_are_those_of_the_model(
    held: dict[GrantKey, frozenset[Verb]], who: Principal, agent_id: str, place: str, verb: Verb
) -> None:
    permissions = Permissions(Table(held))
    for _ in range(2):
        assert permissions.may(who, agent_id, place, verb) is allowed(who, agent_id, place, verb, held)


@given(grants, principals, st.sampled_from(NAMES))
def test_acting_is_by_name_by_credential_and_by_grants_of_act(
    held: dict[GrantKey, frozenset[Verb]], who: Principal, agent_id: str
) -> None:
    by_grant = not who.only_agents and Verb.ACT in granted_to(who.name, f"agents/{agent_id}", held)
    assert Permissions(Table(held)).may_act_as(who, agent_id) is (who.may_act_as(agent_id) or by_grant)


@given(grants, principals, st.sampled_from(("shared/", "shared/t", "shared/team", "", "agents/", "facts/", "locks/")))
def test_what_is_allowed_with_a_prefix_is_allowed_with_every_name(
    held: dict[GrantKey, frozenset[Verb]], who: Principal, prefix: str
) -> None:
    permissions = Permissions(Table(held))
    for verb in Verb:
        if permissions.may_all(who, prefix, verb):
            below = [place for place in PLACES if place.startswith(prefix)]
            assert all(permissions.may(who, "", place, verb) for place in (*below, f"{prefix}never/seen"))


@given(grants, st.lists(st.tuples(st.builds(GrantKey, patterns_of_names, patterns_of_places),
                                  st.frozensets(st.sampled_from(VERBS))), max_size=4))  # fmt: skip
def test_a_change_of_a_grant_is_in_force_at_once(
    held: dict[GrantKey, frozenset[Verb]], changes: list[tuple[GrantKey, frozenset[Verb]]]
) -> None:
    table = Table(held)
    permissions = Permissions(table)
    for key, verbs in (*held.items(), *changes):
        table.change(key, verbs)
        for name in NAMES:
            for place in PLACES:
                assert permissions.granted(name, place) == granted_to(name, place, table.held)


def test_agents_of_the_command_line_are_for_administrators_only() -> None:
    everything = {GrantKey(NamePattern("", False), NamePattern("agents/", False)): frozenset(Verb)}
    permissions = Permissions(Table(everything))
    assert not permissions.may_act_as(Principal("alice"), "cli/alice")
    assert not permissions.may_act_as(Principal("cli"), "cli/alice")
    assert permissions.may_act_as(Principal("root", admin=True), "cli/alice")
    assert permissions.may_act_as(OPEN, "cli/alice")


def test_a_decision_says_why() -> None:
    alice = Principal("alice", owners=("user/42",))
    granted = frozenset({Verb.READ})

    def why(who: Principal, place: str, verb: Verb = Verb.READ, agent_id: str = "alice") -> Why:
        return decide(Doing(who, agent_id, place, verb), granted)

    assert why(alice, "agents/alice", Verb.DELETE) is Why.OWN
    assert why(alice, "agents/alice", Verb.DELETE, "") is Why.NOT_GRANTED
    assert why(alice, "facts/user/42", Verb.WRITE) is Why.CREDENTIAL
    assert why(alice, "facts/user/43") is Why.GRANTED
    assert why(alice, "facts/user/43", Verb.WRITE) is Why.NOT_GRANTED
    assert why(alice._replace(verbs=frozenset({Verb.WRITE})), "shared/x") is Why.NARROWED
    assert why(alice._replace(only_owners=True), "facts/user/43") is Why.NARROWED
    assert why(alice._replace(admin=True), "shared/x", Verb.ADMIN) is Why.ADMIN
    assert why(OPEN, "shared/x") is Why.OPEN
    assert [reason for reason in Why if not reason.allows] == [Why.NARROWED, Why.NOT_GRANTED, Why.NOT_ITS_AGENT]


EVERYBODY = NamePattern("", False)


@pytest.mark.parametrize(
    "place",
    [
        NamePattern("shared/", False),
        NamePattern("shared/team-", False),
        NamePattern("facts/user/42", True),
        NamePattern("locks/", False),
        NamePattern("groups/g:{1}*", True),
    ],
)
def test_patterns_of_each_kind_are_granted(place: NamePattern) -> None:
    check_grant(GrantKey(EVERYBODY, place), frozenset({Verb.READ}))


@pytest.mark.parametrize(
    ("key", "verbs"),
    [
        (GrantKey(NamePattern("", True), NamePattern("shared/", False)), {Verb.READ}),
        (GrantKey(NamePattern("a\0", True), NamePattern("shared/", False)), {Verb.READ}),
        (GrantKey(NamePattern("a" * 2000, True), NamePattern("shared/", False)), {Verb.READ}),
        (GrantKey(EVERYBODY, NamePattern("", False)), {Verb.READ}),
        (GrantKey(EVERYBODY, NamePattern("shared", False)), {Verb.READ}),
        (GrantKey(EVERYBODY, NamePattern("elsewhere/", False)), {Verb.READ}),
        (GrantKey(EVERYBODY, NamePattern("locks/", True)), {Verb.READ}),
        (GrantKey(EVERYBODY, NamePattern("locks/\n", False)), {Verb.READ}),
        (GrantKey(EVERYBODY, NamePattern("locks/" + "x" * 2000, False)), {Verb.READ}),
        (GrantKey(EVERYBODY, NamePattern("shared/", False)), {Verb.ACT}),
    ],
)
def test_what_means_nothing_is_not_granted(key: GrantKey, verbs: set[Verb]) -> None:
    with pytest.raises(Refusal) as refused:
        check_grant(key, frozenset(verbs))
    assert refused.value.reason in (Reason.INVALID_FIELD, Reason.VALUE_TOO_LARGE)
