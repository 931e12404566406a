"""Settings of what connections are protected by."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationInfo

from .values import folder_or_file


def _beside(certificate: str) -> AfterValidator:
    """Returns a check that a file is given together with the certificate of another setting, or not at all."""

    def check(file: Path | None, info: ValidationInfo) -> Path | None:
        # It is missing where it could not be used itself, which is what has to be told then.
        if certificate in info.data and (file is None) != (info.data[certificate] is None):
            given, missing = (certificate, info.field_name) if file is None else (info.field_name, certificate)
            raise ValueError(f"{given} is of no use without {missing}")
        return file

    return AfterValidator(check)


def _after(certificate: str) -> AfterValidator:
    """Returns a check that a file is given only together with the certificate of another setting."""

    def check(file: Path | None, info: ValidationInfo) -> Path | None:
        if file is not None and info.data.get(certificate, file) is None:
            raise ValueError(f"{info.field_name} is of no use without {certificate}")
        return file

    return AfterValidator(check)


File = Annotated[Path | None, BeforeValidator(folder_or_file)]


class TransportSettings(BaseModel):
    """TLS towards clients."""

    tls_certificate: File = Field(
        default=None,
        description="File of the server's certificate and of those that lead to its authority, in PEM form; without "
        "it, connections are not encrypted. Files are looked at anew by each connection that begins.",
    )
    tls_key: Annotated[File, _beside("tls_certificate")] = Field(
        default=None, validate_default=True, description="File of the key of tls_certificate, in PEM form."
    )
    tls_client_ca: Annotated[File, _after("tls_certificate")] = Field(
        default=None,
        description="File of the authorities of clients' certificates, in PEM form. With it no client connects "
        "without a certificate, and that certificate tells who it is.",
    )
