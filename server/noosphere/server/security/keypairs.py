"""Certificates with their keys, and the authorities that vouch for certificates of others: files, checked when read."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, TypeVar

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

FILE_BYTES_MAX = 1024 * 1024

Parsed = TypeVar("Parsed")


class UnfitCertificate(ValueError):
    """Files that cannot be used; the message is one line that names the file and what is wrong with it."""


class KeyPair(NamedTuple):
    """A certificate and its key, which fit together.

    Attributes:
        certificate: PEM, the certificate first and then those that lead to its authority.
        key: PEM, without a password.
        expires_ms: when the certificate ends, in milliseconds since 1970.
    """

    certificate: bytes
    key: bytes
    expires_ms: int


def read_pair(certificate: Path, key: Path, now_ms: int) -> KeyPair:
    """Reads a certificate and its key.

    Args:
        certificate: the file of the certificate and of those that lead to its authority.
        key: the file of its key.
        now_ms: the time, in milliseconds since 1970.

    Raises:
        UnfitCertificate: a file is missing or is not of its form, they do not fit together, or it has expired.
    """
    chain = _read(certificate)
    own = _parsed(certificate, "certificates", lambda: x509.load_pem_x509_certificates(chain))[0]
    secret = _read(key)
    try:
        public = load_pem_private_key(secret, None).public_key()
    except TypeError:
        raise UnfitCertificate(f"{key} has a password; a server needs a key without one") from None
    # What it says of the content may be part of a key.
    except Exception:
        raise UnfitCertificate(f"{key} is not a private key in PEM form") from None
    form = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    if own.public_key().public_bytes(*form) != public.public_bytes(*form):
        raise UnfitCertificate(f"{key} is not the key of the certificate in {certificate}")
    expires = own.not_valid_after_utc
    if expires <= datetime.fromtimestamp(now_ms / 1000, UTC):
        raise UnfitCertificate(f"the certificate in {certificate} has expired at {expires:%Y-%m-%dT%H:%M:%SZ}")
    return KeyPair(chain, secret, int(expires.timestamp() * 1000))


def read_authorities(file: Path) -> bytes:
    """Returns the certificates of authorities in a file, in PEM form.

    Raises:
        UnfitCertificate: the file is missing, or holds none.
    """
    found = _read(file)
    _parsed(file, "certificates", lambda: x509.load_pem_x509_certificates(found))
    return found


def _read(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            content = stream.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise UnfitCertificate(f"{file} cannot be read: {error.strerror}") from None
    if len(content) > FILE_BYTES_MAX:
        raise UnfitCertificate(f"{file} has more than {FILE_BYTES_MAX} bytes")
    return content


def _parsed(file: Path, what: str, parse: Callable[[], Parsed]) -> Parsed:
    try:
        return parse()
    # The library has a zoo of errors for content that is not what it should be.
    except Exception:
        raise UnfitCertificate(f"{file} does not hold {what} in PEM form") from None
