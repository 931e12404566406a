"""The JSON documents of `noosphere grant`."""

from __future__ import annotations

from typing import Annotated, TypedDict


class GrantShape(TypedDict):
    """A grant."""

    principal: Annotated[str, "A principal's name, or how those begin to whom it is granted; empty for everybody."]
    principal_exact: Annotated[bool, "Whether it is the whole name."]
    resource: Annotated[str, "A resource's name, or how those begin on which it is granted."]
    resource_exact: Annotated[bool, "Whether it is the whole name."]
    verbs: Annotated[list[str], "What may be done."]


class CheckedShape(TypedDict):
    """Whether a principal may do something."""

    permitted: Annotated[bool, "Whether it may."]
    reason: Annotated[str, "Why, or why not."]
    grants: Annotated[list[GrantShape], "The grants that are about it, at most 100."]
