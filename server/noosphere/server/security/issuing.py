"""A certificate authority for development and small fleets: whoever has its key issues certificates."""

from __future__ import annotations

import contextlib
import ipaddress
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from .keypairs import UnfitCertificate

_AUTHORITY_DAYS = 3650
# Clocks of other machines may be behind.
_BACKDATED = timedelta(minutes=5)
_COMMON_NAME_CHARACTERS_MAX = 64


class Issued(NamedTuple):
    """A certificate that was issued, and its key, both in PEM form."""

    certificate: bytes
    key: bytes


class Authority(NamedTuple):
    """Issues certificates.

    Attributes:
        certificate: its own.
        key: its own.
    """

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def make(cls, name: str, now_ms: int, days: int = _AUTHORITY_DAYS) -> Authority:
        """Returns a new one."""
        key = ec.generate_private_key(ec.SECP256R1())
        begins = _time(now_ms)
        built = (
            x509.CertificateBuilder()
            .subject_name(_subject(name))
            .issuer_name(_subject(name))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(begins - _BACKDATED)
            .not_valid_after(begins + timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )
        return cls(built.sign(key, hashes.SHA256()), key)

    @classmethod
    def read(cls, certificate: Path, key: Path) -> Authority:
        """Reads one from its files.

        Raises:
            UnfitCertificate: they are not those of an authority that was made here.
        """
        try:
            own = x509.load_pem_x509_certificate(certificate.read_bytes())
            secret = load_pem_private_key(key.read_bytes(), None)
        except OSError as error:
            raise UnfitCertificate(f"{error.filename} cannot be read: {error.strerror}") from None
        # What it says of the content may be part of a key.
        except Exception:
            raise UnfitCertificate(f"{certificate} and {key} are not a certificate and its key in PEM form") from None
        if not isinstance(secret, ec.EllipticCurvePrivateKey) or secret.public_key() != own.public_key():
            raise UnfitCertificate(f"{key} is not the key of the certificate in {certificate}")
        return cls(own, secret)

    @property
    def pem(self) -> bytes:
        """Its certificate, in PEM form."""
        return self.certificate.public_bytes(Encoding.PEM)

    def issue(self, names: list[str], now_ms: int, days: float, *, server: bool = False) -> Issued:
        """Issues a certificate.

        Args:
            names: whom it names: DNS names, IP addresses, or URIs such as ``spiffe://cluster.local/ns/team/sa/planner``.
            now_ms: the time, in milliseconds since 1970.
            days: for how long.
            server: whether it is for a server, instead of a client.

        Raises:
            ValueError: a name is none.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        begins = _time(now_ms)
        use = ExtendedKeyUsageOID.SERVER_AUTH if server else ExtendedKeyUsageOID.CLIENT_AUTH
        built = (
            x509.CertificateBuilder()
            .subject_name(_subject(names[0]))
            .issuer_name(self.certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(min(begins, begins + timedelta(days=days)) - _BACKDATED)
            .not_valid_after(begins + timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([use]), critical=False)
            .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
        )
        return Issued(built.sign(self.key, hashes.SHA256()).public_bytes(Encoding.PEM), _pem_of(key))

    def write(self, certificate: Path, key: Path) -> None:
        """Writes its files.

        Raises:
            OSError: they cannot be written, or are there already.
        """
        write_pair(Issued(self.pem, _pem_of(self.key)), certificate, key)


def write_pair(issued: Issued, certificate: Path, key: Path, *, replace: bool = False) -> None:
    """Writes a certificate and its key, which nobody but its owner may read; each file is there whole or not at all.

    Raises:
        OSError: they cannot be written, or are there already and are not to be replaced.
    """
    if not replace:
        for path in (certificate, key):
            if path.exists():
                raise FileExistsError(17, "is there already", str(path))
    _write(key, issued.key, 0o600)
    _write(certificate, issued.certificate, 0o644)


def _write(path: Path, content: bytes, mode: int) -> None:
    new = path.with_name(f".{path.name}.new")
    with contextlib.suppress(FileNotFoundError):
        new.unlink()
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as stream:
            stream.write(content)
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def _time(now_ms: int) -> datetime:
    return datetime.fromtimestamp(now_ms // 1000, UTC)


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:_COMMON_NAME_CHARACTERS_MAX])])


def _general_name(name: str) -> x509.GeneralName:
    with contextlib.suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(name))
    return x509.UniformResourceIdentifier(name) if "://" in name else x509.DNSName(name)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _pem_of(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
