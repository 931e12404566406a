"""The documents that commands about limits print with ``--json``; see ``shapes``."""

from __future__ import annotations

from typing import Annotated, TypedDict


class LimitsShape(TypedDict):
    """Limits; null is not limited by this rule, 0 is not limited at all."""

    calls_per_second: Annotated[int | None, "Calls a second."]
    calls_burst: Annotated[int | None, "Calls that may be made at once after a while without any."]
    calls_in_flight_max: Annotated[int | None, "Calls under way at a time."]
    streams_max: Annotated[int | None, "Watches and pipelines at a time."]
    records_max: Annotated[int | None, "Records of a namespace, or in the private namespaces of a principal's agents."]
    bytes_max: Annotated[int | None, "Bytes of those records."]
    namespaces_max: Annotated[int | None, "Namespaces and sessions made and not deleted."]


class LimitRuleShape(TypedDict):
    """Limits that were set."""

    of: Annotated[str, "Of whom: agent, principal or namespace."]
    name: Annotated[str, "The name, or the beginning of names."]
    exact: Annotated[bool, "Whether it is a whole name."]
    limits: Annotated[LimitsShape, "What was set."]
