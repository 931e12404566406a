"""Drivers of the model ports: tokenizers and summarisers."""

from .build import Models, build
from .extractive import ExtractiveSummariser
from .tokenizers import TokenizerPlugin, TokenizerRegistry, installed_plugins

__all__ = ["ExtractiveSummariser", "Models", "TokenizerPlugin", "TokenizerRegistry", "build", "installed_plugins"]
