"""What a caller's arguments have to be: checked before anything is sent, each error naming field and value."""

from __future__ import annotations

import re

from ._errors import InvalidArgument

INT64_MAX = (1 << 63) - 1
ADDRESSES_MAX = 32
_SHOWN_MAX = 80
_SURROGATE = re.compile("[\ud800-\udfff]")
_ADDRESS = re.compile(r"(?:\[[0-9A-Fa-f:.]+(?:%[\w.-]+)?\]|[^\s\[\]:/?#@]+):(\d{1,5})", re.ASCII)
# Names of gRPC's own, of which it knows the form: unix:/run/noosphere.sock, dns:///memory.example:7443.
_TARGET = re.compile(r"(?:unix|unix-abstract|dns|ipv4|ipv6|xds):\S+", re.ASCII)


def shown(value: object) -> str:
    """Returns a value for a message: on one line, of bounded length, and printable wherever it gets."""
    try:
        text = repr(value)
    except ValueError:
        # A number with more digits than Python writes.
        text = f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"


def checked_text(field: str, text: str) -> str:
    """Returns ``text``.

    Raises:
        InvalidArgument: it is no text, or holds what UTF-8 cannot say.
    """
    if not isinstance(text, str):
        raise InvalidArgument(f"{field}: {shown(text)} is {type(text).__name__}, not text")
    if not text.isascii() and _SURROGATE.search(text):
        raise InvalidArgument(f"{field}: {shown(text)} contains a lone surrogate, which is not text")
    return text


def checked_revision(field: str, revision: int) -> int:
    """Returns ``revision``, or a version, which is one.

    Raises:
        InvalidArgument: it is no whole number from 0 to 2^63 - 1.
    """
    if isinstance(revision, bool) or not isinstance(revision, int) or not 0 <= revision <= INT64_MAX:
        raise InvalidArgument(f"{field}: {shown(revision)} is not a revision")
    return revision


def checked_address(field: str, address: str) -> str:
    """Returns where a server is: ``host:port``, ``[ipv6]:port``, or a target of gRPC's own with its scheme.

    Raises:
        InvalidArgument: it is none of these.
    """
    checked_text(field, address)
    if _TARGET.fullmatch(address):
        return address
    match = _ADDRESS.fullmatch(address)
    if match is None or not 1 <= int(match[1]) <= 65_535:
        raise InvalidArgument(f"{field}: {shown(address)} is not host:port with a port from 1 to 65535")
    return address


def checked_addresses(field: str, addresses: str) -> tuple[str, ...]:
    """Returns where servers are: one address, or several with commas between them, each once.

    Raises:
        InvalidArgument: one is none, or they are too many.
    """
    checked_text(field, addresses)
    if addresses.startswith("unix"):
        # A path may hold a comma.
        return (checked_address(field, addresses),)
    found = tuple(dict.fromkeys(checked_address(field, part.strip()) for part in addresses.split(",")))
    if len(found) > ADDRESSES_MAX:
        raise InvalidArgument(f"{field}: {len(found)} addresses, the limit is {ADDRESSES_MAX}")
    return found
