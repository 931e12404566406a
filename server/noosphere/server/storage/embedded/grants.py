"""Grants in the coordinator's file."""

from __future__ import annotations

import logging
import sqlite3

from noosphere.consistency import NamePattern

from ...ports.grants import GrantKey, Verb, read_verbs

log = logging.getLogger("noosphere.storage")

# Not in the schema: files from before there were grants have no such table.
_GRANTS = """
CREATE TABLE IF NOT EXISTS grants(
    principal TEXT NOT NULL, principal_exact INTEGER NOT NULL,
    namespace TEXT NOT NULL, namespace_exact INTEGER NOT NULL,
    verbs TEXT NOT NULL, PRIMARY KEY(principal, principal_exact, namespace, namespace_exact)
) WITHOUT ROWID
"""


def load_grants(db: sqlite3.Connection) -> dict[GrantKey, frozenset[Verb]]:
    """Returns what the file has."""
    db.execute(_GRANTS)
    grants: dict[GrantKey, frozenset[Verb]] = {}
    for who, all_of_it, where, exact, data in db.execute("SELECT * FROM grants"):
        verbs = read_verbs(data)
        if verbs is None:
            log.error("a grant that this version cannot read grants nothing")
        else:
            grants[GrantKey(NamePattern(who, bool(all_of_it)), NamePattern(where, bool(exact)))] = verbs
    return grants
