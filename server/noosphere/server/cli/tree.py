"""Keys as a tree of collections."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .shapes import TreeShape


def build_tree(collection: str, keys: Iterable[str], depth: int) -> TreeShape:
    """Arranges keys by their collections.

    Args:
        collection: the prefix that all keys have; empty for a whole namespace.
        keys: the keys in order.
        depth: how many levels to unfold, at least 1; what lies deeper is only counted.
    """
    root = _node(collection)
    known = {collection: root}
    for key in keys:
        node = root
        node["record_count"] += 1
        for _ in range(depth):
            slash = key.find("/", len(node["collection"]))
            if slash < 0:
                node["keys"].append(key)
                break
            prefix = key[: slash + 1]
            if prefix not in known:
                known[prefix] = _node(prefix)
                node["collections"].append(known[prefix])
            node = known[prefix]
            node["record_count"] += 1
    return root


def tree_lines(node: TreeShape, indent: int = 1) -> Iterator[str]:
    """Yields the lines of a tree, its root's own left out: collections with their number of records, then keys."""
    start = len(node["collection"])
    for child in node["collections"]:
        yield f"{'  ' * indent}{child['collection'][start:]}  {child['record_count']}"
        yield from tree_lines(child, indent + 1)
    for key in node["keys"]:
        yield f"{'  ' * indent}{key[start:]}"


def _node(collection: str) -> TreeShape:
    return {"collection": collection, "record_count": 0, "keys": [], "collections": []}
