"""All rules, and what they find."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from noosphere.server.config import ConfigError

from . import custom, fleet, network, pods
from .documents import Documents, at

Rule = Callable[[Documents], Iterator[str]]

RULES: tuple[Rule, ...] = (
    pods.is_one_deployment,
    pods.may_do_nothing_but_serve,
    pods.namespaces_are_restricted,
    pods.health_is_probed,
    pods.ends_in_peace,
    pods.asks_for_what_it_needs,
    pods.has_an_identity_without_rights,
    pods.no_secret_is_readable,
    pods.files_are_there,
    pods.runs_a_known_program,
    pods.is_spread,
    fleet.is_in_a_namespace,
    fleet.would_start,
    fleet.numbers_fit_the_engines,
    fleet.some_stay_up,
    fleet.clients_spread,
    network.ports_agree,
    network.is_found_by_name,
    network.everything_else_is_denied,
    network.what_is_needed_is_reached,
    network.rules_name_both_ends,
    custom.kinds_are_known,
    custom.certificates_are_issued,
    custom.metrics_are_read,
    custom.alerts_are_whole,
)


def violations(documents: Documents) -> list[str]:
    """Returns what breaks a rule, one line each; nothing if the manifests are in order."""
    found = []
    for one in documents.every:
        if not one.get("apiVersion") or not one.get("kind") or not at(one, "metadata", "name"):
            found.append(f"a document has no apiVersion, kind or name: {one.get('kind')} {one.get('metadata')}")
    for rule in RULES:
        try:
            found += [f"{rule.__name__}: {line}" for line in rule(documents)]
        except ConfigError as error:
            # Most rules look at the settings; said once it is enough.
            line = f"settings: {error}"
            found += [] if line in found else [line]
    return found
