"""Rules about servers together: how many there may be, and what keeps some of them up."""

from __future__ import annotations

from collections.abc import Iterator

from noosphere.server.authentication import check_reach
from noosphere.server.drivers import StartupError

from .documents import CLUSTER_WIDE, SERVER, Documents, at, selects_servers
from .settings import settings_of

REPLICAS_MIN = 3
CONNECTION_AGE_SECONDS = 600
"""How long connections of replicas last by default."""


def would_start(documents: Documents) -> Iterator[str]:
    """The server takes these settings at these addresses; replicas ask who calls."""
    settings = settings_of(documents)
    try:
        check_reach(settings)
    except StartupError as error:
        yield f"settings: {error}"
    if settings.jwt_jwks_token_file is not None and settings.jwt_jwks_ca is None:
        yield "settings: the authorities of this machine do not vouch for the API server (jwt_jwks_ca)"
    if not settings.etcd_endpoints:
        return
    if settings.insecure:
        yield "settings: replicas are insecure"
    if settings.tls_client_ca is None:
        yield "settings: clients of replicas show no certificate"
    if not settings.tokens and not settings.jwt_admins:
        yield "settings: nobody administers replicas"
    if not settings.audit_log:
        yield "settings: nobody notes who did what"
    if settings.weaviate_url:
        if not settings.weaviate_api_key.get_secret_value():
            yield "settings: Weaviate does not ask who calls"
        if settings.weaviate_replication < REPLICAS_MIN:
            yield f"settings: facts are on {settings.weaviate_replication} nodes of Weaviate"
        if not settings.weaviate_grpc:
            yield "settings: Weaviate's gRPC is behind another name than its API in JSON (weaviate_grpc)"
    for key in ("redis_tls_ca", "etcd_tls_ca", "etcd_tls_certificate"):
        if getattr(settings, key) is None:
            yield f"settings: without {key} what goes to engines may be read on its way"


def is_in_a_namespace(documents: Documents) -> Iterator[str]:
    """Nothing lands in whichever namespace somebody happens to work in."""
    for one in documents.every:
        if one.get("kind") not in CLUSTER_WIDE and not at(one, "metadata", "namespace"):
            yield f"{one.get('kind')} {at(one, 'metadata', 'name')}: names no namespace"


def numbers_fit_the_engines(documents: Documents) -> Iterator[str]:
    """An embedded server is one, on a volume that lasts; replicas are three or more, or what an autoscaler says."""
    settings = settings_of(documents)
    replicas = at(documents.deployment, "spec", "replicas")
    strategy = at(documents.deployment, "spec", "strategy", "type")
    scalers = list(documents.of("HorizontalPodAutoscaler"))
    if not at(documents.deployment, "spec", "minReadySeconds"):
        yield "minReadySeconds: a new server that fails at once counts as one that serves"
    if not settings.etcd_endpoints:
        if scalers:
            yield "autoscaler: scales a server that keeps its data in a folder of its own"
        if replicas != 1:
            yield f"replicas: {replicas} servers without etcd, which share nothing"
        if strategy != "Recreate":
            yield "strategy: two servers would want one folder"
        yield from _folder_lasts(documents, str(settings.data.parent))
        return
    if strategy != "RollingUpdate" or at(documents.deployment, "spec", "strategy", "rollingUpdate") != {
        "maxSurge": 1,
        "maxUnavailable": 0,
    }:
        yield "strategy: a server is stopped before another one serves"
    if scalers and replicas is not None:
        yield "replicas: each apply sets back what the autoscaler has decided"
    if not scalers and (replicas or 0) < REPLICAS_MIN:
        yield f"replicas: {replicas} is less than {REPLICAS_MIN}"
    for one in scalers:
        yield from _scaler_fits(one)


def _folder_lasts(documents: Documents, folder: str) -> Iterator[str]:
    claims = {
        at(one, "metadata", "name")
        for one in documents.of("PersistentVolumeClaim")
        if at(one, "spec", "resources", "requests", "storage") and at(one, "spec", "accessModes") == ["ReadWriteOnce"]
    }
    for mount in at(documents.container, "volumeMounts", default=[]):
        for volume in at(documents.pod, "volumes", default=[]):
            here = mount.get("mountPath") == folder and mount.get("name") == volume.get("name")
            if here and at(volume, "persistentVolumeClaim", "claimName") in claims and "emptyDir" not in volume:
                return
    yield f"data: {folder} is on no volume that outlives the pod"


def _scaler_fits(scaler: object) -> Iterator[str]:
    if at(scaler, "spec", "scaleTargetRef", "kind") != "Deployment":
        yield "autoscaler: scales no Deployment"
    if at(scaler, "spec", "scaleTargetRef", "name") != SERVER:
        yield "autoscaler: scales something else"
    low, high = at(scaler, "spec", "minReplicas", default=1), at(scaler, "spec", "maxReplicas", default=0)
    if not REPLICAS_MIN <= low <= high:
        yield f"autoscaler: from {low} to {high} servers, not from at least {REPLICAS_MIN}"
    metrics = at(scaler, "spec", "metrics", default=[])
    names = [(at(one, "resource", "name"), at(one, "resource", "target", "type")) for one in metrics]
    if names != [("cpu", "Utilization")] or not at(metrics, 0, "resource", "target", "averageUtilization"):
        yield "autoscaler: does not look at the use of CPU"
    down = at(scaler, "spec", "behavior", "scaleDown")
    if at(down, "stabilizationWindowSeconds", default=0) <= CONNECTION_AGE_SECONDS:
        yield "autoscaler: takes servers away before clients have spread over them"
    for direction in ("scaleUp", "scaleDown"):
        policies = at(scaler, "spec", "behavior", direction, "policies", default=[])
        if not policies or not all(one.get("value") and one.get("periodSeconds") for one in policies):
            yield f"autoscaler: {direction} has no bound"
    if not at(scaler, "spec", "behavior", "scaleUp", "stabilizationWindowSeconds"):
        yield "autoscaler: scaleUp follows every peak"


def some_stay_up(documents: Documents) -> Iterator[str]:
    """When nodes are emptied at most one server goes at a time."""
    for budget in documents.of("PodDisruptionBudget"):
        if selects_servers(at(budget, "spec", "selector", "matchLabels")):
            if at(budget, "spec", "maxUnavailable") != 1:
                yield "disruption budget: does not let exactly one server go"
            if at(budget, "spec", "unhealthyPodEvictionPolicy") != "AlwaysAllow":
                yield "disruption budget: a server that is not well keeps its node from being emptied"
            return
    yield "disruption budget: there is none of the servers"


def clients_spread(documents: Documents) -> Iterator[str]:
    """Connections of replicas end now and then, so that new servers get their share."""
    settings = settings_of(documents)
    if settings.etcd_endpoints and settings.connection_age_seconds == 0:
        yield "connection_age_seconds: clients stay where they are"
