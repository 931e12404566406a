"""What commands print: tables for people, JSON documents for programs."""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from noosphere.server.readers import close_stdout, to_reader


def print_json(document: object) -> None:
    """Prints one JSON document on one line and flushes, so that a reader of a stream sees it at once."""
    with _reader():
        print(json.dumps(document, ensure_ascii=False), flush=True)


def print_line(text: str) -> None:
    """Prints one line, with everything escaped that is not printable, and flushes.

    Raises:
        ReaderGone: the reader has gone, as `head` does; nothing is wrong, but there is nothing left to do.
    """
    with _reader():
        print(one_line(text), flush=True)


def print_bytes(data: bytes) -> None:
    """Prints bytes as they are; raises like :func:`print_line`."""
    with _reader():
        sys.stdout.buffer.write(data)
        sys.stdout.flush()


@contextmanager
def _reader() -> Iterator[None]:
    try:
        with to_reader():
            yield
    except OSError as error:
        close_stdout()
        # What was to be told has been done, perhaps: for whoever asked it is as if no answer had come.
        message, details = f"cannot write the output: {error.strerror}", {"outcome": "unknown"}
        from .exits import CliError, ExitCode  # it prints its errors with what is here

        raise CliError(ExitCode.UNREACHABLE, message, "OUTPUT", details) from None


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, empty: str) -> None:
    """Prints a table: drawn by rich on a terminal, else aligned columns without colour, boxes or wrapping.

    Args:
        columns: the headings.
        rows: cells in the order of the columns.
        empty: what to print instead if there are no rows.
    """
    cells = [[one_line(str(cell)) for cell in row] for row in rows]
    if not cells:
        print_line(empty)
    elif sys.stdout.isatty():
        _draw(columns, cells)
    else:
        widths = [max(map(_width, column)) for column in zip(columns, *cells, strict=True)]
        for row in (columns, *cells):
            padded = (cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True))
            print_line("  ".join(padded).rstrip())


def print_fields(fields: dict[str, object]) -> None:
    """Prints one aligned line per field."""
    width = max(map(_width, fields))
    for name, value in fields.items():
        print_line(f"{name}{' ' * (width - _width(name))}  {value}".rstrip())


def _draw(columns: Sequence[str], cells: list[list[str]]) -> None:
    # Only a terminal pays for rich's import.
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False)
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))
    with _reader():
        Console().print(table)


def one_line(text: str) -> str:
    """Returns ``text`` with everything escaped that is not printable."""
    # Names and values come from agents: neither may move the cursor or break a table.
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def shorten(text: str, chars_max: int) -> str:
    """Returns ``text``, cut to at most ``chars_max`` characters with an ellipsis."""
    return text if len(text) <= chars_max else text[: chars_max - 1] + "…"


def compact(value: Any) -> str:
    """Returns a JSON value as compact text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
