"""Serves the figures over HTTP, on a loopback address, from a thread of its own."""

from __future__ import annotations

import threading
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server


class Exporter:
    """An HTTP server with one page, ``/metrics``.

    Args:
        registry: the figures.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._server: WSGIServer | None = None
        self._thread: threading.Thread | None = None

    def start(self, host: str, port: int) -> int:
        """Listens; returns the port.

        Raises:
            OSError: the address cannot be used.
        """
        self._server, self._thread = start_http_server(port, addr=host, registry=self._registry)
        return int(self._server.server_port)

    def stop(self) -> None:
        """Closes; waits for the thread."""
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
            self._server = self._thread = None
