"""Settings of who may call: which credentials are taken."""

from __future__ import annotations

from pydantic import BaseModel, Field


class IdentitySettings(BaseModel):
    """Which credentials a server takes. As soon as there is one kind, every call needs one."""

    tokens: bool = Field(
        default=False,
        description="Take API tokens, which `noosphere token create` makes.",
    )
    insecure: bool = Field(
        default=False,
        description="Serve an address that other machines reach although nothing tells who calls, or tokens are not "
        "encrypted on their way.",
    )
