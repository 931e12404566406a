"""Keys as a tree: every record is counted in each of its collections, down to the depth that is shown."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from noosphere.server.cli.shapes import TreeShape
from noosphere.server.cli.tree import build_tree, tree_lines

KEYS = ["plan", "todo/a", "todo/b", "todo/later/c/d", "todox"]


def test_collections_come_with_their_number_of_records() -> None:
    assert list(tree_lines(build_tree("", KEYS, 2))) == [
        "  todo/  3",
        "    later/  1",
        "    a",
        "    b",
        "  plan",
        "  todox",
    ]


def test_what_lies_deeper_is_counted_only() -> None:
    assert list(tree_lines(build_tree("", KEYS, 1))) == ["  todo/  3", "  plan", "  todox"]


def test_a_collection_can_be_the_root() -> None:
    tree = build_tree("todo/", [key for key in KEYS if key.startswith("todo/")], 9)
    assert list(tree_lines(tree)) == ["  later/  1", "    c/  1", "      d", "  a", "  b"]


@given(st.lists(st.text("ab/", min_size=1, max_size=8), unique=True), st.integers(1, 4))
def test_every_record_is_counted_once_per_level(keys: list[str], depth: int) -> None:
    def check(node: TreeShape, level: int) -> None:
        below = [key for key in keys if key.startswith(node["collection"])]
        assert node["record_count"] == len(below)
        if level < depth:
            inner = sum(child["record_count"] for child in node["collections"])
            assert inner + len(node["keys"]) == len(below)
        else:
            assert (node["keys"], node["collections"]) == ([], [])
        for child in node["collections"]:
            check(child, level + 1)

    check(build_tree("", sorted(keys), depth), 0)
