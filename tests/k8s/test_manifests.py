"""The manifests build, fit the schemas of Kubernetes, and break none of our rules; the rules see what is taken away."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from scripts.manifests.documents import K8S, Documents, at, tool
from scripts.manifests.policy import RULES, violations
from scripts.manifests.schemas import schema_errors
from scripts.manifests.settings import environment
from tests.k8s.deleting import name_of, paths, without

ROOT = Path(__file__).resolve().parents[2]
POD = "spec.template.spec"
SERVER = f"{POD}.containers.0"

# What is true all the same when it is left out: defaults of Kubernetes that say the same, labels for people, and what
# an operator may well do without.
HARMLESS = re.compile(
    r"metadata\.labels(\.app\.kubernetes\.io/part-of)?$"
    r"|^Deployment/noosphere:metadata\.labels\."
    r"|spec\.ports\.\d\.(protocol|appProtocol)$|containers\.0\.ports\.\d\.protocol$"
    r"|revisionHistoryLimit$|imagePullPolicy$|enableServiceLinks$|fsGroupChangePolicy$|scaleTargetRef\.apiVersion$"
    r"|spec\.groups\.\d\.rules\.\d+(\.for)?$"
    r"|secretKeyRef\.optional$|^NetworkPolicy/noosphere-api-server:spec\.egress\.0\.ports\.1$"
    # Where all pods of a namespace are of one kind, it says the same.
    r"|to\.0\.podSelector$"
)
# Variables without which a server does the same as with them, or one thing less.
OPTIONAL = {"NOOSPHERE_TRACE_SAMPLE_RATIO", "OTEL_EXPORTER_OTLP_HEADERS", "NOOSPHERE_TRACE_ENDPOINT"}

# What must not get lost, by the build that has it; `make campaigns` takes out everything there is, one after the other.
GUARDED = [
    *(("prod", f"Deployment/noosphere:{SERVER}.{key}") for key in ("startupProbe", "livenessProbe", "readinessProbe")),
    ("prod", f"Deployment/noosphere:{SERVER}.livenessProbe.grpc.service"),
    ("prod", f"Deployment/noosphere:{SERVER}.readinessProbe.grpc.port"),
    *(
        ("prod", f"Deployment/noosphere:{SERVER}.{key}")
        for key in ("resources", "lifecycle", "securityContext", "args")
    ),
    *(
        ("prod", f"Deployment/noosphere:{SERVER}.resources.{key}")
        for key in ("requests.cpu", "requests.memory", "limits.memory", "limits.ephemeral-storage")
    ),
    *(
        ("prod", f"Deployment/noosphere:{SERVER}.securityContext.{key}")
        for key in ("allowPrivilegeEscalation", "readOnlyRootFilesystem", "capabilities", "capabilities.drop.0")
    ),
    *(
        ("prod", f"Deployment/noosphere:{POD}.securityContext.{key}")
        for key in ("runAsNonRoot", "runAsUser", "fsGroup", "seccompProfile")
    ),
    *(
        ("prod", f"Deployment/noosphere:{POD}.{key}")
        for key in ("terminationGracePeriodSeconds", "automountServiceAccountToken", "serviceAccountName", "volumes")
    ),
    ("prod", f"Deployment/noosphere:{POD}.topologySpreadConstraints.0"),
    ("prod", "Deployment/noosphere:spec.strategy"),
    ("prod", "Deployment/noosphere:spec.selector.matchLabels.app.kubernetes.io/name"),
    ("prod", "PodDisruptionBudget/noosphere:"),
    ("prod", "PodDisruptionBudget/noosphere:spec.selector"),
    ("prod", "HorizontalPodAutoscaler/noosphere:spec.minReplicas"),
    ("prod", "NetworkPolicy/default-deny:"),
    ("prod", "NetworkPolicy/noosphere:spec.ingress.0.from"),
    ("prod", "NetworkPolicy/noosphere-redis:"),
    ("prod", "Service/noosphere:spec.clusterIP"),
    ("prod", "Service/noosphere:spec.selector"),
    ("prod", "Service/noosphere:spec.ports.0"),
    ("prod", "ServiceAccount/noosphere:automountServiceAccountToken"),
    ("prod", "ServiceMonitor/noosphere:"),
    ("prod", "PrometheusRule/noosphere:"),
    ("prod", "Certificate/noosphere:spec.dnsNames.2"),
    ("prod", "Namespace/noosphere:metadata.labels.pod-security.kubernetes.io/enforce"),
    ("dev", "PersistentVolumeClaim/noosphere-data:"),
    ("dev", "Deployment/noosphere:spec.replicas"),
    ("dev", "Deployment/noosphere:spec.strategy.type"),
]


@pytest.mark.parametrize("build", ["dev", "prod", "all"])
def test_a_build_fits_the_schemas_and_breaks_no_rule(builds: dict[str, Documents], build: str) -> None:
    assert list(schema_errors(builds[build])) == []
    assert violations(builds[build]) == []


def test_yaml_is_written_as_the_linter_wants_it() -> None:
    done = subprocess.run(
        [tool("yamllint"), "--strict", "k8s", "tests/k8s", ".yamllint"], cwd=ROOT, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_whatever_is_taken_out_of_what_must_not_get_lost_is_missed(builds: dict[str, Documents]) -> None:
    missed = []
    for build, name in GUARDED:
        documents = builds[build]
        (path,) = [path for path in paths(documents.every) if name_of(documents, path) == name]
        with without(documents, path):
            if not violations(documents):
                missed.append((build, name))
        assert violations(documents) == [], "it was put back"
    assert missed == []


@pytest.mark.campaign
@pytest.mark.parametrize("build", ["dev", "prod"])
def test_whatever_is_taken_out_at_all_is_missed(builds: dict[str, Documents], build: str) -> None:
    documents = builds[build].copy()
    optional = {
        ("spec", "template", "spec", "containers", 0, "env", index)
        for index, one in enumerate(at(documents.container, "env", default=[]))
        if one["name"] in OPTIONAL
    }
    tried, missed = 0, []
    for path in list(paths(documents.every)):
        name = name_of(documents, path)
        if HARMLESS.search(name) or path[1:] in optional:
            continue
        with without(documents, path):
            tried += 1
            if not violations(documents) and not list(schema_errors(documents)):
                missed.append(name)
    assert missed == []
    assert tried > 150


def test_every_rule_is_in_force() -> None:
    modules = [module for module in sorted((ROOT / "scripts" / "manifests").glob("*.py")) if module.stem != "policy"]
    written = [
        name
        for module in modules
        for name in re.findall(r"^def ([a-z]\w+)\(documents: Documents\) -> Iterator\[str\]", module.read_text(), re.M)
    ]
    assert sorted(rule.__name__ for rule in RULES) == sorted(set(written) - {"schema_errors"})


def test_nothing_is_added_that_would_do_harm(builds: dict[str, Documents]) -> None:
    """The other way round: what must not be there is seen when it is."""
    prod, dev = builds["prod"].copy(), builds["dev"].copy()
    prod.every.append({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "noosphere"}})
    assert "no_secret_is_readable: secret s: its content is among the manifests" in violations(prod)
    prod = builds["prod"].copy()
    config = next(one for one in prod.of("ConfigMap") if "noosphere.toml" in one["data"])
    config["data"]["noosphere.toml"] += '\nredis_urls = "redis://:geheim@redis:6379"\n'
    assert any("sets redis_urls, which is a secret" in line for line in violations(prod))
    prod = builds["prod"].copy()
    next(one for one in prod.container["env"] if one["name"] == "NOOSPHERE_AUDIT_LOG")["name"] = "NOOSPHERE_AUDIT_LOOG"
    assert any("unknown environment variable; is NOOSPHERE_AUDIT_LOG meant?" in line for line in violations(prod))
    dev.every.append(next(builds["prod"].of("HorizontalPodAutoscaler")))
    assert any("scales a server that keeps its data in a folder of its own" in line for line in violations(dev))
    dev = builds["dev"].copy()
    dev.deployment["spec"]["replicas"] = 2
    assert any("which share nothing" in line for line in violations(dev))
    subject = {"kind": "ServiceAccount", "name": "noosphere", "namespace": "noosphere"}
    dev.every.append({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "subjects": [subject]})
    assert any("has rights by" in line for line in violations(dev))


def test_what_stands_in_the_environment_is_what_the_server_reads(builds: dict[str, Documents]) -> None:
    found = environment(builds["prod"])
    assert found["NOOSPHERE_CONFIG"] == "/etc/noosphere/noosphere.toml"
    assert "NOOSPHERE_INSECURE" not in found
    assert environment(builds["dev"])["NOOSPHERE_INSECURE"] == "true"


def test_every_component_and_overlay_is_built_by_some_test() -> None:
    text = (Path(__file__).parent / "all" / "kustomization.yaml").read_text()
    built = set(re.findall(r"k8s/components/([\w-]+)", text))
    assert built == {folder.name for folder in (K8S / "components").iterdir()}
    assert {folder.name for folder in (K8S / "overlays").iterdir()} == {"dev", "prod"}
