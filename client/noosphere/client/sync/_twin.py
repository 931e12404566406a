"""Twins: what a sync client hands out in place of the async client's objects, and how to get from one to the other.

A twin of a handle (a key, a record, a board) holds the async object and the portal. A twin of plain data
is a copy whose records are twins. Exceptions keep their classes: an exception that carries records, as a
conflict does, is raised as a copy that carries twins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from noosphere.client import FailedPart, NoosphereError

if TYPE_CHECKING:
    from ._portal import Portal

Inner = TypeVar("Inner")
E = TypeVar("E", bound=BaseException)

_ORIGINAL = "_original"

TWINS: dict[type[Any], Callable[[Portal, Any], Any]] = {}
"""How to make a twin of an object of the async client, by its class."""
PLAIN: dict[type[Any], Callable[[Any], Any]] = {}
"""How to make the async client's object of a twin of plain data, by the twin's class."""


class Twin(Generic[Inner]):
    """A handle whose calls run ``inner``'s on the loop."""

    __slots__ = ("_inner", "_portal")

    def __init__(self, portal: Portal, inner: Inner) -> None:
        self._portal = portal
        self._inner = inner

    def __eq__(self, other: object) -> bool:
        return self._inner == other._inner if isinstance(other, type(self)) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._inner)

    def __repr__(self) -> str:
        return repr(self._inner)

    # Hidden from type checkers, to whom it would say that every attribute exists.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Returns what the async client's own code looks for: a conflict reads its records' messages."""
            if not name.startswith("_") or name in Twin.__slots__:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            return getattr(self._inner, name)


def plain(value: Any) -> Any:
    """Returns an argument as the async client wants it."""
    if isinstance(value, Twin):
        return value._inner
    if isinstance(value, NoosphereError):
        return vars(value).get(_ORIGINAL, value)
    if (convert := PLAIN.get(type(value))) is not None:
        return convert(value)
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return type(value)(plain(item) for item in value)
    return value


def each(values: Any) -> Any:
    """Returns several arguments as the async client wants them; what is not several is left for it to refuse."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        return values
    return [plain(value) for value in values]


def with_twins(portal: Portal, error: E) -> E:
    """Returns an exception whose records are twins: a copy if it has any, otherwise itself."""
    if not isinstance(error, NoosphereError):
        return error
    kept = vars(error)
    found = {name: _twin(portal, value) for name, value in kept.items()}
    if all(found[name] is value for name, value in kept.items()):
        return error
    # Not by its constructor, whose arguments are nobody's business here.
    copy = type(error).__new__(type(error), *error.args)
    vars(copy).update(found)
    vars(copy)[_ORIGINAL] = error
    copy.__cause__, copy.__context__ = error.__cause__, error.__context__
    copy.__suppress_context__ = error.__suppress_context__
    return copy.with_traceback(error.__traceback__)


def _twin(portal: Portal, value: Any) -> Any:
    if (make := TWINS.get(type(value))) is not None:
        return make(portal, value)
    if isinstance(value, NoosphereError):
        return with_twins(portal, value)
    if isinstance(value, FailedPart):
        error = with_twins(portal, value.error)
        return value if error is value.error else FailedPart(value.index, value.is_operation, value.key, error)
    if type(value) is tuple:
        found = tuple(_twin(portal, item) for item in value)
        return value if all(new is old for new, old in zip(found, value, strict=True)) else found
    return value
