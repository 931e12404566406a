"""Names of namespaces, keys, collections and actors.

Any Unicode text is a name as long as it has no control characters and no empty ``/`` segment; no
character is a wildcard or an escape anywhere.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache

from .errors import Refusal, invalid, too_large
from .limits import AGENT_ID_BYTES_MAX, KEY_BYTES_MAX, KEY_DEPTH_MAX, NAMESPACE_BYTES_MAX

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


class NamespaceKind(StrEnum):
    """What a namespace is for, by the first segment of its name."""

    AGENT = "agents"
    SESSION = "sessions"
    SHARED = "shared"
    FACTS = "facts"


def _check_text(field: str, text: str, bytes_max: int) -> None:
    if not isinstance(text, str):
        raise invalid(field, f"{text!r} is {type(text).__name__}, not text")
    if text and len(text) <= bytes_max and text.isascii() and text.isprintable():
        return  # almost every name, told apart at the speed of C
    if not text:
        raise invalid(field, "must not be empty")
    if found := _CONTROL.search(text):
        kind = "lone surrogate" if found.group() >= "\ud800" else "control character"
        raise invalid(field, f"contains the {kind} U+{ord(found.group()):04X}")
    if len(text) * 4 > bytes_max and (size := len(text.encode())) > bytes_max:
        raise too_large(field, size, bytes_max)


def _check_segments(field: str, text: str, whole: bool = True) -> None:
    """A text that is not ``whole`` may end in a slash: something follows."""
    if text.startswith("/") or (whole and text.endswith("/")) or "//" in text:
        raise invalid(field, f"{text!r} has an empty segment between slashes")


def check_key(key: str, field: str = "key") -> None:
    """Checks a record's key.

    Raises:
        Refusal: INVALID_FIELD or VALUE_TOO_LARGE, naming ``field``.
    """
    _check_text(field, key, KEY_BYTES_MAX)
    if "/" in key:
        _check_segments(field, key)
        if (depth := key.count("/")) > KEY_DEPTH_MAX:
            raise too_large(field, depth, KEY_DEPTH_MAX, "collections above it")


def check_collection(collection: str, field: str = "collection") -> None:
    """Checks a collection: empty for the whole namespace, else a prefix that ends in a slash.

    Raises:
        Refusal: INVALID_FIELD or VALUE_TOO_LARGE, naming ``field``.
    """
    if collection == "":
        return
    _check_text(field, collection, KEY_BYTES_MAX)
    if not collection.endswith("/"):
        raise invalid(field, f"{collection!r} must end in '/'")
    if collection == "/":
        raise invalid(field, "'/' is not a collection; use the empty text for the whole namespace")
    _check_segments(field, collection, False)
    if (depth := collection.count("/")) > KEY_DEPTH_MAX:
        raise too_large(field, depth, KEY_DEPTH_MAX, "levels")


def ancestors(key: str) -> tuple[str, ...]:
    """Returns every collection that contains ``key``, the whole namespace (empty text) first."""
    found = [""]
    at = key.find("/")
    while at >= 0:
        found.append(key[: at + 1])
        at = key.find("/", at + 1)
    return tuple(found)


@lru_cache(maxsize=4096)
def check_namespace(namespace: str, field: str = "namespace") -> tuple[NamespaceKind, str]:
    """Checks a namespace's name.

    Returns:
        Its kind, and what follows the first slash (the agent, session, name or scope).

    Raises:
        Refusal: INVALID_FIELD or VALUE_TOO_LARGE, naming ``field``.
    """
    _check_text(field, namespace, NAMESPACE_BYTES_MAX)
    kind, _, rest = namespace.partition("/")
    if kind not in set(NamespaceKind) or not rest:
        raise _of_no_kind(field, namespace)
    _check_segments(field, namespace)
    return NamespaceKind(kind), rest


def check_namespace_prefix(prefix: str, field: str) -> None:
    """Checks what namespaces' names may begin with: a kind and a slash at least.

    Raises:
        Refusal: INVALID_FIELD or VALUE_TOO_LARGE, naming ``field``.
    """
    # Of a prefix that ends in a slash the shortest name is longer by one byte.
    _check_text(field, prefix, NAMESPACE_BYTES_MAX - prefix.endswith("/"))
    kind, slash, _ = prefix.partition("/")
    if not slash:
        raise invalid(field, f"{prefix!r} must begin with a kind and a slash, e.g. 'shared/'")
    if kind not in set(NamespaceKind):
        raise _of_no_kind(field, prefix)
    _check_segments(field, prefix, False)


def _of_no_kind(field: str, text: str) -> Refusal:
    return invalid(field, f"{text!r} is not agents/…, sessions/…, shared/… or facts/…")


def check_agent_id(agent_id: str, field: str = "agent_id") -> None:
    """Checks an agent's stable name.

    Raises:
        Refusal: INVALID_FIELD or VALUE_TOO_LARGE, naming ``field``.
    """
    _check_text(field, agent_id, AGENT_ID_BYTES_MAX)
    _check_segments(field, agent_id)
    if "#" in agent_id:
        raise invalid(field, f"{agent_id!r} contains '#', which separates agent and incarnation")


def actor_name(agent_id: str, incarnation: int) -> str:
    """Returns ``agent#incarnation``, as records show their writers."""
    return f"{agent_id}#{incarnation}"


def split_actor(actor: str) -> tuple[str, int]:
    """Returns agent and incarnation of ``agent#incarnation``."""
    agent_id, _, incarnation = actor.rpartition("#")
    return agent_id, int(incarnation)
