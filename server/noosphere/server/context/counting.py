"""Counting tokens of what is really sent.

Providers add a few tokens for the frame of each message, which no tokenizer sees. The figures below are upper estimates
of what OpenAI and Anthropic have published or charge; they are added to every count, so a budget is never exceeded by
frames that were forgotten.
"""

from __future__ import annotations

from collections.abc import Callable

Count = Callable[[str], int]
"""Returns how many tokens a text has."""

MESSAGE_TOKENS = 4
"""Frame of a message: where it begins, its role, where it ends."""
REPLY_TOKENS = 3
"""What makes the model begin its answer; once per context."""
CALL_TOKENS = 8
"""Frame of a tool call in an assistant's message, beside name, arguments and id."""
TOOL_TOKENS = 12
"""Frame of a tool's schema, beside name, description and parameters."""
