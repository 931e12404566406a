"""What is in k8s/, built once for all tests of a run."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripts.manifests.documents import K8S, Documents, render

BUILDS = {
    "dev": K8S / "overlays" / "dev",
    "prod": K8S / "overlays" / "prod",
    "all": Path(__file__).parent / "all",
}


@pytest.fixture(scope="session")
def builds() -> dict[str, Documents]:
    """Every overlay, and all components at once; a build that fails fails the tests."""
    return {name: render(folder) for name, folder in BUILDS.items()}
