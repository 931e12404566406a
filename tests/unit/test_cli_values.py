"""What people type on the command line, and how it is printed back."""

from __future__ import annotations

import io
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noosphere.server.cli.exits import CliError, ExitCode
from noosphere.server.cli.output import print_fields, print_table, shorten
from noosphere.server.cli.values import (
    check_revision,
    parse_attributes,
    parse_duration,
    parse_json,
    read_argument,
)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("90s", 90_000),
        ("1h30m", 5_400_000),
        ("500ms", 500),
        ("1m500ms", 60_500),
        ("1.5h", 5_400_000),
        ("2w1d", 15 * 86_400_000),
    ],
)
def test_durations_add_their_parts(text: str, milliseconds: int) -> None:
    assert parse_duration(text, "--ttl") == timedelta(milliseconds=milliseconds)


@pytest.mark.parametrize("text", ["", "90", "s", "1h 30m", "-1s", "1y", "1e3s", "٣s", "0s", "1h30", "9" * 400 + "w"])
def test_other_texts_are_no_durations(text: str) -> None:
    with pytest.raises(CliError) as raised:
        parse_duration(text, "--ttl")
    assert raised.value.code is ExitCode.USAGE
    assert raised.value.message.startswith(f"--ttl: {text!r} ")


def test_attributes_are_scalars_or_texts() -> None:
    given = ["kind=crawl", "n=3", "ratio=0.5", "open=true", 'id="7"', "empty=", "formula=a=b", "list=[1]", "nan=NaN"]
    assert parse_attributes(given, "--attr") == {
        "kind": "crawl",
        "n": 3,
        "ratio": 0.5,
        "open": True,
        "id": "7",
        "empty": "",
        "formula": "a=b",
        "list": "[1]",
        "nan": "NaN",
    }


@pytest.mark.parametrize("pairs", [["kind"], ["=x"], ["a=1", "a=2"]])
def test_malformed_attributes_are_refused(pairs: list[str]) -> None:
    with pytest.raises(CliError, match=r"^--attr: "):
        parse_attributes(pairs, "--attr")


def test_an_attribute_that_is_no_text_is_refused() -> None:
    with pytest.raises(CliError, match="is not UTF-8"):
        parse_attributes(["a=\udcff"], "--attr")


@pytest.mark.parametrize("revision", [None, 0, (1 << 63) - 1])
def test_a_revision_is_passed(revision: int | None) -> None:
    check_revision("--after", revision)


def test_a_number_that_is_no_revision_is_refused() -> None:
    with pytest.raises(CliError, match="--after: 9223372036854775808 is not a revision"):
        check_revision("--after", 1 << 63)


def test_a_value_comes_from_the_argument_a_file_or_stdin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "value"
    file.write_bytes(b"\x00\xff of file")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\x00\xff of stdin")))
    assert read_argument('{"n": 1}') == b'{"n": 1}'
    assert read_argument(f"@{file}") == b"\x00\xff of file"
    assert read_argument("-") == b"\x00\xff of stdin"
    # How Python hands over an argument that is no UTF-8.
    assert read_argument("\udcff") == b"\xff"


@pytest.mark.parametrize("argument", ["@/does/not/exist", "@/", "@a\0b"])
def test_a_file_that_cannot_be_read_is_named(argument: str) -> None:
    with pytest.raises(CliError) as raised:
        read_argument(argument)
    assert raised.value.message.startswith(f"VALUE: {argument[1:]}: cannot be read: ")


@pytest.mark.parametrize("data", [b"hello", b"", b"NaN", b"\xff", b"{", b"[" * 100_000])
def test_what_is_not_json_is_refused_with_advice(data: bytes) -> None:
    with pytest.raises(CliError, match=r"VALUE: is not JSON .*--text stores a text, --bytes stores bytes"):
        parse_json(data)


def test_tables_in_a_pipe_are_plain_aligned_columns(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("KEY", "N"), [("a", 1), ("日本", 22), ("long key", 3)], empty="nothing")
    assert capsys.readouterr().out == "KEY       N\na         1\n日本      22\nlong key  3\n"


def test_an_empty_table_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("KEY",), [], empty="no records")
    assert capsys.readouterr().out == "no records\n"


@given(st.text())
def test_no_name_or_value_breaks_a_line_or_moves_the_cursor(text: str) -> None:
    out, sys.stdout = sys.stdout, io.StringIO()
    try:
        print_fields({"key": text})
        printed = sys.stdout.getvalue()
    finally:
        sys.stdout = out
    assert printed.endswith("\n")
    assert printed[:-1].isprintable()


def test_long_texts_are_shortened_with_a_mark() -> None:
    assert shorten("abcdef", 6) == "abcdef"
    assert shorten("abcdef", 5) == "abcd…"
