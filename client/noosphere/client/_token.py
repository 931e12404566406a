"""The token by which a server knows who calls: where it comes from, and to whom it may be sent."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from ._arguments import shown
from ._errors import InvalidArgument

TOKEN_VARIABLE = "NOOSPHERE_TOKEN"
TOKEN_FILE_VARIABLE = "NOOSPHERE_TOKEN_FILE"
TOKEN_BYTES_MAX = 8 * 1024
"""A server looks at no longer one."""

_FORM = re.compile(r"[!-~]+")


class TokenSource(Protocol):
    """Where a client's token comes from.

    Attributes:
        field: what messages call it.
        rotates: whether it may be another one later.
    """

    field: str
    rotates: bool

    def current(self) -> str:
        """Returns the token as it is now.

        Raises:
            InvalidArgument: there is none, or it is not of the form of one.
        """
        ...


class _Fixed:
    """A token that stays."""

    rotates = False

    def __init__(self, field: str, token: str) -> None:
        self.field = field
        self._token = checked_token(field, token)

    def current(self) -> str:
        """Returns it."""
        return self._token


class _Called:
    """A token that a function of the caller's returns."""

    field = "token"
    rotates = True

    def __init__(self, function: Callable[[], str]) -> None:
        self._function = function
        self.current()

    def current(self) -> str:
        """Returns what the function does."""
        return checked_token(self.field, self._function())


class _InFile:
    """A token in a file that is replaced now and then, as those that Kubernetes projects into pods are."""

    rotates = True

    def __init__(self, field: str, file: str) -> None:
        self.field = field
        self._file = Path(file)
        self._seen: tuple[int, ...] = ()
        self._token = ""
        self.current()

    def current(self) -> str:
        """Returns what is in the file, and what was there last while it cannot be read."""
        try:
            found = self._file.stat()
            seen = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
            if seen != self._seen:
                with self._file.open() as stream:
                    # One more than is allowed shows that there is too much.
                    self._token = checked_token(self.field, stream.read(TOKEN_BYTES_MAX + 2).strip())
                self._seen = seen
        except (OSError, ValueError, InvalidArgument) as error:
            # It may be being replaced: what was there goes on. What is in it is not repeated.
            if not self._token:
                problem = f"cannot be read: {error.strerror}" if isinstance(error, OSError) else "holds no token"
                raise InvalidArgument(f"{self.field}: {shown(str(self._file))} {problem}") from None
        return self._token


def token_source(
    token: str | Callable[[], str] | None, token_file: str | None, plaintext: Sequence[str] = ()
) -> TokenSource | None:
    """Returns where the client's token comes from: as the caller says, else as the environment does; None for nowhere.

    Args:
        token: the token, or a function that returns it.
        token_file: the file with it.
        plaintext: where it would be sent without encryption; only to this machine that is allowed.

    Raises:
        InvalidArgument: there are two, it is not of the form of one, or it would cross a network in plain text.
    """
    if token is not None and token_file is not None:
        raise InvalidArgument("token: is of no use beside token_file")
    found = _source(token, token_file)
    if found is not None:
        check_plaintext(found.field, plaintext)
    return found


def _source(token: str | Callable[[], str] | None, token_file: str | None) -> TokenSource | None:
    if callable(token):
        return _Called(token)
    if token is not None:
        return _Fixed("token", token)
    if token_file is not None:
        return _InFile("token_file", token_file)
    # An empty variable counts as not set.
    if variable := os.environ.get(TOKEN_VARIABLE):
        return _Fixed(TOKEN_VARIABLE, variable)
    if variable := os.environ.get(TOKEN_FILE_VARIABLE):
        return _InFile(TOKEN_FILE_VARIABLE, variable)
    return None


def checked_token(field: str, token: object) -> str:
    """Returns a token; one that is none is not repeated, for it may be a secret all the same.

    Raises:
        InvalidArgument: it is not of the form of one.
    """
    if not isinstance(token, str):
        raise InvalidArgument(f"{field}: is {type(token).__name__}, not str")
    if not _FORM.fullmatch(token) or len(token) > TOKEN_BYTES_MAX:
        raise InvalidArgument(f"{field}: is not 1 to {TOKEN_BYTES_MAX} printable ASCII characters without blanks")
    return token


def check_plaintext(field: str, addresses: Sequence[str]) -> None:
    """Checks that a token does not cross a network in plain text.

    Args:
        field: what the token came from.
        addresses: where it would be sent without TLS.

    Raises:
        InvalidArgument: one is not this machine.
    """
    for address in addresses:
        if not _is_local(address):
            raise InvalidArgument(
                f"{field}: would be sent to {shown(address)} in plain text; connect under TLS (tls, NOOSPHERE_TLS_CA), "
                "or say allow_insecure where something else encrypts"
            )


def _is_local(address: str) -> bool:
    scheme, colon, rest = address.partition(":")
    if scheme in ("unix", "unix-abstract"):
        return True
    if colon and scheme in ("ipv4", "ipv6"):
        # Several with commas between them.
        return all(_is_loopback(one) for one in rest.split(","))
    return scheme != "dns" and _is_loopback(address)


def _is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
