"""Drivers of the model ports: tokenizers and summarisers."""

from .extractive import ExtractiveSummariser
from .tokenizers import TokenizerPlugin, TokenizerRegistry, installed_plugins

__all__ = ["ExtractiveSummariser", "TokenizerPlugin", "TokenizerRegistry", "installed_plugins"]
