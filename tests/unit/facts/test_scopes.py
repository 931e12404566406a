"""Scopes, owners and ids of facts, and who may read and write where."""

from __future__ import annotations

from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noosphere.consistency import Reason, Refusal
from noosphere.server.facts.scopes import (
    SCOPE_BYTES_MAX,
    IdKind,
    Kind,
    Scope,
    check_owner,
    check_scope,
    digits_of,
    make_id,
    may,
    may_access,
    require_read,
    require_write,
    scope_of,
    scope_or_own,
)
from noosphere.server.memory.core import Core
from noosphere.server.memory.types import Call
from noosphere.server.ports.coordinator import Incarnation
from noosphere.server.ports.grants import Verb

CORE = cast(Core, None)
"""Where nobody is asked who they are, names are all that counts."""
DIGITS = "0123456789abcdef01234567"


def caller(agent_id: str) -> Call:
    return Call(Incarnation(agent_id, 1))


@pytest.mark.parametrize(
    ("scope", "parts"),
    [
        ("user/42", Scope(Kind.USER, "42")),
        ("shared/team/docs", Scope(Kind.SHARED, "team/docs")),
        ("agent/cli/tool", Scope(Kind.AGENT, "cli/tool")),
        ("user/张伟 % * - | : { } \" '", Scope(Kind.USER, "张伟 % * - | : { } \" '")),
        ("app/shop/user/42", Scope(Kind.USER, "42", "shop")),
        ("app/app/agent/a", Scope(Kind.AGENT, "a", "app")),
        ("agent/app/x", Scope(Kind.AGENT, "app/x")),
    ],
)
def test_scopes_have_parts(scope: str, parts: Scope) -> None:
    assert check_scope(scope) == parts


@pytest.mark.parametrize(
    "scope",
    [
        *("", "a", "user", "user/", "/user/42", "users/42", "User/42", "held/user/42", "facts/user/42"),
        *("user/4#2", "user//42", "user/42/", "user/a\0b", "user/\ud800"),
        *("app/", "app/shop", "app/shop/42", "app//user/42", "app/a/b/user/1"),
    ],
    ids=ascii,
)
def test_other_names_are_refused_by_field(scope: str) -> None:
    with pytest.raises(Refusal) as refused:
        check_scope(scope, "scopes[3]")
    assert refused.value.reason is Reason.INVALID_FIELD
    assert str(refused.value).startswith("scopes[3]: ")


def test_the_longest_scope_is_one_and_a_longer_one_is_not() -> None:
    longest = "user/" + "x" * (SCOPE_BYTES_MAX - 5)
    assert check_scope(longest).name == longest[5:]
    with pytest.raises(Refusal, match=f"scope has {SCOPE_BYTES_MAX + 1} bytes, the limit is {SCOPE_BYTES_MAX}"):
        check_scope(longest + "x")


def test_an_owner_is_one_for_all_applications() -> None:
    assert check_owner("user/42") == Scope(Kind.USER, "42")
    with pytest.raises(Refusal, match="owner: 'app/shop/user/42' is a scope of one application"):
        check_owner("app/shop/user/42")
    assert scope_or_own("", "user/42") == "user/42"
    assert scope_or_own("shared/team", "user/42") == "shared/team"
    with pytest.raises(Refusal, match=r"^scope: "):
        scope_or_own("team", "user/42")


names = st.text(st.characters(blacklist_categories=["Cc", "Cs"], blacklist_characters="#/"), min_size=1, max_size=20)


@given(st.sampled_from(["user", "shared"]), names, st.sampled_from(IdKind))
def test_an_id_tells_its_scope(kind: str, name: str, what: IdKind) -> None:
    scope = f"{kind}/{name}"
    id = make_id(scope, DIGITS + "more", what)
    assert scope_of(id, what) == scope
    assert digits_of(id) == what.value + DIGITS
    for other in set(IdKind) - {what}:
        with pytest.raises(Refusal, match=rf"^{other.name.lower()}_id: "):
            scope_of(id, other)


@pytest.mark.parametrize(
    "id",
    ["", "user/42", f"#{DIGITS}", f"42#{DIGITS}", f"user/42#{DIGITS[1:]}", f"user/42#{DIGITS.upper()}", "user/42#"],
)
def test_malformed_ids_are_refused(id: str) -> None:
    with pytest.raises(Refusal) as refused:
        scope_of(id)
    assert refused.value.reason is Reason.INVALID_FIELD


def test_what_is_an_agents_is_its_alone() -> None:
    for scope in ("agent/a", "app/shop/agent/a"):
        assert may(CORE, caller("a"), scope, Verb.READ)
        assert may(CORE, caller("cli/anna"), scope, Verb.READ)
        for other in (caller("b"), caller("a/b"), caller("agent/a"), Call()):
            assert not may(CORE, other, scope, Verb.READ)
            with pytest.raises(Refusal) as refused:
                require_read(CORE, other, scope)
            assert refused.value.reason is Reason.PERMISSION_DENIED
    assert not may_access("a", "agent/app/shop/a")
    assert not may_access("", "agent/a")


def test_others_are_anyones() -> None:
    for scope in ("user/42", "shared/team", "app/shop/user/42"):
        assert may(CORE, Call(), scope, Verb.READ)
        require_write(CORE, caller("a"), scope, "user/42")


def test_nobody_writes_what_is_another_agents_into_a_shared_scope() -> None:
    require_write(CORE, caller("a"), "shared/team", "agent/a")
    with pytest.raises(Refusal, match="changing facts of 'agent/a' in 'shared/team' is not permitted"):
        require_write(CORE, caller("b"), "shared/team", "agent/a")
