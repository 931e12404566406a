"""Checks of settings of models behind endpoints, whichever task they do."""

from __future__ import annotations

from urllib.parse import urlsplit

from pydantic import ValidationInfo


def endpoint_url(url: str) -> str:
    """Returns a URL that can be the base of an HTTP API.

    Raises:
        ValueError: it is none, or it holds a name or password.
    """
    if "@" in url:
        # Not repeated: it may be a password.
        raise ValueError("holds a user's name or password; a key belongs into the setting for it")
    try:
        parts = urlsplit(url)
        # Reading the port checks it.
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable or "?" in url or "#" in url:
        raise ValueError(f"{url!r} is not the base of an HTTP API, such as http://127.0.0.1:8000/v1")
    return url


def model_of_endpoint(model: str, info: ValidationInfo) -> str:
    """Returns the name of a model; ``info`` tells the field, and what was chosen for its task.

    Raises:
        ValueError: it is empty, and the task is given to an endpoint.
    """
    what = str(info.field_name).removesuffix("_model")
    if not model and info.data.get(what) == "openai":
        raise ValueError(f"'' names no model, and {what} 'openai' needs one")
    return model


def dimension_of_endpoint(dimension: int, info: ValidationInfo) -> int:
    """Returns how many numbers a vector has; ``info`` tells which embedder was chosen.

    Raises:
        ValueError: it is 0, and the embedder is an endpoint.
    """
    if not dimension and info.data.get("embedder") == "openai":
        raise ValueError("0 is no dimension, and embedder 'openai' needs that of its model")
    return dimension
