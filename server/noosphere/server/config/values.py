"""Values that settings and the command line have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ValidationInfo


def folder_or_file(text: Any) -> Any:
    """Returns the path that a text names, with ``~`` replaced; what is neither text nor path is left alone.

    Raises:
        ValueError: the text names nothing. The empty one would be the working directory.
    """
    if not isinstance(text, (str, Path)):
        return text
    if text == "":
        raise ValueError("'' is not a path")
    if "\0" in str(text):
        raise ValueError(f"{str(text)!r} is not a path: it contains NUL")
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise ValueError(f"{str(text)!r} is in a home directory that does not exist") from None


def beside(certificate: str) -> AfterValidator:
    """Returns a check that a file is given together with the certificate of another setting, or not at all."""

    def check(file: Path | None, info: ValidationInfo) -> Path | None:
        # It is missing where it could not be used itself, which is what has to be told then.
        if certificate in info.data and (file is None) != (info.data[certificate] is None):
            given, missing = (certificate, info.field_name) if file is None else (info.field_name, certificate)
            raise ValueError(f"{given} is of no use without {missing}")
        return file

    return AfterValidator(check)


def after(certificate: str) -> AfterValidator:
    """Returns a check that a file is given only together with the certificate of another setting."""

    def check(file: Path | None, info: ValidationInfo) -> Path | None:
        if file is not None and info.data.get(certificate, file) is None:
            raise ValueError(f"{info.field_name} is of no use without {certificate}")
        return file

    return AfterValidator(check)


File = Annotated[Path | None, BeforeValidator(folder_or_file)]
