"""What only a sync client raises."""

from __future__ import annotations

from noosphere.client import NoosphereError


class ForkedClient(NoosphereError):
    """The client was opened before this process was forked; its connection is the parent's.

    Connect anew in the child. That needs a parent without any open connection at the fork: gRPC does not
    work in a child of a process that uses it. Fork first, or start processes by ``spawn`` or ``forkserver``.
    """

    default_reason = "FORKED_CLIENT"
    default_code = "FAILED_PRECONDITION"

    def __init__(self, message: str = "the client was opened before this process was forked; connect again") -> None:
        super().__init__(message)
