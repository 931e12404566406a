"""Fixtures for pytest.

A test suite asks for them by one line in its ``conftest.py``, and nobody pays for their import without asking::

    pytest_plugins = ["noosphere.testing.pytest_plugin"]

They need pytest-asyncio.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from noosphere.client import Client

from ._server import Server, server

AGENT = "agent"
"""The agent of the fixture ``noosphere_client``."""


@pytest_asyncio.fixture
async def noosphere_server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    """A server of the test's own, which ``connect`` finds without being told: no test reaches another one."""
    async with server() as found:
        monkeypatch.setenv("NOOSPHERE_SERVER", found.address)
        yield found


@pytest_asyncio.fixture
async def noosphere_client(noosphere_server: Server) -> AsyncIterator[Client]:
    """A client of ``noosphere_server``, as agent ``agent``; further ones: ``noosphere_server.client("other")``."""
    async with noosphere_server.client(AGENT) as client:
        yield client
