"""A ReAct agent: it thinks, uses tools, and thinks again, with a session of Noosphere for its memory."""

from .files import file_tools
from .loop import Agent, StepsExceeded
from .tools import Model, Tool

__all__ = ["Agent", "Model", "StepsExceeded", "Tool", "file_tools"]
