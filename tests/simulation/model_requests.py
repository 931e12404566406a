"""What the model remembers of calls, so that a retry is answered instead of executed."""

from __future__ import annotations

from tests.simulation.calls import Call, Caller, Reply, refuse
from tests.simulation.model_state import State

CLIENT_AGE_MS = 600_000
UUID_AGE_MS = 120_000


def remembered(state: State, caller: Caller, now_ms: int) -> tuple[Call, Reply, int] | None:
    """Returns an earlier execution of the caller's request: what was asked, answered, and when."""
    request = caller.request
    if request is None:
        return None
    known = state.requests.get((caller.actor if not request.uuid else "", request.uuid or request.sequence))
    age_ms = UUID_AGE_MS if request.uuid else CLIENT_AGE_MS
    return known if known is not None and now_ms - known[2] < age_ms else None


def check_unanswered(state: State, caller: Caller) -> None:
    """A late copy of a call that was answered must not execute."""
    request = caller.request
    if request is not None and not request.uuid:
        answered = max(request.answered_through, state.answered.get(caller.actor, 0))
        if request.sequence <= answered:
            refuse("REQUEST_ID_REUSED")


def remember(state: State, caller: Caller, call: Call, reply: Reply, now_ms: int) -> State:
    """Remembers a call until it is answered; a client that was silent for ten minutes is forgotten."""
    request = caller.request
    if request is None:
        return state
    requests, answered = dict(state.requests), dict(state.answered)
    if request.uuid:
        requests["", request.uuid] = (call, reply, now_ms)
    else:
        answered[caller.actor] = max(answered.get(caller.actor, 0), request.answered_through)
        requests[caller.actor, request.sequence] = (call, reply, now_ms)
    newest = {actor: max(time for (who, _), (_, _, time) in requests.items() if who == actor) for actor in answered}
    answered = {actor: n for actor, n in answered.items() if now_ms - newest[actor] < CLIENT_AGE_MS}
    requests = {
        (who, which): known
        for (who, which), known in requests.items()
        if isinstance(which, str) or (who in answered and which > answered[who])
    }
    return state._replace(requests=requests, answered=answered)


def forget(state: State, actor: str) -> State:
    """Drops what is remembered of an incarnation that has ended."""
    requests = {k: v for k, v in state.requests.items() if k[0] != actor}
    answered = {k: v for k, v in state.answered.items() if k != actor}
    return state._replace(requests=requests, answered=answered)
