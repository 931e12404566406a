"""The Lua texts, made for one epoch.

The epoch is part of each text, so its digest names the epoch too. Redis keeps loaded scripts in the memory of one
process: a restarted primary and a promoted replica know none of them, and answer NOSCRIPT instead of executing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from enum import Enum
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import NamedTuple

from noosphere.consistency.limits import (
    CLIENT_REQUEST_AGE_MS,
    REQUESTS_PER_CLIENT_MAX,
    UUID_REQUEST_AGE_MS,
    UUID_REQUESTS_MAX,
)


class Script(Enum):
    """What can be asked of a namespace, of the catalogue of their names, or of the fact queue."""

    READ = "read"
    SCAN = "scan"
    COMMIT = "commit"
    CHANGES = "changes"
    COMPACT = "compact"
    DROP = "drop"
    ERASE = "erase"
    DUE = "due"
    STATS = "stats"
    FORGET = "forget"
    EXPORT = "export"
    EXPORT_PAGE = "export_page"
    EXPORT_END = "export_end"
    IMPORT_SPACE = "import_space"
    IMPORT_RECORDS = "import_records"
    REGISTER = "register"
    NAMES = "names"
    QUEUE_PUT = "queue_put"
    QUEUE_TAKE = "queue_take"
    QUEUE_HELD = "queue_held"
    QUEUE_FIND = "queue_find"
    QUEUE_LIST = "queue_list"
    QUEUE_REVIVE = "queue_revive"
    QUEUE_REMOVE = "queue_remove"
    QUEUE_STATS = "queue_stats"


_OF_CATALOGUE = (Script.REGISTER, Script.NAMES)

# A Redis that is out of memory refuses commits before they begin; everything else may free memory, or only notes
# the epoch.
_GROWING = (
    Script.COMMIT,
    Script.EXPORT,
    Script.IMPORT_SPACE,
    Script.IMPORT_RECORDS,
    Script.REGISTER,
    Script.QUEUE_PUT,
)

_READING = (Script.READ, Script.SCAN, Script.CHANGES, Script.DUE, Script.STATS, Script.NAMES)
"""These note the epoch at most. Where that is done already they have nothing to write."""

_CONSTANTS = "".join(
    f"local {name} = {value}\n"
    for name, value in (
        ("UUID_AGE", UUID_REQUEST_AGE_MS),
        ("CLIENT_AGE", CLIENT_REQUEST_AGE_MS),
        ("CLIENT_MAX", REQUESTS_PER_CLIENT_MAX),
        ("UUID_MAX", UUID_REQUESTS_MAX),
    )
)


class LoadedScripts(NamedTuple):
    """The texts of one epoch, and what Redis calls them.

    Attributes:
        texts: all of them.
        digests: what Redis calls each script.
        without_writing: what it calls those that can do without, for while it refuses all others.
    """

    texts: tuple[str, ...]
    digests: Mapping[Script, bytes]
    without_writing: Mapping[Script, bytes]


def scripts_of(epoch: int, heads: str) -> LoadedScripts:
    """Returns the scripts of an epoch.

    Args:
        epoch: from 1; at most 6 hex digits, as every revision has them.
        heads: what follows the stem of a namespace in the name of the channel where its moves are told.
    """
    given = f"local EPOCH, HEADS = '{epoch:06x}', '{heads}'\n"
    texts = {}
    for script in Script:
        flags = "" if script in _GROWING else " flags=allow-oom"
        texts[script] = f"#!lua{flags}\n{given}local ONLY = false\n{_prelude_of(script)}{_source(script.value)}"
    only = {
        script: f"#!lua flags=no-writes\n{given}local ONLY = true\n{_prelude_of(script)}{_source(script.value)}"
        for script in _READING
    }
    return LoadedScripts((*texts.values(), *only.values()), _digests_of(texts), _digests_of(only))


def _digests_of(texts: Mapping[Script, str]) -> Mapping[Script, bytes]:
    digests = {script: hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest() for script, text in texts.items()}
    return MappingProxyType({script: digest.encode() for script, digest in digests.items()})


def _prelude_of(script: Script) -> str:
    if script in _OF_CATALOGUE:
        return ""
    if script.value.startswith("queue_"):
        return _source("queue_prelude")
    return _CONSTANTS + _source("prelude")


@cache
def _source(name: str) -> str:
    return files(__package__).joinpath("lua", f"{name}.lua").read_text("utf-8")
