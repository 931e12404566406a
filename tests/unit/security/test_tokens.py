"""API tokens: what is kept of them, and which of them are valid."""

from __future__ import annotations

import os
from hashlib import sha256

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noosphere.consistency import NamePattern, Reason, Refusal
from noosphere.consistency.errors import Code
from noosphere.server.ports.coordinator import PolicyTable
from noosphere.server.ports.grants import GrantKey, Verb
from noosphere.server.ports.tables import Expected, Table, check_entry, check_expected
from noosphere.server.security import Permissions, Principal, minting
from noosphere.server.security.authenticating import Authenticator
from noosphere.server.security.minting import ApiTokens, Made, Narrowed, Wanted
from noosphere.server.security.permissions import deciding
from noosphere.server.security.tokens import DEPTH_MAX, TOKENS, find, looks_like_token, mint, read
from noosphere.testing import ManualClock

PLANNER = Principal("planner", credential="mtls")


class Tables:
    """Tables that nobody else knows."""

    def __init__(self) -> None:
        self._tables: dict[str, Table] = {}

    def table(self, name: str) -> Table:
        """Returns a table."""
        return self._tables.setdefault(name, Table())

    async def put_entry(self, table: str, key: str, value: bytes | None, *, expected: Expected = None) -> None:
        """Writes an entry."""
        shown = self.table(table)
        check_entry(table, shown, key, value)
        if value is not None:
            check_expected(table, shown.get(key), expected)
        shown.show(key, value)


