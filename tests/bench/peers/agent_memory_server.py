"""Starts redis/agent-memory-server on a Redis without modules; runs in its environment.

It wants Redis 8 with JSON and Search. On an older one, documents are kept as text (``JSON.SET`` becomes ``SET``) and
sessions are not indexed, which only listing them needs; long-term memory is off. Its own handlers run unchanged.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any


def main(redis_url: str, port: int) -> None:
    """Serves on loopback until it is ended."""
    import litellm

    # Offline, the tokenizer is the one that litellm brings along.
    os.environ["TIKTOKEN_CACHE_DIR"] = str(Path(litellm.__file__).parent / "litellm_core_utils" / "tokenizers")
    os.environ |= {"REDIS_URL": redis_url, "LONG_TERM_MEMORY": "false", "USE_DOCKET": "false", "DISABLE_AUTH": "true"}
    os.environ |= {"WORKING_MEMORY_MIGRATION_COMPLETE": "true", "LOG_LEVEL": "ERROR"}
    documents: Any = importlib.import_module("redis.commands.json").JSON
    documents.get, documents.set = _get, _set
    served: Any = importlib.import_module("agent_memory_server.main")
    served.ensure_working_memory_index = _no_index
    importlib.import_module("uvicorn").run(served.app, host="127.0.0.1", port=port, log_level="error", access_log=False)


async def _get(self: Any, name: str) -> Any:
    found = await self.client.get(name)
    return None if found is None else json.loads(found)


async def _set(self: Any, name: str, path: str, document: Any) -> Any:
    return await self.client.set(name, json.dumps(document))


async def _no_index(redis: Any) -> bool:
    return False


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
