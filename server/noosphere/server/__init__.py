"""The Noosphere server. Importing this package is cheap; its parts are imported where they are used."""

__version__ = "0.1.0"
