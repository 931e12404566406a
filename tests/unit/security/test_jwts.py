"""JSON web tokens: which are believed, and every way to forge one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.issuer import (
    AUDIENCE,
    ISSUER,
    claims,
    crafted,
    jwk,
    key_set,
    private_key,
    signed,
    signed_with_the_public_key,
)

from noosphere.consistency import NamePattern, Reason, Refusal
from noosphere.server.ports.grants import Verb
from noosphere.server.security import Principal
from noosphere.server.security.authenticating import Authenticator
from noosphere.server.security.jwks import ALGORITHMS, JWKS_BYTES_MAX, KEYS_MAX, UnfitKeys, VerifyingKey, read_keys
from noosphere.server.security.jwts import SKEW_SECONDS, JwtVerifier
from noosphere.testing import ManualClock

KINDS = sorted(ALGORITHMS)


class Known:
    """Keys that a test says."""

    def __init__(self, *keys: dict[str, Any]) -> None:
        self.version = 0
        self.wanted = 0
        self.keys: tuple[VerifyingKey, ...] = ()
        if keys:
            self.become(*keys)

    def become(self, *keys: dict[str, Any]) -> None:
        """Replaces them."""
        self.keys = read_keys(key_set(*keys))
        self.version += 1

    def has(self, fingerprint: bytes) -> bool:
        """Tells whether one is among them."""
        return any(key.fingerprint == fingerprint for key in self.keys)

    def want(self) -> None:
        """Counts."""
        self.wanted += 1


class Door:
    """A verifier under a clock of the test's."""

    def __init__(self, *keys: dict[str, Any]) -> None:
        self.clock = ManualClock()
        self.keys = Known(*(keys or (jwk("RS256", "k"),)))
        jwts = JwtVerifier(self.keys, ISSUER, AUDIENCE, frozenset({"root"}), self.clock)
        self.door = Authenticator(self.clock, jwts=jwts)

    @property
    def now_s(self) -> float:
        """The present time in seconds since 1970."""
        return self.clock.wall_ms() / 1000

    def who(self, token: str) -> Principal:
        """Returns whom a token stands for."""
        return self.door.bearer(token).principal

    def refused(self, token: str) -> str:
        """Returns why a token is not taken."""
        with pytest.raises(Refusal) as refused:
            self.door.bearer(token)
        assert refused.value.reason is Reason.UNAUTHENTICATED
        return refused.value.message


@pytest.fixture
def door() -> Door:
    return Door()


@pytest.mark.parametrize("kind", KINDS)
def test_a_token_of_the_issuer_is_believed(kind: str) -> None:
    door = Door(jwk(kind, "other", 1), jwk(kind, "k"))
    made = claims(door.now_s, jti="t1")
    expected = Principal("planner", expires_ms=int((made["exp"] + SKEW_SECONDS) * 1000), credential="jwt:t1")
    assert door.who(signed(made, kind)) == expected
    assert door.who(signed(made, kind, kid=None)) == expected, "without a key's name all that fit are tried"
    assert door.who(signed(claims(door.now_s, aud=["x", AUDIENCE]), kind)).name == "planner"


def test_the_claim_says_more_of_its_holder_and_never_that_it_is_an_administrator(door: Door) -> None:
    claim = {"agents": ["a", "team/*"], "owners": ["user/1"], "session": "s", "verbs": ["read"]}
    found = door.who(signed(claims(door.now_s, noosphere=claim)))
    assert found.agents == (NamePattern("agents/a", True), NamePattern("agents/team/", False))
    assert (found.owners, found.session, found.verbs) == (("user/1",), "s", frozenset({Verb.READ}))
    assert not found.admin
    assert door.who(signed(claims(door.now_s, sub="root"))).admin, "the server's own configuration says so"


# Each with an honest signature.
WRONG_CLAIMS: dict[str, Callable[[float], dict[str, Any]]] = {
    "another issuer": lambda now: claims(now, iss="https://elsewhere.example"),
    "an issuer that begins so": lambda now: claims(now, iss=f"{ISSUER}/"),
    "a part of the issuer": lambda now: claims(now, iss=ISSUER[:-4]),
    "no issuer": lambda now: claims(now, iss=None),
    "another audience": lambda now: claims(now, aud="other"),
    "other audiences": lambda now: claims(now, aud=["a", "b"]),
    "no audience": lambda now: claims(now, aud=None),
    "an empty audience": lambda now: claims(now, aud=[]),
    "no end": lambda now: claims(now, exp=None),
    "an end that is text": lambda now: claims(now, exp="tomorrow"),
    "an end that is no number": lambda now: claims(now, exp=float("nan")),
    "an endless end": lambda now: claims(now, exp=float("inf")),
    "an end that is true": lambda now: claims(now, exp=True),
    "a beginning to come": lambda now: claims(now, nbf=now + SKEW_SECONDS + 1),
    "made in the future": lambda now: claims(now, iat=now + SKEW_SECONDS + 1),
    "no subject": lambda now: claims(now, sub=None),
    "an empty subject": lambda now: claims(now, sub=""),
    "a subject that is a number": lambda now: claims(now, sub=7),
    "a long subject": lambda now: claims(now, sub="x" * 513),
    "a subject of several lines": lambda now: claims(now, sub="planner\nroot"),
    "a subject with NUL": lambda now: claims(now, sub="root\0"),
    "half a character": lambda now: claims(now, sub="\ud800"),
    "a claim of another form": lambda now: claims(now, noosphere=["agents"]),
    "a claim with what nobody knows": lambda now: claims(now, noosphere={"sesion": "s1"}),
    "a claim to be an administrator": lambda now: claims(now, noosphere={"admin": True}),
    "a verb that there is not": lambda now: claims(now, noosphere={"verbs": ["rule"]}),
    "too many agents": lambda now: claims(now, noosphere={"agents": ["a"] * 65}),
    "an agent without a name": lambda now: claims(now, noosphere={"agents": [""]}),
}


