"""Splits text into the terms by which texts are compared, without a dictionary."""

from __future__ import annotations

import re

_UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_RUN = re.compile(rf"[{_UNSPACED}]+|[^\W_{_UNSPACED}]+")
_IS_UNSPACED = re.compile(rf"[{_UNSPACED}]")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def terms(text: str) -> list[str]:
    """Returns the words of a text in lower case and in order; of scripts without spaces, pairs of characters."""
    found: list[str] = []
    for run in _RUN.findall(text.casefold()):
        if len(run) > 1 and _IS_UNSPACED.match(run):
            found.extend(run[place : place + 2] for place in range(len(run) - 1))
        else:
            found.append(run)
    return found


def terms_of_name(name: str) -> list[str]:
    """Returns the words of a field's name, however they are joined: ``unit_price``, ``unitPrice``, ``unit-price``."""
    return terms(_CAMEL.sub(" ", name))
