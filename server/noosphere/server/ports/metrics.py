"""The port through which services tell what they do, in figures without names."""

from __future__ import annotations

from typing import Protocol


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
