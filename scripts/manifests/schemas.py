"""Manifests against the schemas of Kubernetes itself, strictly: a key that is not known is an error."""

from __future__ import annotations

from collections.abc import Iterator

import kubernetes_validate

from .custom import API_VERSIONS
from .documents import Documents, at

VERSIONS = ("1.30", "1.37")
"""The oldest version that manifests are for (a pause as preStop, probes by gRPC), and the newest with schemas."""


def schema_errors(documents: Documents) -> Iterator[str]:
    """Yields what a schema does not allow, and kinds that have none and are not known to other rules either."""
    for one in documents.every:
        kind, name = one.get("kind", ""), at(one, "metadata", "name")
        for version in VERSIONS:
            try:
                kubernetes_validate.validate(one, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                yield f"{kind} {name}: {error.message} at {'/'.join(map(str, error.path))} (Kubernetes {version})"
            except kubernetes_validate.SchemaNotFoundError:
                if kind not in API_VERSIONS:
                    yield f"{kind} {name}: there is no schema of this kind (Kubernetes {version})"
