"""Rules about the servers' pods: what they may do, when they are well, how they come and go."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import PurePosixPath

from noosphere.server.addresses import split_list

from .documents import SELECTOR, SERVER, Document, Documents, at, selects_servers
from .settings import SECRET_SETTINGS, environment, settings_of

HAND_OVER_SECONDS = 15
"""What a server may take after its calls have ended: to hand leadership over, to fold, to close its engines."""
START_SECONDS_MIN = 60
BESIDE_RECORDS_MIB = 768
"""Memory of a server beside its records: the program, the bundled embedder, streams, requests under way."""
_MIB = {"Mi": 1, "Gi": 1024}


def may_do_nothing_but_serve(documents: Documents) -> Iterator[str]:
    """The pod runs as a numbered user without rights, on a file system that it cannot write to."""
    pod, container = at(documents.pod, "securityContext"), at(documents.container, "securityContext")
    for key in ("runAsUser", "runAsGroup", "fsGroup"):
        if at(pod, key, default=0) in (0, None):
            yield f"pod: securityContext.{key} is not a number above 0"
    if at(pod, "runAsNonRoot") is not True:
        yield "pod: securityContext.runAsNonRoot is not true"
    if at(pod, "seccompProfile", "type") != "RuntimeDefault":
        yield "pod: seccompProfile is not RuntimeDefault"
    wanted = {"allowPrivilegeEscalation": False, "privileged": False, "readOnlyRootFilesystem": True}
    for key, value in wanted.items():
        if at(container, key) is not value:
            yield f"container: securityContext.{key} is not {str(value).lower()}"
    if at(container, "capabilities", "drop") != ["ALL"] or at(container, "capabilities", "add"):
        yield "container: not all capabilities are dropped"
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        if at(documents.pod, key):
            yield f"pod: {key} is set"
    if len(at(documents.pod, "containers", default=[])) != 1:
        yield "pod: there is not exactly one container"


def namespaces_are_restricted(documents: Documents) -> Iterator[str]:
    """Pods live in namespaces that enforce the restricted Pod Security Standard."""
    for workload in documents.of("Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob"):
        name = at(workload, "metadata", "namespace", default="default")
        labels = at(documents.named("Namespace", name, ""), "metadata", "labels", default={})
        for mode in ("enforce", "audit", "warn"):
            if labels.get(f"pod-security.kubernetes.io/{mode}") != "restricted":
                yield f"namespace {name}: pod-security {mode} is not restricted"
        if "pod-security.kubernetes.io/enforce-version" not in labels:
            yield f"namespace {name}: does not say of which version its Pod Security Standard is"


def health_is_probed(documents: Documents) -> Iterator[str]:
    """Three native probes of gRPC, on the plaintext address: the process for life, the server for readiness."""
    listen = settings_of(documents).health_listen
    port = int(listen.rpartition(":")[2] or 0)
    wanted = {"startupProbe": "liveness", "livenessProbe": "liveness", "readinessProbe": ""}
    for kind, service in wanted.items():
        probe = documents.container.get(kind)
        if at(probe, "grpc", "port") != port:
            yield f"{kind}: does not ask by gRPC at health_listen, port {port}"
        if at(probe, "grpc", "service") != service:
            yield f"{kind}: does not ask for {service or 'the whole server'!r}"
        for key in ("periodSeconds", "timeoutSeconds", "failureThreshold"):
            if not at(probe, key):
                yield f"{kind}: {key} is left to chance"
    start = documents.container.get("startupProbe")
    if at(start, "periodSeconds", default=0) * at(start, "failureThreshold", default=0) < START_SECONDS_MIN:
        yield f"startupProbe: gives a start less than {START_SECONDS_MIN} s"


def ends_in_peace(documents: Documents) -> Iterator[str]:
    """There is time to be forgotten, to finish calls, and to close."""
    pause = at(documents.container, "lifecycle", "preStop", "sleep", "seconds", default=0)
    grace = at(documents.pod, "terminationGracePeriodSeconds", default=0)
    drain = settings_of(documents).drain_seconds
    if pause < 1:
        yield "preStop: the server stops before it is forgotten"
    if grace < pause + drain + HAND_OVER_SECONDS:
        yield f"terminationGracePeriodSeconds: {grace} is less than {pause} + {drain:g} + {HAND_OVER_SECONDS}"


def asks_for_what_it_needs(documents: Documents) -> Iterator[str]:
    """CPU and memory are asked for, memory is limited, and what records may take fits into it."""
    resources = documents.container.get("resources")
    for key in ("cpu", "memory", "ephemeral-storage"):
        if not at(resources, "requests", key):
            yield f"resources: requests no {key}"
    for key in ("memory", "ephemeral-storage"):
        if not at(resources, "limits", key):
            yield f"resources: {key} has no limit"
    limit = str(at(resources, "limits", "memory", default=""))
    if limit != at(resources, "requests", "memory"):
        yield "resources: memory is promised that may not be there"
    mib = int(limit[:-2] or 0) * _MIB.get(limit[-2:], 0) if limit[:-2].isdecimal() else 0
    settings = settings_of(documents)
    records = 0 if settings.redis_urls.get_secret_value() else settings.memory_mib_max
    if mib < records + BESIDE_RECORDS_MIB:
        yield f"resources: a limit of {mib} MiB has no room for {records} MiB of records and {BESIDE_RECORDS_MIB} MiB"


def has_an_identity_without_rights(documents: Documents) -> Iterator[str]:
    """The service account is its own, nothing is bound to it, and its token is mounted where it is used alone."""
    name = at(documents.pod, "serviceAccountName", default="default")
    account = documents.named("ServiceAccount", name)
    if account is None:
        yield f"service account {name}: is not there"
    for one in documents.of("ServiceAccount"):
        if one.get("automountServiceAccountToken") is not False:
            yield f"service account {at(one, 'metadata', 'name')}: its token is mounted by itself"
    if at(documents.pod, "automountServiceAccountToken") is not False:
        yield "pod: a token of the service account is mounted by itself"
    for binding in documents.of("RoleBinding", "ClusterRoleBinding"):
        for subject in binding.get("subjects") or []:
            if subject.get("kind") == "ServiceAccount" and subject.get("name") == name:
                yield f"service account {name}: has rights by {at(binding, 'metadata', 'name')}"
    sources = [
        one for volume in at(documents.pod, "volumes", default=[]) for one in at(volume, "projected", "sources") or []
    ]
    mounted = [one for one in sources if "serviceAccountToken" in one]
    settings = settings_of(documents)
    for subject in split_list(settings.jwt_admins):
        if documents.named("ServiceAccount", subject.rpartition(":")[2]) is None:
            yield f"administrator {subject}: is not there"
    used = settings.jwt_jwks_token_file is not None
    if any(not at(one, "serviceAccountToken", "expirationSeconds") for one in mounted):
        yield "pod: the token of its service account does not say how long it lasts"
    if len(mounted) != used:
        yield "pod: mounts a token of its service account that nothing uses, or none though one is used"


def no_secret_is_readable(documents: Documents) -> Iterator[str]:
    """Secrets are referred to by name; nothing of the kind stands in a ConfigMap or in a variable."""
    for secret in documents.of("Secret"):
        yield f"secret {at(secret, 'metadata', 'name')}: its content is among the manifests"
    told = dict(environment(documents))
    for one in at(documents.container, "env", default=[]):
        key = one.get("name", "").removeprefix("NOOSPHERE_").lower()
        if key in SECRET_SETTINGS and "value" in one:
            yield f"variable {key}: a secret stands in the manifest"
        reference = at(one, "valueFrom", "secretKeyRef", default={})
        if not one.get("name") or ("value" not in one and not (reference.get("name") and reference.get("key"))):
            yield f"variable {one.get('name')}: has no name or no value"
        if reference:
            told.pop(one.get("name", ""), None)
    texts = [(f"variable {name}", value) for name, value in told.items()]
    for found in documents.of("ConfigMap"):
        name = at(found, "metadata", "name")
        for file, text in chain(at(found, "data", default={}).items(), at(found, "binaryData", default={}).items()):
            texts.append((f"config map {name}: {file}", str(text)))
    for where, text in texts:
        if re.search(r"PRIVATE KEY|://[^/\s\"]*:[^/\s\"]+@|\bnoo_\w+_\w+|\beyJ[\w-]{10,}\.", text):
            yield f"{where}: holds what looks like a secret"
        for key in SECRET_SETTINGS:
            if re.search(rf"^\s*{key}\s*=", text, re.MULTILINE):
                yield f"{where}: sets {key}, which is a secret"


def files_are_there(documents: Documents) -> Iterator[str]:
    """Files that settings name are in volumes that are mounted, and what is written to is in one that takes it."""
    settings = settings_of(documents)
    mounts = {
        one.get("mountPath", ""): (one.get("name"), one.get("readOnly", False))
        for one in at(documents.container, "volumeMounts", default=[])
    }
    volumes = {one.get("name"): one for one in at(documents.pod, "volumes", default=[])}
    for path, (name, read_only) in mounts.items():
        if name not in volumes:
            yield f"mount {path}: there is no volume {name}"
        elif not read_only and not {"emptyDir", "persistentVolumeClaim"} & volumes[name].keys():
            yield f"mount {path}: is not read-only"
    for name in volumes.keys() - {name for name, _ in mounts.values()}:
        yield f"volume {name}: is not mounted"
    for name, volume in volumes.items():
        yield from _volume_is_whole(str(name), volume)
    for key in type(settings).model_fields:
        path = str(getattr(settings, key) or "")
        if not (key.endswith(("_ca", "_certificate", "_key", "_token_file")) and path.startswith("/")):
            continue
        file = PurePosixPath(path)
        name, _ = mounts.get(str(file.parent), (None, None))
        if file.name not in _content(volumes.get(name)):
            yield f"{key}: no volume brings {path}"
    for needed in ("/tmp", str(settings.data.parent)):
        name, read_only = mounts.get(needed, (None, False))
        if name is None or read_only:
            yield f"{needed}: cannot be written"


def _volume_is_whole(name: str, volume: Document) -> Iterator[str]:
    if len(volume) != 2:
        yield f"volume {name}: has not exactly one source"
    if "emptyDir" in volume and not at(volume, "emptyDir", "sizeLimit"):
        yield f"volume {name}: may fill the node's disk"
    sources = [volume["secret"]] if "secret" in volume else []
    if "projected" in volume:
        sources += [one["configMap"] for one in volume["projected"].get("sources") or [] if "configMap" in one]
    for source in sources:
        if not (source.get("secretName") or source.get("name")):
            yield f"volume {name}: does not say of what"
        if any(not item.get("key") or not item.get("path") for item in source.get("items") or [{}]):
            yield f"volume {name}: brings no files by name"
    for kind in ("secret", "projected"):
        if kind in volume and at(volume, kind, "defaultMode") != 0o440:
            yield f"volume {name}: others may read it"


def _content(volume: object) -> set[str]:
    """Returns the names of files that a volume says it brings."""
    sources = [at(volume, "secret") or {}]
    for one in at(volume, "projected", "sources") or []:
        sources += one.values()
    paths = {item.get("path") for source in sources for item in at(source, "items", default=[])}
    return {str(path) for path in paths | {at(source, "path") for source in sources} if path}


def runs_a_known_program(documents: Documents) -> Iterator[str]:
    """The image has a version, and what it runs is the server."""
    image = str(at(documents.container, "image", default=""))
    tag = image.rpartition("/")[2].partition("@")[0].partition(":")[2]
    if (not tag or tag == "latest") and "@sha256:" not in image:
        yield f"image {image!r}: has no version"
    if documents.container.get("args") != ["serve"]:
        yield "container: does not run `serve`"


def is_spread(documents: Documents) -> Iterator[str]:
    """Servers do not share a node or a zone as long as there are others."""
    keys = {"kubernetes.io/hostname": "DoNotSchedule", "topology.kubernetes.io/zone": "ScheduleAnyway"}
    found = {one.get("topologyKey"): one for one in at(documents.pod, "topologySpreadConstraints", default=[])}
    for key, otherwise in keys.items():
        one = found.get(key)
        if at(one, "whenUnsatisfiable") != otherwise or at(one, "maxSkew") != 1:
            yield f"spread over {key}: is not asked for"
        if not selects_servers(at(one, "labelSelector", "matchLabels")):
            yield f"spread over {key}: counts other pods"
        if at(one, "matchLabelKeys") != ["pod-template-hash"]:
            yield f"spread over {key}: counts servers of the version that goes"


def is_one_deployment(documents: Documents) -> Iterator[str]:
    """There is a Deployment of servers, and it selects its own pods."""
    if not documents.deployment:
        yield f"deployment {SERVER}: is not there"
    selector = at(documents.deployment, "spec", "selector", "matchLabels")
    if not selects_servers(selector) or not SELECTOR.items() <= documents.labels.items():
        yield f"deployment {SERVER}: does not select its pods"
