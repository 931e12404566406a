"""What every error of this package has in common; the tree is drawn in ``_errors``."""

from __future__ import annotations

from typing import Literal

Outcome = Literal["not_applied", "unknown"]
"""Whether a failed call certainly changed nothing, or may have been (or may yet be) applied."""


class NoosphereError(Exception):
    """Base of everything that this package raises on purpose.

    Attributes:
        reason: why, as in ``ErrorInfo.reason``; upper snake case.
        code: the gRPC status code by its standard name.
        request_id: the id of the mutating call (a UUID, or ``agent#incarnation/sequence``), or None.
        outcome: ``not_applied`` if the call certainly changed nothing, else ``unknown``.
        message: one sentence for people.
        head: the namespace's head when this was decided, 0 if the error carries none.
    """

    default_reason = "UNKNOWN"
    default_code = "UNKNOWN"

    def __init__(
        self,
        message: str,
        *,
        reason: str = "",
        code: str = "",
        request_id: str | None = None,
        outcome: Outcome = "not_applied",
        head: int = 0,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason or self.default_reason
        self.code = code or self.default_code
        self.request_id = request_id
        self.outcome: Outcome = outcome
        self.head = head

    def __str__(self) -> str:
        doubt = "; it may have been applied" if self.outcome == "unknown" else ""
        return f"{self.reason}: {self.message}{doubt}"
