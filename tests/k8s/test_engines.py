"""Values for the charts of the engines: what operations.md asks for, and a real Redis that is told the same."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from scripts.manifests.documents import K8S, Document, Documents, at, render
from scripts.manifests.settings import settings_of
from tests.support.redis import RedisProcess, needs_redis

ENGINES = K8S / "engines"
GUIDE = (K8S.parent / "docs" / "kubernetes.md").read_text()


def values_of(engine: str) -> Document:
    """Returns the values for an engine's chart."""
    found: Document = yaml.safe_load((ENGINES / engine / "values.yaml").read_text())
    return found


def plain_documents(name: str) -> list[Any]:
    """Returns the documents of a file."""
    return list(yaml.safe_load_all((ENGINES / name).read_text()))


def test_redis_keeps_what_it_has_acknowledged_as_far_as_redis_can() -> None:
    values = values_of("redis")
    config = at(values, "redis", "config")
    assert values["replicas"] == 3
    assert config["maxmemory-policy"] == "noeviction"
    assert (config["appendonly"], config["appendfsync"]) == ("yes", "everysec")
    assert config["min-replicas-to-write"] == 1
    assert config["stop-writes-on-bgsave-error"] == "no"
    assert values["auth"] is True
    assert values["existingSecret"]
    assert "redisPassword" not in values
    # Nothing in plain text, neither data nor elections.
    assert (at(values, "redis", "port"), at(values, "sentinel", "port")) == (0, 0)
    gib = int(re.fullmatch(r"(\d+)gb", config["maxmemory"])[1])  # type: ignore[index] # fails if it does not match
    limit = int(re.fullmatch(r"(\d+)Gi", at(values, "redis", "resources", "limits", "memory"))[1])  # type: ignore[index]
    assert limit >= 2 * gib, "while the file is written anew pages exist twice"


@needs_redis
def test_a_real_redis_takes_these_settings(tmp_path: Path) -> None:
    config = {name: str(value).strip('"') for name, value in at(values_of("redis"), "redis", "config").items()}
    redis = RedisProcess(tmp_path, **config)
    try:
        redis.start()
        for name, value in config.items():
            told = redis.ask("CONFIG", "GET", name)[1].decode()
            if (size := re.fullmatch(r"(\d+)(gb|mb)", value)) is not None:
                value = str(int(size[1]) * 1024 ** {"mb": 2, "gb": 3}[size[2]])
            assert (name, told) == (name, value)
    finally:
        redis.kill()


def test_etcd_has_three_members_that_ask_for_certificates() -> None:
    values = values_of("etcd")
    assert values["replicaCount"] == 3
    assert at(values, "auth", "enabled") is True
    assert at(values, "auth", "peer", "enabled") is True
    assert at(values, "persistence", "enabled") is True
    assert at(values, "affinity", "podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution")


def test_weaviate_knows_who_calls_tells_nobody_and_needs_no_privileges() -> None:
    values = values_of("weaviate")
    assert values["replicas"] == 3
    assert values["env"]["REPLICATION_MINIMUM_FACTOR"] == 3
    assert at(values, "authentication", "anonymous_access", "enabled") is False
    assert at(values, "authorization", "rbac", "enabled") is True
    assert values["env"]["AUTHENTICATION_APIKEY_ENABLED"] == "true"
    for name in ("DISABLE_TELEMETRY", "GO_PROFILING_DISABLE", "API_BASED_MODULES_DISABLED"):
        assert values["env"][name] == "true"
    assert values["env"]["AUTOSCHEMA_ENABLED"] == "false"
    assert at(values, "initContainers", "sysctlInitContainer", "enabled") is False
    # The key is a reference to a Secret.
    assert "AUTHENTICATION_APIKEY_ALLOWED_KEYS" in values["envSecrets"]
    assert "AUTHENTICATION_APIKEY_ALLOWED_KEYS" not in values["env"]
    assert {at(values, name, "type") for name in ("service", "grpcService")} == {"ClusterIP"}


@pytest.mark.parametrize("engine", ["redis", "etcd", "weaviate"])
def test_an_engine_runs_under_the_restricted_standard(engine: str) -> None:
    values = values_of(engine)
    pod = values.get("securityContext") or values.get("podSecurityContext")
    container = values["containerSecurityContext"]
    assert at(pod, "seccompProfile", "type") == "RuntimeDefault"
    assert container["runAsNonRoot"] is True
    assert container["runAsUser"] > 0
    assert container["allowPrivilegeEscalation"] is False
    assert container["capabilities"] == {"drop": ["ALL"]}
    texts = (ENGINES / engine / "values.yaml").read_text()
    assert not re.search(r"[pP]assword: *[^\s#]|BEGIN |:latest", texts)


def test_servers_look_for_engines_where_they_are() -> None:
    prod = render(K8S / "overlays" / "prod")
    settings = settings_of(prod)
    etcd = values_of("etcd")
    headless = f"{etcd['fullnameOverride']}-headless.noosphere-engines.svc.cluster.local:2379"
    assert re.split(r",\s*", settings.etcd_endpoints) == [
        f"{etcd['fullnameOverride']}-{member}.{headless}" for member in range(etcd["replicaCount"])
    ]
    redis = values_of("redis")
    certified = {
        name for one in plain_documents("certificates.yaml") for name in [*at(one, "spec", "dnsNames", default=[])]
    }
    for node in range(redis["replicas"]):
        name = f"{redis['fullnameOverride']}-announce-{node}"
        assert f"{name}.noosphere-engines.svc.cluster.local" in certified
        assert f"rediss://:$PASSWORD@{name}.$NODE" in GUIDE
    assert f"NODE=noosphere-engines.svc.cluster.local:{at(redis, 'redis', 'tlsPort')}" in GUIDE
    assert f"*.{headless.partition(':')[0]}" in certified
    weaviate = values_of("weaviate")
    domain = "noosphere-engines.svc.cluster.local"
    assert settings.weaviate_url == f"http://weaviate.{domain}:{at(weaviate, 'service', 'ports', 0, 'port')}"
    assert settings.weaviate_grpc == f"weaviate-grpc.{domain}:{at(weaviate, 'grpcService', 'ports', 0, 'port')}"
    assert settings.weaviate_replication == weaviate["replicas"]


def test_engines_let_in_servers_alone_where_they_listen() -> None:
    every = Documents(plain_documents("namespace.yaml"))
    (policy,) = [one for one in every.of("NetworkPolicy") if one["metadata"]["name"] == "engines"]
    _, from_servers = at(policy, "spec", "ingress")
    weaviate = values_of("weaviate")
    listening = {at(values_of("redis"), "redis", "tlsPort"), 2379}
    listening |= {at(weaviate, name, "ports", 0, "port") for name in ("service", "grpcService")}
    assert {one["port"] for one in from_servers["ports"]} == listening
    (namespace,) = every.of("Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_the_guide_installs_the_versions_that_the_values_are_for() -> None:
    for engine in ("redis", "etcd", "weaviate"):
        text = (ENGINES / engine / "values.yaml").read_text()
        (version,) = re.findall(r"Chart: [\w-]+ ([\d.]+) of\b", text)
        assert f"--version {version} " in GUIDE
        assert f"--values k8s/engines/{engine}/values.yaml" in GUIDE
