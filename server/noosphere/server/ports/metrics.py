"""The port through which services tell what they do, in figures without names."""

from __future__ import annotations

from typing import Protocol

from noosphere.consistency import ConflictPolicy


class SessionMetrics(Protocol):
    """Hears how sessions fare. Never waits and never fails.

    A class is what operators call a kind of session (its label ``class``); there is none for a single session, so
    that the number of series stays small.
    """

    def observe(self, session_class: str, metric: str, value: float) -> None:
        """Takes one figure of a session's health at the end of a turn; see ``transitions.health.Metric``."""
        ...

    def decided(self, session_class: str, action: str) -> None:
        """Counts one decision of the controller that changed something."""
        ...


class ModelMetrics(Protocol):
    """Hears what calls of models cost. Never waits and never fails."""

    def called(self, purpose: str, outcome: str, tokens: int) -> None:
        """Counts one call.

        Args:
            purpose: ``summariser``, ``embedder``, ``extractor`` or ``transition_policy``.
            outcome: ``answered``, ``failed``, or ``over_budget`` for a call that was not made.
            tokens: what it used, in and out, as the endpoint says; an upper estimate where it does not.
        """
        ...


class CallMetrics(Protocol):
    """Hears of every call, those inside a Pipeline like others. Never waits and never fails."""

    def begun(self, method: str, *, streams: bool) -> None:
        """Hears that a call has come.

        Args:
            method: the full name, ``/noosphere.v1.MemoryService/Get``.
            streams: whether it lasts as long as its caller wants.
        """
        ...

    def ended(
        self, method: str, code: str, reason: str, seconds: float, *, streams: bool, replayed: bool = False
    ) -> None:
        """Hears how one has ended.

        Args:
            method: the full name.
            code: gRPC's name of how it ended.
            reason: why it was refused; "" if it was not.
            seconds: how long it took.
            streams: as it was told when it came.
            replayed: whether it had been answered before, so that this was a retry.
        """
        ...


class MemoryMetrics(Protocol):
    """Hears what happens in shared memory. Never waits and never fails."""

    def conflict(self, namespace: str, policy: ConflictPolicy, outcome: str) -> None:
        """Counts a write that had not seen all that it would have replaced.

        Args:
            namespace: where; only its kind is kept.
            policy: the rule that decided.
            outcome: ``refused``, ``kept`` (as siblings) or ``overwritten``.
        """
        ...

    def told(self, lag_ms: int) -> None:
        """Takes how old a change was when it was handed to a watcher, in milliseconds."""
        ...


class NoMemoryMetrics:
    """Keeps nothing; see :class:`MemoryMetrics`."""

    def conflict(self, namespace: str, policy: ConflictPolicy, outcome: str) -> None:
        """Counts nothing."""

    def told(self, lag_ms: int) -> None:
        """Takes nothing."""


class PortMetrics(Protocol):
    """Hears how long what stands behind ports takes. Never waits and never fails."""

    def took(self, port: str, operation: str, seconds: float, *, failed: bool) -> None:
        """Takes one operation.

        Args:
            port: ``store``, ``facts``, ``queue``, ``coordinator`` or ``embedder``.
            operation: its method.
            seconds: how long it took.
            failed: whether it raised.
        """
        ...
