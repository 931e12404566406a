"""Runs the command line as ``python -m noosphere.server.cli``."""

from . import main

main()
