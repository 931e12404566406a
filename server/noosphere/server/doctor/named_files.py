"""Whether the files that settings of identity and audit name can be used: without them a server does not start."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from ..addresses import is_url
from ..config import Settings
from ..security.jwks import UnfitKeys, read_keys
from ..security.keyfeed import JwksFile, JwksUrl, Place
from .findings import Finding, problem, warning

ANSWER_SECONDS_MAX = 10.0


async def examine_keys(settings: Settings) -> AsyncIterator[Finding]:
    """Reads the keys of the issuer of JSON web tokens, as a server does."""
    where = settings.jwt_jwks
    if not where:
        return
    try:
        place: Place = (
            JwksUrl(where, settings.jwt_jwks_ca, settings.jwt_jwks_token_file)
            if is_url(where)
            else JwksFile(Path(where))
        )
    except UnfitKeys as error:
        yield _unusable(error)
        return
    try:
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            found = await asyncio.to_thread(place.read)
        read_keys(found or b"")
    except (UnfitKeys, TimeoutError) as error:
        if not is_url(where):
            yield _unusable(f"{where} {error}")
            return
        yield warning(
            "keys_unreachable",
            "JSON web tokens are refused until the keys of their issuer can be read",
            f"{where} {str(error) or 'does not answer'}",
            "let this machine reach it (jwt_jwks, jwt_jwks_ca), or configure a file",
        )


def _unusable(why: object) -> Finding:
    return problem(
        "keys_unusable",
        "the keys of the issuer of JSON web tokens cannot be used",
        why,
        "configure a JSON Web Key Set with public keys that the server's user may read (jwt_jwks)",
    )


def examine_audit(settings: Settings) -> Iterator[Finding]:
    """Looks whether the audit log can be written."""
    if settings.audit_log in ("", "-"):
        return
    path = Path(settings.audit_log)
    try:
        if path.exists():
            os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC))
        # Later files are made beside it.
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        yield problem(
            "audit_unusable",
            "the audit log cannot be written",
            f"{path}: {error.strerror}",
            "let the server's user write the file and its folder, or configure another one (audit_log)",
        )
