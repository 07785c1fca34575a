"""What hosts carry: the limits by what is busy, then a simulation at three quarters of the lowest of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from .figures import Database, Figures, Host, Operation, Traffic
from .model import Fleet, Outcome, asked_by_a_run, simulated

SHARE = 0.75
"""Of the lowest limit: what is left takes the peaks of random arrivals."""
_LOOP_SHARE = 0.6
_DETAILED = 2
_RUNS = 8000
_LEAST_SECONDS = 0.8


@dataclass(frozen=True, slots=True)
class Carried:
    """What each of ``hosts`` carries: ``most`` runs a second by what limits it, and what ``SHARE`` of it comes to."""

    hosts: int
    host: Host
    traffic: Traffic
    most: float
    limit: str
    outcome: Outcome
    gib: float
    waiting: float


def postgres_limits(figures: Figures, traffic: Traffic, database: Database) -> dict[str, float]:
    """Return how many runs a second of all hosts each part of Postgres lets through, where a run asks it anything."""
    busy: dict[str, float] = {"Postgres, processors": 0.0, "Postgres, store's lock": 0.0, "Postgres, guard's lock": 0.0}
    for name, times in asked_by_a_run(traffic).items():
        one = figures.operations[name]
        server_ms = one.server_ms + one.statements * figures.costs.store_ask
        busy["Postgres, processors"] += times * server_ms / database.cores
        if one.lock:
            busy[f"Postgres, {one.lock}'s lock"] += times * held_ms(one, database)
    return {name: 1000 / milliseconds for name, milliseconds in busy.items() if milliseconds}


def held_ms(operation: Operation, database: Database) -> float:
    """Return for how long an operation holds its lock on a host with nothing else to do."""
    each = (operation.client_ms + operation.server_ms) / operation.statements + database.trip_ms
    return operation.held * each


def run_ms(figures: Figures, traffic: Traffic) -> tuple[float, float]:
    """Return the CPU of one run on its host, with what it asks of Postgres, and the part of its event loop."""
    asking = 0.0
    for name, times in asked_by_a_run(traffic).items():
        one = figures.operations[name]
        asking += times * (one.client_ms + one.statements * figures.costs.host_ask)
    whole, loop = figures.costs.run_ms(traffic.calls), figures.costs.loop_ms(traffic.calls)
    resumed = traffic.pausing * (1 + traffic.failing)
    again = 1 + traffic.failing + resumed
    pauses = traffic.pausing * figures.costs.host_pause + asking
    return whole * again + pauses + traffic.pausing * figures.costs.worker_pause, loop * again + pauses


def host_of(figures: Figures, cores: int, traffic: Traffic) -> Host:
    """Return a host with as many processes as keep each event loop at most so busy, and enough workers in each."""
    whole, loop = run_ms(figures, traffic)
    processes = max(1, math.ceil(cores * loop / whole / _LOOP_SHARE))
    at_once = cores * 1000 / whole * (traffic.calls * traffic.latency_ms + 10 * whole) / 1000
    return Host(cores, processes, max(32, math.ceil(2 * at_once / processes)))


def processors_limit(figures: Figures, host: Host, traffic: Traffic) -> float:
    """Return how many runs a second the processors of a host let through."""
    return host.cores * 1000 / run_ms(replace(figures, costs=figures.costs.on(host)), traffic)[0]


def carried(
    figures: Figures, cores: int, traffic: Traffic, *, hosts: int = 1, database: Database | None = None
) -> Carried:
    """Return what each of so many hosts carries."""
    database = database or Database()
    host, operations = host_of(figures, cores, traffic), dict(figures.operations)
    limits = {"processors": processors_limit(figures, host, traffic)}
    limits |= {name: most / hosts for name, most in postgres_limits(figures, traffic, database).items()}
    limit = min(limits, key=limits.__getitem__)
    rate = SHARE * limits[limit]
    detailed = min(hosts, _DETAILED)
    fleet = Fleet(
        figures.costs,
        host,
        replace(traffic, rate=rate),
        hosts=detailed,
        others=hosts - detailed,
        operations=operations,
        database=database,
    )
    seconds = max(_LEAST_SECONDS, min(20.0, _RUNS / rate / detailed))
    warm_up = max(_LEAST_SECONDS, seconds / 5)
    fleet.fill(rate, (warm_up + seconds) * 1000)
    outcome = simulated(fleet, seconds, warm_up)
    memory = figures.memory
    return Carried(
        hosts=hosts,
        host=host,
        traffic=traffic,
        most=limits[limit],
        limit=limit,
        outcome=outcome,
        gib=(host.processes * memory.process_mib + outcome.at_once * memory.worker_mib) / 1024,
        waiting=rate * traffic.pausing * traffic.answer_s,
    )


def hosts_until_postgres(
    figures: Figures, cores: int, traffic: Traffic, database: Database | None = None
) -> tuple[float, str]:
    """Return how many hosts Postgres can be asked by before it is the limit, and by which part of it."""
    limits = postgres_limits(figures, traffic, database or Database())
    limit = min(limits, key=limits.__getitem__)
    return limits[limit] / processors_limit(figures, host_of(figures, cores, traffic), traffic), limit
