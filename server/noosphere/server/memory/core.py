"""What every memory service shares: finding a namespace, its rules, and who calls."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import NamedTuple

from noosphere.consistency import (
    Circumstances,
    NamespacePolicy,
    NamespaceState,
    Reason,
    Refusal,
    check_namespace,
    check_presented,
    resolve_policy,
)
from noosphere.consistency.errors import CONFLICTS, ConflictInfo
from noosphere.consistency.limits import ITEM_BYTES_MAX, KEY_BYTES_MAX

from ..ports.coordinator import Coordinator
from ..ports.grants import Verb
from ..ports.metrics import MemoryMetrics, NoMemoryMetrics
from ..ports.runtime import Clock
from ..ports.store import NamespaceRef, NamespaceView, WorkingStore
from ..security import Permissions
from .access import Access, is_private_to
from .directory import Directory
from .extension import NoExtension, WriteExtension
from .makers import Makers
from .newcomers import Newcomers, UnknownIncarnation
from .quotas import Quotas
from .types import Call

_RULES_CACHE_MAX = 65_536


class Rules(NamedTuple):
    """A namespace's rules and the configuration version that they come from."""

    policy: NamespacePolicy
    config_version: int


class Core:
    """Ports and small caches shared by the services of one process.

    Attributes:
        store: the working store.
        coordinator: incarnations, rules, epochs.
        directory: names to generations.
        newcomers: incarnations that are not known here.
        access: who may do what in which namespace.
        extension: what kinds of namespaces add to writes.
        refusals: refused writes by reason, since the start.
        metrics: hears of conflicts, and of what watchers are told.
        key_bytes_max: bytes of the key of a record that is written.
        value_bytes_max: bytes of a value, whatever the rules of its namespace allow.
        quotas: how much room namespaces and principals may take; None: as much as there is.
        makers: how many namespaces agents and principals may make; None: any number.
        fleet: stands for what this process shares with others, or has for itself; 0 if that is not known.
    """

    def __init__(
        self, store: WorkingStore, coordinator: Coordinator, clock: Clock, extension: WriteExtension | None = None
    ) -> None:
        self.store = store
        self.extension: WriteExtension = extension or NoExtension()
        self.coordinator = coordinator
        self.directory = Directory(store)
        self.newcomers = Newcomers(coordinator, clock)
        self.access = Access(Permissions(coordinator.policies), clock)
        self.refusals: Counter[Reason] = Counter()
        self.metrics: MemoryMetrics = NoMemoryMetrics()
        self.fleet = 0
        self.quotas: Quotas | None = None
        self.makers: Makers | None = None
        self.key_bytes_max = KEY_BYTES_MAX
        self.value_bytes_max = ITEM_BYTES_MAX
        self._rules: dict[str, NamespacePolicy] = {}
        self._rules_version = -1

    def rules(self, namespace: str) -> Rules:
        """Returns the rules of a namespace as this process knows them."""
        table = self.coordinator.policies()
        if table.config_version != self._rules_version or len(self._rules) > _RULES_CACHE_MAX:
            self._rules.clear()
            self._rules_version = table.config_version
        policy = self._rules.get(namespace)
        if policy is None:
            policy = resolve_policy(namespace, table.entries)
            if policy.item_bytes_max > self.value_bytes_max:
                policy = replace(policy, item_bytes_max=self.value_bytes_max)
            self._rules[namespace] = policy
        return Rules(policy, table.config_version)

    def admit_reader(self, call: Call, namespace: str, verb: Verb = Verb.READ, *, lately: bool = False) -> None:
        """Checks a reader's name, permission and incarnation; renews its lease.

        Args:
            call: who calls.
            namespace: where.
            verb: what the caller must be permitted to do; some read to delete, or to watch.
            lately: see :meth:`.access.Access.may`.

        Raises:
            Refusal: INVALID_FIELD, PERMISSION_DENIED, STALE_INCARNATION.
        """
        check_namespace(namespace)
        self.access.require(call, namespace, verb, lately=lately)
        self.require_current(call)

    def require_current(self, call: Call) -> None:
        """Checks that the caller's incarnation has not ended; renews its lease.

        Raises:
            Refusal: STALE_INCARNATION.
        """
        if not self.renew(call):
            raise Refusal(Reason.STALE_INCARNATION, f"{call.actor} is not a current incarnation; open the agent again")

    def renew(self, call: Call) -> bool:
        """Renews the caller's lease; returns False if its incarnation has ended.

        Raises:
            UnknownIncarnation: whether it has, the coordinator must be asked.
            Refusal: STALE_INCARNATION, see :meth:`check_fleet`.
        """
        self.check_fleet(call.fleet)
        if call.incarnation is None or self.coordinator.touch(call.incarnation):
            return True
        if self.newcomers.has_ended(call.incarnation):
            return False
        raise UnknownIncarnation(call.incarnation, self.newcomers)

    def check_fleet(self, fleet: int) -> None:
        """Checks that an agent was opened at a server that shares its memory with this one.

        Numbers of incarnations are those of one coordinator. Under another one the same number may be living too, and
        what a client with a wrong list of addresses had written would be missing here without a word.

        Raises:
            Refusal: STALE_INCARNATION.
        """
        if fleet and self.fleet and fleet != self.fleet:
            raise Refusal(
                Reason.STALE_INCARNATION,
                "the agent was opened at a server that shares nothing with this one; a client's addresses have to be "
                "of servers on the same Redis and etcd",
            )

    def note_refusal(self, namespace: str, refusal: Refusal) -> None:
        """Counts a refused write."""
        self.refusals[refusal.reason] += 1
        if refusal.reason in CONFLICTS:
            policy = self.rules(namespace).policy
            rule = (
                policy.for_key(refusal.detail.key)
                if isinstance(refusal.detail, ConflictInfo)
                else policy.conflict_policy
            )
            self.metrics.conflict(namespace, rule, "refused")

    async def locate(self, namespace: str) -> NamespaceRef:
        """Returns the living generation as last known."""
        return self.directory.cached(namespace) or await self.directory.resolve(namespace)

    async def relocate(self, ref: NamespaceRef) -> NamespaceRef | None:
        """Looks a dropped generation up again; returns the newer one, None if there is none."""
        newer = await self.directory.reload(ref.name)
        return newer if newer.generation > ref.generation else None

    def circumstances(
        self, call: Call, namespace: str, key: str, policy: NamespacePolicy, view: NamespaceView
    ) -> Circumstances:
        """Returns what a decision about ``key`` depends on besides record and operation."""
        return Circumstances(
            now_ms=view.now_ms,
            actor=call.actor,
            policy=policy.for_key(key),
            private=is_private_to(call, namespace),
            floor_context=view.floor_context,
            item_bytes_max=policy.item_bytes_max,
        )


