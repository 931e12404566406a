"""Values between Python and the wire: JSON, bytes, and whatever pydantic can validate.

Encoding happens before a call's first ``await`` and decoding at each access, so no mutable object is
ever shared between the caller, the client and another reader.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeVar, cast, overload

from pydantic import BaseModel, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import from_json

from noosphere.consistency import Encoding

from ._errors import InvalidArgument, ValueMismatch

T = TypeVar("T")

Model = type[T] | TypeAdapter[T]
"""What a value is read as: a class that pydantic can validate, ``bytes``, or a ``TypeAdapter``."""

JSON_DEPTH_MAX = 100


class Payload(NamedTuple):
    """A value as it is stored."""

    data: bytes
    encoding: Encoding


class Codec(ABC, Generic[T]):
    """Encodes and decodes values of one model."""

    name: str

    @abstractmethod
    def encode(self, value: T, field: str = "value") -> Payload:
        """Returns ``value`` as it is stored.

        Raises:
            InvalidArgument: it cannot be represented; the message names ``field`` and the place in it.
        """

    @abstractmethod
    def decode(self, payload: Payload) -> T:
        """Returns a fresh object.

        Raises:
            ValueMismatch: the payload does not fit the model.
        """


class _Bytes(Codec[bytes]):
    name = "bytes"

    def encode(self, value: bytes, field: str = "value") -> Payload:
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise InvalidArgument(f"{field}: expected bytes, got {type(value).__name__}")
        return Payload(bytes(value), Encoding.BYTES)

    def decode(self, payload: Payload) -> bytes:
        if payload.encoding is not Encoding.BYTES:
            raise ValueMismatch("expected bytes, the record holds JSON", payload.data)
        return payload.data


class _Plain(Codec[Any]):
    """Any JSON value; bytes and pydantic models are taken as what they are."""

    name = "JSON"

    def encode(self, value: Any, field: str = "value") -> Payload:
        if isinstance(value, BaseModel):
            return codec_for(type(value)).encode(value, field)
        if isinstance(value, (bytes, bytearray, memoryview)):
            return BYTES.encode(cast("bytes", value), field)
        return Payload(dump_json(value, field), Encoding.JSON)

    def decode(self, payload: Payload) -> Any:
        if payload.encoding is Encoding.BYTES:
            return payload.data
        return load_json(payload.data)


class _Adapted(Codec[T]):
    def __init__(self, model: Model[T]) -> None:
        self._adapter: TypeAdapter[T] = model if isinstance(model, TypeAdapter) else TypeAdapter(model)
        self.name = getattr(model, "__name__", None) or repr(model)

    def encode(self, value: T, field: str = "value") -> Payload:
        try:
            data = self._adapter.dump_json(value, by_alias=True, warnings="error")
            # pydantic writes NaN and infinities as null: a number that silently became another value.
            if b"null" in data or b"NaN" in data or b"Infinity" in data:
                _check_finite(self._adapter.dump_python(value, warnings="error"), field, 0)
        except (ValueError, TypeError, RecursionError) as error:
            raise InvalidArgument(f"{field}: does not serialize as {self.name}: {error}") from error
        return Payload(data, Encoding.JSON)

    def decode(self, payload: Payload) -> T:
        if payload.encoding is not Encoding.JSON:
            raise ValueMismatch(f"expected {self.name} as JSON, the record holds bytes", payload.data)
        try:
            return self._adapter.validate_json(payload.data)
        except (ValidationError, RecursionError) as error:
            raise ValueMismatch(f"does not fit {self.name}: {error}", payload.data) from error


JSON: Codec[Any] = _Plain()
BYTES: Codec[bytes] = _Bytes()


@lru_cache(maxsize=256)
def _adapted(model: Any) -> Codec[Any]:
    return _Adapted(model)


@overload
def codec_for(model: None) -> Codec[Any]: ...
@overload
def codec_for(model: Model[T] | None) -> Codec[T]: ...
def codec_for(model: Model[T] | None) -> Codec[T]:
    """Returns the codec for a model; None stands for any JSON value (and bytes as bytes)."""
    if model is None or cast("Any", model) is Any:
        return cast("Codec[T]", JSON)
    if model is bytes:
        return cast("Codec[T]", BYTES)
    try:
        return cast("Codec[T]", _adapted(cast("Any", model)))
    except PydanticUserError as error:
        raise InvalidArgument(f"model: {model!r} is nothing that pydantic can validate: {error}") from error


def dump_json(value: Any, field: str = "value") -> bytes:
    """Returns compact JSON text in UTF-8.

    Raises:
        InvalidArgument: something in ``value`` is not JSON, or would come back as something else.
    """
    _check_json(value, field, 0)
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"{field}: contains a lone surrogate, which is not text") from error
    except ValueError as error:
        raise InvalidArgument(f"{field}: is not JSON: {error}") from error


def load_json(data: bytes | str) -> Any:
    """Parses JSON.

    Raises:
        ValueMismatch: it is not JSON.
    """
    try:
        return from_json(data)
    except ValueError:
        # Quick and stricter than the standard library, which decides about what it refuses.
        pass
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raw = data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass")
        raise ValueMismatch(f"is not JSON: {error}", raw) from error


def _check_json(value: Any, path: str, depth: int) -> None:
    # json.dumps would turn number keys into text and name no place in its errors.
    if value is None or isinstance(value, (str, bool, int)):
        return
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidArgument(f"{path}: {value!r} is not JSON")
        return
    if depth >= JSON_DEPTH_MAX:
        raise InvalidArgument(f"{path}: nested deeper than {JSON_DEPTH_MAX}")
    if isinstance(value, dict):
        for name, item in value.items():
            if not isinstance(name, str):
                raise InvalidArgument(f"{path}: the key {name!r} is {type(name).__name__}, JSON has text keys only")
            _check_json(item, f"{path}.{name}", depth + 1)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            _check_json(item, f"{path}[{index}]", depth + 1)
    else:
        raise InvalidArgument(f"{path}: {type(value).__name__} is not JSON; give a model to store other types")


def _check_finite(value: Any, path: str, depth: int) -> None:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidArgument(f"{path}: {value!r} is not JSON")
    elif depth < JSON_DEPTH_MAX:
        if isinstance(value, Mapping):
            for name, item in value.items():
                _check_finite(item, f"{path}.{name}", depth + 1)
        elif isinstance(value, (list, tuple, set, frozenset)):
            for index, item in enumerate(value):
                _check_finite(item, f"{path}[{index}]", depth + 1)
