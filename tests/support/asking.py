"""Calls of AdminService by the names of their methods and fields, where no method of ``Api`` makes them."""

from __future__ import annotations

from typing import Any

from google.protobuf import message_factory
from google.protobuf.message import Message
from tests.support.api import Api
from tests.support.transport import ADMIN

from noosphere.v1 import admin_service_pb2 as admin

_METHODS = admin.DESCRIPTOR.services_by_name["AdminService"].methods_by_name


async def ask(api: Api, method: str, **fields: Any) -> Message:
    """Makes one call whose reply is one message."""
    found = _METHODS[method]
    request = message_factory.GetMessageClass(found.input_type)(**fields)
    return await api.transport.unary(ADMIN, method, request, message_factory.GetMessageClass(found.output_type))
