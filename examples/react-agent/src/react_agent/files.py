"""Tools to read the files of a folder with."""

from __future__ import annotations

import asyncio
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from .tools import Tool

FILES_MAX = 1_000
BYTES_MAX = 1 << 20


class ListFiles(BaseModel):
    """Arguments of ``list_files``."""

    pattern: str = Field("**/*", description="which files, e.g. docs/*.md; ** stands for any folders")


class ReadFile(BaseModel):
    """Arguments of ``read_file``."""

    path: str = Field(description="the file's path, as list_files gives it")


def file_tools(folder: Path) -> tuple[Tool[Any], ...]:
    """Returns tools that read a folder and nothing else, the model's fancy notwithstanding."""
    root = folder.resolve()

    def inside(path: Path) -> bool:
        return path.is_file() and path.resolve().is_relative_to(root)

    def list_files(arguments: ListFiles) -> list[str]:
        found = (path.relative_to(root).as_posix() for path in root.glob(arguments.pattern) if inside(path))
        return sorted(islice(found, FILES_MAX))

    def read_file(arguments: ReadFile) -> str:
        path = root / arguments.path
        if not inside(path):
            raise ValueError(f"path: {arguments.path!r} is no file of the folder")
        if (size := path.stat().st_size) > BYTES_MAX:
            raise ValueError(f"path: {arguments.path!r} has {size} bytes, the limit is {BYTES_MAX}")
        return path.read_text(errors="replace")

    async def listed(arguments: ListFiles) -> list[str]:
        return await asyncio.to_thread(list_files, arguments)

    async def read(arguments: ReadFile) -> str:
        return await asyncio.to_thread(read_file, arguments)

    return (
        Tool("list_files", "Lists the files of the folder.", ListFiles, listed),
        Tool("read_file", "Returns the text of a file.", ReadFile, read),
    )
