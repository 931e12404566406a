"""Settings of who may call: which credentials are taken."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationInfo

from ..addresses import is_url, trusted_url
from .values import folder_or_file


def _keys(place: str, info: ValidationInfo) -> str:
    """Returns where keys are, if what goes with them is given too.

    Raises:
        ValueError: it is not, or the URL cannot be trusted.
    """
    others = {name: info.data.get(name, "") for name in ("jwt_issuer", "jwt_audience")}
    missing = [name for name, value in others.items() if not value]
    if place and missing:
        raise ValueError(f"{place!r} is of no use without {missing[0]}")
    if not place and len(missing) < len(others):
        raise ValueError("is required with jwt_issuer and jwt_audience: the file or URL of the issuer's keys")
    if is_url(place):
        return trusted_url(place)
    return str(folder_or_file(place)) if place else place


def _presented(file: Path | None, info: ValidationInfo) -> Path | None:
    """Returns the file of a token, if it goes to a URL where nobody on the way can read it.

    Raises:
        ValueError: it does not.
    """
    # It is missing where it could not be used itself, which is what has to be told then.
    place = info.data.get("jwt_jwks")
    if file is not None and place is not None and not place.startswith("https:"):
        raise ValueError(f"{info.field_name} is of no use without a URL of https in jwt_jwks")
    return file


class IdentitySettings(BaseModel):
    """Which credentials a server takes. As soon as there is one kind, every call needs one."""

    tokens: bool = Field(
        default=False,
        description="Take API tokens, which `noosphere token create` makes.",
    )
    jwt_issuer: str = Field(
        default="", max_length=512, description="Take JSON web tokens whose claim iss is this; empty takes none."
    )
    jwt_audience: str = Field(
        default="", max_length=512, description="What must be among the claim aud of JSON web tokens."
    )
    jwt_jwks: Annotated[str, AfterValidator(_keys)] = Field(
        default="",
        max_length=2048,
        validate_default=True,
        description="The keys of the issuer of JSON web tokens, as a JSON Web Key Set: a file, or a URL of https "
        "(or of this machine). Both are read anew when they change.",
    )
    jwt_jwks_ca: Annotated[Path | None, BeforeValidator(folder_or_file)] = Field(
        default=None,
        description="File of the authorities that may vouch for the server of jwt_jwks, in PEM form, instead of the "
        "machine's.",
    )
    jwt_jwks_token_file: Annotated[Path | None, BeforeValidator(folder_or_file), AfterValidator(_presented)] = Field(
        default=None,
        description="File of a token to present to the server of jwt_jwks, a URL of https; read anew each time. In a "
        "pod of Kubernetes it is the service account's.",
    )
    jwt_admins: str = Field(
        default="",
        max_length=4096,
        description="Subjects (claim sub) of JSON web tokens that may do everything, with commas between them. No "
        "claim makes an administrator.",
    )
    insecure: bool = Field(
        default=False,
        description="Serve an address that other machines reach although nothing tells who calls, or tokens are not "
        "encrypted on their way.",
    )