class Desk:
    """Somebody who makes tokens, and somebody who looks at them."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.tables = Tables()
        self.api = ApiTokens(self.tables, self.clock, os.urandom)
        self.policies = PolicyTable(0, {}, {})
        self.permissions = Permissions(lambda: self.policies)
        self.door = Authenticator(self.clock, tokens=self.tables.table(TOKENS), permissions=self.permissions)

    def grant(self, principal: str, namespace: str, *verbs: Verb) -> None:
        """Grants these verbs and no others."""
        key = GrantKey(NamePattern(principal, True), NamePattern(namespace, True))
        self.policies = PolicyTable(self.policies.config_version + 1, {}, {key: frozenset(verbs)})

    def who(self, token: str) -> Principal:
        """Returns whom a token stands for."""
        return self.door.bearer(token).principal

    def refused(self, token: str) -> str:
        """Returns why a token is not taken."""
        with pytest.raises(Refusal) as refused:
            self.door.bearer(token)
        assert (refused.value.reason, refused.value.code) == (Reason.UNAUTHENTICATED, Code.UNAUTHENTICATED)
        assert token not in refused.value.message
        return refused.value.message


@pytest.fixture
def desk() -> Desk:
    return Desk()


async def denied(call: object) -> Refusal:
    with pytest.raises(Refusal) as refused:
        await call  # type: ignore[misc]  # a coroutine of the desk
    return refused.value


async def test_a_token_stands_for_what_it_was_made_for(desk: Desk) -> None:
    agents = (NamePattern("agents/a", True), NamePattern("agents/team/", False))
    made = await desk.api.create(
        Wanted("planner", False, agents, ("user/42",), "s1", frozenset({Verb.READ}), 60_000, "for tests"), "root"
    )
    assert desk.who(made.text) == Principal(
        "planner",
        False,
        agents,
        ("user/42",),
        "s1",
        frozenset({Verb.READ}),
        desk.clock.wall_ms() + 60_000,
        f"noo_{made.token_id}",
    )
    assert desk.who((await desk.api.create(Wanted("root", admin=True), "")).text).admin
    assert made.stored.creator == "root"


async def test_nothing_that_is_kept_or_shown_tells_a_secret(desk: Desk) -> None:
    made = await desk.api.create(Wanted("planner"), "root")
    secret = made.text.rpartition("_")[2]
    assert len(bytes.fromhex(secret)) == 32
    entry = desk.tables.table(TOKENS)[made.token_id]
    assert sha256(secret.encode()).hexdigest() in entry.decode()
    shown = [entry.decode(), repr(made), str(made), repr(desk.who(made.text)), repr(mint(os.urandom))]
    assert not [text for text in shown if secret in text]
    listed, _ = desk.api.list(after="", count_max=10)
    assert secret not in repr(listed)


@given(st.data())
def test_whatever_is_not_a_whole_token_is_not_valid(data: st.DataObject) -> None:
    minted = mint(os.urandom)
    stored = {"digest": minted.digest, "principal": "planner", "created_ms": 1}
    table = {minted.token_id: msgspec.json.encode(stored)}
    assert find(minted.text, table) is not None
    place = data.draw(st.integers(0, len(minted.text) - 1))
    other = data.draw(st.characters().filter(lambda one: one != minted.text[place]))
    damaged = data.draw(
        st.sampled_from(
            [
                minted.text[:place] + other + minted.text[place + 1 :],
                minted.text[:place],
                minted.text + other,
                other + minted.text,
                minted.text.upper(),
                minted.text.replace(minted.token_id, mint(os.urandom).token_id),
                minted.text[: -len(minted.digest)] + minted.digest,
            ]
        )
    )
    assert find(damaged, table) is None


@given(st.text() | st.binary().map(lambda data: data.decode("latin-1")))
def test_no_text_is_more_than_refused(text: str) -> None:
    desk = Desk()
    with pytest.raises(Refusal) as refused:
        desk.door.bearer(text)
    assert refused.value.reason is Reason.UNAUTHENTICATED


async def test_a_token_ends_when_its_time_is_over(desk: Desk) -> None:
    made = await desk.api.create(Wanted("planner", ttl_ms=1_000), "root")
    verified = desk.door.bearer(made.text)
    desk.clock.advance(999)
    assert desk.door.bearer(made.text) is verified, "what was verified is remembered"
    desk.clock.advance(1)
    assert not verified.valid(desk.clock.wall_ms())
    assert desk.refused(made.text) == "the credential has expired"
    assert desk.api.list(after="", count_max=10) == ([], None)


async def test_a_token_ends_when_it_is_revoked_with_all_that_were_narrowed_from_it(desk: Desk) -> None:
    made = await desk.api.create(Wanted("planner"), "root")
    other = await desk.api.create(Wanted("planner"), "root")
    chain = [made]
    for _ in range(DEPTH_MAX):
        chain.append(await desk.api.narrow(desk.who(chain[-1].text), Narrowed(agent="planner")))
    verified = [desk.door.bearer(one.text) for one in chain]
    version = desk.door.version
    assert (await denied(desk.api.narrow(verified[-1].principal, Narrowed()))).reason is Reason.LIMIT_EXCEEDED
    assert await desk.api.revoke(made.token_id) == len(chain)
    assert desk.door.version != version
    assert not [one for one in verified if one.valid(desk.clock.wall_ms())]
    assert {desk.refused(one.text) for one in chain} == {"the credential is not valid"}
    assert desk.who(other.text).name == "planner"
    assert (await denied(desk.api.revoke(made.token_id))).reason is Reason.ENTRY_NOT_FOUND


async def test_a_token_whose_parent_alone_has_gone_is_not_valid(desk: Desk) -> None:
    made = await desk.api.create(Wanted("planner"), "root")
    narrowed = await desk.api.narrow(desk.who(made.text), Narrowed())
    verified = desk.door.bearer(narrowed.text)
    desk.tables.table(TOKENS).show(made.token_id, None)
    assert not verified.valid(desk.clock.wall_ms())
    assert desk.refused(narrowed.text) == "the credential is not valid"


async def test_a_narrowed_token_may_do_what_its_holder_may_and_less(desk: Desk) -> None:
    agents = (NamePattern("agents/team/", False),)
    holder = Principal("planner", agents=agents, owners=("user/1", "user/2"), credential="mtls")
    made = await desk.api.narrow(
        holder, Narrowed("team/a", "user/1", "s1", frozenset({Verb.READ, Verb.WRITE}), ttl_ms=1_000)
    )
    found = desk.who(made.text)
    assert (found.name, found.admin, found.only_agents, found.only_owners) == ("planner", False, True, True)
    assert (found.owners, found.session, found.verbs) == (("user/1",), "s1", frozenset({Verb.READ, Verb.WRITE}))
    assert [name for name in ("planner", "planner/x", "team/a", "team/b") if found.may_act_as(name)] == ["team/a"]
    assert found.expires_ms == desk.clock.wall_ms() + 1_000
    again = desk.who((await desk.api.narrow(found, Narrowed(verbs=frozenset({Verb.READ}), ttl_ms=9_000))).text)
    assert again == found._replace(verbs=frozenset({Verb.READ}), credential=again.credential)


WIDER = {
    "another agent": Narrowed(agent="other"),
    "an operator's agent": Narrowed(agent="cli/root"),
    "another owner": Narrowed(owner="user/2"),
    "another session": Narrowed(session="s2"),
    "another verb": Narrowed(verbs=frozenset({Verb.READ, Verb.DELETE})),
}


@pytest.mark.parametrize("how", WIDER)
async def test_a_token_is_never_widened(desk: Desk, how: str) -> None:
    holder = PLANNER._replace(owners=("user/1",), session="s1", verbs=frozenset({Verb.READ}))
    refusal = await denied(desk.api.narrow(holder, WIDER[how]))
    assert refusal.reason is Reason.PERMISSION_DENIED
    assert len(desk.tables.table(TOKENS)) == 0


async def test_a_token_for_an_agent_that_was_granted_ends_with_the_grant(desk: Desk) -> None:
    deciding.set(desk.permissions)
    assert (await denied(desk.api.narrow(PLANNER, Narrowed(agent="other")))).reason is Reason.PERMISSION_DENIED
    desk.grant("planner", "agents/other", Verb.ACT)
    made = await desk.api.narrow(PLANNER, Narrowed(agent="other"))
    below = await desk.api.narrow(desk.who(made.text), Narrowed(agent="other"))
    verified = [desk.door.bearer(one.text) for one in (made, below)]
    assert [one.principal.may_act_as("other") for one in verified] == [True, True]
    version = desk.door.version
    desk.grant("planner", "agents/other", Verb.READ)
    assert desk.door.version != version
    assert not [one for one in verified if one.valid(desk.clock.wall_ms())]
    assert desk.refused(made.text)
    assert desk.refused(below.text)


async def test_what_is_narrowed_from_an_administrator_is_none(desk: Desk) -> None:
    root = Principal("root", admin=True, credential="mtls")
    found = desk.who((await desk.api.narrow(root, Narrowed("worker", "user/9"))).text)
    assert (found.admin, found.owners) == (False, ("user/9",))
    assert [name for name in ("root", "worker", "cli/x", "other") if found.may_act_as(name)] == ["worker"]
    plain = desk.who((await desk.api.narrow(root, Narrowed())).text)
    assert (plain.admin, plain.may_act_as("other"), plain.may_act_as("root")) == (False, False, True)


async def test_a_narrowed_token_does_not_outlive_its_holder(desk: Desk) -> None:
    ends_ms = desk.clock.wall_ms() + 500
    made = await desk.api.narrow(PLANNER._replace(expires_ms=ends_ms), Narrowed(ttl_ms=60_000))
    assert made.stored.expires_ms == ends_ms
    made = await desk.api.narrow(PLANNER, Narrowed())
    assert made.stored.expires_ms == desk.clock.wall_ms() + minting.SCOPED_TTL_MS_DEFAULT


async def test_where_nobody_is_asked_who_they_are_there_is_nothing_to_narrow(desk: Desk) -> None:
    assert (await denied(desk.api.narrow(Principal("", open=True), Narrowed()))).reason is Reason.TOKENS_OFF
    elsewhere = ApiTokens(desk.tables, desk.clock, os.urandom, taken=False)
    assert (await denied(elsewhere.narrow(PLANNER, Narrowed()))).reason is Reason.TOKENS_OFF


BAD = {
    "no principal": Wanted(""),
    "control characters": Wanted("a\nb"),
    "a long name": Wanted("a" * 513),
    "half a character": Wanted("\ud800"),
    "no agent": Wanted("a", agents=(NamePattern("agents/", True),)),
    "a namespace": Wanted("a", agents=(NamePattern("shared/a", True),)),
    "too many owners": Wanted("a", owners=("u",) * 65),
    "an endless time": Wanted("a", ttl_ms=1 << 60),
}


@pytest.mark.parametrize("what", BAD)
async def test_what_no_token_can_be_made_for_is_refused_with_the_field(desk: Desk, what: str) -> None:
    refusal = await denied(desk.api.create(BAD[what], "root"))
    assert refusal.reason in (Reason.INVALID_FIELD, Reason.VALUE_TOO_LARGE)
    assert refusal.message.split()[0].rstrip(":") in ("principal", "agents", "owners", "ttl")


async def test_lists_go_on_where_they_ended(desk: Desk) -> None:
    made: list[Made] = [await desk.api.create(Wanted(f"p{i}"), "root") for i in range(7)]
    seen: list[str] = []
    after: str | None = ""
    while after is not None:
        page, after = desk.api.list(after=after, count_max=3)
        seen += [token_id for token_id, _ in page]
    assert seen == sorted(one.token_id for one in made)


async def test_tokens_that_are_over_make_room(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minting, "TABLE_ENTRIES_MAX", 4)
    monkeypatch.setattr(minting, "LOOKED_AT_MAX", 2)
    for _ in range(5):
        await desk.api.narrow(PLANNER, Narrowed(ttl_ms=1_000))
    kept = await desk.api.create(Wanted("kept"), "root")
    desk.clock.advance(2_000)
    # Each new one looks at a few of those that there are.
    made = [(await desk.api.create(Wanted("last"), "root")).token_id for _ in range(12)]
    assert set(desk.tables.table(TOKENS)) == {kept.token_id, *made}


@pytest.mark.parametrize(
    "text", ["", "noo_0123456789abcdef", "0123456789abcdef_" + "0" * 64, "0123456789ABCDEF", "\u0660" * 16]
)
async def test_what_is_no_public_part_is_refused_and_not_repeated(desk: Desk, text: str) -> None:
    refusal = await denied(desk.api.revoke(text))
    assert refusal.reason is Reason.INVALID_FIELD
    assert not text or text not in refusal.message


async def test_an_entry_of_a_newer_version_is_not_valid_here(desk: Desk) -> None:
    made = await desk.api.create(Wanted("planner"), "root")
    entry = msgspec.json.decode(desk.tables.table(TOKENS)[made.token_id]) | {"format": 2}
    desk.tables.table(TOKENS).show(made.token_id, msgspec.json.encode(entry))
    assert read(desk.tables.table(TOKENS)[made.token_id]) is None
    assert desk.refused(made.text) == "the credential is not valid"


async def test_what_is_remembered_is_bounded(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noosphere.server.security.authenticating.VERIFIED_MAX", 3)
    made = [await desk.api.create(Wanted(f"p{i}"), "root") for i in range(8)]
    for _ in range(2):
        assert [desk.who(one.text).name for one in made] == [f"p{i}" for i in range(8)]
    assert len(desk.door._verified) == 3


def test_what_looks_like_a_token_is_told_from_others() -> None:
    assert looks_like_token(mint(os.urandom).text)
    assert not looks_like_token("eyJhbGciOiJub25lIn0.e30.")


@pytest.mark.parametrize("field", [{"digest": "é" * 64}, {"created_ms": -1}, {"expires_ms": -(1 << 80)}, {"admin": 1}])
def test_an_entry_of_values_that_no_token_has_is_not_valid(field: dict[str, object]) -> None:
    minted = mint(os.urandom)
    stored = {"digest": minted.digest, "principal": "p", "created_ms": 1} | field
    assert find(minted.text, {minted.token_id: msgspec.json.encode(stored)}) is None