def state_of(namespace: str, view: NamespaceView) -> NamespaceState:
    """Returns what the order of checks needs to know of a namespace."""
    return NamespaceState(namespace, view.deleted, view.head, view.cuts)


def deleted(namespace: str) -> Refusal:
    """Returns the refusal of any call on a deleted namespace."""
    return Refusal(Reason.NAMESPACE_DELETED, f"namespace {namespace!r} was deleted; EnsureNamespace opens a new one")


def draining() -> Refusal:
    """Returns the refusal of a call that would outlive the process."""
    return Refusal(Reason.DRAINING, "the server is shutting down; try another one, or again later")


def located(refusal: Refusal, namespace: str, head: int) -> Refusal:
    """Returns ``refusal`` with the place and the head at which it was decided, unless it has them."""
    if not refusal.namespace:
        refusal.namespace = namespace
        refusal.head = head
    return refusal


def check_tokens(call: Call, namespace: str, view: NamespaceView) -> None:
    """Checks what a reader's tokens name of a namespace.

    Raises:
        Refusal: ACKED_WRITES_LOST, FUTURE_REVISION.
    """
    if call.tokens is None:
        return
    try:
        check_presented(call.presents(namespace), state_of(namespace, view))
    except Refusal as refusal:
        raise located(refusal, namespace, view.head) from None
