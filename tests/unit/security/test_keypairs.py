"""Files of certificates: one line tells what is wrong with them, and never what is in them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509 import load_pem_x509_certificate
from tests.support.authority import TestAuthority

from noosphere.server.security.issuing import Authority, write_pair
from noosphere.server.security.keypairs import FILE_BYTES_MAX, UnfitCertificate, read_authorities, read_pair

NOW_MS = time.time_ns() // 1_000_000


@pytest.fixture
def authority(tmp_path: Path) -> TestAuthority:
    return TestAuthority(tmp_path)


def refused(certificate: Path, key: Path) -> str:
    with pytest.raises(UnfitCertificate) as caught:
        read_pair(certificate, key, NOW_MS)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_pair_is_read_with_its_end(authority: TestAuthority) -> None:
    certificate, key = authority.server(days=2)
    pair = read_pair(certificate, key, NOW_MS)
    assert (pair.certificate, pair.key) == (certificate.read_bytes(), key.read_bytes())
    ends = load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc
    assert pair.expires_ms == int(ends.timestamp() * 1000) > NOW_MS


def test_files_that_cannot_be_read_are_named(authority: TestAuthority, tmp_path: Path) -> None:
    certificate, key = authority.server()
    assert refused(tmp_path / "none.pem", key) == f"{tmp_path}/none.pem cannot be read: No such file or directory"
    assert refused(certificate, tmp_path) == f"{tmp_path} cannot be read: Is a directory"
    large = tmp_path / "large.pem"
    large.write_bytes(b"x" * (FILE_BYTES_MAX + 1))
    assert refused(large, key) == f"{large} has more than {FILE_BYTES_MAX} bytes"


@pytest.mark.parametrize(
    "content", [b"", b"secret-secret", b"\xff\0", b"-----BEGIN CERTIFICATE-----\nsecret\n-----END CERTIFICATE-----\n"]
)
def test_files_that_are_something_else_are_named_without_their_content(
    authority: TestAuthority, tmp_path: Path, content: bytes
) -> None:
    certificate, key = authority.server()
    other = tmp_path / "other.pem"
    other.write_bytes(content)
    assert refused(other, key) == f"{other} does not hold certificates in PEM form"
    assert refused(certificate, other) == f"{other} is not a private key in PEM form"
    with pytest.raises(UnfitCertificate, match=r"other\.pem does not hold certificates in PEM form$"):
        read_authorities(other)


def test_a_key_of_another_certificate_is_refused(authority: TestAuthority) -> None:
    certificate, _ = authority.server()
    _, key = authority.client("planner")
    assert refused(certificate, key) == f"{key} is not the key of the certificate in {certificate}"


def test_a_key_with_a_password_is_refused(authority: TestAuthority) -> None:
    certificate, key = authority.server()
    secret = load_pem_private_key(key.read_bytes(), None)
    key.write_bytes(secret.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"hush")))
    assert refused(certificate, key) == f"{key} has a password; a server needs a key without one"


def test_a_certificate_that_has_expired_is_refused(authority: TestAuthority) -> None:
    certificate, key = authority.server(days=-1)
    assert refused(certificate, key).startswith(f"the certificate in {certificate} has expired at 20")


def test_several_authorities_are_read_as_they_are(authority: TestAuthority, tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    both.write_bytes(authority.pem + TestAuthority(tmp_path / "other").pem)
    assert read_authorities(both) == both.read_bytes()


def test_keys_are_for_their_owner_alone_and_are_not_written_over(tmp_path: Path) -> None:
    authority = Authority.make("a", NOW_MS)
    issued = authority.issue(["planner"], NOW_MS, 1)
    certificate, key = tmp_path / "planner.pem", tmp_path / "planner.key"
    write_pair(issued, certificate, key)
    assert key.stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError):
        write_pair(authority.issue(["other"], NOW_MS, 1), certificate, key)
    assert (certificate.read_bytes(), key.read_bytes()) == issued
    assert sorted(path.name for path in tmp_path.iterdir()) == ["planner.key", "planner.pem"]
