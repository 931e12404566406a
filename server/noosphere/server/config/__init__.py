"""The server's configuration: one typed model, read from a TOML file, the environment and flags.

Each group of settings has a module of its own; :class:`Settings` is all of them together. It reads nothing but
its arguments, so that a test or an embedding program gets what it asked for; only :func:`load` looks at the world.
"""

from .loading import ConfigError, Effective, UnknownKey, has_flag, load
from .settings import Settings
from .values import folder_or_file

__all__ = ["ConfigError", "Effective", "Settings", "UnknownKey", "folder_or_file", "has_flag", "load"]
