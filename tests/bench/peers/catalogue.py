"""The products that are compared, each in its default use and in its best: where the adapter is, and what it needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Needs = Literal["nothing", "redis", "noosphere", "noosphere on redis", "agent-memory-server"]

_HERE = "tests.bench.peers.adapters."
_MEMORY = "in memory: nothing outlives the process"
_SQLITE = "SQLite, synchronous=FULL: fsync per commit"
_REDIS = "Redis, appendfsync everysec: up to a second is lost with the machine"
_OURS = "fsync per commit, shared by concurrent ones"


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to use one product.

    Attributes:
        name: stable, for programs and tables.
        product: its name.
        use: ``default``: as its first example does; ``best``: with all that it has against lost updates.
        adapter: ``module:Class``.
        environment: the name of its requirements, which is that of its virtual environment; empty for ours.
        needs: what has to run for it.
        processes: how many processes its agents are spread over at most; 1 where state is in the process.
        durability: what an acknowledgement is worth.
        how: one sentence on how it is used.
    """

    name: str
    product: str
    use: Literal["default", "best"]
    adapter: str
    environment: str
    needs: Needs
    processes: int
    durability: str
    how: str

    @property
    def ours(self) -> bool:
        """Whether it is Noosphere."""
        return not self.environment


def _ours(name: str, use: Literal["default", "best"], kind: str, needs: Needs, how: str) -> Variant:
    durability = _OURS if needs == "noosphere" else _REDIS
    return Variant(name, "Noosphere", use, _HERE + kind, "", needs, 4, durability, how)


_RECORDS, _POLICIES = "noosphere_records:Update", "noosphere_policies:"
_UPDATE = "update and decide: the model is asked again after a conflict"
_INTENTS = "the same, and a key is reserved before it is thought about; boards; notes are operations"
_MERGE = "what can be an operation is one; boards; decide"

OURS = (
    _ours("noosphere-update", "default", _RECORDS, "noosphere", _UPDATE),
    _ours("noosphere-intents", "best", _POLICIES + "Intents", "noosphere", _INTENTS),
    _ours("noosphere-merge", "best", _POLICIES + "Merge", "noosphere", _MERGE),
    _ours("noosphere-redis-merge", "best", _POLICIES + "Merge", "noosphere on redis", _MERGE),
)

PEERS = (
    Variant("langgraph-memory", "LangGraph InMemoryStore", "default", _HERE + "langgraph_stores:MemoryDefault",
            "langgraph", "nothing", 1, _MEMORY, "get, think, put; a thread per agent"),
    Variant("langgraph-memory-best", "LangGraph InMemoryStore", "best", _HERE + "langgraph_stores:MemoryBest",
            "langgraph", "nothing", 1, _MEMORY, "one event loop; looks before each put; an item per note"),
    Variant("langgraph-sqlite", "LangGraph SqliteStore", "default", _HERE + "langgraph_sqlite:Default",
            "langgraph", "nothing", 4, _SQLITE, "a store per process; get, think, put"),
    Variant("langgraph-sqlite-best", "LangGraph SqliteStore", "best", _HERE + "langgraph_sqlite:Best",
            "langgraph", "nothing", 4, _SQLITE, "a store per process, WAL; looks before each put; an item per note"),
    Variant("redis", "redis-py", "default", _HERE + "redis_plain:Plain",
            "redis", "redis", 4, _REDIS, "GET, think, SET; RPUSH"),
    Variant("redis-watch", "redis-py", "best", _HERE + "redis_claims:Best",
            "redis", "redis", 4, _REDIS, "WATCH, GET, think, MULTI, EXEC; RPUSH; SET NX PX"),
    Variant("dapr-etag-none", "etag loop on Redis (as Dapr)", "default", _HERE + "redis_etag:LastWrite",
            "redis", "redis", 4, _REDIS, "no etag: the last write wins"),
    Variant("dapr-etag", "etag loop on Redis (as Dapr)", "best", _HERE + "redis_etag:FirstWrite",
            "redis", "redis", 4, _REDIS, "the etag that was read; again if refused"),
    Variant("agenthold", "agenthold", "default", _HERE + "agenthold_store:Overwriting",
            "agenthold", "nothing", 4, _SQLITE, "get, think, set"),
    Variant("agenthold-versions", "agenthold", "best", _HERE + "agenthold_store:Versioned",
            "agenthold", "nothing", 4, _SQLITE, "set with the version that was read; again if refused"),
    Variant("agent-coherence", "agent-coherence CoherentVolume", "default", _HERE + "coherent_volume:Volume",
            "agent-coherence", "nothing", 4, "files, renamed into place", "reacquire, think, write; again if refused"),
    Variant("agent-coherence-cas", "agent-coherence CoherentVolume", "best", _HERE + "coherent_cas:VolumeCas",
            "agent-coherence", "nothing", 4, "files, renamed into place", "write_cas_at the version that was read"),
    Variant("agent-memory-server", "redis agent-memory-server", "default", _HERE + "agent_memory:Default",
            "agent-memory-server", "agent-memory-server", 4, _REDIS, "get and put the data of a session"),
    Variant("agent-memory-server-best", "redis agent-memory-server", "best", _HERE + "agent_memory:Best",
            "agent-memory-server", "agent-memory-server", 4, _REDIS, "merging updates; append_messages"),
    Variant("mem0", "mem0, local store", "default", _HERE + "mem0_local:Default",
            "mem0", "nothing", 1, "Qdrant in a folder", "get, think, update; nothing is inferred"),
    Variant("mem0-best", "mem0, local store", "best", _HERE + "mem0_local:Best",
            "mem0", "nothing", 1, "Qdrant in a folder", "a memory per note; nothing is inferred"),
)  # fmt: skip

ALL = OURS + PEERS
