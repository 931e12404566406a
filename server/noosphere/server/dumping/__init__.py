"""Dumps: everything that makes the state of a server, as lines of text that any backend can be made from."""

from .lines import FORMAT, DumpError, End, Header
from .reading import DumpFile, Summary
from .taking import Dumper
from .writing import write_dump

__all__ = ["FORMAT", "DumpError", "DumpFile", "Dumper", "End", "Header", "Summary", "write_dump"]
