"""What an operator can choose about the audit log."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field

from noosphere.consistency import NamePattern


def _names_a_file(path: str) -> str:
    if "\0" in path:
        raise ValueError(f"{path!r} is not a path: it contains NUL")
    return path


def _patterns(text: str) -> str:
    patterns(text)
    return text


def patterns(text: str) -> tuple[NamePattern, ...]:
    """Returns what names with commas between them stand for; one that ends in ``*`` is the beginning of names.

    Raises:
        ValueError: one of them is empty.
    """
    if not text:
        return ()
    found = []
    for name in text.split(","):
        if not name.strip():
            raise ValueError(f"{text!r} has an empty name between its commas")
        name = name.strip()
        found.append(NamePattern(name.removesuffix("*"), exact=not name.endswith("*")))
    return tuple(found)


class AuditSettings(BaseModel):
    """The keys that begin with ``audit_``."""

    audit_log: Annotated[str, AfterValidator(_names_a_file)] = Field(
        default="",
        max_length=4096,
        description="File that notes who read or wrote what, as JSON lines; - is standard output, and empty notes "
        "nothing. Holds names of namespaces and keys, but no values and no tokens.",
    )
    audit_reads: float = Field(
        default=0.01,
        ge=0,
        le=1,
        description="Share of reads that the audit log notes, chosen at random; writes, acts of administration and "
        "denials are noted all.",
    )
    audit_reads_full: Annotated[str, AfterValidator(_patterns)] = Field(
        default="",
        max_length=4096,
        description="Namespaces of which the audit log notes all reads, as names with commas between them; one that "
        "ends in * stands for all that begin so, e.g. agents/hr,facts/user/*.",
    )
    audit_required: bool = Field(
        default=False,
        description="Refuse calls while the audit log cannot be written; otherwise what finds no room is counted, in "
        "the metrics and in the log itself.",
    )
    audit_file_mib_max: int = Field(
        default=64,
        ge=1,
        le=65_536,
        description="The audit log begins another file beyond so many MiB.",
    )
    audit_files_max: int = Field(
        default=8,
        ge=1,
        le=1_000,
        description="Files that are kept of the audit log, the present one included; older ones are removed.",
    )
