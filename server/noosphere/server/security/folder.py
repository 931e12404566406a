"""The folder of a small authority: its own files, those of a server, those of clients."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from .certificates import peer_identity
from .issuing import Authority, write_pair
from .keypairs import UnfitCertificate

AUTHORITY, SERVER = "ca", "server"
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
NAMES_MAX = 100


def create_certificates(
    folder: Path, *, hosts: Sequence[str], clients: Sequence[str], days: int, now_ms: int
) -> list[Path]:
    """Makes what the folder lacks, and certificates for clients.

    Args:
        folder: where the files are or will be; made if missing.
        hosts: names and addresses of the server, beside those of this machine; if there are some, its certificate is
            made anew.
        clients: whom certificates of clients name: DNS names, or SPIFFE ids.
        days: for how long certificates are valid.
        now_ms: the time, in milliseconds since 1970.

    Returns:
        The files that were written.

    Raises:
        UnfitCertificate: a name cannot be that of a certificate, or the folder's authority cannot be used.
        OSError: a file cannot be written.
    """
    if len(hosts) + len(clients) > NAMES_MAX:
        raise UnfitCertificate(f"{len(hosts) + len(clients)} names, the limit is {NAMES_MAX}")
    stems = {name: _stem(name) for name in clients}
    if len(set(stems.values())) < len(stems):
        raise UnfitCertificate(f"two of {', '.join(map(repr, stems))} would have the same file")
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    certificate, key = _files(folder, AUTHORITY)
    if certificate.exists() or key.exists():
        authority = Authority.read(certificate, key)
    else:
        authority = Authority.make("Noosphere development authority", now_ms)
        authority.write(certificate, key)
        written += certificate, key
    if hosts or not _files(folder, SERVER)[0].exists():
        written += _issue(authority, folder, SERVER, [*LOCAL_HOSTS, *hosts], days, now_ms, server=True)
    for name, stem in stems.items():
        written += _issue(authority, folder, stem, [name], days, now_ms)
    return written


def _issue(
    authority: Authority, folder: Path, stem: str, names: list[str], days: int, now_ms: int, *, server: bool = False
) -> tuple[Path, Path]:
    try:
        issued = authority.issue(names, now_ms, days, server=server)
    except ValueError as error:
        raise UnfitCertificate(f"{', '.join(map(repr, names))} cannot be names of a certificate: {error}") from None
    files = _files(folder, stem)
    write_pair(issued, *files, replace=True)
    return files


def _files(folder: Path, stem: str) -> tuple[Path, Path]:
    return folder / f"{stem}.pem", folder / f"{stem}.key"


def _stem(name: str) -> str:
    """Returns what files of a client are called.

    Raises:
        UnfitCertificate: the server would not take it for a name.
    """
    kind = "peer_uri" if "://" in name else "peer_dns"
    if not name.isascii() or peer_identity({kind: [name.encode()]}) != name:
        raise UnfitCertificate(f"{name!r} is neither a DNS name in small letters nor a SPIFFE id")
    stem = re.sub(r"[^a-z0-9._-]+", "-", name.removeprefix("spiffe://"))
    if stem in (AUTHORITY, SERVER):
        raise UnfitCertificate(f"{name!r} is what other files of the folder are called")
    return stem
