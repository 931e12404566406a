"""Connections under TLS: what a client trusts and shows, as files, and what the failures of handshakes mean."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import grpc

from ._arguments import shown
from ._errors import InvalidArgument

CA_VARIABLE = "NOOSPHERE_TLS_CA"
CERTIFICATE_VARIABLE = "NOOSPHERE_TLS_CLIENT_CERTIFICATE"
KEY_VARIABLE = "NOOSPHERE_TLS_CLIENT_KEY"

FILE_BYTES_MAX = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Tls:
    """Connects under TLS.

    Files are read anew for each connection, so certificates may be replaced while a client runs.

    Attributes:
        ca: PEM file of the authorities that may vouch for the server; None for those that gRPC knows.
        certificate: PEM file of the client's own certificate, for servers that ask for one.
        key: PEM file of its key, without a password.
        server_name: the name that the server's certificate must have, instead of the address's. For tests only.
    """

    ca: str | os.PathLike[str] | None = None
    certificate: str | os.PathLike[str] | None = None
    key: str | os.PathLike[str] | None = None
    server_name: str | None = None


class TlsSource(NamedTuple):
    """Where what a connection trusts and shows is read from.

    Attributes:
        tls: the files.
        fields: what messages call the authorities, the certificate and the key.
    """

    tls: Tls
    fields: tuple[str, str, str] = ("tls.ca", "tls.certificate", "tls.key")

    def options(self) -> tuple[tuple[str, str], ...]:
        """Returns options of the channel."""
        name = self.tls.server_name
        return () if name is None else (("grpc.ssl_target_name_override", name),)

    def signature(self) -> tuple[tuple[int, ...], ...]:
        """Returns what changes when a file is replaced."""
        return tuple(_signature(file) for file in self._files() if file is not None)

    def credentials(self) -> grpc.ChannelCredentials:
        """Reads the files.

        Raises:
            InvalidArgument: one is missing, or is not of its form.
        """
        import ssl

        ca, certificate, key = self._files()
        for field, file in zip(self.fields, (ca, certificate, key), strict=True):
            _check_file(field, file)
        if (certificate is None) != (key is None):
            given, missing = (1, 2) if key is None else (2, 1)
            raise InvalidArgument(f"{self.fields[given]}: is of no use without {self.fields[missing]}")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if ca is not None:
            try:
                context.load_verify_locations(ca)
            except (ssl.SSLError, OSError):
                raise InvalidArgument(f"{self.fields[0]}: {shown(str(ca))} holds no certificates in PEM form") from None
        if certificate is not None and key is not None:
            try:
                # Of a key with a password nobody is asked for it.
                context.load_cert_chain(certificate, key, password=lambda: b"")
            except (ssl.SSLError, OSError, ValueError) as error:
                mismatch = isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH"
                own = shown(str(certificate))
                unfit = f"and {own} are not a key without a password and its certificate, in PEM form"
                problem = f"is not the key of {own}" if mismatch else unfit
                raise InvalidArgument(f"{self.fields[2]}: {shown(str(key))} {problem}") from None
        contents = (None if file is None else file.read_bytes() for file in (ca, key, certificate))
        return grpc.ssl_channel_credentials(*contents)

    def _files(self) -> tuple[Path | None, Path | None, Path | None]:
        ca, certificate, key = (
            None if file is None else Path(file) for file in (self.tls.ca, self.tls.certificate, self.tls.key)
        )
        return ca, certificate, key


def tls_source(tls: Tls | None) -> TlsSource | None:
    """Returns what connections are made with: as the caller says, else as the environment does; None without TLS.

    Raises:
        InvalidArgument: files cannot be used.
    """
    if tls is not None:
        if not isinstance(tls, Tls):
            raise InvalidArgument(f"tls: {shown(tls)} is {type(tls).__name__}, not Tls")
        found = TlsSource(tls)
    else:
        names = (CA_VARIABLE, CERTIFICATE_VARIABLE, KEY_VARIABLE)
        # An empty variable counts as not set.
        files = [os.environ.get(name) or None for name in names]
        if files == [None, None, None]:
            return None
        found = TlsSource(Tls(*files), names)
    found.credentials()
    return found


def explained(details: str, tls: bool) -> str:
    """Returns what gRPC says of a connection that was not made, with what that means where it is known.

    Args:
        details: its words.
        tls: whether the client uses TLS.
    """
    if not tls:
        # A server under TLS ends connections that do not begin with a handshake.
        return f"{details}; does the server expect TLS (tls, {CA_VARIABLE})?" if "Socket closed" in details else details
    if "WRONG_VERSION_NUMBER" in details:
        return f"the server does not speak TLS, and this client does (tls, {CA_VARIABLE})"
    if "CERTIFICATE_VERIFY_FAILED" in details:
        problem = details.rpartition("CERTIFICATE_VERIFY_FAILED")[2].strip(": ") or "not trusted"
        return f"the server's certificate is refused (tls.ca, {CA_VARIABLE}): {problem}"
    # The words are those of different versions of gRPC, and of different verifiers in one.
    if "Hostname Verification" in details or "not in peer certificate" in details:
        return "the server's certificate is not for the address that it was reached at"
    if "Socket closed" in details or "_ALERT_" in details:
        # A client learns of a refused certificate only by the end of its connection.
        return f"{details}; does the server want another certificate (tls.certificate, {CERTIFICATE_VARIABLE})?"
    return details


def _check_file(field: str, file: Path | None) -> None:
    if file is None:
        return
    try:
        size = file.stat().st_size
        with file.open("rb"):
            pass
    except (OSError, ValueError) as error:
        problem = error.strerror if isinstance(error, OSError) else "is no path"
        raise InvalidArgument(f"{field}: {shown(str(file))} cannot be read: {problem}") from None
    if size > FILE_BYTES_MAX:
        raise InvalidArgument(f"{field}: {shown(str(file))} has {size} bytes, the limit is {FILE_BYTES_MAX}")


def _signature(file: Path) -> tuple[int, ...]:
    try:
        found = file.stat()
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
