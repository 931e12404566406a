"""Draws `noosphere top` with Rich: one frame that fits the terminal, without anything that names could break."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from .output import one_line, shorten
from .shapes import ServerShape
from .top_shapes import TopNameShape, TopSessionsShape, TopShape

WIDE = 120
"""From this width on agents and namespaces are side by side."""

_HEAD_LINES = 6
_SESSIONS_MAX = 3
_SERVERS_MAX = 3
_NAMES_MIN = 2


def frame(
    found: TopShape, servers: Sequence[ServerShape], address: str, trouble: str, width: int, height: int
) -> RenderableType:
    """Returns what is shown, in at most ``height`` lines of at most ``width`` columns.

    Args:
        found: the figures.
        servers: of the fleet.
        address: where the figures are from.
        trouble: why they are not new; "" if they are.
        width: of the terminal, in columns.
        height: of the terminal, in lines.
    """
    side_by_side = width >= WIDE
    sessions = found["sessions"][:_SESSIONS_MAX]
    shown_servers = servers[:_SERVERS_MAX] if len(servers) > 1 else ()
    rows = _rows(height, len(shown_servers), len(sessions), side_by_side)
    if rows < _NAMES_MIN:
        # Who calls matters more than the rest.
        sessions, shown_servers = [], ()
        rows = max(1, _rows(height, 0, 0, side_by_side))
    parts: list[RenderableType] = [*_head(found, address, trouble, width)]
    parts += [_server(one, width) for one in shown_servers]
    column = (width - 2) // 2 if side_by_side else width
    agents = _names("AGENTS", found["agents"], rows, column)
    namespaces = _names("NAMESPACES", found["namespaces"], rows, column)
    if side_by_side:
        both = Table.grid(padding=(0, 2, 0, 0))
        both.add_row(agents, namespaces)
        parts += [Text(""), both]
    else:
        parts += [Text(""), agents, Text(""), namespaces]
    if sessions:
        parts += [Text(""), _sessions(sessions)]
    return Group(*parts)


def _rows(height: int, servers: int, sessions: int, side_by_side: bool) -> int:
    """Returns how many names each table has room for."""
    left = height - _HEAD_LINES - servers - (sessions + 2 if sessions else 0) - 1
    return left - 2 if side_by_side else (left - 4) // 2


def _head(found: TopShape, address: str, trouble: str, width: int) -> list[RenderableType]:
    where = f"noosphere top  {one_line(address)}  epoch {found['epoch']}  up {_span(found['uptime_seconds'])}"
    time = (found["time"] or "")[11:19]
    first = Text(where, style="bold", no_wrap=True, overflow="ellipsis")
    state = Text(f"{time} UTC, over {_span(found['window_seconds'])}", style="dim", no_wrap=True, overflow="ellipsis")
    if trouble:
        state = Text(one_line(trouble), style="bold red", no_wrap=True, overflow="ellipsis")
    took = {one["name"]: one for one in found["latencies"]}

    def latency(name: str, label: str) -> str:
        one = took.get(name)
        if one is None or one["p50_seconds"] is None:
            return f"{label} -"
        return f"{label} {_span(one['p50_seconds'])}/{_span(one['p99_seconds'] or 0.0)}"

    calls = [
        f"calls {found['calls_per_second']:,.1f}/s",
        f"open {found['open_count']:,}",
        f"refused {found['refusals_per_second']:,.1f}/s",
        f"conflicts {found['conflicts_per_second']:,.1f}/s",
    ]
    times = [
        latency("Get", "get"),
        latency("Put", "put"),
        latency("commit", "commit"),
        latency("watch lag", "watch lag"),
    ]
    if found["state_known"]:
        held = [
            f"agents {found['agent_count']:,}",
            f"watches {found['watch_count']:,}",
            f"namespaces {found['namespace_count']:,}",
            f"records {found['record_count']:,} ({_size(found['record_bytes'])})",
            f"memory {_size(found['resident_bytes'])}",
        ]
        jobs = [
            f"fact jobs {found['jobs_waiting']:,} waiting",
            f"{found['jobs_leased']:,} at work",
            f"{found['jobs_dead']:,} given up",
            f"oldest {_span(found['oldest_job_seconds'])}",
        ]
    else:
        held, jobs = ["the store does not tell what it holds", f"memory {_size(found['resident_bytes'])}"], []
    lines = ["  ".join(calls), "  ".join(times) + "  (p50/p99)", "  ".join(held), "  ".join(jobs)]
    return [first, state, *(Text(line, no_wrap=True, overflow="ellipsis") for line in lines)]


def _server(one: ServerShape, width: int) -> Text:
    what = " ".join(("leader",) * one["leader"] + ("answered",) * one["answered"])
    line = f"server {one_line(one['address'])}  {one_line(one['version'])}  {what}"
    return Text(shorten(line.rstrip(), width), style="dim", no_wrap=True)


def _names(title: str, names: Sequence[TopNameShape], rows: int, width: int) -> RenderableType:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), width=width, header_style="bold")
    table.add_column(title, ratio=1, no_wrap=True, overflow="ellipsis")
    for heading in ("CALLS/S", "REFUSED/S", "CONFL./S", "CALLS"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in names[:rows]:
        table.add_row(
            Text(one_line(one["name"]), no_wrap=True, overflow="ellipsis"),
            f"{one['calls_per_second']:,.1f}",
            Text(f"{one['refusals_per_second']:,.1f}", style="yellow" if one["refusals_per_second"] else ""),
            Text(f"{one['conflicts_per_second']:,.1f}", style="red" if one["conflicts_per_second"] else ""),
            f"{one['call_count']:,}",
        )
    if not names:
        table.add_row(Text("none has called", style="dim"), "", "", "", "")
    return table


def _sessions(sessions: Sequence[TopSessionsShape]) -> RenderableType:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("SESSIONS BY CLASS", no_wrap=True, overflow="ellipsis", max_width=24)
    for heading in ("TURNS", "CONTEXT USED", "RECALL USED", "LIFE", "GROWTH"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in sessions:
        table.add_row(
            Text(one_line(one["session_class"]), no_wrap=True, overflow="ellipsis"),
            f"{one['turn_count']:,}",
            _share(one["context_utilization"]),
            _share(one["state_hit_rate"]),
            "-" if one["state_lifespan"] is None else f"{one['state_lifespan']:.1f}",
            _share(one["token_growth"]),
        )
    return Padding(table, 0)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value * 100:.0f} %"


def _span(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    minutes = int(seconds // 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02} min"


def _size(count: int) -> str:
    size, units = float(count), ["B", "KiB", "MiB", "GiB"]
    while size >= 1024 and len(units) > 1:
        size, units = size / 1024, units[1:]
    return f"{size:.3g} {units[0]}"
