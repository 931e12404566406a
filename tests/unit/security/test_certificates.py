"""The name that a verified certificate gives: one, or nobody."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noosphere.server.security import peer_identity


def context(*, uris: list[bytes] | None = None, dns: list[bytes] | None = None) -> dict[str, list[bytes]]:
    found = {"transport_security_type": [b"ssl"], "x509_common_name": [b"root"]}
    if uris is not None:
        found["peer_uri"] = uris
    if dns is not None:
        found["peer_dns"] = dns
    return found


@pytest.mark.parametrize(
    ("uris", "dns", "name"),
    [
        ([b"spiffe://cluster.local/ns/team/sa/planner"], [b"other"], "spiffe://cluster.local/ns/team/sa/planner"),
        ([b"spiffe://cluster.local"], None, "spiffe://cluster.local"),
        (None, [b"planner.team", b"other"], "planner.team"),
        (None, [b"Planner.TEAM"], "planner.team"),
        ([b"https://planner.example"], [b"planner.team"], "planner.team"),
    ],
)
def test_a_spiffe_id_comes_before_the_first_dns_name(
    uris: list[bytes] | None, dns: list[bytes] | None, name: str
) -> None:
    assert peer_identity(context(uris=uris, dns=dns)) == name


@pytest.mark.parametrize(
    ("uris", "dns"),
    [
        (None, None),
        ([], []),
        ([b"https://planner.example"], None),
        ([b"spiffe://a/x", b"spiffe://a/y"], [b"planner"]),
        ([b"https://planner.example", b"spiffe://a/x"], [b"planner"]),
        ([b"SPIFFE://a/x"], [b"planner"]),
        ([b"spiffe://a/x?y"], [b"planner"]),
        ([b"spiffe://a/"], [b"planner"]),
        ([b"spiffe://a/b/../c"], [b"planner"]),
        ([b"spiffe://a/."], None),
        ([b"spiffe://a/" + b"x" * 250], [b"planner"]),
        (None, [b"*.team", b"planner"]),
        (None, [b"planner\0.evil"]),
        (None, [b"planner\n"]),
        (None, [b""]),
        (None, ["пример".encode()]),
        (None, [b"x" * 256]),
    ],
)
def test_what_is_no_certain_name_is_nobody(uris: list[bytes] | None, dns: list[bytes] | None) -> None:
    assert peer_identity(context(uris=uris, dns=dns)) is None


def test_a_connection_without_a_certificate_is_nobody() -> None:
    assert peer_identity({}) is None


@given(st.lists(st.binary(max_size=300), max_size=3), st.lists(st.binary(max_size=300), max_size=3))
def test_a_name_is_one_of_the_certificates_and_can_be_printed(uris: list[bytes], dns: list[bytes]) -> None:
    name = peer_identity(context(uris=uris, dns=dns))
    if name is not None:
        assert name.isascii()
        assert name.isprintable()
        assert name.encode() in (*uris, *(one.lower() for one in dns))
