"""What a server shows to its clients under TLS, and asks of them: files that may be replaced while it runs.

Looked at by each handshake, so a connection that begins after a replacement gets the new certificate; those that there
are live on. Files that cannot be used are told in the log, once, and what was there before goes on.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import NamedTuple

import grpc
import structlog

from ..ports.runtime import Clock
from ..security.keypairs import KeyPair, UnfitCertificate, read_authorities, read_pair

log = structlog.get_logger(__name__)


class TlsFiles(NamedTuple):
    """Where everything is.

    Attributes:
        certificate: the server's certificate, with those that lead to its authority.
        key: its key.
        client_ca: the authorities of clients' certificates, without which no client gets in; None asks for none.
    """

    certificate: Path
    key: Path
    client_ca: Path | None = None


class ReloadedCredentials:
    """Credentials of a gRPC server that follow their files.

    Args:
        files: where they are.
        clock: tells what has expired.

    Attributes:
        grpc: what gRPC takes.
        expires_ms: when the certificate in force ends, in milliseconds since 1970.

    Raises:
        UnfitCertificate: the files cannot be used.
    """

    def __init__(self, files: TlsFiles, clock: Clock) -> None:
        self._files = files
        self._clock = clock
        # Handshakes come from threads of gRPC's own.
        self._lock = threading.Lock()
        self._seen = self._signature()
        pair, configuration = self._read()
        self.expires_ms = pair.expires_ms
        self.grpc: grpc.ServerCredentials = grpc.dynamic_ssl_server_credentials(
            configuration,
            # None means that nothing is new, which the stub does not know.
            self.looked,  # type: ignore[arg-type]
            require_client_authentication=files.client_ca is not None,
        )

    def looked(self) -> grpc.ServerCertificateConfiguration | None:
        """Returns what a handshake is to use, None for what the last one did."""
        with self._lock:
            signature = self._signature()
            if signature == self._seen:
                return None
            # Remembered first: what is replaced while it is read is read again.
            self._seen = signature
            try:
                pair, configuration = self._read()
            except UnfitCertificate as error:
                log.error("new certificates cannot be used; those from before stay in force", problem=str(error))
                return None
            self.expires_ms = pair.expires_ms
            log.info("certificates were replaced", expires_ms=pair.expires_ms)
            return configuration

    def _read(self) -> tuple[KeyPair, grpc.ServerCertificateConfiguration]:
        certificate, key, client_ca = self._files
        pair = read_pair(certificate, key, self._clock.wall_ms())
        authorities = None if client_ca is None else read_authorities(client_ca)
        return pair, grpc.ssl_server_certificate_configuration([(pair.key, pair.certificate)], authorities)

    def _signature(self) -> tuple[object, ...]:
        return tuple(_signature_of(file) for file in self._files if file is not None)


def _signature_of(file: Path) -> tuple[int, ...]:
    try:
        found = file.stat()
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
