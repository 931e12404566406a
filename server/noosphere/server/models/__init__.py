"""Drivers of the model ports: tokenizers and summarisers."""
