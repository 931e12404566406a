"""What all tests share."""

from __future__ import annotations

import pytest
from hypothesis import settings

# An example may take its time on a busy machine: no test asserts speed.
settings.register_profile("noosphere", deadline=None, print_blob=True)
settings.load_profile("noosphere")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leaves out, with the reason, what needs an engine that is not installed."""
    for mark in item.iter_markers("engine"):
        if mark.kwargs["program"] is None:
            pytest.skip(mark.kwargs["reason"])
