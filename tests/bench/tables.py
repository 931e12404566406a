"""The tables of the report: which rows stand in each, and what their columns show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from .rows import Row

Cell = Callable[[Row], str]


class Table(NamedTuple):
    """A table of the report.

    Attributes:
        title: its heading.
        note: what a reader has to know, between heading and table.
        rows: the names of its rows.
        columns: the name of each, and what shows a row there.
    """

    title: str
    note: str
    rows: tuple[str, ...]
    columns: Sequence[tuple[str, Cell]]


def _figure(name: str, form: str) -> Cell:
    return lambda row: form.format(row.figures[name])


def _value(form: str) -> Cell:
    def cell(row: Row) -> str:
        value = row.value
        return f"**{form.format(value.median)}** ({form.format(value.low)} to {form.format(value.high)})"

    return cell


def _goal(form: str) -> Cell:
    def cell(row: Row) -> str:
        if row.goal is None:
            return "none"
        return (
            f"{'≥' if row.goal.at_least else '≤'} {form.format(row.goal.limit)}: {'met' if row.met else '**missed**'}"
        )

    return cell


def _optional(name: str, form: str) -> Cell:
    return lambda row: form.format(row.figures[name]) if name in row.figures else "none"


def _pair(first: str, second: str, form: str) -> Cell:
    return lambda row: f"{form.format(row.figures[first])} / {form.format(row.figures[second])}"


_WHAT: tuple[str, Cell] = ("what", lambda row: row.what)
_FLOOR_COLUMNS: tuple[tuple[str, Cell], ...] = (
    _WHAT,
    ("ratio (IQR)", _value("{:.2f}")),
    ("goal", _goal("{:.2f}")),
    ("calls/s", _pair("ours_rate", "floor_rate", "{:,.0f}")),
    ("server CPU µs/call", _pair("ours_cpu_us", "floor_cpu_us", "{:.0f}")),
    ("server busy", _pair("ours_busy", "floor_busy", "{:.0%}")),
    ("p50 ms", _pair("ours_p50_ms", "floor_p50_ms", "{:.2f}")),
    ("p99 ms", _pair("ours_p99_ms", "floor_p99_ms", "{:.2f}")),
    ("generator CPU µs/call", _pair("ours_generator_us", "floor_generator_us", "{:.0f}")),
    ("pairs of calls", lambda row: f"{row.value.count} of {row.figures['calls']:,.0f}"),
)
_STREAM_COLUMNS: tuple[tuple[str, Cell], ...] = (
    _WHAT,
    ("ratio (IQR)", _value("{:.2f}")),
    ("goal", _goal("{:.0f}")),
    ("callers", _figure("callers", "{:.0f}")),
    ("calls/s", _pair("coalesced_rate", "unary_rate", "{:,.0f}")),
    ("server CPU µs/call", _pair("coalesced_server_us", "unary_server_us", "{:.0f}")),
    ("client CPU µs/call", _pair("coalesced_cpu_us", "unary_cpu_us", "{:.0f}")),
    ("p50 ms", _pair("coalesced_p50_ms", "unary_p50_ms", "{:.2f}")),
    ("p99 ms", _pair("coalesced_p99_ms", "unary_p99_ms", "{:.2f}")),
    ("pairs", lambda row: f"{row.value.count}"),
)

TABLES = (
    Table(
        "Calls against the floor",
        "Ours / floor. The ratio is of calls per second, over pairs of samples; CPU is of the server's process alone, "
        "busy is its CPU time over wall time.",
        ("get_floor", "put_floor", "client_get_floor", "client_put_floor"),
        (
            *_FLOOR_COLUMNS,
            ("fsyncs for calls", lambda row: f"{row.figures['syncs']:,.0f} / {row.figures['calls_total']:,.0f}"),
        ),
    ),
    Table(
        "Calls against the floor, all protection on",
        "As above; the server takes JSON web tokens and API tokens, enforces grants and limits, writes an audit log "
        "with 1 % of reads, serves metrics, and traces 1 % of calls. Under mTLS callers show certificates beside their "
        "tokens. The floor does none of this, and speaks plain text.",
        ("guarded_get_floor", "guarded_put_floor", "guarded_tls_get_floor", "guarded_tls_put_floor"),
        (
            *_FLOOR_COLUMNS,
            ("fsyncs for calls", lambda row: f"{row.figures['syncs']:,.0f} / {row.figures['calls_total']:,.0f}"),
        ),
    ),
    Table(
        "Calls that share a stream",
        "Coalesced / unary: the same callers in one process, through `noosphere.client`, against one server. The ratio "
        "is of calls per second, over pairs of samples.",
        ("coalesced_get", "coalesced_put"),
        _STREAM_COLUMNS,
    ),
    Table(
        "Calls on Redis against the floor",
        "As against the floor above, with the working memory on Redis, which syncs its log once a second (`appendfsync "
        "everysec`): a Put is acknowledged when Redis has it. One replica of our server, one Redis and the generator "
        "share the machine's cores.",
        ("redis_get_floor", "redis_put_floor"),
        (
            *_FLOOR_COLUMNS,
            ("Redis CPU µs/call", _figure("redis_cpu_us", "{:.0f}")),
        ),
    ),
    Table(
        "Calls on Redis that share a stream",
        "As above, with the working memory on Redis.",
        ("redis_coalesced_get", "redis_coalesced_put"),
        _STREAM_COLUMNS,
    ),
    Table(
        "Commits inside Redis",
        "The whole script of a commit, by Redis's own counters: looks up a numbered request and remembers it, checks "
        "the revision of what is replaced, writes a record of 1,024 bytes below two folders (three collections move), "
        "logs it and tells one subscriber. The value is the mean of a batch.",
        ("redis_commit_script",),
        (
            _WHAT,
            ("µs (IQR)", _value("{:.1f}")),
            ("goal", _goal("{:.0f}")),
            ("p50 µs", _figure("p50", "{:.0f}")),
            ("p99 µs", _figure("p99", "{:.0f}")),
            ("batches of commits", lambda row: f"{row.value.count} of {row.figures['calls']:,.0f}"),
        ),
    ),
    Table(
        "One hot key",
        "Ours / redis-py: as many processes as stated each read a number and write the next in its place, again and "
        "again. Theirs: `WATCH`, `GET`, `MULTI`, `SET`, `EXEC` with the sync client, straight at the Redis on which "
        "ours have their working memory. Ours, through one server: `Key.update`, which reserves the key after two "
        "refusals, with values of 256 bytes as theirs; or `Key.increment`, which needs no reading. What is counted at "
        "the end must be what was acknowledged.",
        ("redis_hot_key", "redis_hot_counter"),
        (
            _WHAT,
            ("ratio (IQR)", _value("{:.2f}")),
            ("goal", _goal("{:.0f}")),
            ("processes", _figure("processes", "{:.0f}")),
            ("changes/s", _pair("ours_rate", "theirs_rate", "{:,.0f}")),
            ("attempts for a change", _pair("ours_attempts", "theirs_attempts", "{:.2f}")),
            ("p50 ms", _pair("ours_p50_ms", "theirs_p50_ms", "{:.1f}")),
            ("p99 ms of the slowest", _pair("ours_p99_ms", "theirs_p99_ms", "{:.1f}")),
            ("fewest / most changes of one, ours", _pair("ours_fewest", "ours_most", "{:.0f}")),
            ("fewest / most of one, theirs", _pair("theirs_fewest", "theirs_most", "{:.0f}")),
            ("CPU µs a change: processes", _pair("ours_cpu_us", "theirs_cpu_us", "{:.0f}")),
            ("server", _figure("ours_server_us", "{:.0f}")),
            ("Redis", _pair("ours_redis_us", "theirs_redis_us", "{:.0f}")),
            ("pairs of spans", lambda row: f"{row.value.count}"),
        ),
    ),
    Table(
        "Two replicas",
        "The same callers, in two processes with half of them each: all of one replica, and each half of a replica of "
        "its own, which share one Redis and one etcd. Where the whole machine is busy, its cores are what limits them: "
        "replicas, Redis and callers share them, and each call costs all three. CPU is of all replicas together; the "
        "machine's is that of replicas, Redis and callers over all cores.",
        ("replicas_get", "replicas_put"),
        (
            _WHAT,
            ("ratio (IQR)", _value("{:.2f}")),
            ("calls/s", _pair("two_rate", "one_rate", "{:,.0f}")),
            ("each replica busy", _pair("two_replica_busy", "one_replica_busy", "{:.0%}")),
            (
                "machine busy",
                lambda row: (
                    f"{row.figures['two_machine_busy']:.0%} / {row.figures['one_machine_busy']:.0%} "
                    f"of {row.figures['cores']:.0f} cores"
                ),
            ),
            ("CPU µs/call: replicas", _pair("two_replicas_us", "one_replicas_us", "{:.0f}")),
            ("Redis", _pair("two_redis_us", "one_redis_us", "{:.0f}")),
            ("callers", _pair("two_generators_us", "one_generators_us", "{:.0f}")),
            ("p50 ms", _pair("two_p50_ms", "one_p50_ms", "{:.2f}")),
            ("p99 ms", _pair("two_p99_ms", "one_p99_ms", "{:.2f}")),
            ("pairs of calls", lambda row: f"{row.value.count} of {row.figures['calls']:,.0f}"),
        ),
    ),
    Table(
        "Writes above capacity",
        "Above / at the peak: two processes with many clients (`noosphere.client`, 8 callers each) write for a while; "
        "a client waits as long as it is asked to and slows itself down. The server takes a stated number of calls at "
        "a time (`--limits-server-calls-in-flight-max`). Above capacity there are twice as many callers as that, none "
        "of which pauses by itself; the peak is the best of a quarter, a half and all of that number. Counted is what "
        "is acknowledged within the time; failed are calls that ended with an error.",
        ("overload_goodput",),
        (
            _WHAT,
            ("ratio (IQR)", _value("{:.2f}")),
            ("goal", _goal("{:.2f}")),
            ("calls taken", _figure("room", "{:.0f}")),
            ("callers", _pair("above_callers", "peak_callers", "{:.0f}")),
            ("acknowledged/s", _pair("above_rate", "peak_rate", "{:,.0f}")),
            ("refused on the way", _pair("above_refused", "peak_refused", "{:,.0f}")),
            ("failed", _pair("above_failed", "peak_failed", "{:,.0f}")),
            ("server CPU s", _pair("above_server_cpu_s", "peak_server_cpu_s", "{:.1f}")),
            ("clients CPU s", _pair("above_clients_cpu_s", "peak_clients_cpu_s", "{:.1f}")),
            ("p50 ms", _pair("above_p50_ms", "peak_p50_ms", "{:.1f}")),
            ("p99 ms", _pair("above_p99_ms", "peak_p99_ms", "{:.1f}")),
            ("pairs of spans", lambda row: f"{row.value.count}"),
        ),
    ),
    Table(
        "Health under a flood",
        "`grpc.health.v1.Health/Check`, one question after the other on a connection of its own, while two processes "
        "on the same cores keep Puts under way with raw stubs, which ask again at once whatever they are told; and "
        "the same without them. The server has its limits as shipped.",
        ("overload_health",),
        (
            _WHAT,
            ("ms (IQR)", _value("{:.1f}")),
            ("goal", _goal("{:.0f}")),
            ("Puts under way", _figure("outstanding", "{:,.0f}")),
            ("p50 ms, flood / quiet", _pair("flood_p50_ms", "quiet_p50_ms", "{:.1f}")),
            ("p99 ms", _pair("flood_p99_ms", "quiet_p99_ms", "{:.1f}")),
            ("Puts acknowledged / refused a second", _pair("flood_acked_rate", "flood_refused_rate", "{:,.0f}")),
            ("server MiB", _figure("flood_resident_mib", "{:.0f}")),
            ("samples of checks", lambda row: f"{row.value.count} of {row.figures['checks']:,.0f}"),
        ),
    ),
    Table(
        "Calls of the sync client",
        "One caller, one call after the other, in a thread / in a task; the value is the time of a sync call as a "
        "share of what it may take. The time is the mean of each sample, over pairs of samples.",
        ("sync_get", "sync_put"),
        (
            _WHAT,
            ("share (IQR)", _value("{:.2f}")),
            ("goal", _goal("{:.0f}")),
            ("µs/call", _pair("sync_us", "async_us", "{:.0f}")),
            ("client CPU µs/call", _pair("sync_cpu_us", "async_cpu_us", "{:.0f}")),
            ("p50 ms", _pair("sync_p50_ms", "async_p50_ms", "{:.2f}")),
            ("p99 ms", _pair("sync_p99_ms", "async_p99_ms", "{:.2f}")),
            ("pairs of calls", lambda row: f"{row.value.count} of {row.figures['calls']:,.0f}"),
        ),
    ),
    Table(
        "Near cache",
        "Reads of one key of 256 bytes, while another process writes that key 100 times a second. The time is that of "
        "the reads and of taking in what was written. Redis: `GET` by redis-py asyncio with hiredis, one connection, "
        "one call after the other. Staleness: how long after its acknowledgement a write was still not shown.",
        ("near_cache_raw", "near_cache_record", "near_cache_json"),
        (
            _WHAT,
            ("value (IQR)", _value("{:,.0f}")),
            ("goal", _goal("{:.0f}")),
            ("ns/read", _figure("ns", "{:,.0f}")),
            ("redis-py GET/s", _optional("redis_rate", "{:,.0f}")),
            ("writes/s", _figure("writes_per_s", "{:.0f}")),
            ("greatest staleness ms", _figure("stale_ms_max", "{:.1f}")),
            ("samples", lambda row: f"{row.value.count}"),
        ),
    ),
    Table(
        "Contexts",
        "One caller, one call after the other, with raw stubs. Above the bare RPC: the median of AssembleContext less "
        "that of GetServerInfo, in samples taken side by side. No fact search.",
        ("assemble", "assemble_flat"),
        (
            _WHAT,
            ("value (IQR)", _value("{:.2f}")),
            ("goal", _goal("{:.1f}")),
            ("messages", _pair("messages_small", "messages_large", "{:,.0f}")),
            ("items", _figure("items", "{:.0f}")),
            ("p50 ms", _pair("small_ms", "large_ms", "{:.2f}")),
            ("p99 ms", _pair("small_p99_ms", "large_p99_ms", "{:.2f}")),
            ("bare RPC p50 ms", _figure("bare_ms", "{:.2f}")),
            ("samples of calls", lambda row: f"{row.value.count} of {row.figures['calls']:,.0f}"),
        ),
    ),
    Table(
        "Checkpoints",
        "Turns that change 5 items each and end with a checkpoint, the first of them left out. Bytes as the checkpoint "
        "states them, copies of what was overwritten included.",
        ("checkpoint_bytes",),
        (
            _WHAT,
            ("share (IQR)", _value("{:.2f}")),
            ("goal", _goal("{:.0f}")),
            ("greatest", _figure("greatest_share", "{:.2f}")),
            ("bytes changed a turn", _figure("changed_bytes", "{:,.0f}")),
            ("checkpoint bytes a turn", _figure("checkpoint_bytes", "{:,.0f}")),
            ("items", _figure("items", "{:.0f}")),
            ("turns", _figure("turns", "{:.0f}")),
        ),
    ),
    Table(
        "Search for facts",
        "Hybrid search for the best 10, by keywords and by vectors of 512 numbers, one after the other, in process: "
        "from the question, with its vector, to the hits. Embedding the question comes on top. Facts are of one owner; "
        "the filter, by kind of memory, leaves one in a hundred. Every search has to find the fact that it asks about.",
        ("fact_search_small", "fact_search_filtered", "fact_search_large"),
        (
            _WHAT,
            ("ms (IQR)", _value("{:.2f}")),
            ("goal", _goal("{:.0f}")),
            ("facts", _figure("facts", "{:,.0f}")),
            ("p99 ms", _figure("p99_ms", "{:.2f}")),
            ("loaded in s", _figure("load_s", "{:.1f}")),
            ("samples of searches", lambda row: f"{row.value.count} of {row.figures['calls']:,.0f}"),
        ),
    ),
    Table(
        "Contexts with facts",
        "One caller, one call after the other, with raw stubs, of a whole server with its bundled embedder: contexts "
        "whose input asks for one of the facts, another one each time, less those with the same inputs and no facts. "
        "Embedding the question is part of it. Every context has to hold the fact that it asks for.",
        ("fact_context",),
        (
            _WHAT,
            ("ms (IQR)", _value("{:.2f}")),
            ("goal", _goal("{:.0f}")),
            ("facts", _figure("facts", "{:,.0f}")),
            ("messages", _figure("messages", "{:,.0f}")),
            ("p50 ms, with / without", _pair("ours_p50_ms", "base_p50_ms", "{:.2f}")),
            ("p99 ms", _pair("ours_p99_ms", "base_p99_ms", "{:.2f}")),
            ("pairs of calls", lambda row: f"{row.value.count} of {row.figures['calls']:,.0f}"),
        ),
    ),
    Table(
        "Candidates",
        "From the first that is queued until each has become a fact, of 50 owners, all steps of the pipeline and every "
        "sync of the disk included, in process; with the bundled embedder each claim is embedded, too.",
        ("fact_intake", "fact_intake_embedded"),
        (
            _WHAT,
            ("candidates/s (IQR)", _value("{:,.0f}")),
            ("goal", _goal("{:,.0f}")),
            ("CPU µs each", _figure("cpu_us", "{:,.0f}")),
            ("queued/s", _figure("queued_rate", "{:,.0f}")),
            ("samples of candidates", lambda row: f"{row.value.count} of {row.figures['calls']:,.0f}"),
        ),
    ),
    Table(
        "Calls beside candidates",
        "One caller, one call after the other, with raw stubs, of a whole server with its bundled embedder. "
        "SubmitCandidates submits one candidate and does not wait for the decision; a plain Put is of a record of "
        "256 bytes. Contexts: while candidates wait and are decided, compared with before they came.",
        ("fact_submit", "fact_backlog"),
        (
            _WHAT,
            ("ratio (IQR)", _value("{:.2f}")),
            ("goal", _goal("{:.1f}")),
            ("p50 ms", _pair("ours_p50_ms", "base_p50_ms", "{:.2f}")),
            ("p99 ms", _pair("ours_p99_ms", "base_p99_ms", "{:.2f}")),
            ("waiting, first / last", _pair("waiting_first", "waiting_last", "{:,.0f}")),
            ("pairs of calls", lambda row: f"{row.value.count} of {row.figures['calls']:,.0f}"),
        ),
    ),
    Table(
        "In process, without gRPC",
        "CPU time of the whole process per operation (the writer thread included), few / many records. The mean ratio "
        "also counts what happens in few batches only, such as full garbage collections.",
        ("engine_get", "engine_put", "engine_watch"),
        (
            _WHAT,
            ("ratio (IQR)", _value("{:.2f}")),
            ("goal", _goal("{:.1f}")),
            ("records", _pair("records_small", "records_large", "{:,.0f}")),
            ("CPU µs", _pair("small_cpu_us", "large_cpu_us", "{:.1f}")),
            ("wall µs", _pair("small_wall_us", "large_wall_us", "{:.1f}")),
            ("mean ratio", _figure("mean_ratio", "{:.2f}")),
            ("pairs of operations", lambda row: f"{row.value.count} of {row.figures['calls']:,.0f}"),
        ),
    ),
    Table(
        "Restart",
        "From the start of the process to the reply; every restart is of the same copied folder, pages in the "
        "system's cache. The journal is what was not folded yet when the server was killed.",
        ("restart_clean", "restart_killed"),
        (
            _WHAT,
            ("seconds (IQR)", _value("{:.2f}")),
            ("goal", _goal("{:.0f}")),
            ("records", _figure("records", "{:,.0f}")),
            ("until it listens, s", _figure("listening_s", "{:.2f}")),
            ("CPU s", _figure("cpu_s", "{:.2f}")),
            ("journal MiB", _figure("journal_mib", "{:.1f}")),
            ("orderly shutdown, s", _figure("stop_s", "{:.2f}")),
            ("restarts", lambda row: f"{row.value.count}"),
        ),
    ),
    Table(
        "Memory",
        "Resident memory of the process after a restart and the first Get, less that of a server with one record, "
        "divided by the records.",
        ("memory_per_record",),
        (
            _WHAT,
            ("bytes (IQR)", _value("{:,.0f}")),
            ("goal", _goal("{:,.0f}")),
            ("after SIGKILL", _figure("killed_bytes", "{:,.0f}")),
            ("in the process that wrote them (its log included)", _figure("populated_bytes", "{:,.0f}")),
            ("whole process MiB", _pair("resident_mib", "empty_mib", "{:.0f}")),
            ("records", _figure("records", "{:,.0f}")),
        ),
    ),
    Table(
        "Put beside a scan",
        "One caller puts, one after the other; another process lists all records, page after page of 1,000, without "
        "a pause.",
        ("put_beside_scan",),
        (
            _WHAT,
            ("p99 ms (IQR)", _value("{:.2f}")),
            ("p50 / p99 idle, ms", _pair("idle_p50_ms", "idle_p99_ms", "{:.2f}")),
            ("p50 / p99 beside a scan, ms", _pair("scan_p50_ms", "scan_p99_ms", "{:.2f}")),
            ("records listed/s", _figure("scanned_per_s", "{:,.0f}")),
            ("passes over the records", lambda row: f"{row.figures['passes']:.1f} over {row.figures['records']:,.0f}"),
            ("samples of Puts", lambda row: f"{row.value.count} of {row.figures['calls']:,.0f}"),
        ),
    ),
)
ROW_NAMES = tuple(name for table in TABLES for name in table.rows)
