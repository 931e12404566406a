"""Settings of what connections are protected by."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from .values import File, after, beside


class TransportSettings(BaseModel):
    """TLS towards clients."""

    tls_certificate: File = Field(
        default=None,
        description="File of the server's certificate and of those that lead to its authority, in PEM form; without "
        "it, connections are not encrypted. Files are looked at anew by each connection that begins.",
    )
    tls_key: Annotated[File, beside("tls_certificate")] = Field(
        default=None, validate_default=True, description="File of the key of tls_certificate, in PEM form."
    )
    tls_client_ca: Annotated[File, after("tls_certificate")] = Field(
        default=None,
        description="File of the authorities of clients' certificates, in PEM form. With it no client connects "
        "without a certificate, and that certificate tells who it is.",
    )
