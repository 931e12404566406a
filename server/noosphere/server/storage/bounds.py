"""What no driver takes: commits that are too large, or hold what cannot be stored."""

from __future__ import annotations

from noosphere.consistency import REVISION_MAX, invalid, too_large
from noosphere.consistency.limits import COMMIT_BYTES_MAX, COMMIT_MUTATIONS_MAX, REMEMBERED_REPLY_BYTES_MAX

from ..ports.store import Commit, RequestRecord
from .keys import text_bytes


def check_commit(commit: Commit) -> int:
    """Checks what could not be stored; returns the commit's size in bytes.

    Raises:
        Refusal: VALUE_TOO_LARGE or INVALID_FIELD.
    """
    mutations = commit.mutations
    size = 0
    try:
        for mutation in mutations:
            size += text_bytes(mutation.key) + len(mutation.data or b"") + len(mutation.event)
    except UnicodeEncodeError:
        raise invalid("commit.mutations.key", "is not Unicode text") from None
    if len(mutations) > 1:
        if len(mutations) > COMMIT_MUTATIONS_MAX:
            raise too_large("commit.mutations", len(mutations), COMMIT_MUTATIONS_MAX, "mutations")
        keys = [mutation.key for mutation in mutations if not mutation.rev_slot]
        if len(set(keys)) < len(keys):
            raise invalid("commit.mutations", "names a key twice")
    if size > COMMIT_BYTES_MAX:
        raise too_large("commit.mutations", size, COMMIT_BYTES_MAX)
    if commit.request is not None:
        size += _check_request(commit.request)
    for fence in commit.fences:
        size += _check_text("commit.fences.lock", fence.lock)
        if not 0 <= fence.token <= REVISION_MAX:
            raise invalid("commit.fences.token", f"{fence.token} is not between 0 and {REVISION_MAX}")
    return size


def _check_request(request: RequestRecord) -> int:
    if len(request.reply) > REMEMBERED_REPLY_BYTES_MAX:
        raise too_large("commit.request.reply", len(request.reply), REMEMBERED_REPLY_BYTES_MAX)
    ref = request.ref
    named = _check_text("commit.request.client", ref.client) + _check_text("commit.request.uuid", ref.uuid)
    return named + len(request.reply) + len(request.fingerprint)


def _check_text(field: str, text: str) -> int:
    try:
        return text_bytes(text)
    except UnicodeEncodeError:
        raise invalid(field, "is not Unicode text") from None
