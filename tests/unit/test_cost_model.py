"""The simulation behind `python -m benchmarks.cost`: known formulas, nothing lost, Postgres where it is the limit."""

from __future__ import annotations

import importlib
import math
import statistics
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("simpy")
pytestmark = pytest.mark.full
ROOT = Path(__file__).parents[2]
Z = 4.0  # standard errors: a seed that is changed passes too


@pytest.fixture(scope="module")
def cost() -> Iterator[Any]:
    """Import a part of the benchmarks, which are no installed package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        yield lambda name: importlib.import_module(f"benchmarks.cost.{name}")


@pytest.fixture
def figures(cost: Any) -> Any:
    return cost("figures")


def costs(figures: Any, **given: float) -> Any:
    free = dict.fromkeys(figures.Costs.__dataclass_fields__, 0.0)
    return figures.Costs(**free | {"several": 1.0} | given)


USUAL = {"host_run": 0.4, "host_call": 0.1, "zygote_run": 0.4, "worker_run": 1.5, "worker_call": 0.1}


def waits(servers: int, offered: float) -> float:
    """Erlang C: how likely one of so many servers has to be waited for."""
    free = sum(offered**n / math.factorial(n) for n in range(servers))
    full = offered**servers / math.factorial(servers) * servers / (servers - offered)
    return full / (free + full)


def test_workers_that_are_waited_for_are_as_erlang_says(cost: Any, figures: Any):
    # Nothing costs CPU, so a run is one exponential time of a tool on one of four workers.
    servers, mean_ms, rate = 4, 10.0, 300.0
    means: list[float] = []
    for seed in range(5):
        traffic = figures.Traffic(calls=1, latency_ms=mean_ms, rate=rate)
        fleet = cost("model").Fleet(costs(figures), figures.Host(8, 1, servers), traffic, seed=seed)
        fleet.env.run(until=3000)
        means.append(statistics.mean(fleet.counts.took_ms))
    offered = rate * mean_ms / 1000
    expected = mean_ms + waits(servers, offered) * mean_ms / (servers - offered)
    error = statistics.stdev(means) / math.sqrt(len(means))
    assert abs(statistics.mean(means) - expected) < Z * error
    assert error < expected / 10


def test_every_run_that_arrives_ends_once(cost: Any, figures: Any):
    traffic = figures.Traffic(3, 5, rate=300, pausing=0.2, answer_s=0.2, failing=0.2, host_lasts_s=1.0, restart_s=0.2)
    operations = {name: figures.Operation(name, 0.1, 0.1, 2) for name in cost("model").asked_by_a_run(traffic)}
    fleet = cost("model").Fleet(
        costs(figures, **USUAL), figures.Host(2, 1, 64), traffic, hosts=3, operations=operations
    )
    fleet.env.run(until=1500)
    counts = fleet.counts
    assert counts.moved
    assert counts.failed
    assert counts.decided
    fleet.traffic = replace(traffic, failing=0.0, host_lasts_s=0.0)
    at_first = counts.arrived
    fleet.stop()
    fleet.env.run(until=60_000)
    assert counts.arrived == at_first
    assert (counts.waiting, counts.paused) == (0, counts.decided)
    assert counts.ended + counts.failed == counts.arrived
    assert not any(process.slots.count for machine in fleet.machines for process in machine.processes)


def test_many_hosts_are_one_as_often(cost: Any, figures: Any):
    found = [
        cost("model").simulated(
            cost("model").Fleet(
                costs(figures, **USUAL), figures.Host(2, 1, 64), figures.Traffic(3, 5, in_flight=64), hosts=hosts
            ),
            0.5,
            0.3,
        )
        for hosts in (1, 2)
    ]
    assert found[0].rate == pytest.approx(found[1].rate, rel=0.05)
    # All processors are busy: what a run takes says how many there are.
    assert found[0].rate == pytest.approx(2000 / costs(figures, **USUAL).run_ms(3), rel=0.05)


def test_one_lock_of_postgres_bounds_all_hosts(cost: Any, figures: Any):
    traffic = figures.Traffic(0, 0, rate=400, pausing=1.0, answer_s=1e9)
    operations = {"put": figures.Operation("put", 0.0, 0.5, 10, 10, "store")}
    database = figures.Database(cores=8, trip_ms=0.2)
    fleet = cost("model").Fleet(
        costs(figures), figures.Host(8), traffic, hosts=2, operations=operations, database=database
    )
    outcome = cost("model").simulated(fleet, 1.5, 0.3)
    most = 1000 / (10 * 0.2 + 0.5)
    assert outcome.rate * 2 == pytest.approx(most, rel=0.03)
    assert outcome.store_busy > 0.99


def test_hosts_that_are_not_simulated_ask_as_much_of_postgres(cost: Any, figures: Any):
    traffic = figures.Traffic(0, 0, rate=100, pausing=1.0, answer_s=1e9)
    asked = dict.fromkeys(cost("model").asked_by_a_run(traffic))
    operations = {name: figures.Operation(name, 0.0, 0.05, 2) for name in asked}
    settings = {"operations": operations, "database": figures.Database(trip_ms=0.1)}
    fleet = cost("model").Fleet(costs(figures), figures.Host(8), traffic, hosts=1, others=3, **settings)
    fleet.fill(traffic.rate, 3000)
    outcome = cost("model").simulated(fleet, 2.5, 0.5)
    expected = 4 * 100 * len(asked) * 0.05 / 1000
    assert outcome.postgres_busy == pytest.approx(expected, rel=0.15)


def test_a_share_of_workers_that_die_costs_as_many_attempts(cost: Any, figures: Any):
    failing, most = 0.3, figures.MOST_ATTEMPTS
    plain, dying = (
        cost("model").Fleet(
            costs(figures, worker_run=1.0), figures.Host(8, 1, 32), figures.Traffic(2, 1, rate=300, failing=share)
        )
        for share in (0.0, failing)
    )
    for fleet in (plain, dying):
        fleet.env.run(until=4000)
        fleet.stop()
        fleet.env.run(until=60_000)
    used = [fleet.machines[0].processors.used_ms / fleet.counts.arrived for fleet in (plain, dying)]
    attempts = sum(failing**at for at in range(most))
    assert used[1] / used[0] == pytest.approx(attempts, rel=0.08)
    assert (plain.counts.failed, dying.counts.ended + dying.counts.failed) == (0, dying.counts.arrived)
    assert dying.counts.failed / dying.counts.arrived == pytest.approx(failing**most, abs=0.025)


def test_a_pause_costs_its_operations_and_a_second_worker(cost: Any, figures: Any):
    operations = {name: figures.Operation(name, 0.4, 0.2, 2) for name in figures.OF_A_PAUSE}
    beside = figures.Database(trip_ms=0.0, is_beside=True)
    given = {"host_pause": 1.0, "worker_run": 1.0, "worker_call": 0.5, "host_ask": 0.0}
    found: list[float] = []
    for pausing in (0.0, 1.0):
        traffic = figures.Traffic(2, 1, rate=100, pausing=pausing, answer_s=0.05)
        settings = {"operations": operations, "database": beside}
        fleet = cost("model").Fleet(costs(figures, **given), figures.Host(8, 1, 32), traffic, **settings)
        fleet.env.run(until=1500)
        fleet.stop()
        fleet.env.run(until=60_000)
        assert fleet.counts.decided == fleet.counts.arrived * pausing
        found.append(fleet.machines[0].processors.used_ms / fleet.counts.arrived)
    # A second worker goes through both calls and makes the one that was asked for.
    more = 1.0 + 1.0 + 3 * 0.5 + len(operations) * (0.4 + 0.2)
    assert found[1] - found[0] == pytest.approx(more, rel=0.02)


def test_what_loads_took_says_what_each_part_costs(cost: Any, figures: Any):
    measure, load = cost("measure"), cost("load")
    told = costs(figures, **USUAL, host_first=0.2, worker_first=0.3, host_pause=1.1, worker_pause=0.2)
    told = replace(told, host_ask=0.05, store_ask=0.02, host_ask_wake=0.05, store_ask_wake=0.02, several=1.1)
    operations = {name: figures.Operation(name, 0.5, 0.3, 10) for name in figures.OF_A_PAUSE}
    statements = 10 * len(operations)
    stored = (len(operations) * 0.5 + statements * 0.05, len(operations) * 0.3 + statements * 0.02)

    def took(name: str, one: Any) -> Any:
        calls, pausing = one.calls, one.pausing
        host = told.loop_ms(calls) + pausing * (told.host_run + told.host_call + told.host_pause)
        worker = told.run_ms(calls) - told.loop_ms(calls) - told.zygote_run
        worker += pausing * (worker + told.worker_call + told.worker_pause)
        is_stored = name.endswith("stored")
        slowness = 1.5 if name.startswith("light") else 1.0
        in_store = is_stored * pausing * stored[1]
        parts = [
            slowness * each for each in (host + is_stored * pausing * stored[0], told.zygote_run, worker, in_store)
        ]
        busy = 2000 if name.startswith("busy") else 20  # runs in a second with two processors, and with hardly any
        runs = round(busy / sum(parts))
        no = dict.fromkeys(("p50_ms", "p99_ms", "mib", "others", "load"), 0.0)
        return load.Found(runs, 1.0, 0.0, *parts[:3], **no, store_ms=parts[3], pausing=pausing, slowness=slowness)

    taken = {name: took(name, one) for name, one in measure.LOADS.items()}
    few = taken["busy, few"]
    taken["busy, few, in two processes"] = replace(few, host_ms=few.host_ms + 0.1 * few.cpu_ms)
    found = measure.costs_of(taken, 2.0, operations)
    for name in figures.Costs.__dataclass_fields__:
        assert getattr(found, name) == pytest.approx(getattr(told, name), abs=1e-6), name


def test_a_run_costs_what_it_is_told_to_with_calls_and_without(cost: Any, figures: Any):
    told = costs(figures, **USUAL, host_first=0.2, worker_first=0.3)
    for calls in (0, 1, 4):
        fleet = cost("model").Fleet(told, figures.Host(2, 1, 32), figures.Traffic(calls, 5, in_flight=64))
        outcome = cost("model").simulated(fleet, 0.6, 0.3)
        assert outcome.cpu_ms == pytest.approx(told.run_ms(calls), rel=0.06)
        assert outcome.rate == pytest.approx(2000 / told.run_ms(calls), rel=0.06)


def test_what_goes_first_waits_for_no_step_and_takes_its_time_from_one(cost: Any):
    env = importlib.import_module("simpy").Environment()
    processors, ended = cost("hosts").Processors(env, 1), dict[str, float]()

    def computing(name: str, begins: float, takes: float, *, goes_first: bool) -> Any:
        yield env.timeout(begins)
        yield from processors.take(takes, goes_first=goes_first)
        ended[name] = env.now

    env.process(computing("worker", 0.0, 10.0, goes_first=False))
    env.process(computing("loop", 2.0, 3.0, goes_first=True))
    env.process(computing("next worker", 1.0, 1.0, goes_first=False))
    env.run()
    assert ended == {"loop": 5.0, "worker": 13.0, "next worker": 14.0}
    assert processors.used_ms == 14.0
