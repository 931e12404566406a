"""How much is measured: every count of a run in one place, so that the report can state them."""

from __future__ import annotations

from dataclasses import dataclass

VALUE_BYTES = 256
"""Size of every value, as the goals for restart and memory say."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The counts of one run.

    Attributes:
        name: ``full``, ``quick`` or ``smoke``.
        row_seconds: how long a row is sampled, but for the least number of rounds; see :mod:`.rounds`.
        rounds_least: that number.
        part_seconds_max: a part of the run that takes longer is given up.
        callers: concurrent callers of the rows that are compared with the floor.
        pairs: pairs of samples, ours and the floor's, at the stub's level.
        get_calls: Gets of one caller in one sample.
        put_calls: Puts of one caller in one sample.
        client_pairs: pairs of samples through ``noosphere.client``.
        warm_calls: calls of one caller before the first pair, not measured.
        records_small: records of the small store that the large one is compared with.
        records_large: records of the large store.
        engine_pairs: pairs of batches of the rows without gRPC.
        engine_gets: Gets in a batch.
        engine_puts: Puts, and afterwards watch events, in a batch.
        engine_callers: concurrent Puts of a batch; a divisor of ``records_small``, so that groups are full.
        scan_pairs: pairs of samples of Put latency, idle and beside a scan.
        scan_puts: Puts in each of them.
        restarts: restarts of each kind.
        profile_calls: calls of one caller under the profiler.
        fast_callers: concurrent callers of one client, coalesced and unary.
        fast_pairs: pairs of their samples.
        unary_calls: calls of one of them in one sample.
        coalesced_calls: the same where they are coalesced, so that a sample takes about as long.
        cache_pairs: pairs of samples of a near cache and of Redis.
        cache_reads: reads of the cache in one sample.
        redis_gets: GETs in one sample.
        sync_pairs: pairs of samples of one caller of the sync client and one of the async.
        sync_calls: calls in one of them.
        session_messages: messages of the short transcript.
        session_messages_large: messages of the long one.
        session_items: items of working memory.
        session_pairs: rounds of samples of both and of the bare call.
        session_calls: calls in one sample.
        session_turns: turns that end with a checkpoint.
        facts_small: facts of the small fact store.
        facts_large: facts of the large one.
        fact_samples: samples of each kind about facts.
        fact_searches: searches in one of them.
        fact_candidates: candidates through the whole pipeline in one of them.
        fact_embedded: the same where each is embedded.
        fact_submits: candidates submitted, and Puts, in one of them.
        fact_backlog: candidates that wait while contexts are assembled.
        script_samples: batches of commits whose time inside Redis is asked for.
        script_commits: commits in one of them.
        cas_processes: processes that change one hot key.
        cas_pairs: pairs of spans, ours and redis-py's.
        cas_seconds: length of one span.
        overload_callers: calls that the overloaded server takes at a time; twice as many callers call.
        overload_rounds: rounds of each kind about overload.
        overload_seconds: length of one span of writes.
        overload_checks: questions for health in one sample.
        flood_calls: Puts under way of clients that heed nothing.
    """

    name: str
    row_seconds: float
    rounds_least: int
    part_seconds_max: float
    callers: int
    pairs: int
    get_calls: int
    put_calls: int
    client_pairs: int
    warm_calls: int
    records_small: int
    records_large: int
    engine_pairs: int
    engine_gets: int
    engine_puts: int
    engine_callers: int
    scan_pairs: int
    scan_puts: int
    restarts: int
    profile_calls: int
    fast_callers: int
    fast_pairs: int
    unary_calls: int
    coalesced_calls: int
    cache_pairs: int
    cache_reads: int
    redis_gets: int
    sync_pairs: int
    sync_calls: int
    session_messages: int
    session_messages_large: int
    session_items: int
    session_pairs: int
    session_calls: int
    session_turns: int
    facts_small: int
    facts_large: int
    fact_samples: int
    fact_searches: int
    fact_candidates: int
    fact_embedded: int
    fact_submits: int
    fact_backlog: int
    script_samples: int
    script_commits: int
    cas_processes: int
    cas_pairs: int
    cas_seconds: float
    overload_callers: int
    overload_rounds: int
    overload_seconds: float
    overload_checks: int
    flood_calls: int


