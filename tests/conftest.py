"""What all tests share."""

from __future__ import annotations

from hypothesis import settings

# An example may take its time on a busy machine: no test asserts speed.
settings.register_profile("noosphere", deadline=None, print_blob=True)
settings.load_profile("noosphere")
