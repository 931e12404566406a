"""Drivers of the model ports: tokenizers and summarisers."""

from .tokenizers import TokenizerPlugin, TokenizerRegistry, installed_plugins

__all__ = ["TokenizerPlugin", "TokenizerRegistry", "installed_plugins"]
