"""The generator of the sync client: what it makes of what, and that it refuses what it has no rule for."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from scripts import sync_source
from scripts.gen_sync_client import formatted
from scripts.sync_source import Face, Untranslatable
from scripts.sync_texts import adapted
from scripts.sync_writer import Writer

Generate = Callable[[str], str]

_NUMBERS = itertools.count()

HEAD = '''
from __future__ import annotations
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar, overload

T = TypeVar("T")

class Thing:
    """A thing."""

    async def use(self, count: int = 3, *, name: str) -> str:
        """Uses it."""
'''


@pytest.fixture
def generate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generate:
    def make(text: str) -> str:
        package = f"made_up_{next(_NUMBERS)}"
        folder = tmp_path / package
        folder.mkdir()
        whole = HEAD + text
        names = re.findall(r"^class ([A-Z]\w*)", whole, re.M)
        (folder / "_thing.py").write_text(whole)
        (folder / "__init__.py").write_text(f"from ._thing import {', '.join(names)}\n__all__ = {names!r}\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setattr(sync_source, "PACKAGE", package)
        return formatted(Writer(Face()).module())

    return make


def test_a_coroutine_function_becomes_a_function(generate: Generate) -> None:
    made = generate("")
    assert "class Thing(Twin[aio.Thing]):" in made
    assert "    def use(self, count: int = 3, *, name: str) -> str:" in made
    assert "return self._portal.run(self._inner.use, count, name=name)" in made


@pytest.mark.parametrize(
    ("method", "wanted"),
    [
        ("async def m(self) -> Thing: ...", "return Thing(self._portal, self._portal.run(self._inner.m))"),
        ("async def m(self) -> Thing | None: ...", "return None if found is None else Thing(self._portal, found)"),
        (
            "async def m(self) -> tuple[Thing, ...]: ...",
            "return tuple(Thing(self._portal, item) for item in self._portal.run(self._inner.m))",
        ),
        (
            "async def m(self) -> Mapping[str, Thing]: ...",
            "return {name: Thing(self._portal, item) for name, item in self._portal.run(self._inner.m).items()}",
        ),
        ("async def m(self) -> None: ...", "self._portal.run(self._inner.m)"),
        ("def m(self) -> Thing: ...", "return Thing(self._portal, self._inner.m())"),
        ("def m(self) -> int: ...", "return self._inner.m()"),
        ("def m(self) -> AsyncIterator[Thing]: ...", "return iterate(self._portal, self._inner.m(), Thing)"),
        ("def m(self) -> AsyncIterator[int]: ...", "return iterate(self._portal, self._inner.m(), as_it_is)"),
        (
            "def m(self) -> AbstractAsyncContextManager[Thing]: ...",
            "return Scope(self._portal, self._inner.m(), Thing)",
        ),
        (
            "@asynccontextmanager\n    async def m(self, n: int) -> AsyncIterator[Thing | None]: ...",
            "self._portal, self._inner.m(n), lambda portal, item: None if item is None else Thing(portal, item)",
        ),
        ("async def m(self, *others: Thing) -> None: ...", "self._inner.m, *(plain(item) for item in others)"),
        ("async def m(self, others: Iterable[Thing]) -> None: ...", "self._portal.run(self._inner.m, each(others))"),
        ("async def m(self, other: Thing | int) -> None: ...", "self._portal.run(self._inner.m, plain(other))"),
        (
            "async def m(self, f: Callable[[Thing], Thing | Awaitable[Thing]]) -> int: ...",
            "made = f(Thing(self._portal, f_0))",
        ),
        (
            "async def m(self, f: Callable[[int], Awaitable[int]] | None = None) -> int: ...",
            "call.run(self._inner.m, None if f is None else call.relay(run_f))",
        ),
    ],
)
def test_methods(generate: Generate, method: str, wanted: str) -> None:
    documented = method.replace(": ...", ':\n        """Does."""')
    also = 'async def also(self) -> None:\n        """Does too."""'
    made = generate(f'class Other:\n    """Another."""\n\n    {documented}\n\n    {also}\n')
    assert wanted in " ".join(made.split()).replace("( ", "(").replace(" )", ")").replace(",)", ")")


def test_a_callback_is_typed_as_a_plain_function(generate: Generate) -> None:
    made = generate(
        'class Other:\n    """Another."""\n\n'
        "    async def m(self, f: Callable[[Thing], int | Awaitable[int]]) -> None:\n"
        '        """Does."""\n'
    )
    assert "def m(self, f: Callable[[Thing], int]) -> None:" in made


def test_plain_data_becomes_the_same_data_with_twins_in_it(generate: Generate) -> None:
    made = generate('''
@dataclass(frozen=True)
class Pair(Generic[T]):
    """Two."""

    thing: Thing
    number: int = 3

    @property
    def double(self) -> int:
        """Twice the number."""

class Holder:
    """Holds."""

    async def both(self, pair: Pair[T]) -> Pair[T]:
        """Returns it."""
''')
    assert "@dataclass(frozen=True)\nclass Pair(Generic[T]):" in made
    assert "return _plain_pair(self).double" in made
    assert "return Pair(thing=Thing(portal, data.thing), number=data.number)" in made
    assert "return aio.Pair(thing=plain(twin.thing), number=twin.number)" in made
    assert "TWINS.update({aio.Thing: Thing, aio.Holder: Holder, aio.Pair: _twin_of_pair})" in made


def test_an_exception_stays_what_it_is_and_shows_twins_to_type_checkers(generate: Generate) -> None:
    made = generate('''
class Trouble(Exception):
    """Trouble."""

    def __init__(self, thing: Thing) -> None:
        self.thing = thing

    def again(self) -> Trouble:
        """Returns more of it."""

class Calm(Exception):
    """No trouble."""
''')
    typed, real = made.split("if TYPE_CHECKING:")[1].split("else:")
    assert "thing: Thing  # type: ignore[assignment]" in typed
    assert "Trouble = aio.Trouble" in real
    assert "Calm" not in made


def test_a_callback_may_stand_in_the_place_of_what_it_finds(generate: Generate) -> None:
    made = generate('''
Find = Callable[[str, int], Sequence[str] | Awaitable[Sequence[str]]]

class Reader:
    """Reads."""

    async def read(self, what: Find | Sequence[str] = ()) -> str:
        """Reads something."""
''')
    assert "Find = Callable[[str, int], Sequence[str]]" in made, "nobody awaits it here"
    assert "def read(self, what: Find | Sequence[str] = ()) -> str:" in made
    assert "def run_what(what_0: str, what_1: int) -> Sequence[str]:" in made
    assert "assert callable(what)" in made
    assert "call.relay(run_what) if callable(what) else what" in made


def test_a_class_may_derive_from_another(generate: Generate) -> None:
    made = generate('class More(Thing):\n    """More."""\n\n    async def m(self) -> None:\n        """Does."""\n')
    assert "class More(Thing):" in made
    assert "_inner: aio.More" in made
    assert made.count("def use(") == 1


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("async def m(self) -> None: ...", "has no docstring"),
        ('async def m(self) -> None:\n        """Awaits in the event loop."""', "says 'event loop'"),
        ('async def m(self, x) -> None:\n        """Does."""', "the parameter x has no type"),
        ('async def m(self) -> set[Thing]:\n        """Does."""', "no rule for handing out set[Thing]"),
        ('def m(self) -> Awaitable[int]:\n        """Does."""', "Awaitable is awaited by the caller"),
        ('async def m(self) -> AsyncIterator[int]:\n        """Does."""\n        yield 1', "a generator"),
        ('async def m(self, f: Callable[[int], None]) -> None:\n        """Does."""', "is not awaited by whoever"),
        ('async def m(self, f: Callable[..., Awaitable[int]]) -> None:\n        """Does."""', "is not awaited by"),
        (
            'def m(self, f: Callable[[], Awaitable[int]]) -> None:\n        """Does."""',
            "would run in no caller's thread",
        ),
        ('@classmethod\n    async def m(cls) -> None:\n        """Does."""', "no rule for the decorators"),
        ("async def __call__(self) -> None: ...", "no rule for __call__"),
        ("def __getitem__(self, key: str) -> Thing: ...", "no rule for __getitem__"),
        ('async def __aiter__(self) -> AsyncIterator[int]:\n        """Does."""', "not its own"),
        ("def __init__(self, n: int) -> None:\n        self.n = n", "the attribute n is not documented"),
    ],
)
def test_what_has_no_rule_is_refused_by_name(generate: Generate, body: str, problem: str) -> None:
    with pytest.raises(Untranslatable, match=re.escape(problem)) as refused:
        generate(
            f'class Other:\n    """Another."""\n\n    {body}\n\n    async def also(self) -> None:\n        """Does."""'
        )
    assert "made_up" in str(refused.value)


def test_a_documented_attribute_whose_type_is_unknown_is_refused(generate: Generate) -> None:
    with pytest.raises(Untranslatable, match=r"the types of \['size'\] are not declared"):
        generate('''
class Other:
    """Another.

    Attributes:
        size: how large it is.
    """

    def __init__(self, data: bytes) -> None:
        self.size = len(data)

    async def also(self) -> None:
        """Does."""
''')


def test_docstrings_speak_to_threads() -> None:
    doc = "The length of an ``async with`` block.\n\n::\n\n    async with x as y:\n        async for z in await y: ..."
    wanted = "The length of a ``with`` block.\n\n::\n\n    with x as y:\n        for z in y: ..."
    assert adapted("anything", doc) == wanted


def test_words_for_a_docstring_that_has_changed_are_refused() -> None:
    """Otherwise the sync client would go on promising what only the async one does."""
    with pytest.raises(Untranslatable, match="no longer says"):
        adapted("noosphere.client._board.Board.claim", "Claims a task, somehow else.")
