"""The demo's input: finding text, reading it, and splitting it into sections."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

TEXT_CHARS_MIN = 4_000
TEXT_BYTES_MAX = 1024 * 1024
FILES_MAX = 100
# With these an outline of all sections, or the index of all terms, fits into one record of 64 KiB.
SECTIONS = 64
SECTION_CHARS_MAX = 12_000
TITLE_CHARS_MAX = 40
SUFFIXES = frozenset({".md", ".markdown", ".rst", ".txt"})

_HEADING = re.compile(r"#{1,6}\s+(.+?)\s*#*$")


class InputError(ValueError):
    """Text that the demo cannot work with; the message is one line that says why."""


@dataclass(frozen=True, slots=True)
class Text:
    """A text and its name."""

    name: str
    content: str


@dataclass(frozen=True, slots=True)
class Section:
    """A piece of text, the size of one task.

    Attributes:
        name: four digits, in the order of the text.
        title: the nearest heading before it.
        source: the text's name.
        content: what stands there.
    """

    name: str
    title: str
    source: str
    content: str


def read_texts(paths: Sequence[Path]) -> list[Text]:
    """Reads files, and the text files of folders.

    Raises:
        InputError: a path cannot be read, holds no text, or it is too much.
    """
    texts = []
    size = 0
    for path in _files(paths):
        try:
            data = path.read_bytes()
        except OSError as error:
            raise InputError(f"{path}: {error.strerror or error}") from None
        size += len(data)
        if size > TEXT_BYTES_MAX:
            raise InputError(f"{path}: more than {TEXT_BYTES_MAX} bytes of text in all")
        try:
            texts.append(Text(path.name, data.decode("utf-8-sig")))
        except UnicodeDecodeError as error:
            raise InputError(f"{path}: is no UTF-8 text (byte {error.start})") from None
    return texts


def default_texts() -> tuple[str, list[Text]]:
    """Returns what the demo works on when it is given no file, and where that comes from.

    In a checkout that is the repository's own ``docs/``. An installed package has no such folder, so
    there it is the documentation that is always shipped: the docstrings of the pure rules and the client.
    """
    for folder in Path(__file__).resolve().parents:
        if (folder / "docs").is_dir() and (folder / "pyproject.toml").is_file():
            texts = read_texts([folder / "docs"])
            if sum(len(text.content) for text in texts) >= TEXT_CHARS_MIN:
                return str(folder / "docs"), texts
            break
    return "docstrings of noosphere", [*_docstrings("noosphere.consistency"), *_docstrings("noosphere.client")]


def split(texts: Sequence[Text], sections: int = SECTIONS) -> list[Section]:
    """Splits texts into about ``sections`` sections (more if they are long), at headings and paragraphs.

    Raises:
        InputError: there is too little text.
    """
    chars = sum(len(text.content) for text in texts)
    if chars < TEXT_CHARS_MIN:
        raise InputError(f"{chars} characters of text are too little, at least {TEXT_CHARS_MIN} are needed")
    target = min(math.ceil(chars / sections), SECTION_CHARS_MAX)
    found: list[Section] = []
    for text in texts:
        for title, content in _group(text, target):
            name = f"{len(found) + 1:04}"
            found.append(Section(name, title[:TITLE_CHARS_MAX], text.name[:TITLE_CHARS_MAX], content))
    return found


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    count = 0
    for path in paths:
        folder = path.is_dir()
        files = sorted(p for p in path.rglob("*") if p.suffix.lower() in SUFFIXES) if folder else [path]
        if not files:
            raise InputError(f"{path}: holds no file with one of the suffixes {', '.join(sorted(SUFFIXES))}")
        for file in files:
            count += 1
            if count > FILES_MAX:
                raise InputError(f"{path}: more than {FILES_MAX} files in all")
            yield file


def _docstrings(package: str) -> Iterator[Text]:
    for file in sorted(resources.files(package).iterdir(), key=lambda entry: entry.name):
        if not file.name.endswith(".py"):
            continue
        parts = []
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                name = file.name.removesuffix(".py") if isinstance(node, ast.Module) else node.name
                if (doc := ast.get_docstring(node)) is not None:
                    parts.append(f"## {name}\n\n{doc}")
        if parts:
            yield Text(f"{package}.{file.name.removesuffix('.py')}", "\n\n".join(parts))


def _group(text: Text, target: int) -> Iterator[tuple[str, str]]:
    """Yields title and content of sections of about ``target`` characters."""
    group: list[str] = []
    size = 0
    title = text.name
    for heading, paragraph in _paragraphs(text, target):
        turns = heading != title and size >= target / 2
        if group and (turns or size + len(paragraph) / 2 > target):
            yield title, "\n\n".join(group)
            group, size = [], 0
        if not group:
            title = heading
        group.append(paragraph)
        size += len(paragraph)
    if group:
        yield title, "\n\n".join(group)


def _paragraphs(text: Text, target: int) -> Iterator[tuple[str, str]]:
    """Yields paragraphs of at most about ``target`` characters with the heading above them."""
    heading = text.name
    for block in re.split(r"\n\s*\n", text.content):
        paragraph = block.strip()
        if not paragraph:
            continue
        if (found := _HEADING.match(paragraph.splitlines()[0])) is not None:
            heading = found[1]
        while len(paragraph) > 1.5 * target:
            cut = paragraph.rfind(" ", target // 2, target)
            cut = cut if cut > 0 else target
            yield heading, paragraph[:cut]
            paragraph = paragraph[cut:].lstrip()
        if paragraph:
            yield heading, paragraph
