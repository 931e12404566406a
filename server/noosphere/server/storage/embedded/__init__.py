"""The embedded drivers: one process, one data folder, SQLite files."""

from .coordinator import EmbeddedCoordinator
from .folder import DataFolder, DataFolderError, StoreFailed
from .journal import Journal
from .store import EmbeddedStore

__all__ = ["DataFolder", "DataFolderError", "EmbeddedCoordinator", "EmbeddedStore", "Journal", "StoreFailed"]
