"""The documents that `dump`, `restore` and `doctor` print with ``--json``; see ``shapes``."""

from __future__ import annotations

from typing import Annotated, TypedDict


class DumpedShape(TypedDict):
    """A dump that was written."""

    file: Annotated[str, "Where it is."]
    lines: Annotated[int, "Lines before the last one."]
    bytes: Annotated[int, "The size of the file."]
    sha256: Annotated[str, "The digest of these lines, in hexadecimal; not that of the file."]


class RestoredShape(TypedDict):
    """A dump that was restored, or verified."""

    file: Annotated[str, "Where the dump is."]
    sha256: Annotated[str, "The digest of its lines, in hexadecimal."]
    namespace_count: Annotated[int, "Namespaces, deleted ones included."]
    record_count: Annotated[int, "Records, tombstones and those of services included."]
    fact_count: Annotated[int, "Versions of facts."]
    job_count: Annotated[int, "Jobs of the fact queue, dead ones included."]
    dump_epoch: Annotated[int, "The epoch in which the dump was taken."]
    epoch: Annotated[int | None, "The epoch that begins with it; null if it was only verified."]


class FindingShape(TypedDict):
    """Something that is wrong with what a server needs."""

    name: Annotated[str, "A constant, e.g. `redis_password`."]
    severity: Annotated[str, "`problem`: a server cannot start, or not do what it promises; or `warning`."]
    what: Annotated[str, "What is wrong."]
    evidence: Annotated[str, "By what that was seen."]
    advice: Annotated[str, "What to do."]
