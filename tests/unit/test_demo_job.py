"""The demo's job: how text is split, and that doing a section twice or in another order changes nothing."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.effort import examples

from noosphere.server.demo import DemoSettings
from noosphere.server.demo.job import (
    SHELVES,
    Outline,
    Shelf,
    Task,
    count_words,
    pick_terms,
    serial_result,
    shelf_of,
    with_entry,
    with_terms,
)
from noosphere.server.demo.text import (
    FILES_MAX,
    SECTION_CHARS_MAX,
    TEXT_BYTES_MAX,
    InputError,
    Text,
    default_texts,
    read_texts,
    split,
)

PROSE = "\n\n".join(
    f"# Part {part}\n\n"
    + "\n\n".join(
        f"Paragraph {number} of part {part} tells of ships, harbours and weather." for number in range(part % 7 + 1)
    )
    for part in range(60)
)


def without_space(text: str) -> str:
    return "".join(text.split())


@settings(max_examples=examples(60))
@given(
    st.lists(
        st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"], include_characters="\n #"), max_size=400),
        min_size=1,
        max_size=6,
    ),
    st.integers(8, 64),
)
def test_sections_hold_the_whole_text_in_order(parts: list[str], sections: int) -> None:
    texts = [Text(f"part {number}", part + "\n\n" + PROSE) for number, part in enumerate(parts)]
    found = split(texts, sections)
    whole = "".join(text.content for text in texts)
    assert without_space("".join(section.content for section in found)) == without_space(whole)
    assert [section.name for section in found] == sorted(section.name for section in found)
    # Each holds at least half of what it should, but the last one of each text.
    assert len(found) <= 2 * sections + len(texts) + 1
    assert all(section.content.strip() for section in found)


def test_a_section_has_the_heading_above_it() -> None:
    titles = [section.title for section in split([Text("tale", PROSE)])]
    assert all(title.startswith("Part ") for title in titles)
    assert titles == sorted(titles, key=lambda title: int(title.split()[1]))


def test_text_without_spaces_is_split_as_well() -> None:
    chance = random.Random(1)
    text = "".join(chr(chance.randrange(0x4E00, 0x9FFF)) for _ in range(300_000))
    sections = split([Text("文", text)])
    assert "".join(section.content for section in sections) == text
    assert max(len(section.content) for section in sections) <= 1.5 * SECTION_CHARS_MAX
    # Records of at most 64 KiB hold what comes of it.
    result = serial_result(sections)
    outline = Outline(sections=result.outline)
    assert len(outline.model_dump_json().encode()) < 60_000
    for shelf in SHELVES:
        terms = {term: names for term, names in result.index.items() if shelf_of(term) == shelf}
        assert len(json.dumps(terms, ensure_ascii=False).encode()) < 60_000


@given(order=st.randoms(use_true_random=False))
@settings(max_examples=examples(30))
def test_sections_added_in_any_order_and_more_than_once_make_the_serial_result(order: random.Random) -> None:
    sections = split([Text("tale", PROSE)])
    serial = serial_result(sections)
    work = [*sections, *order.choices(sections, k=20)]
    order.shuffle(work)
    outline: Outline | None = None
    shelves: dict[str, Shelf | None] = dict.fromkeys(SHELVES)
    for section in work:
        task = Task(number=section.name, title=section.title, source=section.source, content=section.content)
        outline = with_entry(outline, task)
        for term in pick_terms(task.content):
            shelves[shelf_of(term)] = with_terms(shelves[shelf_of(term)], task, [term])
    assert outline is not None
    assert outline.sections == serial.outline
    assert list(outline.sections) == [section.name for section in sections]
    index = {term: names for shelf in shelves.values() if shelf is not None for term, names in shelf.terms.items()}
    assert index == serial.index
    assert serial.words == sum(count_words(section.content) for section in sections)


def test_terms_are_what_stands_out() -> None:
    text = "The harbour, the harbour! Ships leave the harbour with weather that would keep other ships there. 42 a"
    assert pick_terms(text) == ["harbour", "ships", "keep", "leave", "weather"]
    assert all(shelf_of(term) in SHELVES for term in ("apple", "zebra", "ßharf", "天气预报"))


def test_the_default_text_is_the_repositorys_own_docs() -> None:
    source, texts = default_texts()
    root = Path(__file__).resolve().parents[2]
    assert source == str(root / "docs")
    assert {text.name for text in texts} >= {path.name for path in (root / "docs").glob("*.md")}


def test_without_docs_the_shipped_docstrings_are_the_text(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("noosphere.server.demo.text.__file__", str(tmp_path / "a" / "b" / "text.py"))
    source, texts = default_texts()
    assert source == "docstrings of noosphere"
    assert any("causal" in text.content.lower() for text in texts)
    assert len(split(texts)) >= 60


def test_folders_are_read_and_other_files_in_them_left_out(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "b.md").write_text("\ufeffsecond", encoding="utf-8")
    (tmp_path / "a.txt").write_text("first", encoding="utf-8")
    (tmp_path / "c.bin").write_bytes(b"\xff")
    assert read_texts([tmp_path]) == [Text("a.txt", "first"), Text("b.md", "second")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"short", "5 characters of text are too little, at least 4000 are needed"),
        (b"x" * 5000 + b"\xff", r"text\.md: is no UTF-8 text \(byte 5000\)"),
        (b"x" * (TEXT_BYTES_MAX + 1), f"more than {TEXT_BYTES_MAX} bytes of text in all"),
    ],
)
def test_unusable_text_is_refused_in_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "text.md"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        split(read_texts([path]))
    assert "\n" not in str(caught.value)


def test_paths_that_hold_no_text_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"absent: No such file"):
        read_texts([tmp_path / "absent"])
    with pytest.raises(InputError, match="holds no file with one of the suffixes"):
        read_texts([tmp_path])
    for number in range(FILES_MAX + 1):
        (tmp_path / f"{number}.md").write_text("text", encoding="utf-8")
    with pytest.raises(InputError, match=f"more than {FILES_MAX} files"):
        read_texts([tmp_path])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"agents": 1}, "agents: 1 is not between 2 and 32"),
        ({"agents": 33}, "agents: 33"),
        ({"think_ms": -1.0}, "think-ms: -1 is not between 0 and 2000"),
        ({"lease_ms": 10}, "lease-ms: 10 is not between 1000 and 60000"),
        ({"conflicts_min": 0}, "min-conflicts: 0 is less than 1"),
        ({"sections_max": 3}, "sections: 3 is less than the number of agents, 8"),
    ],
)
def test_settings_out_of_bounds_are_named(given: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DemoSettings(**given)  # type: ignore[arg-type] # one field each
