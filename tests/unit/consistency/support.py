"""What the tests of the pure rules share."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import strategies as st

from noosphere.consistency import Reason, Refusal

utf8_text = st.text(st.characters(codec="utf-8"))


def refused(reason: Reason, call: Callable[..., object], *args: object, **kwargs: object) -> Refusal:
    """Calls, and returns the refusal that it must raise."""
    with pytest.raises(Refusal) as caught:
        call(*args, **kwargs)
    assert caught.value.reason is reason, caught.value
    return caught.value
