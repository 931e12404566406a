"""Rules about who reaches whom, and that ports are the same ones wherever they are named."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from noosphere.server.addresses import split_address, split_list
from noosphere.server.config import Settings

from .documents import SELECTOR, SERVER, Document, Documents, at, selects_servers
from .settings import settings_of

_PORTS = {"https": 443, "http": 80, "redis": 6379, "rediss": 6379}


def ports_agree(documents: Documents) -> Iterator[str]:
    """The container names the ports that the settings listen on, the Service leads to them, policies let them in."""
    settings = settings_of(documents)
    told = {"grpc": settings.listen, "health": settings.health_listen, "metrics": settings.metrics_listen}
    wanted = {name: split_address(listen)[1] for name, listen in told.items() if listen}
    named = {one.get("name"): one.get("containerPort") for one in at(documents.container, "ports", default=[])}
    if named != wanted:
        yield f"container: its ports {named} are not those of the settings, {wanted}"
    for name, listen in told.items():
        if listen and split_address(listen)[0] not in ("0.0.0.0", "::"):
            yield f"settings: {name} is told at {listen}, which nobody else in the cluster reaches"
    served = {name: port for name, port in wanted.items() if name != "health"}
    service = documents.named("Service", SERVER)
    offered = {one.get("name"): one for one in at(service, "spec", "ports", default=[])}
    if {name: one.get("port") for name, one in offered.items()} != served:
        yield f"service: its ports are not {served}"
    for name, one in offered.items():
        if one.get("targetPort") not in (name, served.get(name)):
            yield f"service: port {name} leads to {one.get('targetPort')}"
    let_in = set(_ports(documents, "ingress"))
    if let_in != set(served.values()):
        yield f"network policies: let in {sorted(let_in)}, and what is served is {served}"


def is_found_by_name(documents: Documents) -> Iterator[str]:
    """The Service stands for the addresses of all servers, so that clients spread over them."""
    service = documents.named("Service", SERVER)
    if at(service, "spec", "clusterIP") != "None":
        yield "service: is not headless, so connections stay at the server that they came to first"
    if not selects_servers(at(service, "spec", "selector")):
        yield "service: does not select the servers"
    if not SELECTOR.items() <= at(service, "metadata", "labels", default={}).items():
        yield "service: has not the labels of servers, by which it is found"
    if at(service, "spec", "publishNotReadyAddresses"):
        yield "service: stands for servers that are not ready"


def everything_else_is_denied(documents: Documents) -> Iterator[str]:
    """In each namespace with pods nothing comes or goes by default."""
    for workload in documents.of("Deployment", "StatefulSet"):
        namespace = at(workload, "metadata", "namespace")
        for policy in documents.of("NetworkPolicy"):
            spec = policy.get("spec")
            here = at(policy, "metadata", "namespace") == namespace
            if here and at(spec, "podSelector") == {} and at(spec, "policyTypes") == ["Ingress", "Egress"]:
                if at(spec, "ingress") or at(spec, "egress"):
                    yield f"network policy of {namespace}: what denies everything lets something through"
                break
        else:
            yield f"network policy of {namespace}: nothing is denied by default"


def what_is_needed_is_reached(documents: Documents) -> Iterator[str]:
    """Servers reach names, and the ports of their engines, of the issuer and of the collector; nothing else."""
    needed = {53, *_reached(settings_of(documents))}
    # Behind the API server's name is a port that clusters choose.
    allowed = needed | ({6443} if 443 in needed else set())
    let_out = set(_ports(documents, "egress"))
    if missing := sorted(needed - let_out):
        yield f"network policies: do not let out to ports {missing}"
    if more := sorted(let_out - allowed):
        yield f"network policies: let out to ports {more}, where servers have no business"
    names = {
        one.get("protocol")
        for rule in _rules(documents, "egress")
        for one in rule.get("ports") or []
        if one.get("port") == 53
    }
    if names != {"UDP", "TCP"}:
        yield "network policies: names are asked for over UDP and TCP"


def _reached(settings: Settings) -> Iterator[int]:
    urls = [*split_list(settings.redis_urls.get_secret_value()), settings.trace_endpoint, settings.jwt_jwks]
    urls += [settings.weaviate_url]
    for url in urls:
        parts = urlsplit(url)
        if parts.hostname:
            yield parts.port or _PORTS[parts.scheme]
    addresses = [*split_list(settings.etcd_endpoints), settings.weaviate_grpc]
    yield from (split_address(one)[1] for one in addresses if one)


def _rules(documents: Documents, direction: str) -> Iterator[Document]:
    """Yields what policies about the servers let through, in a direction."""
    for policy in documents.of("NetworkPolicy"):
        spec = policy.get("spec")
        in_force = direction.capitalize() in at(spec, "policyTypes", default=[])
        if in_force and selects_servers(at(spec, "podSelector", "matchLabels")):
            yield from at(spec, direction, default=[])


def _ports(documents: Documents, direction: str) -> Iterator[int]:
    for rule in _rules(documents, direction):
        yield from (int(one.get("port") or 0) for one in rule.get("ports") or [])


def rules_name_both_ends(documents: Documents) -> Iterator[str]:
    """No rule lets through any port, or any peer, because something was left out."""
    for policy in documents.of("NetworkPolicy"):
        name = at(policy, "metadata", "name")
        for direction, end in (("ingress", "from"), ("egress", "to")):
            for rule in at(policy, "spec", direction, default=[]):
                peers = rule.get(end) or []
                if not peers or not all(_is_narrow(peer) for peer in peers):
                    yield f"network policy {name}: lets anybody through"
                if not rule.get("ports") or not all(one.get("port") and one.get("protocol") for one in rule["ports"]):
                    yield f"network policy {name}: lets through on any port"
        selector = at(policy, "spec", "podSelector")
        if selector != {} and not selects_servers(at(selector, "matchLabels")):
            yield f"network policy {name}: is about neither the servers nor all pods"
        told = {direction.capitalize() for direction in ("ingress", "egress") if at(policy, "spec", direction)}
        if told - set(at(policy, "spec", "policyTypes", default=[])):
            yield f"network policy {name}: its rules are not in force"


def _is_narrow(peer: Document) -> bool:
    """Tells whether a peer is one of a namespace that is named, or an address."""
    pods = at(peer, "podSelector", "matchLabels") if "podSelector" in peer else True
    return bool(at(peer, "ipBlock", "cidr")) or bool(at(peer, "namespaceSelector", "matchLabels") and pods)
