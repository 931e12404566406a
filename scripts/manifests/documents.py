"""Rendered manifests, and how they are rendered."""

from __future__ import annotations

import copy
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
K8S = ROOT / "k8s"
SERVER = "noosphere"
SELECTOR = {"app.kubernetes.io/name": SERVER, "app.kubernetes.io/component": "server"}
"""What selects servers, and nothing else in their namespace."""
CLUSTER_WIDE = ("Namespace", "ClusterIssuer", "ClusterRole", "ClusterRoleBinding")

Document = dict[str, Any]


class Documents:
    """All documents of one build, and what rules ask of them.

    Args:
        every: the documents.
    """

    def __init__(self, every: list[Document]) -> None:
        self.every = every

    def of(self, *kinds: str) -> Iterator[Document]:
        """Yields those of some kinds."""
        yield from (one for one in self.every if one.get("kind") in kinds)

    def named(self, kind: str, name: str, namespace: str = SERVER) -> Document | None:
        """Returns the one of a name; None if there is none."""
        for one in self.of(kind):
            if at(one, "metadata", "name") == name and at(one, "metadata", "namespace", default=namespace) == namespace:
                return one
        return None

    @property
    def deployment(self) -> Document:
        """The servers; empty if there are none."""
        return self.named("Deployment", SERVER) or {}

    @property
    def pod(self) -> Document:
        """What a server's pod is made from."""
        found: Document = at(self.deployment, "spec", "template", "spec", default={})
        return found

    @property
    def container(self) -> Document:
        """The server's container."""
        for one in at(self.pod, "containers", default=[]):
            if one.get("name") == "server":
                found: Document = one
                return found
        return {}

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels of a server's pod."""
        found: Mapping[str, str] = at(self.deployment, "spec", "template", "metadata", "labels", default={})
        return found

    def copy(self) -> Documents:
        """Returns documents that may be changed."""
        return Documents(copy.deepcopy(self.every))


def at(value: Any, *path: str | int, default: Any = None) -> Any:
    """Returns what is at a path in a document; the default if any step of it is missing."""
    for step in path:
        if isinstance(value, dict):
            found = step in value
        else:
            found = isinstance(value, list) and isinstance(step, int) and step < len(value)
        if not found:
            return default
        value = value[step]
    return value


def selects_servers(selector: Any) -> bool:
    """Tells whether a selector of labels is the one of servers."""
    return bool(selector == SELECTOR)


def tool(name: str) -> str:
    """Returns where a program of the development environment is.

    Raises:
        FileNotFoundError: it is nowhere.
    """
    beside = Path(sysconfig.get_path("scripts")) / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise FileNotFoundError(f"{name} is not installed: run make setup")
    return found


def render(folder: Path) -> Documents:
    """Builds a kustomization.

    Raises:
        ValueError: it cannot be built; the message is kubectl's.
    """
    done = subprocess.run([tool("kubectl"), "kustomize", str(folder)], capture_output=True, text=True)
    if done.returncode or done.stderr:
        raise ValueError(f"{folder}: {done.stderr.strip()}")
    return Documents(list(yaml.load_all(done.stdout, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))))
