"""Fixtures for pytest, for code without an event loop.

A test suite asks for them by one line in its ``conftest.py``, and nobody pays for their import without asking::

    pytest_plugins = ["noosphere.testing.pytest_sync_plugin"]
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from noosphere.client.sync import Client

from .sync import Server, server

AGENT = "agent"
"""The agent of the fixture ``noosphere_sync_client``."""


@pytest.fixture
def noosphere_sync_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server of the test's own, which ``connect`` finds without being told: no test reaches another one."""
    with server() as found:
        monkeypatch.setenv("NOOSPHERE_SERVER", found.address)
        yield found


@pytest.fixture
def noosphere_sync_client(noosphere_sync_server: Server) -> Iterator[Client]:
    """A client of ``noosphere_sync_server``, as agent ``agent``."""
    with noosphere_sync_server.client(AGENT) as client:
        yield client