@pytest.mark.parametrize("what", WRONG_CLAIMS)
def test_a_token_for_somebody_else_is_not_believed(door: Door, what: str) -> None:
    assert door.refused(signed(WRONG_CLAIMS[what](door.now_s))) == "the credential is not valid"


def _cut(token: str) -> str:
    return token.rpartition(".")[0] + "."


def _other_payload(token: str, now: float) -> str:
    header, _, signature = token.split(".")
    payload = crafted({}, claims(now, sub="root")).split(".")[1]
    return f"{header}.{payload}.{signature}"


FORGED: dict[str, Callable[[float], str]] = {
    "no signature": lambda now: crafted({"alg": "none"}, claims(now, sub="root")),
    "no signature, spelt otherwise": lambda now: crafted({"alg": "nOnE", "kid": "k"}, claims(now, sub="root")),
    "no signature, a key named": lambda now: crafted({"alg": "none", "kid": "k"}, claims(now, sub="root")),
    "the signature cut off": lambda now: _cut(signed(claims(now))),
    "another payload": lambda now: _other_payload(signed(claims(now)), now),
    "the public key as a secret": lambda now: signed_with_the_public_key(claims(now, sub="root")),
    "a secret of its own": lambda now: jwt.encode(claims(now), "x" * 64, algorithm="HS256", headers={"kid": "k"}),
    "a key of its own": lambda now: signed(claims(now, sub="root"), number=1),
    "a key of its own in the header": lambda now: signed(
        claims(now, sub="root"), number=1, jwk=jwk("RS256", "k", 1), jku="https://evil.example/jwks"
    ),
    "another kind of key": lambda now: signed(claims(now, sub="root"), "ES256"),
    "another algorithm named": lambda now: crafted({"alg": "PS256", "kid": "k"}, claims(now), b"x" * 256),
    "an algorithm that is no text": lambda now: crafted({"alg": ["RS256"], "kid": "k"}, claims(now), b"x"),
    "a key's name that is no text": lambda now: crafted({"alg": "RS256", "kid": 7}, claims(now), b"x"),
    "extensions that must be understood": lambda now: signed(claims(now), crit=["exp"]),
    "a header without end": lambda now: crafted(b"[" * 6_000, claims(now), b"x"),
    "a payload without end": lambda now: crafted({"alg": "RS256", "kid": "k"}, b"[" * 5_000, b"x"),
    "an encrypted one": lambda now: "a.b.c.d.e",
    "one part": lambda now: "abc",
    "no parts": lambda now: "..",
}


@pytest.mark.parametrize("how", FORGED)
def test_a_forged_token_is_not_believed(door: Door, how: str) -> None:
    assert door.refused(FORGED[how](door.now_s)) == "the credential is not valid"


def test_an_elliptic_key_is_not_taken_for_another_ones(door: Door) -> None:
    door = Door(jwk("ES256", "k"), jwk("RS256", "r"))
    assert door.refused(signed(claims(door.now_s), "RS256", kid="k"))
    assert door.refused(signed(claims(door.now_s), "ES384", kid="k"))
    assert door.who(signed(claims(door.now_s), "ES256", kid="k"))


@given(st.text(max_size=200), st.binary(max_size=60), st.binary(max_size=60))
def test_no_text_is_more_than_refused(text: str, header: bytes, payload: bytes) -> None:
    door = Door()
    for token in (text, crafted(header, payload, b"x"), f"{text}.{text}.{text}"):
        assert door.refused(token)


@given(st.data())
def test_a_token_that_was_changed_anywhere_is_not_believed(data: st.DataObject) -> None:
    door = Door(jwk("EdDSA", "k"))
    token = signed(claims(door.now_s), "EdDSA")
    place = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.sampled_from("ABab01-_."))
    changed = token[:place] + other + token[place + 1 :]
    # The last digit of each part has bits that stand for nothing.
    if place + 1 < len(token) and token[place + 1] != "." and changed != token:
        assert door.refused(changed)


