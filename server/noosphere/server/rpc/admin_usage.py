"""Who uses a server most."""

from __future__ import annotations

from noosphere.consistency import invalid
from noosphere.v1 import admin_usage_pb2 as pb

from ..security import By, Order, Usage
from ..security.usage import Tally
from .calls import Context, unary
from .times import timestamp

TOP_DEFAULT = 20
TOP_MAX = 1_000

_BY = {
    pb.USAGE_BY_UNSPECIFIED: By.PRINCIPAL,
    pb.USAGE_BY_PRINCIPAL: By.PRINCIPAL,
    pb.USAGE_BY_AGENT: By.AGENT,
    pb.USAGE_BY_NAMESPACE: By.NAMESPACE,
}
_ORDER = {
    pb.USAGE_ORDER_UNSPECIFIED: Order.CALLS,
    pb.USAGE_ORDER_CALLS: Order.CALLS,
    pb.USAGE_ORDER_REFUSALS: Order.REFUSALS,
    pb.USAGE_ORDER_CONFLICTS: Order.CONFLICTS,
    pb.USAGE_ORDER_BYTES: Order.BYTES,
    pb.USAGE_ORDER_RECENT: Order.RECENT,
}


class UsageMethods:
    """The part of AdminService that tells of callers."""

    _usage: Usage

    @unary
    async def GetUsage(self, request: pb.GetUsageRequest, context: Context) -> pb.GetUsageResponse:
        """See the proto."""
        by, order = _BY.get(request.by), _ORDER.get(request.order)
        if by is None:
            raise invalid("by", f"{request.by} is nothing that calls are counted by")
        if order is None:
            raise invalid("order", f"{request.order} is no order")
        if not 0 <= request.top <= TOP_MAX:
            raise invalid("top", f"{request.top} is not between 0 and {TOP_MAX}")
        tallies = self._usage.by(by)
        return pb.GetUsageResponse(
            entries=[entry(tally) for tally in tallies.top(request.top or TOP_DEFAULT, order)],
            name_count=len(tallies),
            start_time=timestamp(self._usage.started_ms),
        )


def entry(tally: Tally) -> pb.UsageEntry:
    """Returns one name's counts as the API shows them."""
    return pb.UsageEntry(
        name=tally.name,
        call_count=tally.calls,
        call_count_over=tally.calls_over,
        conflict_count=tally.conflicts,
        refusals={reason.value: count for reason, count in tally.refusals.items()},
        bytes_in=tally.bytes_in,
        bytes_out=tally.bytes_out,
        start_time=timestamp(tally.since_ms),
        last_time=timestamp(tally.last_ms),
    )