FULL = Plan(
    name="full",
    row_seconds=8.0,
    rounds_least=5,
    part_seconds_max=300.0,
    callers=16,
    pairs=13,
    get_calls=300,
    put_calls=150,
    client_pairs=7,
    warm_calls=100,
    records_small=100,
    records_large=100_000,
    engine_pairs=11,
    engine_gets=4_000,
    engine_puts=2_000,
    engine_callers=50,
    scan_pairs=3,
    scan_puts=400,
    restarts=3,
    profile_calls=150,
    fast_callers=64,
    fast_pairs=9,
    unary_calls=60,
    coalesced_calls=240,
    cache_pairs=7,
    cache_reads=500_000,
    redis_gets=5_000,
    sync_pairs=9,
    sync_calls=1_000,
    session_messages=200,
    session_messages_large=10_000,
    session_items=100,
    session_pairs=9,
    session_calls=100,
    session_turns=40,
    facts_small=10_000,
    facts_large=100_000,
    fact_samples=5,
    fact_searches=40,
    fact_candidates=1_000,
    fact_embedded=300,
    fact_submits=100,
    fact_backlog=20_000,
    script_samples=7,
    script_commits=1_000,
    cas_processes=16,
    cas_pairs=4,
    cas_seconds=2.0,
    overload_callers=128,
    overload_rounds=3,
    overload_seconds=2.0,
    overload_checks=40,
    flood_calls=4_096,
)

QUICK = Plan(
    name="quick",
    row_seconds=3.0,
    rounds_least=2,
    part_seconds_max=300.0,
    callers=16,
    pairs=3,
    get_calls=60,
    put_calls=40,
    client_pairs=2,
    warm_calls=20,
    records_small=100,
    records_large=10_000,
    engine_pairs=3,
    engine_gets=1_000,
    engine_puts=300,
    engine_callers=50,
    scan_pairs=1,
    scan_puts=100,
    restarts=1,
    profile_calls=40,
    fast_callers=64,
    fast_pairs=3,
    unary_calls=20,
    coalesced_calls=80,
    cache_pairs=3,
    cache_reads=300_000,
    redis_gets=1_000,
    sync_pairs=3,
    sync_calls=300,
    session_messages=200,
    session_messages_large=2_000,
    session_items=100,
    session_pairs=3,
    session_calls=30,
    session_turns=20,
    facts_small=2_000,
    facts_large=10_000,
    fact_samples=3,
    fact_searches=15,
    fact_candidates=300,
    fact_embedded=60,
    fact_submits=40,
    fact_backlog=5_000,
    script_samples=3,
    script_commits=300,
    cas_processes=16,
    cas_pairs=2,
    cas_seconds=1.0,
    overload_callers=64,
    overload_rounds=1,
    overload_seconds=1.0,
    overload_checks=10,
    flood_calls=4_096,
)

SMOKE = Plan(
    name="smoke",
    row_seconds=600.0,
    rounds_least=2,
    part_seconds_max=300.0,
    callers=4,
    pairs=2,
    get_calls=5,
    put_calls=5,
    client_pairs=1,
    warm_calls=2,
    records_small=10,
    records_large=300,
    engine_pairs=1,
    engine_gets=20,
    engine_puts=20,
    engine_callers=5,
    scan_pairs=1,
    scan_puts=5,
    restarts=1,
    profile_calls=5,
    fast_callers=8,
    fast_pairs=1,
    unary_calls=4,
    coalesced_calls=8,
    cache_pairs=1,
    cache_reads=20_000,
    redis_gets=50,
    sync_pairs=1,
    sync_calls=8,
    session_messages=20,
    session_messages_large=60,
    session_items=8,
    session_pairs=1,
    session_calls=4,
    session_turns=3,
    facts_small=300,
    facts_large=600,
    fact_samples=1,
    fact_searches=3,
    fact_candidates=30,
    fact_embedded=6,
    fact_submits=5,
    fact_backlog=200,
    script_samples=1,
    script_commits=50,
    cas_processes=3,
    cas_pairs=1,
    cas_seconds=0.3,
    overload_callers=8,
    overload_rounds=1,
    overload_seconds=0.4,
    overload_checks=3,
    flood_calls=64,
)

PLANS = {plan.name: plan for plan in (FULL, QUICK, SMOKE)}
