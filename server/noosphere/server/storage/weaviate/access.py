"""How a Weaviate is reached, and what is made there."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

BUCKETS_MAX = 256


class WeaviateAccess(NamedTuple):
    """See the module.

    Attributes:
        url: of its REST interface, as ``http://host:port`` or ``https://host:port``.
        grpc: of its gRPC interface, as ``host:port``; TLS is spoken exactly if ``url`` begins with ``https``.
        api_key: who we are; empty where nobody is asked.
        tls_ca: file of the authorities that may vouch for it; None for those of this machine.
        collection: the name under which the facts are kept: an alias of the collection that holds them.
        replication: how many nodes hold each fact, of a collection that is made.
        buckets: tenants of a collection that is made. The hash of a scope says which one has it, so their number never
            changes; of a collection that is there it is read.
        call_ms_max: longest call.
    """

    url: str
    grpc: str
    api_key: str = ""
    tls_ca: Path | None = None
    collection: str = "NoosphereFacts"
    replication: int = 1
    buckets: int = 8
    call_ms_max: int = 5_000

    @property
    def secure(self) -> bool:
        """Whether TLS is spoken."""
        return self.url.startswith("https://")
