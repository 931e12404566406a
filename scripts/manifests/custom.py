"""Rules about kinds that other projects define, for which there are no schemas: cert-manager's and Prometheus's."""

from __future__ import annotations

from collections.abc import Iterator

from .documents import SELECTOR, SERVER, Documents, at, selects_servers
from .settings import settings_of

API_VERSIONS = {
    "Certificate": "cert-manager.io/v1",
    "ClusterIssuer": "cert-manager.io/v1",
    "PrometheusRule": "monitoring.coreos.com/v1",
    "ServiceMonitor": "monitoring.coreos.com/v1",
}


def kinds_are_known(documents: Documents) -> Iterator[str]:
    """Every kind without a schema is one of those that rules here look at."""
    for kind, version in API_VERSIONS.items():
        for one in documents.of(kind):
            if one.get("apiVersion") != version:
                yield f"{kind} {at(one, 'metadata', 'name')}: is not of {version}"


def certificates_are_issued(documents: Documents) -> Iterator[str]:
    """Secrets with certificates come from Certificates, of issuers that are there, for names and uses that fit."""
    secrets = {at(one, "spec", "secretName"): one for one in documents.of("Certificate")}
    issuers = {at(one, "metadata", "name"): one for one in documents.of("ClusterIssuer")}
    for one in documents.of("Certificate"):
        name = at(one, "metadata", "name")
        if (
            at(one, "spec", "issuerRef", "name") not in issuers
            or at(one, "spec", "issuerRef", "kind") != "ClusterIssuer"
        ):
            yield f"certificate {name}: its issuer is not there"
        if at(one, "spec", "issuerRef", "group") != "cert-manager.io":
            yield f"certificate {name}: its issuer is of no known group"
        if at(one, "spec", "privateKey", "algorithm") != "ECDSA" or at(one, "spec", "privateKey", "size") != 256:
            yield f"certificate {name}: its key is left to defaults"
        if not at(one, "spec", "duration"):
            yield f"certificate {name}: does not say how long it lasts"
        if not at(one, "spec", "isCA") and at(one, "spec", "privateKey", "rotationPolicy") != "Always":
            yield f"certificate {name}: keeps its key for ever"
        if not at(one, "spec", "isCA") and not at(one, "spec", "renewBefore"):
            yield f"certificate {name}: does not say when it is replaced"
    for name, one in issuers.items():
        if "selfSigned" in at(one, "spec", default={}):
            continue
        authority = secrets.get(at(one, "spec", "ca", "secretName"))
        if not at(authority, "spec", "isCA") or at(authority, "metadata", "namespace") != "cert-manager":
            yield f"issuer {name}: its authority is not where cert-manager looks for it"
        if not at(authority, "spec", "commonName"):
            yield f"issuer {name}: its authority has no name"
    settings = settings_of(documents)
    wanted = {"/etc/noosphere-tls": settings.tls_certificate, "/etc/noosphere-etcd": settings.etcd_tls_certificate}
    wanted["/etc/noosphere-redis"] = settings.redis_tls_ca
    volumes = {one.get("name"): at(one, "secret", "secretName") for one in at(documents.pod, "volumes", default=[])}
    for mount in at(documents.container, "volumeMounts", default=[]):
        if not wanted.get(mount.get("mountPath", "")):
            continue
        found = secrets.get(volumes.get(mount.get("name")))
        if at(found, "metadata", "namespace") != SERVER:
            yield f"mount {mount['mountPath']}: no certificate makes its secret"
        uses = set(at(found, "spec", "usages", default=[]))
        own = mount["mountPath"] == "/etc/noosphere-tls"
        if not uses >= {"digital signature", "server auth" if own else "client auth"}:
            yield f"mount {mount['mountPath']}: its certificate is for something else"
        host = f"{SERVER}.{SERVER}.svc"
        names = {SERVER, f"{SERVER}.{SERVER}", host, f"{host}.cluster.local"}
        if own and set(at(found, "spec", "dnsNames", default=[])) != names:
            yield "certificate of the servers: lacks one of the names that clients know them by"
        if not own and not at(found, "spec", "commonName"):
            yield "certificate for engines: names no user"


def metrics_are_read(documents: Documents) -> Iterator[str]:
    """If there are metrics, Prometheus is told where, has alerts, and Grafana a dashboard."""
    monitors = list(documents.of("ServiceMonitor"))
    if not settings_of(documents).metrics_listen:
        if monitors:
            yield "service monitor: there are no metrics"
        return
    service = documents.named("Service", SERVER)
    ports = {one.get("name") for one in at(service, "spec", "ports", default=[])}
    labels = at(service, "metadata", "labels", default={})
    found = False
    for one in monitors:
        spec = one.get("spec")
        here = selects_servers(at(spec, "selector", "matchLabels")) and SELECTOR.items() <= labels.items()
        if here and at(spec, "namespaceSelector", "matchNames") == [SERVER]:
            for endpoint in at(spec, "endpoints", default=[]):
                timing = endpoint.get("interval") and endpoint.get("scrapeTimeout")
                found |= bool(endpoint.get("port") in ports and endpoint.get("path") == "/metrics" and timing)
    if not found:
        yield "service monitor: nobody reads the metrics"
    if not any(at(one, "spec", "groups") for one in documents.of("PrometheusRule")):
        yield "alerts: there are none"
    dashboards = [one for one in documents.of("ConfigMap") if at(one, "metadata", "labels", "grafana_dashboard") == "1"]
    if not any(at(one, "data", "dashboard.json") for one in dashboards):
        yield "dashboard: Grafana finds none"


def alerts_are_whole(documents: Documents) -> Iterator[str]:
    """Each alert has an expression, says what is wrong, and what to do."""
    for rule in documents.of("PrometheusRule"):
        groups = at(rule, "spec", "groups", default=[])
        if {one.get("name") for one in groups} != {"noosphere-servers", "noosphere-sessions"}:
            yield "alerts: a group is missing"
        for group in groups:
            if not group.get("rules"):
                yield f"alerts {group.get('name')}: there are none"
            for one in group.get("rules") or []:
                whole = one.get("alert") and one.get("expr")
                if not whole or not at(one, "annotations", "summary") or not at(one, "annotations", "description"):
                    yield f"alert {one.get('alert')}: says too little"
