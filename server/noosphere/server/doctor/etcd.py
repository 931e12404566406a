"""etcd: whether its members answer, have room, and hold what this version knows."""

from __future__ import annotations

from collections.abc import AsyncIterator

from noosphere.consistency import Refusal

from ..addresses import split_list
from ..config import Settings
from ..drivers import access_of
from ..storage.etcd.access import UnfitFiles
from ..storage.etcd.client import EtcdClient
from ..storage.etcd.keys import FORMAT, Layout
from .findings import Finding, problem


async def examine_etcd(settings: Settings) -> AsyncIterator[Finding]:
    """Looks at each member that is configured."""
    told: set[Finding] = set()
    for endpoint in split_list(settings.etcd_endpoints):
        try:
            client = EtcdClient([endpoint], access_of(settings))
        except UnfitFiles as error:
            yield problem(
                "certificate_unusable",
                "a file for TLS towards etcd cannot be used",
                error,
                "let the server's user read it, or configure another file",
            )
            return
        try:
            found = await _examine(client, endpoint, settings.etcd_root)
        except Refusal as refusal:
            found = [
                problem(
                    "etcd_unreachable",
                    "a member of etcd does not answer",
                    f"{endpoint}: {refusal.message.partition(',')[0]}",
                    "start it, or correct etcd_endpoints",
                )
            ]
        finally:
            await client.close()
        for one in found:
            # Alarms are those of all members, whichever is asked.
            if one not in told:
                told.add(one)
                yield one


async def _examine(client: EtcdClient, endpoint: str, root: str) -> list[Finding]:
    found = []
    stamp = await client.read(Layout(root).format)
    if stamp is not None and stamp.value != FORMAT:
        shown = stamp.value.decode(errors="replace")[:20]
        found.append(
            problem(
                "newer_format",
                "what etcd holds is of another format than this program knows",
                f"{root}format is {shown!r}, this program knows {FORMAT.decode()!r}",
                "use the version of noosphere that wrote it, or another etcd_root",
            )
        )
    found += [
        problem(
            "etcd_alarm",
            "etcd has raised an alarm and refuses writes",
            f"{alarm} at member {member:x}",
            "for NOSPACE: compact, defragment, raise --quota-backend-bytes, then `etcdctl alarm disarm`",
        )
        for member, alarm in await client.alarms()
    ]
    return found
