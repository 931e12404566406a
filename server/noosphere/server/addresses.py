"""Addresses in the configuration: what they look like, and which of them may be used."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

from pydantic import ValidationInfo

_PORTS = {"http": 80, "https": 443}


def split_address(listen: str) -> tuple[str, int]:
    """Splits ``host:port`` or ``[ipv6]:port``.

    Returns:
        The host without brackets, and the port, 0 to 65,535.

    Raises:
        ValueError: it is neither.
    """
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:]+)):(\d{1,5})", listen, re.ASCII)
    if match is None or int(match[3]) > 65_535:
        raise ValueError(f"{listen!r} is not host:port with a port from 0 to 65535")
    return match[1] or match[2], int(match[3])


def split_list(text: str) -> list[str]:
    """Returns the parts of a text between commas, without blanks around them and without empty ones."""
    return [part.strip() for part in text.split(",") if part.strip()]


def is_loopback(listen: str) -> bool:
    """Tells whether an address is one of this machine alone."""
    return _is_this_machine(split_address(listen)[0])


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_url(place: str) -> bool:
    """Tells whether a place is meant to be a URL, and not a file."""
    return "://" in place


def trusted_url(url: str) -> str:
    """Returns a URL that nobody on the way can change what comes from.

    Raises:
        ValueError: it is none, holds a password, or leads over a network without TLS.
    """
    if "@" in url:
        # Not repeated: it may be a password.
        raise ValueError("holds a user's name or password")
    try:
        parts = urlsplit(url)
        # Reading the port checks it.
        host = parts.hostname if parts.port != 0 else None
    except ValueError:
        host = None
    if not host:
        raise ValueError(f"{url!r} is not a URL")
    if parts.scheme != "https" and not (parts.scheme == "http" and _is_this_machine(host)):
        raise ValueError(f"{url!r} is not https: whoever is on the way could change what comes from there")
    return url


def an_address(listen: str) -> str:
    """Returns an address as it is.

    Raises:
        ValueError: it is none.
    """
    split_address(listen)
    return listen


def an_address_or_nowhere(listen: str) -> str:
    """Returns an address, or the empty text, as it is.

    Raises:
        ValueError: it is neither.
    """
    return an_address(listen) if listen else listen


def members_of_etcd(endpoints: str, info: ValidationInfo) -> str:
    """Returns endpoints of etcd as they are.

    Raises:
        ValueError: one is not ``host:port``, or there is no Redis (``redis_urls``) to go with them.
    """
    if not endpoints:
        return endpoints
    for endpoint in split_list(endpoints) or [endpoints]:
        try:
            host, port = split_address(endpoint)
        except ValueError:
            host, port = "", 0
        if port == 0 or "/" in host:
            raise ValueError(f"{endpoint!r} is not host:port of a member of etcd")
    # It is missing where it could not be used itself, which is what has to be told then.
    redis_urls = info.data.get("redis_urls")
    if redis_urls is not None and not redis_urls.get_secret_value():
        raise ValueError(
            f"{endpoints!r} is of no use without NOOSPHERE_REDIS_URLS: servers that share etcd need a working store "
            "that they share"
        )
    return endpoints


def address_of_weaviate(url: str) -> str:
    """Returns host and port of a URL of Weaviate, as ``host:port``; the port is that of the scheme if it has none.

    Raises:
        ValueError: it is none, holds a password, or more than that.
    """
    if "@" in url:
        # Not repeated: it may be a password.
        raise ValueError("holds a user's name or password; a key belongs into NOOSPHERE_WEAVIATE_API_KEY")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        parts, host, port = urlsplit(""), None, 0
    bare = not (parts.path.strip("/") or "?" in url or "#" in url)
    if parts.scheme not in _PORTS or not host or port == 0 or not bare or not url.isprintable() or " " in url:
        raise ValueError(f"{url!r} is not http://host:port or https://host:port of Weaviate")
    return f"{f'[{host}]' if ':' in host else host}:{port or _PORTS[parts.scheme]}"


def ends_in_slash(root: str) -> str:
    """Returns the beginning of keys as it is.

    Raises:
        ValueError: it does not end in a slash.
    """
    if not root.endswith("/"):
        raise ValueError(f"{root!r} does not end in a slash")
    return root
