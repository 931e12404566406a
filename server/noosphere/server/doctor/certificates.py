"""Certificates: whether they can be used, by whom, and for how long."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from ..addresses import split_address
from ..config import Settings
from .findings import Finding, problem, warning
from .surroundings import Surroundings

ENDS_SOON_DAYS = 14

_EVERYWHERE = ("0.0.0.0", "::")


def examine_certificates(settings: Settings, surroundings: Surroundings) -> Iterator[Finding]:
    """Looks at the server's certificate, its key, and the authorities of clients."""
    now = datetime.fromtimestamp(surroundings.wall_ms() / 1000, UTC)
    if settings.tls_certificate is not None:
        chain = yield from _loaded(settings.tls_certificate)
        if chain:
            yield from _examine_times(settings.tls_certificate, chain[0], now)
            yield from _examine_names(settings, settings.tls_certificate, chain[0])
            if settings.tls_key is not None:
                yield from _examine_key(settings.tls_key, settings.tls_certificate, chain[0])
    if settings.tls_client_ca is not None:
        for authority in (yield from _loaded(settings.tls_client_ca)):
            yield from _examine_times(settings.tls_client_ca, authority, now)


def _loaded(file: Path) -> Generator[Finding, None, list[x509.Certificate]]:
    """Yields why a file cannot be used; returns its certificates, none then."""
    try:
        return x509.load_pem_x509_certificates(file.read_bytes())
    except OSError as error:
        yield _unusable(file, error.strerror or "unknown")
    # The library has a zoo of errors for content that is not what it should be.
    except Exception:
        yield _unusable(file, "does not hold certificates in PEM form")
    return []


def _examine_times(file: Path, certificate: x509.Certificate, now: datetime) -> Iterator[Finding]:
    ends, begins = certificate.not_valid_after_utc, certificate.not_valid_before_utc
    if ends <= now:
        yield problem(
            "certificate_expired",
            "a certificate has expired: nobody who checks it connects",
            f"{file} ended at {ends:%Y-%m-%dT%H:%M:%SZ}",
            "replace it; a running server takes up the new files",
        )
    elif begins > now:
        yield problem(
            "certificate_expired",
            "a certificate is not valid yet: nobody who checks it connects",
            f"{file} begins at {begins:%Y-%m-%dT%H:%M:%SZ}",
            "check the clock of this machine, or replace the certificate",
        )
    elif (ends - now).days < ENDS_SOON_DAYS:
        yield warning(
            "certificate_ends_soon",
            "a certificate ends soon",
            f"{file} ends at {ends:%Y-%m-%dT%H:%M:%SZ}, in {(ends - now).days} days",
            "replace it; a running server takes up the new files",
        )


def _examine_names(settings: Settings, file: Path, certificate: x509.Certificate) -> Iterator[Finding]:
    host, _ = split_address(settings.listen)
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        names = x509.SubjectAlternativeName([])
    shown = [*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))]
    if not shown or (host not in _EVERYWHERE and host not in shown):
        yield problem(
            "certificate_names",
            "the certificate is not one of the address that is served: clients that check names do not connect",
            f"{file} names {', '.join(shown) or 'nobody (a common name does not count)'}; listen is {settings.listen}",
            "issue one with the name or address by which clients connect as a subject alternative name",
        )


def _examine_key(file: Path, certificate_file: Path, certificate: x509.Certificate) -> Iterator[Finding]:
    try:
        public = load_pem_private_key(file.read_bytes(), None).public_key()
    except OSError as error:
        yield _unusable(file, error.strerror or "unknown")
        return
    # The library has a zoo of errors, and what they say may be part of a key.
    except Exception:
        yield _unusable(file, "is not a private key in PEM form without a password")
        return
    form = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    if public.public_bytes(*form) != certificate.public_key().public_bytes(*form):
        yield problem(
            "key_mismatch",
            "the key is not that of the certificate",
            f"{file} and {certificate_file}",
            "configure the files that were made together (tls_certificate, tls_key)",
        )


def _unusable(file: Path, why: str) -> Finding:
    return problem(
        "certificate_unusable",
        "a certificate or key cannot be used",
        f"{file}: {why}",
        "let the server's user read it, or configure another file",
    )
