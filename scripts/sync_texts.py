"""The words of the sync client: docstrings of the async client, adapted, and the docstring of the package."""

from __future__ import annotations

import re
import textwrap

from scripts.sync_source import LEFT_OUT, PACKAGE, Face, Kind, Untranslatable

PACKAGE_DOC = '''"""Sync client of Noosphere: the async client's names and exceptions, for code without an event loop.

::

    with connect(agent="planner-0") as client:
        plan = client.shared("launch").key("plan", Plan)
        record = plan.update(revise)

Every call runs on one background thread of the process and the caller waits for it, so a client may be
used by many threads at once, and their calls travel together. What differs from the async client:

- A function that the client is to call (``update``) is a plain one, and runs in the caller's thread. It
  cannot be interrupted: a deadline that passes meanwhile is noticed when it returns.
- The block of ``board.claim`` cannot be cancelled. When the claim is lost or in doubt, ``claim.is_open``
  turns false, the claim's next call raises ClaimLost, and so does the end of the block. ``client.lock``, too, has
  ``lock.is_held`` and LockLost at the end.
- Ctrl-C ends a wait at once and cancels the call; whether a write was applied is then unknown.
- A client works in the process that opened it: after a fork, its calls raise :class:`ForkedClient`. A child
  can connect anew if no connection was open at the fork.
- Where an event loop runs (a notebook, say) calls work, and hold it up while they wait.

A program that ends without leaving its blocks closes its clients; it waits a few seconds for that at most.
"""'''

# By the end of the qualified name: a text that must occur, and what stands there instead.
_INSTEAD: dict[str, list[tuple[str, str]]] = {
    "_cache.NearCache": [
        (
            "The methods without ``async`` may be called from any thread.",
            "``get``, ``raw`` and ``list`` answer in the caller's thread, whichever that is.",
        )
    ],
    "_client.Client": [("Made by :func:`connect`; bound to its event loop.", "Made by :func:`connect`.")],
    "_board.Board.claim": [
        (
            "If that fails for so long that somebody else may\nhave the task, the block's task is cancelled and the "
            "``async with`` raises ClaimLost.",
            "If that fails for so long that somebody else may\nhave the task, ``claim.is_open`` turns false, the "
            "claim's next call raises ClaimLost, and so does\nthe end of the block: nothing can interrupt the block "
            "itself.",
        )
    ],
    "_claim.ClaimScope.__aexit__": [
        (
            "the block was cancelled, or ended, while the claim was in doubt.",
            "the claim was lost or in doubt before the end of the block.",
        )
    ],
    "_client.Client.lock": [
        (
            "If that fails for so long that somebody else may have it,\nthe block's task is cancelled and the ``async "
            "with`` raises LockLost. A program that is stopped for a while\ncannot notice that in time: what it writes",
            "If that fails for so long that somebody else may have it,\n``lock.is_held`` turns false, and the end of "
            "the block raises LockLost: nothing can interrupt the block itself.\nWhat it writes",
        )
    ],
    "_lock.LockScope.__aexit__": [
        (
            "the block was cancelled, or ended, while the lock was in doubt.",
            "the lock was lost or in doubt before the end of the block.",
        )
    ],
    "_group.GroupWatch.__anext__": [
        ("A cancelled wait loses nothing: ask again.", "An interrupted wait loses nothing: ask again."),
        ("StopAsyncIteration:", "StopIteration:"),
    ],
    "_facts_watch.DecisionWatch.__anext__": [
        ("A cancelled wait loses nothing: ask again.", "An interrupted wait loses nothing: ask again."),
        ("StopAsyncIteration:", "StopIteration:"),
    ],
    "_key.Key.update": [("may be async and slow.", "runs in the\n        caller's thread and may be slow.")],
    "_watch.Watch.__anext__": [
        ("A cancelled wait loses nothing: ask again.", "An interrupted wait loses nothing: ask again."),
        ("StopAsyncIteration:", "StopIteration:"),
    ],
}

_REPLACED = [
    (re.compile(r"\ban ``async with``"), "a ``with``"),
    (re.compile(r"``async with``"), "``with``"),
    (re.compile(r"\basync (with|for|def)\b"), r"\1"),
    (re.compile(r"\bawait "), ""),
]
_LEFT = re.compile(r"\b(async|await|asyncio|Async\w+|StopAsyncIteration|event loop|coroutines?)\b")


def adapted(where: str, doc: str) -> str:
    """Returns a docstring for callers without an event loop.

    Args:
        where: the qualified name of what it documents.
        doc: the async client's docstring.

    Raises:
        Untranslatable: it is missing, or still speaks of what there is not.
    """
    if not doc:
        raise Untranslatable(where, "it has no docstring")
    for old, new in _INSTEAD.get(where.removeprefix(PACKAGE + "."), ()):
        if old not in doc:
            raise Untranslatable(where, f"its docstring no longer says {old!r}, which scripts/sync_texts.py replaces")
        doc = doc.replace(old, new)
    for pattern, replacement in _REPLACED:
        doc = pattern.sub(replacement, doc)
    if (left := _LEFT.search(doc)) is not None:
        raise Untranslatable(where, f"its docstring says {left[0]!r}, so say it for threads in scripts/sync_texts.py")
    if "\\" in doc:
        raise Untranslatable(where, "its docstring has a backslash")
    return doc


def docstring(where: str, doc: str, depth: int) -> str:
    """Returns the text of a docstring at a depth of indentation; see :func:`adapted`."""
    name = where.removeprefix(PACKAGE + ".")
    text = adapted(where, doc)
    for function, parameter in LEFT_OUT:
        if name.endswith("." + function):
            text = re.sub(rf"\n    {parameter}: .*(\n      .*)*", "", text)
    end = "\n" if "\n" in text else ""
    return textwrap.indent(f'"""{text}{end}"""', "    " * depth)


def face_text(face: Face) -> str:
    """Returns the text of the package's ``__init__.py``."""
    twins = {symbol.name for kind in set(Kind) - {Kind.ITSELF, Kind.CARRIER} for symbol in face.of_kind(kind)} | {
        "connect"
    }
    own = sorted(name for name in face.names if name in twins)
    taken = sorted(name for name in face.names if name not in twins)
    public = sorted([*face.names, "ForkedClient"])
    return "\n".join(
        [
            "# Generated by scripts/gen_sync_client.py: change the async client or scripts/sync_texts.py instead.",
            PACKAGE_DOC,
            "",
            f"from noosphere.client import {', '.join(taken)}",
            "from ._errors import ForkedClient",
            f"from ._generated import {', '.join(own)}",
            "",
            f"__all__ = {public!r}",
        ]
    )