def test_times_are_those_of_the_servers_clock_give_or_take_half_a_minute(door: Door) -> None:
    begins = door.now_s + SKEW_SECONDS
    token = signed(claims(door.now_s, nbf=begins, iat=begins, exp=door.now_s + 100))
    verified = door.door.bearer(token)
    door.clock.advance((100 + SKEW_SECONDS) * 1000 - 1)
    assert door.who(token).name == "planner"
    door.clock.advance(1)
    assert not verified.valid(door.clock.wall_ms())
    assert door.refused(token) == "the credential has expired"


def test_a_key_that_is_withdrawn_takes_its_tokens_with_it(door: Door) -> None:
    door = Door(jwk("RS256", "old"), jwk("RS256", "new", 1))
    old = door.door.bearer(signed(claims(door.now_s), kid="old"))
    new = door.door.bearer(signed(claims(door.now_s), kid="new", number=1))
    version = door.door.version
    door.keys.become(jwk("RS256", "new", 1), jwk("RS256", "newer", 2))
    now_ms = door.clock.wall_ms()
    assert door.door.version != version
    assert (old.valid(now_ms), new.valid(now_ms)) == (False, True)
    assert door.refused(signed(claims(door.now_s), kid="old"))
    # A key under the name of another is not that one.
    door.keys.become(jwk("RS256", "new", 3))
    assert not new.valid(now_ms)


def test_a_key_that_is_not_known_is_asked_for(door: Door) -> None:
    assert door.refused(signed(claims(door.now_s), kid="next", number=1))
    assert door.keys.wanted == 1
    door.keys.become(jwk("RS256", "next", 1))
    assert door.who(signed(claims(door.now_s), kid="next", number=1)).name == "planner"
    assert door.keys.wanted == 1


def test_while_no_key_is_known_it_is_not_the_callers_fault() -> None:
    clock = ManualClock()
    nobody = Authenticator(clock, jwts=JwtVerifier(Known(), ISSUER, AUDIENCE, frozenset(), clock))
    with pytest.raises(Refusal) as refused:
        nobody.bearer(signed(claims(clock.wall_ms() / 1000)))
    assert refused.value.reason is Reason.ENGINE_UNAVAILABLE


UNFIT: dict[str, tuple[bytes, str]] = {
    "no JSON": (b"{", "is not JSON"),
    "a list": (b"[]", "no list of keys"),
    "nothing": (key_set(), "has no key that verifies"),
    "a secret": (key_set({"kty": "oct", "k": "c2VjcmV0", "kid": "k", "alg": "HS256"}), "has no key that verifies"),
    "for encryption": (key_set(jwk("RS256", "k", use="enc")), "has no key that verifies"),
    "another use": (key_set(jwk("RS256", "k", key_ops=["encrypt"])), "has no key that verifies"),
    "another algorithm": (key_set(jwk("RS256", "k", alg="RSA-OAEP")), "has no key that verifies"),
    "an algorithm of secrets": (key_set(jwk("RS256", "k", alg="HS256")), "has no key that verifies"),
    "a short key": (key_set(jwk("weak", "k")), "has no key that verifies"),
    "half a key": (key_set({"kty": "RSA", "kid": "k", "n": "AQAB"}), "has no key that verifies"),
    "an unknown curve": (key_set({"kty": "EC", "crv": "P-42", "x": "a", "y": "b"}), "has no key that verifies"),
    "a private key": (key_set(jwk("RS256", "k", d="AQAB")), "holds a private key"),
    "too many": (key_set(*[jwk("EdDSA", str(n)) for n in range(KEYS_MAX + 1)]), f"the limit is {KEYS_MAX}"),
    "too much": (b" " * (JWKS_BYTES_MAX + 1), str(JWKS_BYTES_MAX)),
    "no end": (b"[" * 200_000, "is not JSON"),
}


@pytest.mark.parametrize("what", UNFIT)
def test_a_key_set_that_cannot_be_used_is_told(what: str) -> None:
    data, problem = UNFIT[what]
    with pytest.raises(UnfitKeys) as unfit:
        read_keys(data)
    assert problem in str(unfit.value)


def test_a_key_verifies_what_it_says_and_no_more() -> None:
    (key,) = read_keys(key_set(jwk("RS256", "k", alg="PS384"), {"kty": "oct", "k": "c2VjcmV0"}))
    assert key.algorithms == {"PS384"}
    door = Door(jwk("RS256", "k", alg="RS256"))
    assert door.who(signed(claims(door.now_s), "RS256"))
    token = jwt.encode(claims(door.now_s), private_key("RS256"), algorithm="PS256", headers={"kid": "k"})
    assert door.refused(token) == "the credential is not valid"
