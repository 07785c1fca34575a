"""Print the tables of benchmarks/cost.md from measured costs."""

from __future__ import annotations

from collections.abc import Sequence

from .capacity import Carried, carried, held_ms, hosts_until_postgres, postgres_limits
from .figures import Database, Figures, Traffic

CORES = (4, 16, 64)
FLEETS = (1, 10, 100, 1000)
USUAL = Traffic(calls=3, latency_ms=100, pausing=0.001, answer_s=1800, failing=0.001)
_KINDS = {
    "0.1% pause": USUAL,
    "1% pause": Traffic(3, 100, pausing=0.01),
    "all journalled": Traffic(3, 100, journal=True),
}


def tables(figures: Figures) -> str:
    """Return all tables."""
    parts = (one_host(figures), fleets(figures), until_postgres(figures), asked(figures))
    return "\n\n".join(parts)


def one_host(figures: Figures) -> str:
    """Return what one host of each size carries."""
    rows = [
        (
            f"{cores}",
            f"{one.host.processes}",
            f"{one.most:,.0f}",
            f"{one.outcome.rate:,.0f}",
            f"{one.outcome.p50_ms:.0f}, {one.outcome.p99_ms:.0f}",
            f"{one.outcome.at_once:,.0f}",
            f"{one.gib:.1f}",
            f"{one.waiting:,.0f}",
        )
        for cores, one in ((cores, carried(figures, cores, USUAL)) for cores in CORES)
    ]
    heads = "cores, processes, runs/s at most, runs/s carried, p50 and p99 in ms, workers at once, GiB, waiting pauses"
    return table(heads.split(", "), rows)


def fleets(figures: Figures) -> str:
    """Return what so many hosts of 4 cores carry together."""
    rows = [_fleet(carried(figures, CORES[0], USUAL, hosts=hosts)) for hosts in FLEETS]
    heads = (
        "hosts of 4 cores, runs/s carried, limit, p99 in ms, store's lock held, waiting pauses, their GiB in Postgres"
    )
    cells = [[*row[:-1], f"{row[-1] * figures.pause_bytes['Postgres'] / 2**30:.2f}"] for row in rows]
    return table(heads.split(", "), cells)


def _fleet(one: Carried) -> tuple[str, str, str, str, str, str, float]:
    waiting = one.waiting * one.hosts
    return (
        f"{one.hosts:,}",
        f"{one.outcome.rate * one.hosts:,.0f}",
        one.limit,
        f"{one.outcome.p99_ms:.0f}",
        f"{one.outcome.store_busy:.0%}",
        f"{waiting:,.0f}",
        waiting,
    )


def until_postgres(figures: Figures) -> str:
    """Return from how many hosts on Postgres is the limit."""
    rows: list[list[str]] = []
    for what, traffic in _KINDS.items():
        limits = postgres_limits(figures, traffic, Database())
        limit = min(limits, key=limits.__getitem__)
        hosts = [hosts_until_postgres(figures, cores, traffic)[0] for cores in CORES]
        rows.append([what, f"{limits[limit]:,.0f}", limit, *(f"{one:,.1f}" for one in hosts)])
    heads = ["runs", "runs/s of all hosts", "limit", *(f"hosts of {cores} cores" for cores in CORES)]
    return table(heads, rows)


def asked(figures: Figures) -> str:
    """Return what each operation takes, and how many a second there were."""
    counts = list(next(iter(figures.rates.values())))
    rows = [
        [
            name,
            f"{one.client_ms:.2f}",
            f"{one.server_ms:.2f}",
            f"{one.statements}, {one.held}",
            f"{1000 / held_ms(one, Database()):,.0f}" if one.lock else "",
            *(f"{figures.rates[name][count]:,.0f}" for count in counts),
        ]
        for name, one in figures.operations.items()
    ]
    heads = ["operation", "ms of CPU, host", "ms of CPU, Postgres", "statements, of them in the lock"]
    return table([*heads, "a second behind a network of 0.3 ms", *(f"measured, {count}" for count in counts)], rows)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
